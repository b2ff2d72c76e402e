"""Who else uses a GPU, in words: a start names them, and touches none."""

from __future__ import annotations

import pwd
from pathlib import Path

_GIB = 1 << 30


def stranger(pid: int, memory_bytes: float | None) -> str:
    """ "process 4242 (python train.py) of alice with 31.2 GiB"; what is not known is left out."""
    held = "" if memory_bytes is None else f" with {memory_bytes / _GIB:.1f} GiB"
    return f"process {pid} ({_command(pid)}) of {_owner(pid)}{held}"


def _owner(pid: int) -> str:
    try:
        return _user_name(Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return "an unknown user"


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "unknown command"
    text = b" ".join(words).decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text).strip()[:200] or "unknown command"


def _user_name(uid: int) -> str:
    """A user's name, or its number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
