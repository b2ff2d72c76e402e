"""The folder that a demo writes to."""

from __future__ import annotations

from pathlib import Path

from albor_core.run.errors import AlborError, UsageError, remedy


def refuse_file(root: Path) -> None:
    """Raise UsageError if `root` is a file."""
    if root.exists() and not root.is_dir():
        raise _is_a_file(root)


def _is_a_file(root: Path) -> UsageError:
    return UsageError(f"{root}: is a file; name a folder", hint="another --out")


def make_folder(root: Path) -> None:
    """Make `root` and the folders above it. Raises UsageError if it is a file, AlborError."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise _is_a_file(root) from error
    except OSError as error:
        hint = remedy(error) or "another --out"
        raise AlborError(f"{root}: {error.strerror}", hint=hint) from error
