"""The log of a run as a person reads it: a line for each event, and for steps at most one a second.

The figures themselves are in the journal; this is what the log panel and `logs/aNNNN.log` show.
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from albor_core.andon.severity import CALM
from albor_core.run.journal import Journal
from albor_core.run.values.clean import clean

STEP_GAP_S = 1.0
_MAX_CHARS = 160


class StepConsole:
    """Writes to stdout, which the guard keeps as the attempt's log. A full disk never stops it."""

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps
        self._due = -math.inf
        if isinstance(sys.stdout, io.TextIOWrapper):  # no locale may end a run with its log
            sys.stdout.reconfigure(errors="backslashreplace")

    def print_line(self, step: int | None, text: str) -> None:
        """Print a line, stamped with UTC time and step."""
        stamp = time.strftime("%H:%M:%S", time.gmtime())
        where = "" if step is None else f"step {step:>{len(str(self.num_steps))}}  "
        with contextlib.suppress(OSError):  # the journal has it as well, and waits for space
            sys.stdout.write(f"{stamp}  {where}{clean(text, limit=_MAX_CHARS)}\n")
            sys.stdout.flush()

    def interval(self, step: int, values: Mapping[str, float]) -> None:
        """The figures of a log interval, unless a line has just been said."""
        now = time.monotonic()
        if now < self._due and step < self.num_steps:
            return
        self._due = now + STEP_GAP_S
        parts = [
            f"loss {values['train/loss']:.4f}",
            f"lr {values['optim/lr']:.2e}",
            f"grad {values['optim/grad_norm']:.2f}",
        ]
        if (speed := values.get("perf/tokens_per_s")) is not None:
            parts.append(f"{speed:,.0f} tok/s")
        self.print_line(step, "  ".join(parts))


class EchoingJournal(Journal):
    """A journal whose events are lines of the log too."""

    def __init__(self, *args: Any, console: StepConsole, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._console = console

    def event(
        self, name: str, *, step: int | None = None, severity: str = "info", **data: Any
    ) -> None:
        super().event(name, step=step, severity=severity, **data)
        shown = (f"{key}={self._short(value)}" for key, value in data.items() if _is_said(value))
        mark = "" if severity == CALM else f"[{severity}] "
        self._console.print_line(step, f"{mark}{name}  {'  '.join(shown)}".rstrip())

    def _short(self, value: object) -> object:
        """A path in the run's own folder without it: the log lies there, too."""
        return value.removeprefix(f"{self.path.parent}/") if isinstance(value, str) else value


def _is_said(value: object) -> bool:
    """Nested facts stay in the journal, and an empty text says nothing."""
    return isinstance(value, str | int | float) and value != ""
