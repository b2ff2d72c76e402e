"""What went wrong in the cockpit, written down: ALBOR_HOME/cockpit.log.

A screen that goes on after an error leaves nothing else behind that a user could send us. The
same error is noted once a minute, the file and the one before it are bounded, and nothing is ever
raised: the disk may be full.
"""

from __future__ import annotations

import os
import time
import traceback
from contextlib import suppress

from albor_core.run.home.folders import albor_home
from albor_core.run.values.clean import clean

MAX_BYTES = 256 << 10
AGAIN_S = 60.0
_last: dict[tuple[str, str, str], float] = {}


def note(where: str, error: BaseException) -> None:
    """One error with its traceback. `where` names the widget and what it was doing."""
    mark = (where, type(error).__name__, _place(error))
    now = time.monotonic()
    if now - _last.get(mark, -AGAIN_S) < AGAIN_S:
        return
    _last[mark] = now
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = traceback.format_exception(error)
    lines = [clean(line, keep="\t") for part in told for line in part.rstrip("\n").split("\n")]
    text = "\n".join([f"{when} {clean(where)}", *lines, ""])
    with suppress(OSError):
        _append(text.encode("utf-8", "replace"))


def forget() -> None:
    """Write the next error of any kind, whenever the last one was."""
    _last.clear()


def _place(error: BaseException) -> str:
    """The innermost line of the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _append(raw: bytes) -> None:
    path = albor_home() / "cockpit.log"
    if path.exists() and path.lstat().st_size > MAX_BYTES:
        path.replace(path.with_name("cockpit.log.1"))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, raw[:MAX_BYTES])
    finally:
        os.close(fd)
