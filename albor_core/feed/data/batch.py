"""The rows that a run reads at a step: an albor.data.batch document as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.run.values.lenient import (
    Document,
    integer,
    mapping_of,
    sequence,
    text_of,
    whole_of,
)


@dataclass(frozen=True)
class BatchRow:
    """One sequence. `documents` are the positions at which its documents begin; `source` is ""
    where nothing says it, and `text` None where no tokenizer is known to read it with.
    """

    row: int | None
    text: str | None = None
    source: str = ""
    tokens: int | None = None
    documents: tuple[int, ...] = ()
    is_fim: bool = False


@dataclass(frozen=True)
class StepRows:
    """The sequences of one step of a run, decoded, special tokens visible."""

    step: int | None = None
    rows: tuple[BatchRow, ...] = ()


def batch_of(document: Mapping[str, Any]) -> StepRows:
    """The rows of an albor.data.batch document."""
    rows = tuple(_row(mapping_of(one)) for one in sequence(document, "rows"))
    return StepRows(integer(document, "step"), rows)


def _row(one: Document) -> BatchRow:
    begins = (whole_of(value) for value in sequence(one, "documents"))
    return BatchRow(
        integer(one, "row"),
        text_of(one.get("text")),
        text_of(one.get("source")) or "",
        integer(one, "tokens"),
        tuple(value for value in begins if value is not None),
        one.get("fim") is True,
    )
