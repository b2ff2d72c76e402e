"""Mixes one corpus by the weights of its sources.

    FOLDER/sources/NAME  FOLDER/sources/other sources  FOLDER/OUT

Each named source becomes a corpus of its own first, and all others become one; then these are mixed
by `mix`. Intermediate results are kept, reused and resumed.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from albor_core.data.mix.mix import Ingredient, mix
from albor_core.data.mix.portions import Size
from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import IMPORT_HINT, open_corpus
from albor_core.data.stage.counts import Counts, sift
from albor_core.data.stage.record import read_record
from albor_core.data.stage.stage import StepReport, run_step
from albor_core.run.errors import DataError, Problem

_OTHERS = "other sources"  # no quoted name has a space
_LONGEST = 180  # of a folder's name, in bytes
_TOLD = 8  # names of sources in a message


@dataclass(frozen=True)
class SourceSelection:
    """The step that keeps the documents of some sources only, or of all but these."""

    sources: tuple[str, ...]
    others: bool = False
    name: str = "select"

    def settings(self) -> Mapping[str, Any]:
        return {"without" if self.others else "only": list(self.sources), "rules": 1}

    def apply(self, table: pa.Table) -> tuple[pa.Table, Counts]:
        """Keep the selected documents. Those of other sources are not counted as dropped: they are
        in another part of the mix.
        """
        mine = pc.is_in(table.column("source"), pa.array(self.sources, pa.string()))
        kept = table.filter(pc.invert(mine) if self.others else mine)
        return sift(kept, [None] * len(kept))


def mix_by_source(
    corpus: Path,
    out: Path,
    weights: Mapping[str, Fraction],
    *,
    size: Size | None = None,
    seed: int = 0,
    shuffle: bool = False,
    workers: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> StepReport:
    """Mix the corpus. Sources that `weights` does not name have weight 1. Raises as `run_step` and
    `mix`."""
    folder, ingredients = out.parent / "sources", []
    named = tuple(sorted(weights))
    chosen = [(SourceSelection((name,)), _folder_of(name), weights[name]) for name in named]
    if set(sources_of(corpus)) - set(named):
        chosen.append((SourceSelection(named, others=True), _OTHERS, Fraction(1)))
    for step, place, weight in chosen:
        run_step(corpus, folder / place, step, workers=workers, force=force)
        ingredients.append(Ingredient(folder / place, weight))
    report, _ = mix(
        ingredients, out, size=size, seed=seed, shuffle=shuffle, workers=workers, force=force,
        progress=progress,
    )  # fmt: skip
    return report


def sources_of(corpus: Path) -> list[str]:
    """The sources of a corpus, as its record counts them. Raises NotFoundError, DataError as
    `open_corpus`, and for a corpus without a record.
    """
    open_corpus(corpus)
    record = read_record(corpus)
    if record is None:
        raise DataError(f"{corpus}: has no record of its sources", hint=IMPORT_HINT)
    return sorted(name for name, one in record.counts.sources.items() if one.documents)


def weight_problems(
    weights: Collection[str], there: Sequence[str], *, are_shares: bool, of_train: bool = False
) -> Iterator[Problem]:
    """Problems of weights for these sources: all that are imported, or those `of_train`."""
    for name in weights:
        if name not in there:
            hint = f"the sources are {_listed(there)}"
            if near := difflib.get_close_matches(name, there, 1):
                hint = f"did you mean {near[0]!r}?"
            elif of_train:
                hint = f"leave it out, or divide each source: split: {{by: file}}; {hint}"
            what = "no document of train is" if of_train else "no document is"
            yield Problem("mix.weights", f"{what} of a source {name!r}", hint)
    left = [name for name in there if name not in weights] if are_shares else []
    if left:
        yield Problem(
            "mix.weights",
            f"no share for {_listed(left)}; of a size, every source needs one",
            "name each, or leave documents and bytes out: weights are then numbers of copies",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_TOLD]) + (", ..." if len(names) > _TOLD else "")


def _folder_of(source: str) -> str:
    """A folder name that is unique for the source."""
    name = quote(source, safe="")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}-{hashlib.sha256(source.encode()).hexdigest()[:16]}"
