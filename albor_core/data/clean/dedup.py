"""Removes duplicate documents: equal texts, and similar ones.

Documents of other corpora come before those of the corpus and are never left out, so documents that
the corpus shares with them are removed from it. Four passes, whose partial results are kept in the
work folder:

    signed/   a unit's digests and, for similar texts, the keys of its bands
    banded/   a band's buckets with more than one document: sorts of shares of the keys
    sets/     the shingles of documents that share a bucket
    verdict   which kept document each document is equal or similar to

Memory: about 16 bytes a document, a unit's texts in each process, and 8 bytes for each bucket of
each document that shares one. Disk, for similar texts: some 270 bytes a document, and 8 for each
shingle of those that share a bucket.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from albor_core.data.clean.exact import digests_of, first_equals, shares_of
from albor_core.data.clean.hashed_words import Numbers
from albor_core.data.clean.minhash import Bands, band_keys, bands_for, shingle_sets
from albor_core.data.clean.near import Decider, Documents, Verdicts, cached, slots_of
from albor_core.data.progress import Progress
from albor_core.data.read.inputs import first_free
from albor_core.data.stage.corpus import Corpus, open_corpus
from albor_core.data.stage.counts import EXAMPLES, Counts, sift
from albor_core.data.stage.output import write_part
from albor_core.data.stage.record import content_hash
from albor_core.data.stage.stage import DocumentsDone, StepReport, run_step
from albor_core.data.stage.stamp import changed
from albor_core.data.stage.units import Unit, read_unit, units_of
from albor_core.data.stage.workers import Job, each
from albor_core.run.errors import DataError, UsageError
from albor_core.run.files.publish import publish_json, publishing

EXACT, NEAR = "exact_duplicate", "near_duplicate"
LEAST_THRESHOLD = 0.3  # below, almost any two texts are candidates
_VERSION = 1  # of what counts as similar
_FEW_DOCUMENTS = 100_000  # their bands are sorted before another process has started
_MOST_DOCUMENTS = 2**31 - 1


@dataclass(frozen=True)
class Other:
    """A corpus whose documents must not be in the cleaned one."""

    label: str
    path: Path
    data_hash: str

    @property
    def reason(self) -> str:
        return f"in_{self.label}"


@dataclass(frozen=True)
class DedupStep:
    """The definition of a duplicate. `threshold` is the least Jaccard similarity of similar
    texts."""

    near: bool = False
    threshold: float = 0.8
    normalize: bool = False
    """Texts that differ in white space alone are equal."""
    others: tuple[Other, ...] = ()
    name: str = "dedup"

    @property
    def bands(self) -> Bands | None:
        return bands_for(self.threshold) if self.near else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons by their code; 0 is a document that stays."""
        return ("", EXACT, NEAR, *(other.reason for other in self.others))

    def settings(self) -> Mapping[str, Any]:
        return {
            "version": _VERSION,
            "near": self.near,
            "threshold": self.threshold if self.near else None,
            "normalize": self.normalize,
            "against": {other.label: other.data_hash for other in self.others},
        }

    def apply(self, table: pa.Table) -> tuple[pa.Table, Counts]:
        """Remove duplicates within this part only: for a plan, which examines a sample."""
        texts = _texts(table)
        first = first_equals([len(texts)], lambda _: self.digests(texts), shares=1)
        kept_as = np.where(first == np.arange(len(texts)), -1, first)
        if self.bands is not None:
            keys, have = band_keys(texts, self.bands)
            have &= kept_as < 0
            made = [
                slots_of([len(texts)], lambda _, row=row: (row, have), shares=1)  # type: ignore[misc]
                for row in keys
            ]
            sets = shingle_sets(texts)
            sizes = np.array([len(one) for one in sets])
            decider = Decider(self.threshold, sets.__getitem__, sizes.__getitem__)
            similar = decider.decide([one for one, _ in made], [room for _, room in made])
            kept_as = _kept(first, similar.kept_as)
        codes = _codes(first, kept_as, [0])
        return sift(table, [self.reasons[code] or None for code in codes])

    def digests(self, texts: Sequence[bytes]) -> Numbers:
        """The digests of texts, (texts, 2)."""
        return digests_of(texts, normalize=self.normalize)


def dedup_step(
    corpus: Path,
    *,
    near: bool = False,
    threshold: float = 0.8,
    normalize: bool = False,
    against: Sequence[Path] = (),
) -> DedupStep:
    """Make the step. Raises UsageError for a threshold out of range or the corpus against itself,
    NotFoundError and DataError for an invalid corpus.
    """
    if not LEAST_THRESHOLD <= threshold <= 1:
        raise UsageError(
            f"--threshold {threshold:g} is not between {LEAST_THRESHOLD} and 1",
            hint="0.8 is usual; below 0.3 nearly any two documents are compared",
        )
    others: list[Other] = []
    for path in sorted(against):
        if path.resolve() == corpus.resolve():
            raise UsageError(
                f"{path}: is the corpus itself; all of it would go",
                hint="name the validation or test corpus with --against",
            )
        names = (path.name, str(path), str(path.resolve()))
        known = {other.label for other in others}
        label = first_free((one.removesuffix(".parquet") for one in names), known)
        others.append(Other(label, path, content_hash(open_corpus(path))))
    others.sort(key=lambda other: other.label)  # the same whatever their order
    return DedupStep(near, float(threshold), normalize, tuple(others))


def run_dedup(
    corpus: Path,
    out: Path,
    step: DedupStep,
    *,
    workers: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> StepReport:
    """`run_step` after the four passes; `progress` begins anew with each pass."""
    prepare = partial(_prepare, step=step, workers=workers, progress=progress)
    return run_step(
        corpus, out, step, workers=workers, force=force, progress=progress, prepare=prepare
    )


@dataclass(frozen=True)
class _Files:
    """The files that passes leave for each other, and the units: of other corpora first."""

    work: Path
    units: tuple[Unit, ...]
    others: int
    """Units of other corpora."""

    @property
    def sizes(self) -> list[int]:
        return [unit.rows for unit in self.units]

    @property
    def begins(self) -> list[int]:
        """The number of the first document of each unit, and of the end."""
        return list(accumulate(self.sizes, initial=0))

    @property
    def given(self) -> int:
        """The number of documents of other corpora."""
        return self.begins[self.others]

    def load(self, name: str) -> NDArray[Any]:
        """A result of a pass, memory-mapped."""
        array: NDArray[Any] = np.load(self.work / f"{name}.npy", mmap_mode="r")
        return array

    def save(self, name: str, array: NDArray[Any]) -> None:
        with publishing(self.work / f"{name}.npy") as temp, temp.open("wb") as stream:
            np.save(stream, array)


def _prepare(
    work: Path,
    units: Sequence[Unit],
    *,
    step: DedupStep,
    workers: int,
    progress: Progress | None,
) -> Job:
    corpora = [open_corpus(other.path) for other in step.others]
    theirs = [unit for corpus in corpora for unit in units_of(corpus)]
    files = _Files(work, (*theirs, *units), len(theirs))
    documents = sum(files.sizes)
    if documents > _MOST_DOCUMENTS:
        raise DataError(
            f"{documents:,} documents are more than {_MOST_DOCUMENTS:,}",
            hint="split the corpus by source and dedup each part --against the others",
        )
    if not (work / "verdict.json").exists():
        _sign(files, step, workers, progress)
        _check_unchanged(step.others, corpora)
        first = first_equals(
            files.sizes,
            lambda unit: files.load(f"signed/{unit:05d}-digests"),
            shares=shares_of(documents),
        )
        verdicts = Verdicts(np.where(first == np.arange(documents), -1, first))
        if step.bands is not None:
            verdicts = _similar(files, step, first, workers, progress)
        _tell(files, step, first, verdicts)
    return _DropJob(files, step)


def _sign(files: _Files, step: DedupStep, workers: int, progress: Progress | None) -> None:
    job, numbers = _SignJob(files, step), range(len(files.units))
    done = DocumentsDone(files.sizes, sum(files.sizes), progress)
    for _ in each(numbers, job, files.work / "signed", workers=workers, done=done):
        pass


def _check_unchanged(others: Sequence[Other], corpora: Sequence[Corpus]) -> None:
    for other, corpus in zip(others, corpora, strict=True):
        if content_hash(corpus) != other.data_hash:
            raise changed(other.path)


@dataclass(frozen=True)
class _SignJob:
    files: _Files
    step: DedupStep

    def __call__(self, unit: int) -> dict[str, Any]:
        texts = _texts(read_unit(self.files.units[unit]))
        self.files.save(f"signed/{unit:05d}-digests", self.step.digests(texts))
        if self.step.bands is not None:
            keys, have = band_keys(texts, self.step.bands)
            self.files.save(f"signed/{unit:05d}-keys", keys)
            self.files.save(f"signed/{unit:05d}-have", have)
        return {}


def _similar(
    files: _Files, step: DedupStep, first: Documents, workers: int, progress: Progress | None
) -> Verdicts:
    """Decide on similar texts, over all documents, including those with an equal text."""
    assert step.bands is not None
    files.save("first", first)
    bands = range(step.bands.count)
    several = workers if len(first) > _FEW_DOCUMENTS else 1
    found = each(bands, _BandJob(files), files.work / "banded", workers=several)
    rooms = [result["room"] for result in found]
    slots = [files.load(f"banded/{band:05d}") for band in bands]
    numbers = range(len(files.units))
    candidates = list(
        each(numbers, _SetsJob(files, len(bands)), files.work / "sets", workers=workers)
    )
    sets = _Sets.of(files, [result["candidates"] for result in candidates])
    decider = Decider(step.threshold, cached(sets.read), sets.size, files.given)
    total = len(first)
    verdicts = decider.decide(slots, rooms, lambda n: progress(n, total) if progress else None)
    verdicts.kept_as = _kept(first, verdicts.kept_as)
    return verdicts


@dataclass(frozen=True)
class _BandJob:
    files: _Files

    def __call__(self, band: int) -> dict[str, Any]:
        first, begins = self.files.load("first"), self.files.begins

        def read(unit: int) -> tuple[Numbers, NDArray[np.bool_]]:
            name, begin, end = f"signed/{unit:05d}", begins[unit], begins[unit + 1]
            fresh = first[begin:end] == np.arange(begin, end)
            return self.files.load(f"{name}-keys")[band], self.files.load(f"{name}-have") & fresh

        slots, room = slots_of(self.files.sizes, read, shares=shares_of(len(first)))
        self.files.save(f"banded/{band:05d}", slots)
        return {"room": room}


@dataclass(frozen=True)
class _SetsJob:
    files: _Files
    bands: int

    def __call__(self, unit: int) -> dict[str, Any]:
        begin, end = self.files.begins[unit : unit + 2]
        shared = np.zeros(end - begin, bool)
        for band in range(self.bands):
            shared |= self.files.load(f"banded/{band:05d}")[begin:end] >= 0
        rows = np.flatnonzero(shared)
        sets: list[Numbers] = []
        if len(rows):
            texts = read_unit(self.files.units[unit]).column("text").take(pa.array(rows))
            sets = shingle_sets(texts.cast(pa.large_binary()).to_pylist())
        with publishing(self.files.work / f"sets/{unit:05d}.bin") as temp, temp.open("wb") as out:
            for one in sets:
                one.tofile(out)
        self.files.save(f"sets/{unit:05d}-rows", rows)
        self.files.save(f"sets/{unit:05d}-sizes", np.array([len(one) for one in sets], np.int64))
        return {"candidates": len(rows)}


@dataclass(frozen=True)
class _Sets:
    """The shingles of candidates on disk."""

    files: _Files
    documents: Documents
    sizes: Documents
    places: Documents
    """Where each set begins in its unit's file, in shingles."""
    begins: Documents

    @classmethod
    def of(cls, files: _Files, candidates: Sequence[int]) -> _Sets:
        documents, sizes, places = [], [], []
        for unit, begin in enumerate(files.begins[:-1]):
            if candidates[unit]:
                of_unit = np.array(files.load(f"sets/{unit:05d}-sizes"))
                documents.append(files.load(f"sets/{unit:05d}-rows") + begin)
                sizes.append(of_unit)
                places.append(np.cumsum(of_unit) - of_unit)
        empty = [np.zeros(0, np.int64)]
        return cls(
            files,
            np.concatenate(documents or empty),
            np.concatenate(sizes or empty),
            np.concatenate(places or empty),
            np.array(files.begins, np.int64),
        )

    def size(self, documents: Documents) -> Documents:
        found: Documents = self.sizes[np.searchsorted(self.documents, documents)]
        return found

    def read(self, document: int) -> Numbers:
        at = int(np.searchsorted(self.documents, document))
        unit = int(np.searchsorted(self.begins, document, side="right")) - 1
        return np.fromfile(
            self.files.work / f"sets/{unit:05d}.bin",
            np.uint64,
            count=int(self.sizes[at]),
            offset=8 * int(self.places[at]),
        )


def _kept(first: Documents, similar: Documents) -> Documents:
    """For each document the kept one that it is equal or similar to, -1 if it is kept itself: a
    text equal to a removed one counts as similar to the document that this was removed for.
    """
    alone = first == np.arange(len(first))
    by_equal = np.where(similar[first] < 0, first, similar[first])
    return np.where(alone, similar, by_equal)


def _codes(first: Documents, kept_as: Documents, ends: Sequence[int]) -> NDArray[np.uint8]:
    """The code of each document's reason (`DedupStep.reasons`); `ends`: after the documents of each
    other corpus.
    """
    codes = np.where(kept_as == first, 1, 2)
    others = np.searchsorted(np.array(ends), kept_as, side="right")
    codes = np.where(kept_as < ends[-1], others + 3, codes)
    made: NDArray[np.uint8] = np.where(kept_as < 0, 0, codes).astype(np.uint8)
    return made


def _tell(files: _Files, step: DedupStep, first: Documents, verdicts: Verdicts) -> None:
    """Save the reason of each document of the corpus, and examples: the first of each reason with
    the kept document that it matches.
    """
    rows = [open_corpus(other.path).rows for other in step.others]
    ends = list(accumulate(rows)) or [0]
    codes = _codes(first, verdicts.kept_as, ends)
    codes[: files.given] = 0
    chosen = [
        int(document)
        for code in range(1, len(step.reasons))
        for document in np.flatnonzero(codes == code)[:EXAMPLES]
    ]
    pairs = {document: int(verdicts.kept_as[document]) for document in chosen}
    keys = _keys(files, {*pairs, *pairs.values()})
    files.save("codes", codes)
    publish_json(
        files.work / "verdict.json",
        {
            "notes": {str(a): f"{keys[a]} (kept: {keys[b]})" for a, b in sorted(pairs.items())},
            "extra": {"compared": verdicts.compared, "comparisons_cut": verdicts.cut},
        },
    )


def _keys(files: _Files, documents: set[int]) -> dict[int, str]:
    """The keys of a few documents."""
    begins = np.array(files.begins)
    by_unit: dict[int, list[int]] = {}
    for document in sorted(documents):
        by_unit.setdefault(int(np.searchsorted(begins, document, side="right")) - 1, []).append(
            document
        )
    found: dict[int, str] = {}
    for unit, several in by_unit.items():
        table = read_unit(files.units[unit])
        for document in several:
            row = document - files.begins[unit]
            source, file = (table.column(name)[row].as_py() for name in ("source", "file"))
            found[document] = f"{source}/{file}"
    return found


@dataclass(frozen=True)
class _DropJob:
    """Writes the kept documents of a unit of the corpus."""

    files: _Files
    step: DedupStep

    def __call__(self, number: int) -> dict[str, Any]:
        unit = number + self.files.others
        begin, end = self.files.begins[unit : unit + 2]
        said = json.loads((self.files.work / "verdict.json").read_bytes())
        reasons = self.step.reasons
        codes = self.files.load("codes")[begin:end].tolist()
        kept, counts = sift(
            read_unit(self.files.units[unit]), [reasons[code] or None for code in codes]
        )
        counts.examples = {}
        for document in sorted(map(int, said["notes"])):
            if begin <= document < end:
                several = counts.examples.setdefault(reasons[codes[document - begin]], [])
                several.append(said["notes"][str(document)])
        if number == 0:
            counts.extra.update(said["extra"])
        part = write_part(self.files.work / "parts", number, kept)
        return {"part": part, "counts": counts.to_json()}


def _texts(table: pa.Table) -> list[bytes]:
    texts: list[bytes] = table.column("text").cast(pa.large_binary()).to_pylist()
    return texts
