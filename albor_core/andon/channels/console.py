"""A notice as a line for a terminal that follows a run.

The index process has no terminal, and must not write into the program's own output: `train apply`,
`guard run` and `albor monitor` print these lines to stderr.
"""

from __future__ import annotations

from albor_core.andon.channels.message import Notice


def console_line(notice: Notice, *, clock: str) -> str:
    """ "12:04:31 [error] demo on box: loss > 10 (step 120)"; `clock` is the time as it is shown."""
    return f"{clock} {notice.line}"
