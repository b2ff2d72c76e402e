"""Reads what media hold, no more of it than is shown: a table's first rows, a text's beginning.

Files and rows of a journal may hold anything: what is not of its kind's shape raises DataError.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from albor_core.run.errors import DataError
from albor_core.run.values.quantity import figure

MOST_ROWS = 2_000  # of a table
MOST_CELL = 200  # characters
MOST_CHARS = 200_000  # of a text
_MOST_BINS = 65_536
_DAMAGED = "its contents are damaged"
_LOOKS = re.compile(r"\x1b\[[\d;:?]*[A-Za-z]")  # colours and moves of a cursor


@dataclass(frozen=True)
class TableSheet:
    """The first rows of a table as texts; `numeric` says which columns hold numbers alone."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    is_cut: bool = False


@dataclass(frozen=True)
class TextSheet:
    """The beginning of a text, raw but for the colours of a terminal."""

    lines: tuple[str, ...]
    is_cut: bool = False


@dataclass(frozen=True)
class Bins:
    """Counts between neighbouring edges, one edge more than counts."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    nonfinite: int = 0


@dataclass(frozen=True)
class BinsOverSteps:
    """The histograms of some steps over common edges: the share of its values in each bin."""

    steps: tuple[int | None, ...]
    edges: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]


def read_text(content: bytes, *, is_cut: bool = False) -> TextSheet:
    """A text of which `content` is the beginning, or all."""
    words = content.decode("utf-8", "replace")
    lines = _LOOKS.sub("", words[:MOST_CHARS]).split("\n")
    return TextSheet(tuple(lines), is_cut or len(words) > MOST_CHARS)


def read_table(content: bytes, *, is_cut: bool = False) -> TableSheet:
    """A table (`{"columns": [...], "data": [[...], ...]}`) of which `content` is the beginning, or
    all. Raises DataError.
    """
    try:
        names, rows, is_whole = _first_rows(content.decode("utf-8", "replace"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(_DAMAGED) from error
    if not is_whole and not is_cut and len(rows) < MOST_ROWS:
        raise DataError(_DAMAGED)
    return as_sheet(names, rows, is_cut=not is_whole)


def as_sheet(columns: Any, rows: Any, *, is_cut: bool = False) -> TableSheet:
    """A table of values as JSON has them. Raises DataError for another shape."""
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise DataError(_DAMAGED)
    if any(not isinstance(row, list) or len(row) != len(columns) for row in rows):
        raise DataError(_DAMAGED)
    shown = rows[:MOST_ROWS]
    numeric = tuple(
        any(map(_is_number, cells)) and all(one is None or _is_number(one) for one in cells)
        for cells in (zip(*shown, strict=True) if shown else [()] * len(columns))
    )
    texts = tuple(tuple(map(_cell, row)) for row in shown)
    names = tuple(_cell(name) for name in columns)
    return TableSheet(names, texts, numeric, is_cut or len(rows) > MOST_ROWS)


def _first_rows(words: str) -> tuple[Any, list[Any], bool]:
    """Names, rows, and whether these are all; raises ValueError where the head is not a table's."""
    decoder, at = json.JSONDecoder(), 0
    head = '{"columns":'
    if not words.startswith(head):  # written by others: read whole
        told = json.loads(words)
        return told["columns"], told["data"], True
    names, at = decoder.raw_decode(words, len(head))
    if not words.startswith(',"data":[', at):
        raise ValueError(words[at : at + 10])
    at += len(',"data":[')
    rows: list[Any] = []
    while len(rows) < MOST_ROWS:
        if words.startswith("]}", at):
            return names, rows, True
        try:
            row, at = decoder.raw_decode(words, at + (words[at : at + 1] == ","))
        except ValueError:  # it ends inside a row
            return names, rows, False
        rows.append(row)
    return names, rows, words.startswith("]}", at)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:MOST_CELL]
    if isinstance(value, float):
        return figure(value)
    return json.dumps(value)[:MOST_CELL]


def read_bins(told: Any, meta: Mapping[str, Any]) -> Bins:
    """A histogram of the JSON value that it is kept as. Raises DataError."""
    counts = told.get("counts") if isinstance(told, Mapping) else None
    edges = told.get("edges") if isinstance(told, Mapping) else None
    if not (isinstance(counts, list) and isinstance(edges, list)):
        raise DataError(_DAMAGED)
    if not 0 < len(counts) <= _MOST_BINS or len(edges) != len(counts) + 1:
        raise DataError(_DAMAGED)
    if not all(_is_number(one) and math.isfinite(one) for one in (*counts, *edges)):
        raise DataError(_DAMAGED)
    if min(counts) < 0 or any(b < a for a, b in pairwise(edges)) or edges[0] == edges[-1]:
        raise DataError(_DAMAGED)
    lost = meta.get("nonfinite")
    nonfinite = lost if isinstance(lost, int) else 0
    return Bins(tuple(map(float, edges)), tuple(map(float, counts)), nonfinite)


def over_steps(found: Sequence[tuple[int | None, Bins]], bins: int) -> BinsOverSteps | None:
    """Histograms brought to `bins` bins of common edges; None where there is none."""
    if not found:
        return None
    low = min(one.edges[0] for _, one in found)
    high = max(one.edges[-1] for _, one in found)
    width = (high - low) / bins
    if not (math.isfinite(width) and width > 0):
        return None
    edges = (*(low + width * place for place in range(bins)), high)
    shares = tuple(tuple(_spread(one, edges)) for _, one in found)
    return BinsOverSteps(tuple(step for step, _ in found), edges, shares)


def _spread(bins: Bins, edges: Sequence[float]) -> Iterator[float]:
    """The share of the values below each shared edge, as differences: each bin is even inside."""
    total = sum(bins.counts) or 1.0
    below = [0.0]
    for count in bins.counts:
        below.append(below[-1] + count / total)
    before = 0.0
    for edge in edges[1:]:
        now = _below(bins.edges, below, edge)
        yield max(0.0, now - before)
        before = now


def _below(edges: Sequence[float], below: Sequence[float], at: float) -> float:
    if at >= edges[-1]:
        return below[-1]
    i = bisect_right(edges, at) - 1
    if i < 0:
        return 0.0
    wide = edges[i + 1] - edges[i]
    return below[i] + (below[i + 1] - below[i]) * ((at - edges[i]) / wide if wide > 0 else 0.0)
