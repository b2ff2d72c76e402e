"""Plain CSV and JSON lines: a row for each step, or, as `albor runs export` writes them, a row for
each value.

The step is in a column `step`, `_step`, `global_step`, `iteration` or `iter`, else it is the row's
number; the time, in `wall`, `timestamp`, `_timestamp`, `wall_time` or `time` as seconds since 1970
or ISO 8601. Columns `key` (or `metric`, `tag`) and `value` together mean a row for each value. A
column `run` parts a file into several runs. Every other column of numbers is a metric.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import (
    ForeignRun,
    Importer,
    Item,
    Losses,
    Point,
    numbers_in,
)
from albor_core.integrations.importers.trackio import utc
from albor_core.run.errors import DataError
from albor_core.run.values.lenient import is_number

MAX_LINE_CHARS = 1 << 20
MAX_RUNS = 200
_STEPS = ("step", "_step", "global_step", "iteration", "iter")
_WALLS = ("wall", "timestamp", "_timestamp", "wall_time", "wall time", "time")
_KEYS = ("key", "metric", "tag")
_RUNS = ("run", "run_id", "run_name")
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_PLACES = frozenset((*_STEPS, *_RUNS, "experiment"))
_PLACES_AND_WALLS = _PLACES.union(_WALLS)
_ERA = (1e9, 1e10)  # 2001 to 2286 in seconds; the same digits in milliseconds are taken as such
Row = Mapping[str, Any]


def read(kind: str, files: list[Path], root: Path) -> Iterator[ForeignRun]:
    """The runs of files of `kind` (csv or jsonl). Raises DataError for a file without a number."""
    for path in sorted(files):
        runs = _names(kind, path)
        for run, experiment in runs.items():
            yield ForeignRun(
                source=kind,
                key=f"{path.resolve()}\0{run or ''}",
                name=run or path.stem,
                experiment=experiment or kind,
                where=path,
                items=partial(_items, kind, path, run),
            )


def _names(kind: str, path: Path) -> dict[str | None, str | None]:
    """The runs of a file, each with its experiment if the file names one; {None: None} for one
    that names none.
    """
    found: dict[str | None, str | None] = {}
    has_numbers = False
    for row in _rows(kind, path, Losses()):
        has_numbers = has_numbers or bool(_point(row, Losses()).values)
        run = _first(row, _RUNS)
        name = run if isinstance(run, str) and run else None
        if name not in found:
            if len(found) >= MAX_RUNS:
                raise DataError(f"{path}: more than {MAX_RUNS} runs", hint="split the file")
            said = row.get("experiment")
            found[name] = said if isinstance(said, str) and said else None
    if not has_numbers:
        raise DataError(
            f"{path}: no number in it, so no history",
            hint="name a file with a column for each metric",
        )
    return found


def _items(kind: str, path: Path, run: str | None, losses: Losses) -> Iterator[Item]:
    for row in _rows(kind, path, losses):
        said = _first(row, _RUNS)
        if (said if isinstance(said, str) and said else None) == run:
            yield _point(row, losses)


def _point(row: Row, losses: Losses) -> Point:
    step, wall = _first(row, _STEPS), _wall(_first(row, _WALLS))
    key = _first(row, _KEYS)
    if isinstance(key, str) and "value" in row:
        return Point(step, wall, numbers_in({key: row["value"]}, losses))
    used = _PLACES if wall is None else _PLACES_AND_WALLS
    return Point(step, wall, numbers_in({k: v for k, v in row.items() if k not in used}, losses))


def _first(row: Row, names: tuple[str, ...]) -> Any:
    for name in names:
        if (value := row.get(name)) is not None:
            return value
    return None


def _wall(said: Any) -> float | None:
    if isinstance(said, str):
        return utc(said)
    if not is_number(said):
        return None
    for scale in (1.0, 1000.0):
        if _ERA[0] <= said / scale < _ERA[1]:
            return said / scale
    return None


def _rows(kind: str, path: Path, losses: Losses) -> Iterator[Row]:
    return _objects(path, losses) if kind == "jsonl" else _records(path, losses)


def _lines(path: Path, losses: Losses) -> Iterator[str]:
    """The lines of a text file; one that is longer than 1 MiB is left out."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        while line := file.readline(MAX_LINE_CHARS):
            if len(line) < MAX_LINE_CHARS or line.endswith("\n"):
                yield line
                continue
            losses.damaged += 1
            while (rest := file.readline(MAX_LINE_CHARS)) and not rest.endswith("\n"):
                pass


def _objects(path: Path, losses: Losses) -> Iterator[Row]:
    for line in _lines(path, losses):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield row
        else:
            losses.damaged += 1


def _records(path: Path, losses: Losses) -> Iterator[Row]:
    lines = _lines(path, losses)
    heading = next(lines, "")
    delimiter = max(",\t;", key=heading.count)
    names = [_heading(name) for name in next(csv.reader([heading], delimiter=delimiter), [])]
    if len(set(names)) < len(names):
        raise DataError(f"{path}: a column name stands twice in the first line")
    rows = csv.reader(lines, delimiter=delimiter)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error:
            losses.damaged += 1
            continue
        if len(cells) > len(names):
            losses.damaged += 1
        elif cells:
            yield {name: _cell(cell) for name, cell in zip(names, cells, strict=False)}


def _heading(name: str) -> str:
    """`Wall time` and ` Step` of a spreadsheet are the columns that they look like."""
    word = name.strip()
    return word.lower() if word.lower() in (*_STEPS, *_WALLS, *_KEYS, *_RUNS, "value") else word


def _cell(said: str) -> Any:
    """A cell as a number where it is one; empty is unknown."""
    word = said.strip()
    if not word or "_" in word:
        return word or None
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _may_be(kind: str, name: str) -> bool:
    return _SUFFIXES.get(Path(name).suffix.lower()) == kind


def _is_text(kind: str, path: Path, head: bytes) -> bool:
    """Whether a text is of `kind`: by its name, else by whether it begins as an object of JSON."""
    if not head or b"\0" in head:
        return False
    begins = "jsonl" if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "csv"
    return _SUFFIXES.get(path.suffix.lower(), begins) == kind


def _importer(kind: str, title: str) -> Importer:
    return Importer(
        name=kind,
        title=title,
        read=partial(read, kind),
        may_be=partial(_may_be, kind),
        is_file=partial(_is_text, kind),
        only_asked=True,
    )


CSV = _importer("csv", "CSV")
JSONL = _importer("jsonl", "JSON lines")
