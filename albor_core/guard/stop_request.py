"""A wish that a run end: from its first asker to what is told of the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from albor_core.guard.policy import Finish
from albor_core.run.guard_state import ASKED


@dataclass
class StopRequest:
    """The first stop request; a second one may make it more urgent."""

    signal: int
    by: str = ""
    is_now: bool = False
    is_signalled: bool = False
    by_andon: bool = False  # a rule asked for it
    command_ids: list[str] = field(default_factory=list)

    def finish(self, how: str) -> Finish:
        """The end of a run without a program."""
        return self.asked(Finish("stopped", 128 + self.signal, how))

    def asked(self, end: Finish) -> Finish:
        """An end that, where it is a stop, says who asked."""
        if end.state != "stopped" or not self.by:
            return end
        return replace(end, reason=f"{end.reason}{ASKED}{self.by}")
