"""Types of arguments that scripts of several folders share: what is wrong is told at once."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def from_zero(text: str) -> int:
    """A whole number from 0 on."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on: no round measures nothing, and its median ends in a traceback."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def above_zero(text: str) -> float:
    """A finite number above 0: seconds, a rate."""
    found = _finite(text)
    if not found > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return found


def not_negative(text: str) -> float:
    """A finite number from 0 on: seconds of which there may be none."""
    found = _finite(text)
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number from 0")
    return found


def _finite(text: str) -> float:
    """NaN, which is neither above nor below anything, where it is no finite number."""
    try:
        found = float(text)
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan


def _is_folder(path: Path, how: int = os.F_OK) -> bool:
    return os.access(f"{path}/.", how)


def there(text: str) -> Path:
    """A file or folder that is there."""
    if not os.access(text, os.F_OK):
        raise argparse.ArgumentTypeError(f"{text!r} is not there")
    return Path(text)


def new_file(text: str) -> Path:
    """A file to write: in vain if one hears only at the end that it cannot be."""
    path = Path(text)
    is_there = os.access(path, os.F_OK)
    can = os.access(path, os.W_OK) if is_there else _is_folder(path.parent, os.W_OK)
    if not can or _is_folder(path):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written as a file")
    return path


def new_file_below(text: str) -> Path:
    """The same, where its folder may be made, too."""
    path = Path(text)
    return new_file(text) if os.path.lexists(path) else new_folder(str(path.parent)) / path.name


def new_folder(text: str) -> Path:
    """A folder to write in, which need not be there."""
    path = Path(text).absolute()
    known = next(one for one in (path, *path.parents) if os.path.lexists(one))
    if not _is_folder(known, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written to as a folder")
    return Path(text)


def read_config(parser: argparse.ArgumentParser, file: Path, sets: Sequence[str] = ()) -> Any:
    """The config of --config with each --set; where it is none, `parser` says why."""
    from albor_core.config.load import load_config
    from albor_core.run.errors import AlborError, ConfigError

    try:
        return load_config(file, sets).config
    except AlborError as error:
        problems = error.problems if isinstance(error, ConfigError) else ()
        said = "; ".join(map(str, problems)) or str(error)
        parser.error(f"{'--config with --set' if sets else '--config'}: {said}")
