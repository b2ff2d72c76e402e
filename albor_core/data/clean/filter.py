"""The step `filter`: drops documents by licence, secrets, personal data and length in tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from albor_core.data.clean.licences import is_allowed
from albor_core.data.clean.patterns.findings import Finding, Scanner, findings, masked
from albor_core.data.clean.patterns.personal_patterns import PERSONAL
from albor_core.data.clean.patterns.secret_patterns import SECRETS
from albor_core.data.clean.token_lengths import TokenCounter
from albor_core.data.stage.counts import Counts, sift, text_sizes
from albor_core.run.errors import DataError

RULES = 1  # goes up with any change of a pattern, mask or rule
_UNKNOWN = ("NOASSERTION", "NONE")
"""What SPDX says where nothing is known, or nothing is granted."""
Handling = Literal["drop", "mask", "keep"]
"""Of documents that hold secrets or personal data; `keep` does not look for them."""


@dataclass(frozen=True)
class DocumentFilter:
    """Drops each document for the first reason that applies: licence, secret, personal_data,
    too_few_tokens, too_many_tokens. Masking comes before tokens are counted.

    The record's extra sums count the findings: `secret:KIND` and `personal:KIND`.
    """

    licences: tuple[str, ...] = ()
    """Allowed SPDX identifiers in lower case; none for all."""
    no_licence: Literal["keep", "drop"] = "keep"
    secrets: Handling = "keep"
    personal_data: Handling = "keep"
    min_tokens: int | None = None
    max_tokens: int | None = None
    tokenizer: TokenCounter | None = None
    """Needed where tokens are limited."""
    name: str = "filter"

    def settings(self) -> Mapping[str, Any]:
        return {
            "rules": RULES,
            "licences": list(self.licences),
            "no_licence": self.no_licence,
            "secrets": self.secrets,
            "personal_data": self.personal_data,
            "min_tokens": self.min_tokens,
            "max_tokens": self.max_tokens,
            "tokenizer": self.tokenizer.sha256 if self.tokenizer else None,
        }

    def apply(self, table: pa.Table) -> tuple[pa.Table, Counts]:
        reasons = self._by_licence(table)
        changed: dict[int, bytes] = {}
        found: Counter[str] = Counter()
        for group, handling, reason, scanners in (
            ("secret", self.secrets, "secret", SECRETS),
            ("personal", self.personal_data, "personal_data", PERSONAL),
        ):
            if handling == "keep":
                continue
            for row, text, places in _search(table.column("text"), reasons, changed, scanners):
                found.update(f"{group}:{one.kind}" for one in places)
                if handling == "drop":
                    reasons[row] = reason
                else:
                    changed[row] = masked(text, places)
        clean = _with_texts(table, changed)
        self._by_tokens(clean.column("text"), reasons)
        kept, counts = sift(clean, reasons)
        _correct_sizes(counts, table, clean, changed)
        counts.extra.update(found)
        return kept, counts

    def _by_licence(self, table: pa.Table) -> list[str | None]:
        if "licence" not in table.column_names:
            if self.no_licence == "drop":
                raise DataError(
                    "the corpus has no column licence: no document would stay",
                    hint="import it again with albor data import, or --no-licence keep",
                )
            return [None] * table.num_rows
        kind = table.schema.field("licence").type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if kind not in (pa.string(), pa.large_string(), pa.null()):
            raise DataError(
                f"the column licence holds {kind}, not SPDX expressions",
                hint="write the corpus with one string a document, or leave out --licence",
            )
        return [
            None if self._may_stay(licence) else "licence"
            for licence in table.column("licence").to_pylist()
        ]

    def _may_stay(self, licence: str | None) -> bool:
        if not licence or licence.upper() in _UNKNOWN:
            return self.no_licence == "keep"
        return not self.licences or is_allowed(licence, self.licences)

    def _by_tokens(self, texts: pa.ChunkedArray, reasons: list[str | None]) -> None:
        if self.tokenizer is None:
            return
        rows = [row for row, reason in enumerate(reasons) if reason is None]
        left = texts.take(pa.array(rows, pa.int64())).to_pylist()
        for row, tokens in zip(rows, self.tokenizer.count(left, self.max_tokens), strict=True):
            if self.min_tokens is not None and tokens < self.min_tokens:
                reasons[row] = "too_few_tokens"
            elif self.max_tokens is not None and tokens > self.max_tokens:
                reasons[row] = "too_many_tokens"


def _search(
    texts: pa.ChunkedArray,
    reasons: list[str | None],
    changed: Mapping[int, bytes],
    scanners: Iterable[Scanner],
) -> Iterator[tuple[int, bytes, list[Finding]]]:
    """Row, text and findings of each kept row with any finding."""
    by_row: dict[int, list[Scanner]] = {}
    for scanner in scanners:
        may_hold = np.ones(len(texts), bool)
        for hint in scanner.hints:
            matches = pc.match_substring_regex(texts, hint)
            may_hold &= matches.to_numpy()
        for row in np.flatnonzero(may_hold).tolist():
            by_row.setdefault(row, []).append(scanner)
    for row, fitting in sorted(by_row.items()):
        if reasons[row] is None:
            text = changed.get(row) or texts[row].as_py().encode()
            if places := findings(text, fitting):
                yield row, text, places


def _with_texts(table: pa.Table, changed: Mapping[int, bytes]) -> pa.Table:
    if not changed:
        return table
    texts = table.column("text").to_pylist()
    for row, text in changed.items():
        texts[row] = text.decode()
    index = table.schema.get_field_index("text")
    field = table.schema.field(index)
    return table.set_column(index, field, pa.array(texts, field.type))


def _correct_sizes(
    counts: Counts,
    table: pa.Table,
    clean: pa.Table,
    changed: Mapping[int, bytes],
) -> None:
    """Correct `bytes_in`, which must count the text as it was read, before masking."""
    if not changed:
        return
    sources = table.column("source").to_pylist()
    before, after = text_sizes(table), text_sizes(clean)
    for row in changed:
        counts.source(sources[row]).bytes_in += before[row] - after[row]
