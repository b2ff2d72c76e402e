"""Writes a line picture to a new file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from albor_core.picture.line_picture import LinePicture, csv_file, svg_file
from albor_core.picture.png import png_file
from albor_core.run.errors import AlborError, NotFoundError, UsageError

_WRITERS: Mapping[str, Callable[[LinePicture], bytes]] = {
    ".svg": svg_file,
    ".png": png_file,
    ".csv": csv_file,
}


def check_format(name: str) -> None:
    """Raise UsageError where the suffix of a file's name is not that of a format."""
    if Path(name).suffix.lower() not in _WRITERS:
        hint = "a name that ends in .svg, .png or .csv"
        raise UsageError(f"{Path(name).name}: which format?", hint=hint)


def save(picture: LinePicture, out: Path) -> None:
    """Write the picture as its suffix says. Raises UsageError for another suffix and where `out`
    exists, NotFoundError without its folder, AlborError; then nothing is left.
    """
    check_format(out.name)
    content = _WRITERS[out.suffix.lower()](picture)
    try:
        file = out.open("xb")
    except FileExistsError as error:
        raise UsageError(f"{out}: exists", hint="give another name") from error
    except FileNotFoundError as error:
        raise NotFoundError(f"{out}: there is no folder {str(out.parent)!r}") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        why = error.strerror if isinstance(error, OSError) else "not a name of a file"
        raise AlborError(f"{out}: {why}") from error
    try:
        with file:
            file.write(content)
    except OSError as error:
        with suppress(OSError):
            out.unlink()
        raise AlborError(f"{out}: {error.strerror}") from error
