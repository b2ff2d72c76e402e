"""The step `quality`: keeps documents that look like code or text worth training on."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from albor_core.data.clean.generated import LINE, is_generated
from albor_core.data.clean.measures import Measures, measure
from albor_core.data.clean.profiles import THRESHOLDS, Thresholds
from albor_core.data.stage.counts import Counts, sift

RULES = 1  # goes up with any change of a rule, formula or marker
BINS = 20
_SCORE = "score:"  # of the record's extra sums: a bin of the histogram of scores
_FAILS: Mapping[str, Callable[[Measures, float], NDArray[np.bool_]]] = {
    "min_alpha_fraction": lambda m, least: m.alpha_fraction < least,
    "min_entropy": lambda m, least: m.entropy < least,
    "max_line_mean": lambda m, most: m.line_mean > most,
    "max_line": lambda m, most: m.line_max > most,
    "max_duplicate_lines": lambda m, most: m.duplicate_lines > most,
    "min_score": lambda m, least: m.score < least,
}


@dataclass(frozen=True)
class Quality:
    """Drops each document for the first rule that it fails, in the order of THRESHOLDS.

    Documents of a wrong size are not measured, so that a file of gigabytes costs only the check of
    its length. The record's extra sums hold a histogram of the composite scores of the others.
    """

    thresholds: Thresholds
    name: str = "quality"

    def settings(self) -> Mapping[str, Any]:
        return {
            "rules": RULES,
            "thresholds": dict(self.thresholds),
            "unicode": unicodedata.unidata_version,
        }

    def apply(self, table: pa.Table) -> tuple[pa.Table, Counts]:
        texts = table.column("text")
        reasons = self._by_size(texts)
        rows = np.flatnonzero([reason is None for reason in reasons])
        right = texts.take(pa.array(rows)) if len(rows) < len(reasons) else texts
        measures = measure(right)
        found = self._by_measures(right, measures)
        for row, reason in zip(rows.tolist(), found, strict=True):
            reasons[row] = reason
        kept, counts = sift(table, reasons)
        counts.extra.update(_histogram(measures.score))
        return kept, counts

    def _by_size(self, texts: pa.ChunkedArray) -> list[str | None]:
        least, most = self.thresholds["min_characters"], self.thresholds["max_bytes"]
        characters = pc.utf8_length(texts).to_pylist()
        sizes = pc.binary_length(texts).to_pylist()
        return [
            "too_short" if least is not None and length < least
            else "too_long" if most is not None and size > most
            else None
            for length, size in zip(characters, sizes, strict=True)
        ]  # fmt: skip

    def _by_measures(self, texts: pa.ChunkedArray, measures: Measures) -> Sequence[str | None]:
        reasons = np.full(len(texts), None, object)
        for threshold in reversed(THRESHOLDS):  # so that the first has the last word
            limit = self.thresholds[threshold.key]
            if limit is None:
                continue
            if threshold.key == "generated_lines":
                fails = _generated(texts, int(limit))
            elif threshold.key in _FAILS:
                fails = _FAILS[threshold.key](measures, limit)
            else:
                continue  # of size
            reasons[fails] = threshold.reason
        found: list[str | None] = reasons.tolist()
        return found


def _generated(texts: pa.ChunkedArray, lines: int) -> NDArray[np.bool_]:
    heads = pc.utf8_slice_codeunits(texts, 0, lines * LINE).to_pylist() if lines else []
    return np.array([is_generated(head, lines) for head in heads] or [False] * len(texts), bool)


def score_histogram(extra: Mapping[str, int]) -> list[int]:
    """The histogram of a record: documents in each of BINS equal bins of the composite score from 0
    to 1."""
    return [extra.get(f"{_SCORE}{number / BINS:.2f}", 0) for number in range(BINS)]


def _histogram(scores: NDArray[np.float64]) -> Counter[str]:
    bins = np.minimum((scores * BINS + 1e-9).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS).tolist()
    return Counter({f"{_SCORE}{n / BINS:.2f}": count for n, count in enumerate(counts) if count})
