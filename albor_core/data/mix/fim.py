"""Fill-in-the-middle on disk: cuts documents in three and joins them with the middle last (Bavarian
et al. 2022, arXiv:2207.14255).

    psm    PREFIX before SUFFIX after MIDDLE middle
    spm    PREFIX SUFFIX after MIDDLE before middle

Whether and where a document is cut depends only on the seed and its key. Both cuts are uniform over
its characters. A column `fim` marks cut documents, since in others the sentinels' texts are
ordinary text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

import pyarrow as pa

from albor_core.data.stage.counts import Counts, text_sizes
from albor_core.run.errors import UsageError

MIN_CHARS = 32
COLUMN = "fim"
"""The format of a document that was cut; null for others."""


class Sentinels(NamedTuple):
    """The texts of the sentinels before each piece."""

    prefix: str = "<|fim_prefix|>"
    middle: str = "<|fim_middle|>"
    suffix: str = "<|fim_suffix|>"


MARKS = Sentinels()


class Hole(NamedTuple):
    """A document in three pieces."""

    before: str
    middle: str
    after: str


def cut(text: str, key: str, *, seed: int, rate: float) -> Hole | None:
    """The document `key` cut at two places, each uniform from before its first character to after
    its last; None for the share of documents, 1 - `rate`, that stay whole.
    """
    digest = hashlib.sha256(f"{seed}\0{COLUMN}\0{key}".encode()).digest()
    chance, *points = (int.from_bytes(digest[at : at + 8], "big") for at in (0, 8, 16))
    if chance >= rate * 2**64:
        return None
    low, high = sorted(point * (len(text) + 1) >> 64 for point in points)
    return Hole(text[:low], text[low:high], text[high:])


def join(hole: Hole, form: str, marks: Sentinels) -> str:
    """The document as a model reads it."""
    if form == "psm":
        head = f"{marks.prefix}{hole.before}{marks.suffix}{hole.after}{marks.middle}"
        return head + hole.middle
    head = f"{marks.prefix}{marks.suffix}{hole.after}{marks.middle}"
    return head + hole.before + hole.middle


def whole(text: str, form: str, marks: Sentinels) -> str:
    """The original document of which `join` made `text`; it held no sentinel."""
    head, last = text.split(marks.middle)
    before, after = head.removeprefix(marks.prefix).split(marks.suffix)
    return before + last + after if form == "psm" else last + after


@dataclass(frozen=True)
class FillInTheMiddle:
    """The step that cuts documents. Those of fewer than `min_chars` characters and those that hold
    a sentinel stay as they are.
    """

    rate: float
    form: str = "psm"
    seed: int = 42
    min_chars: int = MIN_CHARS
    marks: Sentinels = MARKS
    name: str = "fim"

    def __post_init__(self) -> None:
        """Check the settings. Raises UsageError."""
        if not 0 < self.rate <= 1:
            raise UsageError(
                f"--rate {self.rate:g}: not a share above 0, at most 1", hint="--rate 0.5"
            )
        if not all(self.marks) or any(a in b for a, b in permutations(self.marks, 2)):
            raise UsageError(
                f"sentinels {', '.join(map(repr, self.marks))}: one is empty or within another",
                hint="leave --prefix, --middle and --suffix out, or make them differ",
            )

    def settings(self) -> Mapping[str, Any]:
        return {
            "rate": self.rate,
            "format": self.form,
            "seed": self.seed,
            "min_chars": self.min_chars,
            "sentinels": self.marks._asdict(),
            "rules": 1,
        }

    def apply(self, table: pa.Table) -> tuple[pa.Table, Counts]:
        sources = table.column("source").to_pylist()
        names = table.column("file").to_pylist()
        forms = self._forms(table)
        texts = table.column("text").to_pylist()
        counts = Counts()
        for row, (source, name) in enumerate(zip(sources, names, strict=True)):
            text = texts[row]
            if any(mark in text for mark in self.marks):
                counts.extra["with_sentinels"] += 1
            elif len(text) < self.min_chars:
                counts.extra["short"] += 1
            elif hole := cut(text, f"{source}/{name}", seed=self.seed, rate=self.rate):
                texts[row], forms[row] = join(hole, self.form, self.marks), self.form
                counts.extra["cut"] += 1
        made = _with(table, "text", pa.array(texts, pa.string()))
        made = _with(made, COLUMN, pa.array(forms, pa.string()))
        sizes = zip(sources, text_sizes(table), text_sizes(made), strict=True)
        for source, size_in, size in sizes:
            one = counts.source(source)
            one.documents_in += 1
            one.bytes_in += size_in
            one.documents += 1
            one.bytes += size
        return made, counts

    def _forms(self, table: pa.Table) -> list[str | None]:
        if COLUMN not in table.column_names:
            return [None] * table.num_rows
        forms: list[str | None] = table.column(COLUMN).to_pylist()
        return forms


def sentinels_of(steps: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The sentinels with which documents were cut, from the records of a corpus' steps."""
    return frozenset(
        word
        for step in steps
        if step["step"] == "fim"
        for word in step["settings"]["sentinels"].values()
    )


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    if name in table.column_names:
        return table.set_column(
            table.schema.get_field_index(name), table.schema.field(name), values
        )
    return table.append_column(pa.field(name, values.type), values)
