"""Alerts of a run that is followed, as lines of the terminal that follows it: console sinks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from albor_core.andon.channels.console import console_line
from albor_core.andon.channels.kept_sinks import rules_stamp, sinks_of
from albor_core.andon.channels.message import About, NoticeWriter
from albor_core.andon.channels.sinks import Sink
from albor_core.feed.run.records import RecordTail
from albor_core.run.journal import parse_line
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import finite_of

_NAMES = {"andon.alert": "fired", "andon.clear": "cleared"}


class AlertLines:
    """Tells each alert from now on once; nothing while the run has no console sink."""

    def __init__(self, run: RunDir) -> None:
        self._run, self._stamp = run, rules_stamp()
        self._sinks = self._console_sinks()
        self._tails = tuple(RecordTail(path, parse_line) for path in (run.journal, run.system))
        self._writer = NoticeWriter(About.of(run), os.environ, ())
        self._told = {key for key, _ in self._alerts()}

    def news(self) -> Iterator[str]:
        """Lines of what came since the last look."""
        if (stamp := rules_stamp()) != self._stamp:
            self._stamp, had = stamp, bool(self._sinks)
            self._sinks = self._console_sinks()
            if not had:
                self._told = {key for key, _ in self._alerts()}
        if not self._sinks:
            return
        for key, alert in self._alerts():
            if key in self._told:
                continue
            self._told.add(key)
            if any(sink.wants(str(alert.get("severity"))) for sink in self._sinks):
                wall = finite_of(alert.get("wall"))
                clock = time.strftime("%H:%M:%S", time.localtime(wall))
                yield console_line(self._writer.notice(alert), clock=clock)

    def _console_sinks(self) -> list[Sink]:
        return [sink for sink in sinks_of(self._run)[0] if sink.kind == "console"]

    def _alerts(self) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
        if not self._sinks:
            return
        for record in (record for tail in self._tails for record in tail.records()):
            state, data = _NAMES.get(str(record.get("name"))), record.get("data")
            if state is None or not isinstance(data, dict):
                continue
            own = {name: record.get(name) for name in ("severity", "step", "wall")}
            yield (str(data.get("id")), state), {**own, **data, "state": state}
