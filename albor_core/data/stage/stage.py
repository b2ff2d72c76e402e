"""A step over a corpus, planned and done: parts in the order of the input, whoever makes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import Corpus, open_corpus
from albor_core.data.stage.counts import Counts, from_json
from albor_core.data.stage.output import Output, finish, output_size, sample_of, write_part
from albor_core.data.stage.record import CorpusRecord, content_hash, corpus_identity, read_record
from albor_core.data.stage.stamp import Stamp, changed, stamp_file
from albor_core.data.stage.units import Unit, read_unit, units_of
from albor_core.data.stage.workers import Job, each
from albor_core.outputs.place import begin, clear, held
from albor_core.run.errors import AlborError, DataError, Problem, UsageError

SAMPLED_UNITS = 4  # a plan looks at so many, spread over the corpus


class Step(Protocol):
    """What is done with documents: a pure function of a part of them and of the settings.

    Picklable: it is sent to the processes that work.
    """

    @property
    def name(self) -> str:
        """The verb, such as `quality`."""

    def settings(self) -> Mapping[str, Any]:
        """All that the output depends on beside the corpus, as JSON: the number of the rules'
        version and the hashes of other inputs included.
        """

    def apply(self, table: pa.Table) -> tuple[pa.Table, Counts]:
        """The rows that stay, all with one schema, and the counts of all (`counts.sift`)."""


Prepare = Callable[[Path, Sequence[Unit]], Job]
"""Given the work folder and the units, does what must be known before any document can be judged
and returns the job of a unit, whose result is as `UnitJob`'s. What it keeps in the folder is there
again after a kill.
"""


@dataclass(frozen=True)
class StepReport:
    """The result of a step, new or found."""

    out: Path
    record: CorpusRecord
    reused: bool
    resumed_units: int
    """Units of work that an earlier, unfinished try had done."""
    seconds: float


@dataclass(frozen=True)
class StepPlan:
    """What a step would read and write. It can be done where `problems` is empty.

    `action`: write, resume, replace, or keep what is made already. `sampled`: the counts of the
    documents that the plan looked at, `sampled_bytes` of the corpus' `bytes`; none where what is
    there is kept.
    """

    out: Path
    documents: int | None
    bytes: int | None
    units: int | None
    sampled: Counts
    sampled_bytes: int
    seconds: float | None
    """Estimated for one process."""
    out_bytes: int | None
    """Of the output's files, by what is kept of the sample, packed."""
    action: str
    problems: tuple[Problem, ...]


def run_step(
    source: Path,
    out: Path,
    step: Step,
    *,
    workers: int = 1,
    force: bool = False,
    progress: Progress | None = None,
    prepare: Prepare | None = None,
) -> StepReport:
    """Do `step` with every document of the corpus at `source` and write what stays to `out`.

    The bytes of `out` are a function of the corpus and the settings, whatever `workers` is and
    however often the work was interrupted: what was done before a kill is kept. A whole output of
    the same inputs is reused, one of others refused unless `force`. `progress` is called with the
    documents done and all. `prepare` is for a step that has to see all documents before it can
    judge one: its job does what `step.apply` does else. Raises NotFoundError, DataError (damaged
    input, nothing left, input that changes meanwhile), UsageError, InUseError, AlborError on a
    full disk.
    """
    began = time.monotonic()
    corpus, output = open_corpus(source), Output(out)
    refuse_overlap(source, out)
    output.check()
    seen = stamps(corpus)
    identity = corpus_identity(step.name, step.settings(), {"corpus": content_hash(corpus)})
    if (made := _finished(output, identity, force)) is not None:
        output.tidy()
        return StepReport(out, made, True, 0, time.monotonic() - began)
    units = units_of(corpus)
    done = DocumentsDone([unit.rows for unit in units], corpus.rows, progress)
    with held(output) as work:
        begin(work, identity)
        resumed = len(list((work / "done").glob("*.json")))
        job = prepare(work, units) if prepare else UnitJob(units, step, work / "parts")
        results = list(each(range(len(units)), job, work / "done", workers=workers, done=done))
        if stamps(corpus) != seen:
            raise changed(source)
        counts = Counts()
        for result in results:
            counts += from_json(result["counts"])
        parts = [result["part"] for result in results if result["part"] is not None]
        if not parts:
            clear(work)
            raise _nothing_left(source, step, counts)
        told = step.name, step.settings(), identity, counts, history_of(corpus)
        record = finish(output, work, parts, *told)
    return StepReport(out, record, False, resumed, time.monotonic() - began)


def plan_step(source: Path, out: Path, step: Step, *, force: bool = False) -> StepPlan:
    """Look at a sample of what `run_step` would read; write nothing, raise nothing that a user can
    cause.
    """
    problems: list[Problem] = []
    corpus: Corpus | None = None
    units: tuple[Unit, ...] = ()
    sampled, seen, seconds, size = Counts(), 0, None, None
    output, action = Output(out), "write"
    try:
        corpus = open_corpus(source)
        units = units_of(corpus)
    except AlborError as error:
        problems.append(Problem("corpus", error.message, error.hint))
    try:
        output.check()
        refuse_overlap(source, out)
        if corpus is not None:
            identity = corpus_identity(step.name, step.settings(), {"corpus": content_hash(corpus)})
            action = planned_action(output, identity, force=force)
    except AlborError as error:
        problems.append(Problem("out", error.message, error.hint))
    if corpus is not None and action != "keep" and not problems:
        kept: list[pa.Table] = []
        began = time.monotonic()
        try:
            for number in spread(len(units)):
                table, counts = step.apply(read_unit(units[number]))
                kept.append(table)
                sampled += counts
        except AlborError as error:
            problems.append(Problem("corpus", error.message, error.hint))
        seen = sampled.total.bytes_in
        if seen:
            seconds = (time.monotonic() - began) * corpus.text_bytes / seen
            total = sampled.total
            told = total.documents, total.bytes, sampled, history_of(corpus)
            record = CorpusRecord(step.name, step.settings(), identity, identity, *told)
            size = output_size(
                output, kept[0].schema, [*map(sample_of, kept)],
                corpus.text_bytes * total.bytes / seen, record,
            )  # fmt: skip
    return StepPlan(
        out,
        corpus.rows if corpus else None,
        corpus.text_bytes if corpus else None,
        len(units) if corpus else None,
        sampled,
        seen,
        seconds,
        size,
        action,
        tuple(problems),
    )


def spread(units: int) -> list[int]:
    """The numbers of those that a plan looks at."""
    return sorted({i * units // SAMPLED_UNITS for i in range(SAMPLED_UNITS)}) if units else []


def plan_output(source: Path, out: Path) -> tuple[Problem, ...]:
    """Problems of a corpus and an output, whatever the step."""
    problems: list[Problem] = []
    try:
        open_corpus(source)
    except AlborError as error:
        problems.append(Problem("corpus", error.message, error.hint))
    try:
        Output(out).check()
        refuse_overlap(source, out)
    except AlborError as error:
        problems.append(Problem("out", error.message, error.hint))
    return tuple(problems)


@dataclass(frozen=True)
class UnitJob:
    """A step on one unit, in whichever process."""

    units: Sequence[Unit]
    step: Step
    parts: Path

    def __call__(self, number: int) -> dict[str, Any]:
        table, counts = self.step.apply(read_unit(self.units[number]))
        part = write_part(self.parts, number, table)
        return {"part": part, "counts": counts.to_json()}


@dataclass
class DocumentsDone:
    """Tells `progress` of the documents of the units that are done, and of all."""

    rows: Sequence[int]
    """Of each unit."""
    total: int
    progress: Progress | None
    documents: int = 0

    def __call__(self, number: int) -> None:
        self.documents += self.rows[number]
        if self.progress is not None:
            self.progress(self.documents, self.total)


def step_identity(source: Path, step: Step) -> str:
    """The identity of what `run_step` makes of the corpus at `source`. Raises NotFoundError,
    DataError."""
    return corpus_identity(
        step.name, step.settings(), {"corpus": content_hash(open_corpus(source))}
    )


def made_before(output: Output, identity: str, *, force: bool) -> CorpusRecord | None:
    """The record of what is there, if it is of this identity. Raises UsageError and DataError for
    anything else that is there, without `force`.
    """
    output.check()
    return _finished(output, identity, force)


def refuse_overlap(source: Path, out: Path) -> None:
    """Raise UsageError where a step would write into what it reads."""
    here, there = source.resolve(), out.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UsageError(f"{out}: is or holds the corpus that is read", hint="choose another --out")


def stamps(corpus: Corpus) -> list[Stamp]:
    """Size and time of each file: others than before where something wrote to it meanwhile.
    Raises DataError naming a file that went away.
    """
    return [stamp_file(file) for file in corpus.files]


def planned_action(output: Output, identity: str, *, force: bool) -> str:
    """The action for an existing output: keep, resume or replace it; or write. Raises as
    `made_before`.
    """
    output.check()
    if _finished(output, identity, force) is not None:
        return "keep"
    if output.is_taken():
        return "replace"
    return "resume" if output.begun == identity else "write"


def _finished(output: Output, identity: str, force: bool) -> CorpusRecord | None:
    if force:
        return None
    found = output.record()
    if found is not None and found.identity == identity:
        return found
    if found is not None:
        what = f"a corpus made by {found.step} from other inputs or settings"
    elif output.is_foreign():
        what = "something that was not made by albor data"
    else:
        return None
    raise DataError(
        f"{output.path}: holds {what}", hint="choose another --out, or --force to replace it"
    )


def history_of(corpus: Corpus) -> tuple[Mapping[str, Any], ...]:
    """The steps that made it, oldest first; none where it was not made here."""
    record = read_record(corpus.path)
    if record is not None:
        return record.steps()
    return ()


def _nothing_left(source: Path, step: Step, counts: Counts) -> DataError:
    why = ", ".join(f"{n:,} {reason}" for reason, n in sorted(counts.total.dropped.items()))
    return DataError(
        f"{source}: {step.name} leaves none of {counts.total.documents_in:,} documents ({why})",
        hint=f"loosen its thresholds, or look at the documents with: albor data stats {source}",
    )
