"""The sinks of a run that is watched, as its config gave them and as rules.yaml has them now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from albor_core.andon.channels.kept_sinks import config_sinks, user_sinks
from albor_core.andon.channels.sinks import Sink, joined
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.files.watch_file import SinkState
from albor_core.run.rundir import RunDir

if TYPE_CHECKING:
    from albor_core.andon.channels.send import Sender


class LiveSinks:
    """Sends what it is given as `Sender` does; nothing where there is no sink, or before `reload`
    was called.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._users: tuple[Sink, ...] = ()
        self.problems: tuple[str, ...] = ()
        self._sender: Sender | None = None

    def reload(self) -> None:
        """Take them as they are now: rules.yaml may have been edited. While it cannot be read as a
        whole, which is told with its rules, the sinks that it had hold.
        """
        damaged: list[Problem] = []
        try:
            self._users = user_sinks(damaged=damaged)
        except ConfigError:
            damaged.clear()
        self.problems = tuple(map(str, damaged))
        sinks = joined(config_sinks(self._run), self._users)
        if self._sender is not None:
            self._sender.take(sinks)
        elif sinks:
            from albor_core.andon.channels.send import Sender  # noqa: PLC0415  2 MB: TLS and HTTP

            self._sender = Sender(sinks, self._run)

    def put(self, alert: Mapping[str, Any]) -> None:
        if self._sender is not None:
            self._sender.put(alert)

    def states(self) -> tuple[SinkState, ...]:
        return () if self._sender is None else self._sender.states()

    def close(self, timeout_s: float) -> None:
        if self._sender is not None:
            self._sender.close(timeout_s)
