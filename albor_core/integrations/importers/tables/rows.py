"""The rows of a text file, each a mapping of columns to values. A text that is a number is one."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import Example, Losses, quoted
from albor_core.run.errors import DataError
from albor_core.run.values.lenient import is_number, real

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
_POINTS_OF_THOUSANDS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+")
_LOGGED = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]")
_AS_LOGGED = re.compile(r"^\[?\d{4}-\d\d-\d\d[ T][^{]{0,200}\| ?\{")  # as fairseq writes them
_PRINTED = re.compile(r"\{'\w")
_AMONG_WORDS = re.compile(r"\{['\"][^{}]*\}")
_TELLS_PLACE = re.compile(r"(?i)((^|/)(epoch|_?step|global_step|iter|iteration)|(^|[/_])loss)$")
_MOST_BEFORE = 16 << 20  # characters of a log before its first record
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_DELIMITERS = ",\t;"
_RULE = re.compile(r"\s*:?-{2,}:?\s*")  # below the heading of a table in Markdown
_NAN = re.compile(r"[+-]?(nan(\(\w*\))?|1\.?#(ind|qnan|snan|nan)\w*|#num!|#div/0!)", re.I)
_INF = re.compile(r"[+-]?(1\.?#inf\w*|\u221e)", re.I)
_AS_JSON = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "None": "null", "True": "true",
            "False": "false"}  # fmt: skip
_PYTHON_WORDS = re.compile(r"(?<=: )(?:nan|-?inf|None|True|False)(?=[,}])")
_WORDS = frozenset((*STEPS, *WALLS, *KEYS, *RUNS, *SPLITS, *VALUES, "epoch"))
Row = Mapping[str, Any]


def lines(path: Path, losses: Losses) -> Iterator[str]:
    """The lines of a text file; one that is longer than 1 MiB is left out."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        number = 0
        while line := file.readline(MAX_LINE_CHARS):
            number += 1
            if len(line) < MAX_LINE_CHARS or line.endswith("\n"):
                yield line
                continue
            losses.spoil(f"line {number}", line)
            while (rest := file.readline(MAX_LINE_CHARS)) and not rest.endswith("\n"):
                pass


def json_lines(path: Path, losses: Losses) -> Iterator[Row]:
    """The objects of a file that has one on each line, or of a log that has them among others."""
    is_log = path.suffix.lower() not in _JSON_SUFFIXES
    for number, line in enumerate(lines(path, losses), 1):
        if not (said := line.strip()):
            continue
        records = list(records_of(line, losses))
        yield from map(as_row, records)
        if records or line.endswith("\r"):  # the states of a bar, each over the one before
            continue
        begins = said[:1] == "{" if is_log else "{" in said or "}" in said
        if is_log_line(line) or not begins:
            losses.note("line of text", example=Example(f"line {number}", None, quoted(line)))
        else:
            losses.spoil(f"line {number}", line)


def records_of(line: str, losses: Losses) -> Iterator[dict[str, Any]]:
    """The records of a line, which may stand among words, as behind a bar or the name of a logger,
    where they tell how far the training was or a loss.
    """
    said = _AS_LOGGED.sub("{", line, count=1).strip()
    if (record := _record(said, losses)) is not None:
        yield record
        return
    for found in _AMONG_WORDS.finditer(said):
        inside = _record(found[0], losses)
        told = [value for key, value in (inside or {}).items() if _TELLS_PLACE.search(key)]
        if inside is not None and any(is_number(number_of(str(value))) for value in told):
            yield inside


def has_records(path: Path) -> bool:
    """Whether a text, which begins as any, is a log with records in it."""
    seen = 0
    for line in lines(path, Losses()):
        if "{" in line and any(records_of(line, Losses())):
            return True
        seen += len(line)
        if seen > _MOST_BEFORE:
            break
    return False


def is_log_line(line: str) -> bool:
    """Whether a line begins with the time, as those of logs do."""
    return _LOGGED.match(line) is not None


def _record(line: str, losses: Losses) -> dict[str, Any] | None:
    """The object of a line, also where Python printed it; None where it is none."""
    try:
        row = loads(line, losses)
    except (ValueError, RecursionError):
        if not _PRINTED.match(line):
            return None
        said = _PYTHON_WORDS.sub(lambda found: _AS_JSON[found[0]], line.replace("'", '"'))
        try:
            row = loads(said, losses)
        except (ValueError, RecursionError):
            return None
    return row if isinstance(row, dict) else None


def loads(said: str, losses: Losses) -> Any:
    """A JSON value. What a name has that stands again in the same object is counted: the last
    counts. Raises ValueError, RecursionError.
    """

    def row_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            before: dict[str, Any] = {}
            for name, value in pairs:
                if name in before:
                    was = before[name]
                    first = real(was) if is_number(was) else quoted(was)
                    example = Example(name, row.get("step"), first)
                    losses.note("said twice in a record", example=example)
                before[name] = value
        return row

    return json.loads(said, object_pairs_hook=row_of)


def as_row(record: Mapping[str, Any]) -> Row:
    """An object of JSON whose texts that are numbers are numbers, as in a CSV file."""
    return {_heading(k): number_of(v) if isinstance(v, str) else v for k, v in record.items()}


def csv_rows(path: Path, losses: Losses) -> Iterator[Row]:
    """The rows below a heading, which may be written again further down, with other columns."""
    cells, delimiter, said = _first_line(path, losses)
    names = _headings(cells, path)
    if names and not any(isinstance(number_of(name), str) for name in names):
        raise DataError(
            f"{path}: its first line has numbers alone, where the names of columns belong",
            hint="put a heading above them, such as step,loss",
        )
    rows = csv.reader(said, delimiter=delimiter, skipinitialspace=delimiter == " ")
    while True:
        try:
            cells = _trimmed(next(rows), delimiter)
        except StopIteration:
            return
        except csv.Error as error:
            losses.spoil(f"line {rows.line_num + 1}", error)
            continue
        while len(cells) > len(names) and not cells[-1].strip():
            cells.pop()  # a delimiter at the end of each row
        if _is_heading(cells, names):
            names = _headings(cells, path)
        elif len(cells) > len(names):
            why = f"{len(cells)} cells under {len(names)} headings"
            losses.spoil(f"line {rows.line_num + 1}", f"{why}: {delimiter.join(cells)}")
        elif cells and not all(_RULE.fullmatch(cell) for cell in cells):
            yield {
                name: number_of(cell, has_decimal_comma=delimiter != ",")
                for name, cell in zip(names, cells, strict=False)
            }


def heading(path: Path) -> list[str]:
    """The column names in the first line of a CSV file."""
    cells, _, _ = _first_line(path, Losses())
    return [_heading(name) for name in cells]


def _first_line(path: Path, losses: Losses) -> tuple[list[str], str, Iterator[str]]:
    """The cells of the first line, the separator, and the following lines."""
    said = lines(path, losses)
    first, second = next(said, ""), next(said, "")
    delimiter = _delimiter(first, second)
    rows = csv.reader([first], delimiter=delimiter, skipinitialspace=delimiter == " ")
    below = chain([second] if second else [], said)
    return _trimmed(next(rows, []), delimiter), delimiter, below


def _delimiter(first: str, second: str) -> str:
    """The separator of a heading's cells: spaces if the next line has as many words."""
    found = max(_DELIMITERS, key=first.count)
    if found in first:
        return found
    if "|" in first:
        return "|"
    return " " if 1 < len(first.split()) == len(second.split()) else found


def _trimmed(cells: list[str], delimiter: str) -> list[str]:
    """Cells without the empty ones that `| a | b |` has at its ends, or spaces make at a line's."""
    if delimiter not in "| ":
        return cells
    if len(cells) > 1 and not cells[0].strip():
        cells = cells[1:]
    return cells[:-1] if len(cells) > 1 and not cells[-1].strip() else cells


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
    `1,234` alone could be either and stays a text. NaN and Inf may be spelled as spreadsheets and
    C's printf do.
    """
    word = said.strip()
    if not word or "_" in word or len(word) > 400:
        return word or None
    if has_decimal_comma and _DECIMAL_COMMA.fullmatch(word):
        word = word.replace(",", ".")
    elif _POINTS_OF_THOUSANDS.fullmatch(word):
        word = word.replace(".", "").replace(",", ".")
    elif _THOUSANDS.fullmatch(word):
        word = word.replace(",", "")
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    if _NAN.fullmatch(word):
        return math.nan
    if _INF.fullmatch(word):
        return -math.inf if word.startswith("-") else math.inf
    return word
