"""The folders of a home: which it is, whose they are, whether they can be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from albor_core.run.errors import AlborError, UsageError, remedy


def albor_home() -> Path:
    """`ALBOR_HOME`, by default ~/.albor: the global store and one pointer file per run."""
    return Path(os.environ.get("ALBOR_HOME") or Path.home() / ".albor").expanduser().absolute()


def begun_mark(run_id: str) -> Path:
    """The file by which this home remembers that it began a run: what may bring commands with it.
    It is not in the run's folder, nor beside it, where unpacking another's run could put it.
    """
    return albor_home() / "begun" / f"{run_id}.json"


def pointer_of(run_id: str) -> Path:
    """The file of ALBOR_HOME that leads to a run's folder."""
    return albor_home() / "runs" / f"{run_id}.json"


def check_home() -> Path:
    """`albor_home()`, where it is a folder or could become one. Raises UsageError."""
    home = albor_home()
    # what is there is looked up first: another process may be making the rest
    place = next(place for place in (home, *home.parents) if os.path.lexists(place))
    if not os.path.isdir(place):  # noqa: PTH112  Path.is_dir raises where we may not look
        raise UsageError(
            f"ALBOR_HOME is {home}, but {place} is not a folder",
            hint="export ALBOR_HOME=FOLDER, a folder of yours; unset it for ~/.albor",
        )
    return home


def absent_home() -> str:
    """What to say of a home that is not there; "" where it is. A fresh machine has none, and
    `ALBOR_HOME` may be mistyped.
    """
    home = albor_home()
    if os.path.lexists(home):
        return ""
    is_chosen = bool(os.environ.get("ALBOR_HOME"))
    return f"ALBOR_HOME is {home}: no such folder" if is_chosen else f"{home}: not made yet"


def own_home() -> Path:
    """`check_home()`, for whoever writes there. Raises UsageError, also where its folders are
    another user's, who could put other runs in the place of ours.
    """
    home = check_home()
    for folder in (home, home / "runs"):
        if owner := foreign_owner(folder):
            raise UsageError(
                f"{folder}: belongs to {owner}",
                hint="export ALBOR_HOME=FOLDER, a folder of yours, or chown that one",
            )
    return home


def check_writable(folder: Path) -> None:
    """Check that `folder` can be written, or made, as far as this is known before. Raises
    AlborError."""
    place = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not os.access(place, os.W_OK | os.X_OK):
        is_mounted_so = os.statvfs(place).f_flag & os.ST_RDONLY
        number = errno.EROFS if is_mounted_so else errno.EACCES
        error = OSError(number, os.strerror(number), str(place))
        raise AlborError(f"{place}: {error.strerror}", hint=remedy(error)) from error


def foreign_owner(folder: Path) -> str:
    """ "user id N" where a folder is neither ours nor root's; "" otherwise, and without one. Root
    may work in the home of a user, as containers do: there both have one owner.
    """
    try:
        owner, above = folder.stat().st_uid, folder.parent.stat().st_uid
    except OSError:
        return ""
    me = os.geteuid()
    return "" if owner in (me, 0) or (me == 0 and owner == above) else f"user id {owner}"


def private_folder(folder: Path) -> None:
    """Make `folder`, the owner's alone, unless it is there. Raises UsageError where there can be
    none, OSError.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)  # mkdir gives `mode` to the last folder only
    except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"{folder}: no folder can be made there: {error.strerror}",
            hint="export ALBOR_HOME=FOLDER, a folder of yours; unset it for ~/.albor",
        ) from error
