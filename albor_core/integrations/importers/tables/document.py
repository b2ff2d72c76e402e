"""A whole JSON document as rows: the Trainer's `trainer_state.json`, a list of records, or columns
as Keras' `history` has them. A file called `.json` with an object on each line is JSON lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import Losses
from albor_core.integrations.importers.tables.rows import Row, as_row, json_lines, loads
from albor_core.run.errors import DataError

_MAX_BYTES = 256 << 20
_LISTS = ("log_history", "history", "logs", "log", "metrics", "records", "data")
_HINT = "a list of records, columns of numbers, or a trainer_state.json with log_history"


def document_rows(path: Path, losses: Losses) -> Iterator[Row]:
    """The rows of a document. Raises DataError, saying what it is, if it is not a history."""
    if path.stat().st_size > _MAX_BYTES:
        raise DataError(f"{path}: a JSON document over 256 MiB", hint="write it as JSON lines")
    try:
        said = loads(path.read_text(encoding="utf-8-sig", errors="replace"), losses)
    except (ValueError, RecursionError):
        yield from json_lines(path, losses)
        return
    for number, record in enumerate(_records(said, path), 1):
        if isinstance(record, dict):
            yield as_row(record)
        else:
            losses.spoil(f"record {number}", record)


def run_name(path: Path) -> str:
    """The run name for a file: for the Trainer's state its output folder."""
    if path.name != "trainer_state.json":
        return path.stem
    folder = path.resolve().parent
    if folder.name.startswith("checkpoint-"):
        folder = folder.parent
    return folder.name or path.stem


def _records(said: Any, path: Path) -> list[Any]:
    if isinstance(said, list):
        if any(isinstance(one, dict) for one in said):
            return said
        raise DataError(f"{path}: a JSON list without records, so no history", hint=_HINT)
    if not isinstance(said, dict):
        raise DataError(f"{path}: a single JSON value, so no history", hint=_HINT)
    if columns := _columns(said):
        return columns
    if rows := _series(said):
        return rows
    for name in _LISTS:
        inside = said.get(name)
        if isinstance(inside, list) and any(isinstance(one, dict) for one in inside):
            return inside
        if isinstance(inside, dict) and (columns := _columns(inside)):
            return columns
    names = ", ".join(sorted(said)[:4])
    raise DataError(f"{path}: one JSON object ({names[:120]}), so no history", hint=f"take {_HINT}")


def _series(said: dict[str, Any]) -> list[Any]:
    """Rows of `{title: {series: {x: [...], y: [...]}}}`, as ClearML gives its scalars."""
    rows: dict[Any, dict[str, Any]] = {}
    for title, inside in said.items():
        for name, one in inside.items() if isinstance(inside, dict) else ():
            x, y = (one.get("x"), one.get("y")) if isinstance(one, dict) else (None, None)
            if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
                return []
            for at, value in zip(x, y, strict=True):
                if isinstance(at, int | float):
                    rows.setdefault(at, {"step": at})[f"{title}/{name}"] = value
    return [rows[at] for at in sorted(rows)]


def _columns(said: dict[str, Any]) -> list[Any]:
    """Rows of lists of numbers side by side; a shorter one ends earlier."""
    lists = {
        key: value
        for key, value in said.items()
        if isinstance(value, list) and value and not any(isinstance(v, dict | list) for v in value)
    }
    if not lists or len(lists) < len(said):
        return []
    return [dict(zip(lists, values, strict=True)) for values in zip_longest(*lists.values())]
