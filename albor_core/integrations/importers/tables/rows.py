"""The rows of a text file, each a mapping of columns to values. A text that is a number is one."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import Losses
from albor_core.run.errors import DataError

MAX_LINE_CHARS = 1 << 20
STEPS = ("step", "_step", "global_step", "iteration", "iterations", "iter", "current_steps",
         "global_steps", "num_updates", "train_num_updates", "valid_num_updates",
         )  # fmt: skip  # current_steps of llama-factory, the last three of fairseq
WALLS = ("wall", "timestamp", "_timestamp", "wall_time", "wall time", "time")
KEYS = ("key", "metric", "tag", "metricname")
VALUES = ("value", "metricvalue")
RUNS = ("run", "run_id", "run_name")
SPLITS = ("split", "subset", "mode", "stage", "phase", "runcontext")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3}){2,}|[+-]?\d{1,3}(,\d{3})+\.\d*")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)
_LOGGED = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]")
_AS_LOGGED = re.compile(r"^\[?\d{4}-\d\d-\d\d[ T][^{]{0,200}\| ?\{")  # as fairseq writes them
_PRINTED = re.compile(r"\{'\w")
_AS_JSON = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "None": "null", "True": "true",
            "False": "false"}  # fmt: skip
_PYTHON_WORDS = re.compile(r"(?<=: )(?:nan|-?inf|None|True|False)(?=[,}])")
_WORDS = frozenset((*STEPS, *WALLS, *KEYS, *RUNS, *SPLITS, *VALUES, "epoch"))
Row = Mapping[str, Any]


def lines(path: Path, losses: Losses) -> Iterator[str]:
    """The lines of a text file; one that is longer than 1 MiB is left out."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        while line := file.readline(MAX_LINE_CHARS):
            if len(line) < MAX_LINE_CHARS or line.endswith("\n"):
                yield line
                continue
            losses.damaged += 1
            while (rest := file.readline(MAX_LINE_CHARS)) and not rest.endswith("\n"):
                pass


def json_lines(path: Path, losses: Losses) -> Iterator[Row]:
    """The objects of a file that has one on each line."""
    for line in lines(path, losses):
        if not line.strip():
            continue
        row = _record(_AS_LOGGED.sub("{", line, count=1))
        if row is not None:
            yield as_row(row)
        elif is_log_line(line):
            losses.note("line of text")
        else:
            losses.damaged += 1


def is_log_line(line: str) -> bool:
    """Whether a line begins with the time, as those of logs do."""
    return _LOGGED.match(line) is not None


def _record(line: str) -> dict[str, Any] | None:
    """The object of a line, also where Python printed it; None where it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        if not _PRINTED.match(line):
            return None
        said = _PYTHON_WORDS.sub(lambda found: _AS_JSON[found[0]], line.replace("'", '"'))
        try:
            row = json.loads(said)
        except (ValueError, RecursionError):
            return None
    return row if isinstance(row, dict) else None


def as_row(record: Mapping[str, Any]) -> Row:
    """An object of JSON whose texts that are numbers are numbers, as in a CSV file."""
    return {_heading(k): number_of(v) if isinstance(v, str) else v for k, v in record.items()}


def csv_rows(path: Path, losses: Losses) -> Iterator[Row]:
    """The rows below a heading, which may be written again further down, with other columns."""
    said = lines(path, losses)
    first = next(said, "")
    delimiter = max(",\t;", key=first.count)
    names = _headings(next(csv.reader([first], delimiter=delimiter), []), path)
    rows = csv.reader(said, delimiter=delimiter)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error:
            losses.damaged += 1
            continue
        if _is_heading(cells, names):
            names = _headings(cells, path)
        elif len(cells) > len(names):
            losses.damaged += 1
        elif cells:
            yield {
                name: number_of(cell, has_decimal_comma=delimiter != ",")
                for name, cell in zip(names, cells, strict=False)
            }


def heading(path: Path) -> list[str]:
    """The column names in the first line of a CSV file."""
    first = next(lines(path, Losses()), "")
    cells = next(csv.reader([first], delimiter=max(",\t;", key=first.count)), [])
    return [_heading(name) for name in cells]


def _headings(cells: list[str], path: Path) -> list[str]:
    names = [_heading(cell) for cell in cells]
    if len(set(names)) < len(names):
        raise DataError(f"{path}: a column name stands twice in one heading")
    return names


def _is_heading(cells: list[str], names: list[str]) -> bool:
    """Whether a row is a heading again: no number in it, and at least half of it known names."""
    again = [_heading(cell) for cell in cells]
    known = len(set(names).intersection(again))
    is_worded = all(isinstance(number_of(cell), str) for cell in cells)
    return bool(cells) and is_worded and len(set(again)) == len(again) and 2 * known >= len(again)


def _heading(name: str) -> str:
    """`Wall time` and ` Step` of a spreadsheet are the columns that they look like."""
    word = name.strip()
    return word.lower() if word.lower() in _WORDS else word


def number_of(said: str, *, has_decimal_comma: bool = False) -> Any:
    """A text as a number where it is one; empty is unknown. `1,234.5` and `1,234,567` are read;
    `1,234` alone could be either and stays a text.
    """
    word = said.strip()
    if not word or "_" in word or len(word) > 400:
        return word or None
    if has_decimal_comma and _DECIMAL_COMMA.fullmatch(word):
        word = word.replace(",", ".")
    elif _THOUSANDS.fullmatch(word):
        word = word.replace(",", "")
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
