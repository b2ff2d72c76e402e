"""Mixes corpora into one, by weight: whole copies and a random remainder, in order or shuffled.

The output is a pure function of the inputs, weights, size and seed, whatever the number of
processes. For a shuffled mix every copy of a document is ordered by a hash: copies are first
distributed on disk into buckets of hashes, and each bucket is then sorted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from albor_core.data.mix.draw import number
from albor_core.data.mix.mix_jobs import BlockJob, GatherJob, ScatterJob, Slice, shared_schema
from albor_core.data.mix.portions import (
    Edge,
    Portion,
    Size,
    apportion,
    bytes_portion,
    edge_of,
    order_of,
    portions,
)
from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import Corpus, open_corpus
from albor_core.data.stage.counts import Counts, from_json
from albor_core.data.stage.output import Output, finish, output_size, sample_of
from albor_core.data.stage.record import CorpusRecord, content_hash, corpus_identity
from albor_core.data.stage.stage import (
    StepReport,
    history_of,
    made_before,
    planned_action,
    refuse_overlap,
    spread,
    stamps,
)
from albor_core.data.stage.survey import names_and_sizes
from albor_core.data.stage.units import UNIT_BYTES, units_of
from albor_core.data.stage.workers import each
from albor_core.outputs.place import begin, held
from albor_core.run.errors import AlborError, DataError, Problem, UsageError

if TYPE_CHECKING:
    from albor_core.documents.corpus import MixedCorpus

MOST_COPIES = 1000
_MOST_BITS = 12  # every slice is opened once for each bucket


@dataclass(frozen=True)
class Ingredient:
    """A corpus and its weight."""

    path: Path
    weight: Fraction = Fraction(1)


def parse_ingredient(text: str) -> Ingredient:
    """Parse `CORPUS:WEIGHT`, or CORPUS with weight 1. Raises UsageError for an invalid weight."""
    path, colon, weight = text.rpartition(":")
    if not colon:
        return Ingredient(Path(text))
    try:
        number = Fraction(weight)
    except (ValueError, ZeroDivisionError):
        if Path(text).exists():  # a colon in its name
            return Ingredient(Path(text))
        raise _bad_weight(text, weight) from None
    if not 0 < number <= 10**12:
        raise _bad_weight(text, weight)
    return Ingredient(Path(path), number)


def _bad_weight(text: str, weight: str) -> UsageError:
    return UsageError(
        f"{text}: {weight!r} is not a weight, a number above 0", hint="write CORPUS:2.5"
    )


@dataclass(frozen=True)
class MixShare:
    """The part of one corpus in a mix."""

    ingredient: Ingredient
    corpus: Corpus
    portion: Portion
    edge: Edge | None
    bytes: int
    """There are, of text."""
    bytes_out: int
    """Of it in the mix, copies counted."""

    @property
    def documents_out(self) -> int:
        return self.portion.documents(self.corpus.rows)

    def to_json(self) -> MixedCorpus:
        return {
            "path": str(self.ingredient.path),
            "weight": float(self.ingredient.weight),
            "documents": self.corpus.rows,
            "bytes": self.bytes,
            "copies": self.portion.copies,
            "rest": self.portion.rest,
            "documents_out": self.documents_out,
            "bytes_out": self.bytes_out,
        }


def measure(
    ingredients: Sequence[Ingredient], size: Size | None, seed: int
) -> tuple[MixShare, ...]:
    """Compute how much of each corpus a mix uses; reads all names and sizes, and holds 16 bytes per
    document. Raises NotFoundError, DataError, UsageError, also if a corpus would contribute
    nothing.
    """
    if not ingredients:
        raise UsageError("no corpus to mix", hint="name some, such as a.parquet:10 b.parquet:1")
    corpora = [open_corpus(one.path) for one in ingredients]
    weights = [one.weight for one in ingredients]
    found = [_draws_and_sizes(corpus, seed) for corpus in corpora]
    orders = [order_of(draws) for draws, _ in found]
    if size is not None and size.unit == "bytes":
        wanted = apportion(size.amount, weights)
        taken = [
            bytes_portion(want, sizes, order)
            for want, (_, sizes), order in zip(wanted, found, orders, strict=True)
        ]
    else:
        taken = portions(weights, [corpus.rows for corpus in corpora], size)
    shares = []
    for one, corpus, (draws, sizes), order, portion in zip(
        ingredients, corpora, found, orders, taken, strict=True
    ):
        _check(one, portion, corpus.rows)
        edge = edge_of(draws, order, portion.rest) if portion.rest else None
        rest = int(sizes[order[: portion.rest]].sum())
        whole = int(sizes.sum())
        shares.append(MixShare(one, corpus, portion, edge, whole, portion.copies * whole + rest))
    return tuple(shares)


def _check(one: Ingredient, portion: Portion, documents: int) -> None:
    if portion.documents(documents) == 0:
        raise DataError(
            f"{one.path}: its weight {float(one.weight):g} gives it none of the documents",
            hint="ask for a larger mix, or give it more weight",
        )
    if portion.copies > MOST_COPIES:
        raise UsageError(
            f"{one.path}: would be in the mix {portion.copies:,} times, more than {MOST_COPIES:,}",
            hint="ask for a smaller mix, or give it less weight",
        )


def _draws_and_sizes(corpus: Corpus, seed: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The draw and the size of each document, (D,) each."""
    draws, sizes = np.empty(corpus.rows, np.uint64), np.empty(corpus.rows, np.int64)
    at = 0
    for table in names_and_sizes(corpus):
        pairs = zip(
            table.column("source").to_pylist(), table.column("file").to_pylist(), strict=True
        )
        end = at + table.num_rows
        draws[at:end] = [number(seed, f"{source}/{name}") for source, name in pairs]
        sizes[at:end] = table.column("bytes").to_numpy()
        at = end
    return draws, sizes


@dataclass(frozen=True)
class MixPlan:
    """What a mix would read and write. It is possible if `problems` is empty.

    `action`: write, resume, replace, or keep an existing result.
    """

    shares: tuple[MixShare, ...]
    action: str
    problems: tuple[Problem, ...]
    out_bytes: int | None = None
    """Of the output's files, by a sample of what they hold, packed."""


def plan_mix(
    ingredients: Sequence[Ingredient],
    out: Path,
    *,
    size: Size | None = None,
    seed: int = 0,
    shuffle: bool = False,
    force: bool = False,
) -> MixPlan:
    """Read what `mix` would read; write nothing, and raise no error that a user can cause."""
    problems: list[Problem] = []
    shares: tuple[MixShare, ...] = ()
    action, output, identity = "write", Output(out), ""
    try:
        shares = measure(ingredients, size, seed)
        shared_schema([share.corpus for share in shares])
    except AlborError as error:
        problems.append(Problem("corpus", error.message, error.hint))
    try:
        for one in ingredients:
            refuse_overlap(one.path, out)
        identity = _identity(shares, size, seed, shuffle) if shares else ""
        action = planned_action(output, identity, force=force)
    except AlborError as error:
        problems.append(Problem("out", error.message, error.hint))
    out_bytes = None
    try:
        if not problems:
            out_bytes = _size(shares, output, identity, (size, seed, shuffle))
    except AlborError as error:
        problems.append(Problem("corpus", error.message, error.hint))
    return MixPlan(shares, action, tuple(problems), out_bytes)


def _size(
    shares: Sequence[MixShare],
    output: Output,
    identity: str,
    told: tuple[Size | None, int, bool],
) -> int | None:
    _, seed, shuffle = told
    schema = shared_schema([share.corpus for share in shares])
    blocks = list(_blocks(list(_slices(shares, seed)), shares))
    counts, samples = Counts(), []
    for at in spread(len(blocks)):
        table, found = BlockJob(blocks, schema, output.path).read(at)
        if shuffle:  # equal documents that lie side by side pack better
            table = table.take(np.random.default_rng(seed).permutation(table.num_rows))
        samples.append(sample_of(table))
        counts += found
    text = sum(share.bytes_out for share in shares)
    documents, settings = sum(share.documents_out for share in shares), _settings(shares, *told)
    facts = identity, identity, documents, text, counts, _history(shares)
    return output_size(output, schema, samples, text, CorpusRecord("mix", settings, *facts))


def mix(
    ingredients: Sequence[Ingredient],
    out: Path,
    *,
    size: Size | None = None,
    seed: int = 0,
    shuffle: bool = False,
    workers: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[StepReport, tuple[MixShare, ...]]:
    """Write the mix of `ingredients` to `out`, a corpus with its record.

    Without `shuffle` the corpora follow each other, copy by copy. Shuffling needs about the size of
    `out` once more on disk while it works. Work done before a kill is kept. `progress` is called
    with the numbers of finished and all pieces of work. Raises as `measure` and `run_step`.
    """
    began = time.monotonic()
    for one in ingredients:
        refuse_overlap(one.path, out)
    shares = measure(ingredients, size, seed)
    seen = [stamps(share.corpus) for share in shares]
    output, identity = Output(out), _identity(shares, size, seed, shuffle)
    if (made := made_before(output, identity, force=force)) is not None:
        output.tidy()
        return StepReport(out, made, True, 0, time.monotonic() - began), shares
    schema = shared_schema([share.corpus for share in shares])
    slices = list(_slices(shares, seed))
    with held(output) as work:
        begin(work, identity)
        resumed = sum(len(list((work / name).glob("*.json"))) for name in ("scattered", "done"))
        if shuffle:
            results = _shuffled(slices, shares, schema, work, workers, progress)
        else:
            blocks = list(_blocks(slices, shares))
            job = BlockJob(blocks, schema, work / "parts")
            told = _Told(len(blocks), progress)
            results = list(each(range(len(blocks)), job, work / "done", workers=workers, done=told))
        if [stamps(share.corpus) for share in shares] != seen:
            raise DataError(
                f"{out}: a corpus changed while it was mixed",
                hint="run the same command again once nothing writes to it",
            )
        counts = Counts()
        for result in results:
            if "counts" in result:
                counts += from_json(result["counts"])
        parts = [result["part"] for result in results if result.get("part") is not None]
        settings = _settings(shares, size, seed, shuffle)
        record = finish(output, work, parts, "mix", settings, identity, counts, _history(shares))
    return StepReport(out, record, False, resumed, time.monotonic() - began), shares


def _shuffled(
    slices: Sequence[Slice],
    shares: Sequence[MixShare],
    schema: pa.Schema,
    work: Path,
    workers: int,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    wanted = sum(share.bytes_out for share in shares) // UNIT_BYTES
    bits = min(int(wanted).bit_length(), _MOST_BITS)
    folder = work / "buckets"
    folder.mkdir(exist_ok=True)
    told = _Told(len(slices) + (1 << bits), progress)
    scatter = ScatterJob(slices, schema, folder, bits)
    gather = GatherJob(len(slices), folder, work / "parts")
    return [
        *each(range(len(slices)), scatter, work / "scattered", workers=workers, done=told),
        *each(range(1 << bits), gather, work / "done", workers=workers, done=told),
    ]


@dataclass
class _Told:
    total: int
    progress: Progress | None
    done: int = 0

    def __call__(self, _: int) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)


def _slices(shares: Sequence[MixShare], seed: int) -> Iterator[Slice]:
    for index, share in enumerate(shares):
        units = units_of(share.corpus)
        row = 0
        for unit in units:
            yield Slice(unit, index, row, share.portion.copies, share.edge, seed)
            row += unit.rows


def _blocks(
    slices: Sequence[Slice], shares: Sequence[MixShare]
) -> Iterator[list[tuple[Slice, int]]]:
    """Blocks of slices, copy by copy, so that two copies of a document are far apart; small slices
    are joined."""
    block: list[tuple[Slice, int]] = []
    size = 0.0
    for index, share in enumerate(shares):
        mine = [one for one in slices if one.input == index]
        per_row = share.bytes / share.corpus.rows
        for copy in range(share.portion.copies + (share.edge is not None)):
            for one in mine:
                block.append((one, copy))
                size += per_row * one.unit.rows
                if size >= UNIT_BYTES:
                    yield block
                    block, size = [], 0.0
    if block:
        yield block


def _settings(
    shares: Sequence[MixShare], size: Size | None, seed: int, shuffle: bool
) -> Mapping[str, Any]:
    return {
        "inputs": [
            {
                "corpus": share.ingredient.path.name,
                "data_hash": content_hash(share.corpus),
                "weight": str(share.ingredient.weight),
                "copies": share.portion.copies,
                "rest": share.portion.rest,
            }
            for share in shares
        ],
        "size": None if size is None else {"amount": size.amount, "unit": size.unit},
        "seed": seed,
        "shuffle": shuffle,
        "rules": 1,
    }


def _identity(shares: Sequence[MixShare], size: Size | None, seed: int, shuffle: bool) -> str:
    return corpus_identity("mix", _settings(shares, size, seed, shuffle), {})


def _history(shares: Sequence[MixShare]) -> tuple[Mapping[str, Any], ...]:
    """The steps of each corpus after those of the one before; steps that several have in common
    appear once."""
    steps: list[Mapping[str, Any]] = []
    for share in shares:
        steps += [step for step in history_of(share.corpus) if step not in steps]
    return tuple(steps)
