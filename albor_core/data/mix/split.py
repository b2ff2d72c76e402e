"""Splits a corpus into train, val and test, each a corpus with its record, by repository or file.

Each part draws with its own seed from the rest of the parts before: test first, then val, then
train. So the seed of val does not change test, and new documents do not move others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from albor_core.data.mix.draw import draw
from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import Corpus, open_corpus
from albor_core.data.stage.counts import Counts, sift, text_sizes
from albor_core.data.stage.output import Output, output_size, sample_of
from albor_core.data.stage.record import CorpusRecord
from albor_core.data.stage.stage import (
    StepReport,
    history_of,
    planned_action,
    refuse_overlap,
    run_step,
    spread,
    step_identity,
)
from albor_core.data.stage.survey import names_and_sizes
from albor_core.data.stage.units import read_unit, units_of
from albor_core.run.errors import AlborError, DataError, Problem, UsageError

DRAWS = ("test", "val", "train")
"""The parts in the order in which they draw."""
OTHER_PART = "other_part"
"""Why a part lacks a document: another part has it."""
NO_PART = "no_part"
"""Why every part lacks it: the shares add up to less than 1."""
_WHOLE = 1e-9  # shares are written with a few digits: their sum is not 1 to the last bit


@dataclass(frozen=True)
class SplitPlan:
    """Shares and seeds by part; `by` says what is kept in one part: all of a source, or each
    file.
    """

    shares: Mapping[str, float] = field(
        default_factory=lambda: {"train": 0.9, "val": 0.05, "test": 0.05}
    )
    seeds: Mapping[str, int] = field(default_factory=lambda: {"train": 42, "val": 123, "test": 456})
    by: str = "repository"

    def check(self) -> None:
        """Check shares and seeds. Raises UsageError."""
        for name, share in self.shares.items():
            if not 0 <= share <= 1:
                raise UsageError(
                    f"--{name} {share:g}: not a share from 0 to 1", hint=f"--{name} 0.05"
                )
        total = sum(self.shares.values())
        if total > 1 + _WHOLE or total <= 0:
            raise UsageError(
                f"the shares add up to {total:g}, not to more than 0 and at most 1",
                hint="--train 0.9 --val 0.05 --test 0.05",
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts whose share is above 0, train first."""
        return tuple(name for name in reversed(DRAWS) if self.shares[name] > 0)


@dataclass(frozen=True)
class PartRule:
    """Assigns a source or file to a part, by its name and, if it is huge, its size."""

    plan: SplitPlan
    largest: Mapping[str, float]
    """Part -> bytes beyond which it takes no single source or file: see `largest_held_out`."""

    def part_of(self, key: str, size: int) -> str | None:
        """The part of a key; None if the shares leave it out."""
        left = 1.0
        for name in DRAWS:
            share = self.plan.shares[name]
            can_take = share > 0 and size <= self.largest[name]
            takes_rest = share >= left * (1 - _WHOLE)
            if can_take and (takes_rest or draw(self.plan.seeds[name], key) < share / left):
                return name
            left -= share
        return None


def largest_held_out(units: int, size: int, share: float) -> float:
    """The size in bytes beyond which one of `units` documents (or sources), of `size` bytes in all,
    always trains, whatever its name.

    One that outweighs the whole share of val (and ten average ones: small corpora have big shares)
    would make validation a measure of itself. In Python's standard library 756 kB of prose for the
    help system are more than half of all held-out code.
    """
    return max(share * size, 10 * size / max(units, 1))


def rule_for(plan: SplitPlan, units: int, size: int) -> PartRule:
    """The rule for a corpus of `units` sources (or files) with `size` bytes of text. Without a
    train part, no size is refused.
    """
    held_out = {
        name: largest_held_out(units, size, plan.shares[name])
        for name in DRAWS
        if plan.shares["train"] > 0 and name != "train"
    }
    return PartRule(plan, {name: held_out.get(name, float("inf")) for name in DRAWS})


@dataclass(frozen=True)
class Part:
    """The step that keeps the documents of one part."""

    part: str
    rule: PartRule
    sizes: Mapping[str, int]
    """By repository: source -> bytes."""
    name: str = "split"

    def settings(self) -> Mapping[str, Any]:
        plan = self.rule.plan
        return {
            "part": self.part,
            "by": plan.by,
            "shares": dict(plan.shares),
            "seeds": dict(plan.seeds),
            "rules": 1,
        }

    def apply(self, table: pa.Table) -> tuple[pa.Table, Counts]:
        sources = table.column("source").to_pylist()
        if self.rule.plan.by == "repository":
            where = {one: self.rule.part_of(one, self.sizes[one]) for one in set(sources)}
            parts = [where[one] for one in sources]
        else:
            names = table.column("file").to_pylist()
            parts = [
                self.rule.part_of(f"{source}/{name}", size)
                for source, name, size in zip(sources, names, text_sizes(table), strict=True)
            ]
        why = {self.part: None, None: NO_PART}
        return sift(table, [why.get(part, OTHER_PART) for part in parts])


@dataclass
class PartSizes:
    """The size of a part."""

    documents: int = 0
    bytes: int = 0
    sources: int = 0


@dataclass(frozen=True)
class Division:
    """How a corpus is divided: the size of each part, and the step that makes it."""

    parts: Mapping[str, PartSizes]
    left_out: int
    """Documents in no part."""
    steps: Mapping[str, Part]


def divide(source: Path, plan: SplitPlan) -> Division:
    """Read names and sizes of all documents and divide them. Raises UsageError, NotFoundError,
    DataError, also if a part whose share is above 0 gets nothing.
    """
    plan.check()
    corpus = open_corpus(source)
    sizes, documents = _source_sizes(corpus)
    total = sum(sizes.values())
    is_whole = plan.by == "repository"
    rule = rule_for(plan, len(sizes) if is_whole else sum(documents.values()), total)
    found = {name: PartSizes() for name in plan.parts}
    if is_whole:
        left_out = 0
        for name, size in sizes.items():
            part = rule.part_of(name, size)
            if part is None:
                left_out += documents[name]
            else:
                _add(found[part], documents[name], size, 1)
    else:
        left_out = _count_files(corpus, rule, found)
    for name, one in found.items():
        if one.documents == 0:
            raise _nothing_for(source, plan, name, len(sizes) if is_whole else corpus.rows)
    steps = {name: Part(name, rule, sizes if is_whole else {}) for name in plan.parts}
    return Division(found, left_out, steps)


@dataclass(frozen=True)
class SplitReport:
    """The results of a split, by part."""

    out: Path
    division: Division
    made: Mapping[str, StepReport]


def split(
    source: Path,
    out: Path,
    plan: SplitPlan,
    *,
    workers: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> SplitReport:
    """Write `out`/train, `out`/val and `out`/test, those with a share; each as `run_step` does.

    Nothing is written if a part is refused. `progress` counts documents, once per part. Raises as
    `divide` and `run_step`.
    """
    division = divide(source, plan)
    _check_folder(source, out)
    for name, step in division.steps.items():
        _action(source, out / name, step, force)
    made: dict[str, StepReport] = {}
    for name, step in division.steps.items():
        before = len(made)

        def tell(done: int, total: int, before: int = before) -> None:
            if progress is not None:
                progress(before * total + done, len(division.steps) * total)

        made[name] = run_step(source, out / name, step, workers=workers, force=force, progress=tell)
    return SplitReport(out, division, made)


@dataclass(frozen=True)
class SplitCheck:
    """What `split` would do; it is possible if `problems` is empty. `actions` by part: write,
    resume, replace or keep.
    """

    division: Division | None
    actions: Mapping[str, str]
    problems: tuple[Problem, ...]
    out_bytes: int | None = None
    """Of the files of the parts that are written, by a sample of the corpus, packed."""


def plan_split(source: Path, out: Path, plan: SplitPlan, *, force: bool = False) -> SplitCheck:
    """Read what `split` would read; write nothing, and raise no error that a user can cause."""
    problems: list[Problem] = []
    division = None
    try:
        division = divide(source, plan)
    except AlborError as error:
        problems.append(Problem("corpus", error.message, error.hint))
    actions: dict[str, str] = {}
    try:
        _check_folder(source, out)
        for name, step in (division.steps if division else {}).items():
            actions[name] = _action(source, out / name, step, force)
    except AlborError as error:
        problems.append(Problem("out", error.message, error.hint))
    size = None
    try:
        if division is not None and not problems:
            size = _size(source, out, division, actions)
    except AlborError as error:
        problems.append(Problem("corpus", error.message, error.hint))
    return SplitCheck(division, actions, tuple(problems), size)


def _size(source: Path, out: Path, division: Division, actions: Mapping[str, str]) -> int:
    corpus = open_corpus(source)
    units, history = units_of(corpus), history_of(corpus)
    tables = [read_unit(units[number]) for number in spread(len(units))]
    samples, total = [*map(sample_of, tables)], 0
    for name, part in division.parts.items():
        if actions[name] != "keep":
            step = division.steps[name]
            counts = Counts()
            for table in tables:
                counts += step.apply(table)[1]
            facts = step.settings(), "0" * 64, "0" * 64, part.documents, part.bytes
            record = CorpusRecord(step.name, *facts, counts, history)
            output = Output(out / name)
            total += output_size(output, tables[0].schema, samples, part.bytes, record) or 0
    return total


def _action(source: Path, out: Path, step: Part, force: bool) -> str:
    """The action for a part. Raises an error if it is refused."""
    refuse_overlap(source, out)
    return planned_action(Output(out), step_identity(source, step), force=force)


def _check_folder(source: Path, out: Path) -> None:
    if out.is_file() or out.suffix == ".parquet":
        raise UsageError(
            f"{out}: name a folder; the parts are folders in it", hint="choose another --out"
        )
    if Output(out).record() is not None or out.resolve() == source.resolve():
        raise UsageError(f"{out}: is a corpus itself", hint="choose another --out")


def _source_sizes(corpus: Corpus) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes and documents by source."""
    sizes: dict[str, int] = {}
    documents: dict[str, int] = {}
    for table in names_and_sizes(corpus):
        groups = table.group_by("source", use_threads=False)
        for row in groups.aggregate([("bytes", "sum"), ("bytes", "count")]).to_pylist():
            name = row["source"]
            sizes[name] = sizes.get(name, 0) + row["bytes_sum"]
            documents[name] = documents.get(name, 0) + row["bytes_count"]
    return sizes, documents


def _count_files(corpus: Corpus, rule: PartRule, found: Mapping[str, PartSizes]) -> int:
    """Add every document to its part; return how many have none."""
    left_out = 0
    sources: dict[str, set[str]] = {name: set() for name in found}
    for table in names_and_sizes(corpus):
        for row in table.to_pylist():
            part = rule.part_of(f"{row['source']}/{row['file']}", row["bytes"])
            if part is None:
                left_out += 1
                continue
            _add(found[part], 1, row["bytes"], row["source"] not in sources[part])
            sources[part].add(row["source"])
    return left_out


def _add(part: PartSizes, documents: int, size: int, sources: int) -> None:
    part.documents += documents
    part.bytes += size
    part.sources += sources


def _nothing_for(source: Path, plan: SplitPlan, part: str, units: int) -> DataError:
    noun, other = ("sources", "--by file") if plan.by == "repository" else ("files", "more files")
    return DataError(
        f"{source}: none of its {units:,} {noun} falls into {part} (share "
        f"{plan.shares[part]:g}, seed {plan.seeds[part]})",
        hint=f"use {other}, another --seed-{part}, or --{part} 0",
    )
