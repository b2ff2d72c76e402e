"""The one tree of errors a user can act on, each with its exit code.

`assert` is for our own mistakes and everything outside this tree is a bug whose traceback we want.
"""

from __future__ import annotations

import errno

from albor_core.run.light_dataclass import dataclass


class AlborError(Exception):
    """A failure the user can act on.

    The CLI prints `message` and `hint`, exits with `exit_code`; a traceback, as in a notebook, ends
    with the hint.
    """

    exit_code = 1
    code = "failed"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    @property
    def hint(self) -> str:
        """The next step."""
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        self._hint = hint
        self.__notes__ = [f"next: {hint}"] if hint else []


class UsageError(AlborError):
    """The command line itself is wrong."""

    exit_code, code = 2, "usage"


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a config: where, why, and what to do next."""

    field: str
    message: str
    hint: str = ""
    file: str = ""

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.file, self.field) if part)
        line = f"{where}: {self.message}" if where else self.message
        return f"{line} ({self.hint})" if self.hint else line


class ConfigError(AlborError):
    """A config that cannot be used; carries every problem found, not just the first."""

    exit_code, code = 2, "config"

    def __init__(self, message: str, *, hint: str = "", problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class NotFoundError(AlborError):
    """No such run, file or store."""

    exit_code, code = 3, "not_found"


class NoCheckpointError(AlborError):
    """Checkpoints existed and none of them can be used."""

    exit_code, code = 6, "no_usable_checkpoint"


class DataError(AlborError):
    """Input data that must not be trained on."""

    exit_code, code = 7, "data_refused"


class InUseError(AlborError):
    """Another process holds the lock, or another host owns the directory."""

    exit_code, code = 8, "in_use"


class TryAgainError(AlborError):
    """A passing condition; the same call may work later."""

    exit_code, code = 75, "try_again"


class StoreError(AlborError):
    """A store that cannot be read or written."""

    exit_code, code = 1, "store"


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


_OF_THE_MACHINE = frozenset(
    {*_FULL, *_FORBIDDEN, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENAMETOOLONG}
)


def refused_by_the_machine(error: OSError) -> AlborError | None:
    """A full disk or a folder we may not write is the user's world, wherever it showed; None for
    what is a bug of ours.
    """
    if error.errno not in _OF_THE_MACHINE:
        return None
    where = f"{error.filename}: " if error.filename else ""
    hint = remedy(error) or "choose another place, then run it again"
    return AlborError(f"{where}{error.strerror}", hint=hint)


def remedy(error: OSError) -> str:
    """A hint against a refusal of the disk; "" if none is known."""
    if error.errno in _FULL:
        return "free some space there, then run it again"
    if error.errno == errno.EFBIG:
        return "raise the file size limit (ulimit -f unlimited), then run it again"
    if error.errno == errno.EROFS:
        return "make that file system writable (mount -o remount,rw), then run it again"
    if error.errno in _FORBIDDEN:
        return "make that place writable for your user (ls -ld shows whose it is), then again"
    return ""
