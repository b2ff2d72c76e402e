"""Computes the figures of documents that quality rules use, for a whole column at once.

Character counts come from one histogram of bytes per document; non-ASCII text is decoded and
corrected for. The figures equal those of plain Python (`tests/core/data/clean`), rounded to six
decimals, so that the last bits of a machine's arithmetic decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

GOOD_ALPHA = 0.5
GOOD_LINE = 100.0
GOOD_ENTROPY = 4.0
_DECIMALS = 6
_ROWS = 1024  # whose histograms are in memory together: 2 MiB
_SLICE = 1 << 15  # bytes counted together: their copies as int64 stay in the cache
_PIECE = 1 << 20  # characters of a longer text that are decoded or split together


@dataclass(frozen=True)
class Measures:
    """The figures of N documents, each field (N,)."""

    characters: Counts
    """Unicode code points."""
    size: Counts
    """UTF-8 bytes."""
    alpha_fraction: Floats
    """Letters and digits (str.isalnum) over characters, 0 to 1; what codeparrot-clean calls
    alpha_frac. 0 for an empty document."""
    line_mean: Floats
    """Mean characters of a line without its newline; lines end at a newline alone, and one that
    ends the document begins no other."""
    line_max: Floats
    """Characters of the longest line."""
    duplicate_lines: Floats
    """Of the lines that are not blank, those equal to an earlier one of the document but for white
    space around it, over all that are not blank, 0 to 1. After Rae et al. 2021 (Gopher),
    arXiv:2112.11446, table A1."""
    entropy: Floats
    """Shannon entropy of the document's characters in bits: -sum p log2 p."""

    @property
    def score(self) -> Floats:
        """A document's composite score, 0 to 1: the geometric mean of four parts, each 1 where the
        document looks like text or code and 0 where it cannot be.

            alpha       min(1, alpha_fraction / 0.5)
            lines       min(1, 100 / line_mean)
            duplicates  1 - duplicate_lines
            entropy     min(1, entropy / 4 bits)

        The parts are those that the specification names (001:6931: alphanumeric ratio, line length,
        duplicate lines, entropy); the formula is ours. A geometric mean, since one part near 0 is
        enough to make a document worthless.
        """
        alpha = np.minimum(1.0, self.alpha_fraction / GOOD_ALPHA)
        lines = np.minimum(1.0, GOOD_LINE / np.maximum(self.line_mean, GOOD_LINE))
        entropy = np.minimum(1.0, self.entropy / GOOD_ENTROPY)
        product = alpha * lines * (1.0 - self.duplicate_lines) * entropy
        return np.round(product**0.25, _DECIMALS)


def measure(texts: pa.ChunkedArray) -> Measures:
    """The figures of a string column without nulls. Memory: beside the column, a few times the
    longest document's own.
    """
    column = texts.cast(pa.large_string()).combine_chunks()
    ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset :][: len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    blocks = [
        _measure_rows(column, ends, data, first, min(first + _ROWS, len(column)))
        for first in range(0, len(column), _ROWS)
    ]
    if not blocks:
        none = np.zeros(0)
        return Measures(none.astype(np.int64), none.astype(np.int64), *([none] * 5))
    return Measures(
        *(np.concatenate([getattr(b, f.name) for b in blocks]) for f in fields(Measures))
    )


def _measure_rows(
    column: pa.LargeStringArray, ends: Counts, data: NDArray[np.uint8], first: int, last: int
) -> Measures:
    rows = last - first
    histogram = np.zeros((rows, 256), np.int64)
    longest, blank, repeated = (np.zeros(rows, np.int64) for _ in range(3))
    for row in range(rows):
        start, end = int(ends[first + row]), int(ends[first + row + 1])
        for at in range(start, end, _SLICE):
            histogram[row] += np.bincount(data[at : min(at + _SLICE, end)], minlength=256)
    for row, text in enumerate(column[first:last].to_pylist()):
        longest[row], blank[row], repeated[row] = _look_at_lines(text)
    size = histogram.sum(axis=1)
    characters = size - histogram[:, 0x80:0xC0].sum(axis=1)
    ascii_counts = histogram[:, :128]
    alpha = ascii_counts[:, _ASCII_ALPHA].sum(axis=1)
    information = _count_log_count(ascii_counts).sum(axis=1)
    for row in np.flatnonzero(characters != ascii_counts.sum(axis=1)).tolist():
        more_alpha, more_information = _look_beyond_ascii(column[first + row].as_py())
        alpha[row] += more_alpha
        information[row] += more_information

    newlines = histogram[:, 0x0A]
    ends_open = size > 0
    ends_open[ends_open] = data[ends[first + 1 : last + 1][ends_open] - 1] != 0x0A
    lines = newlines + ends_open
    least = np.maximum(characters, 1)
    entropy = np.log2(least) - information / least
    return Measures(
        characters,
        size,
        np.round(alpha / least, _DECIMALS),
        np.round((characters - newlines) / np.maximum(lines, 1), _DECIMALS),
        longest.astype(np.float64),
        np.round(repeated / np.maximum(lines - blank, 1), _DECIMALS),
        np.round(np.maximum(entropy, 0.0), _DECIMALS) + 0.0,
    )


_ASCII_ALPHA = np.array([chr(code).isalnum() for code in range(128)])


def _count_log_count(counts: Counts) -> Floats:
    return counts.astype(np.float64) * np.log2(np.maximum(counts, 1))


def _look_at_lines(text: str) -> tuple[int, int, int]:
    """Characters of the longest line, blank lines, and lines that repeat an earlier one."""
    if len(text) <= _PIECE:  # almost every text: a third faster than by pieces
        lines = text.split("\n")
        longest = max(map(len, lines))
        stripped = list(map(str.strip, lines))
        blank = stripped.count("")
        distinct = len(set(stripped)) - (blank > 0)
        repeated = len(lines) - blank - distinct
        return longest, blank - (not lines[-1]), repeated
    longest = blank = found = 0
    seen: set[str] = set()
    for lines in _lines_by_pieces(text):
        longest = max(longest, *map(len, lines))
        stripped = [line for line in map(str.strip, lines) if line]
        blank += len(lines) - len(stripped)
        found += len(stripped)
        seen.update(stripped)
    return longest, blank, found - len(seen)


def _lines_by_pieces(text: str) -> Iterator[list[str]]:
    """The lines of a long text: the list of all lines of a file of newlines would take
    gigabytes."""
    start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + _PIECE) + 1
        if end == 0 and (end := text.find("\n", start) + 1) == 0:
            end = len(text) + 1
        yield text[start : end - 1].split("\n")
        start = end


def _look_beyond_ascii(text: str) -> tuple[int, float]:
    """Among non-ASCII characters: the number of letters and digits, and the sum of n log2 n over
    the counts of each.
    """
    pieces = []
    for start in range(0, len(text), _PIECE):
        points = np.frombuffer(text[start : start + _PIECE].encode("utf-32-le"), np.uint32)
        pieces.append(np.unique(points[points > 127], return_counts=True))
    codes, where = np.unique(np.concatenate([codes for codes, _ in pieces]), return_inverse=True)
    counts = np.bincount(where, np.concatenate([counts for _, counts in pieces])).astype(np.int64)
    return int(counts[_alpha_codes()[codes]].sum()), float(_count_log_count(counts).sum())


@cache
def _alpha_codes() -> NDArray[np.bool_]:
    """Whether each code point is a letter or digit, as this Python's Unicode has it."""
    return np.fromiter(map(str.isalnum, map(chr, range(0x110000))), np.bool_, 0x110000)
