"""Documents that share runs of n words with benchmark tasks, or with any other texts.

    of a pair       J = shared runs / runs of either      share = shared runs / the task's runs
    tasks           a line of a JSON-lines file (.jsonl, .ndjson, also gzipped), whatever is text in
                    it put together: prompt, solution, tests; a document of Parquet; a text file

`ngrams` defines runs and words. Every document with one shared run is a hit; a list of ten numbers
is enough, so each hit shows the shared text.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from albor_core.data.clean.hashed_words import HashedWords
from albor_core.data.clean.ngrams import (
    ItemRuns,
    in_parts,
    runs_in,
    strings_in,
    words_in,
)
from albor_core.data.progress import Progress
from albor_core.data.read.inputs import first_free
from albor_core.data.stage.corpus import open_corpus
from albor_core.data.stage.counts import FINDINGS, Counts, from_json, sift
from albor_core.data.stage.record import content_hash
from albor_core.data.stage.stage import DocumentsDone
from albor_core.data.stage.stamp import unreadable
from albor_core.data.stage.units import Unit, read_unit, units_of
from albor_core.data.stage.workers import each
from albor_core.outputs.identity import hash_of_file
from albor_core.run.errors import DataError, NotFoundError

WORDS = 10
REASON = "contaminated"
MOST_SHOWN = 400  # characters of what is shared
MOST_TASKS = 16  # of one document, those that share most first
JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_MOST_TEXT_BYTES = 64 << 20
_VERSION = 1  # of what counts as shared


@dataclass(frozen=True)
class Hit:
    """A document and a task that share runs of words."""

    document: str
    task: str
    jaccard: float
    share: float
    """Of the task's runs."""
    runs: int
    """Shared."""
    overlap: str
    """The longest stretch of the document that both have, cut after `MOST_SHOWN` characters."""

    def to_json(self) -> dict[str, Any]:
        return {
            "document": self.document,
            "task": self.task,
            "jaccard": round(self.jaccard, 6),
            "share": round(self.share, 6),
            "runs": self.runs,
            "overlap": self.overlap,
        }


@dataclass(frozen=True)
class ContaminationStep:
    """Leaves out the documents that share a run with a task; the findings list each."""

    tasks: ItemRuns
    against: Mapping[str, str]
    """Name of what is looked for -> hash of it."""
    min_share: float = 0.0
    """Pairs that share less of the task's runs do not count."""
    name: str = "contamination"

    def settings(self) -> Mapping[str, Any]:
        return {
            "version": _VERSION,
            "n": self.tasks.n,
            "min_share": self.min_share,
            "against": dict(self.against),
        }

    def apply(self, table: pa.Table) -> tuple[pa.Table, Counts]:
        names = zip(
            table.column("source").to_pylist(), table.column("file").to_pylist(), strict=True
        )
        keys = [f"{source}/{file}" for source, file in names]
        texts = table.column("text").to_pylist()
        hits = list(self.hits(zip(keys, texts, strict=True)))
        kept, counts = sift(table, [REASON if several else None for several in hits])
        _add(counts, [hit for several in hits for hit in several])
        return kept, counts

    def hits(self, documents: Iterable[tuple[str, str]]) -> Iterator[list[Hit]]:
        """The hits of each (key, text), those that share most first."""
        for part in in_parts(documents, lambda document: document[1]):
            runs = runs_in([text for _, text in part], self.tasks.n)
            for number, (shared, places) in enumerate(self.tasks.found_in(runs)):
                key, text = part[number]
                yield (
                    self._hits(key, text, _one(runs, number), shared, places) if len(shared) else []
                )

    def _hits(
        self,
        key: str,
        text: str,
        runs: NDArray[np.uint64],
        shared: NDArray[np.int64],
        places: NDArray[np.int64],
    ) -> list[Hit]:
        count: dict[int, int] = {}
        for run in np.unique(shared).tolist():
            for task in self.tasks.owners(run):
                count[task] = count.get(task, 0) + 1
        different = len(np.unique(runs))
        enough = [t for t, both in count.items() if both >= self.min_share * self.tasks.sizes[t]]
        chosen = sorted(enough, key=lambda task: (-count[task], task))[:MOST_TASKS]
        owners = [set(self.tasks.owners(run)) for run in shared.tolist()]
        stretches = _Stretches(text, self.tasks.n)
        made = []
        for task in chosen:
            size, both = int(self.tasks.sizes[task]), count[task]
            of_task = [int(p) for p, them in zip(places, owners, strict=True) if task in them]
            made.append(
                Hit(key, self.tasks.names[task], both / (different + size - both), both / size,
                    both, stretches.longest(of_task))
            )  # fmt: skip
        return made


def _add(counts: Counts, hits: Sequence[Hit]) -> None:
    counts.extra["hits"] += len(hits)
    known = counts.findings.setdefault("hits", [])
    known.extend(hit.to_json() for hit in hits[: FINDINGS - len(known)])


def _one(runs: HashedWords, number: int) -> NDArray[np.uint64]:
    return runs.numbers[runs.bounds[number] : runs.bounds[number + 1]]


class _Stretches:
    """The positions of the runs of a text."""

    def __init__(self, text: str, n: int) -> None:
        lower = text.lower()
        self._text = text if len(text) == len(lower) else lower
        self._words = [(word.start(), word.end()) for word in words_in(lower)]
        self._n = n

    def longest(self, places: Sequence[int]) -> str:
        """The longest shared text without a gap, truncated; `places`: shared runs, ascending."""
        best = first = last = places[0]
        longest = 0
        for place in places:
            if place > last + 1:
                first = place
            last = place
            if place - first > longest:
                best, longest = first, place - first
        begin, end = self._words[best][0], self._words[best + longest + self._n - 1][1]
        whole = self._text[begin:end]
        return whole if len(whole) <= MOST_SHOWN else whole[:MOST_SHOWN] + " ..."


def contamination_step(
    against: Sequence[Path], *, n: int = WORDS, min_share: float = 0.0
) -> ContaminationStep:
    """Read all texts to search for. Raises NotFoundError, DataError naming file and line."""
    hashes: dict[str, str] = {}
    labels: list[tuple[str, Path]] = []
    for path in sorted(against):  # the same whatever their order
        label = first_free((_stem(path), str(path), str(path.resolve())), hashes)
        hashes[label] = _hash_of(path)
        labels.append((label, path))

    def refusal(most: int) -> DataError:
        return DataError(
            f"{', '.join(map(str, against))}: more than {most:,} runs of {n} words",
            hint="check against one at a time, or against a part of it",
        )

    items = (item for label, path in labels for item in task_texts(label, path))
    tasks = ItemRuns.of(items, n, refusal=refusal)
    if not len(tasks.runs):
        raise DataError(
            f"{', '.join(map(str, against))}: no text of {n} words to look for",
            hint="name other files, or look for fewer words with --words",
        )
    return ContaminationStep(tasks, hashes, min_share)


def check_corpus(
    corpus: Path, step: ContaminationStep, *, workers: int = 1, progress: Progress | None = None
) -> Counts:
    """The counts of `run_step`, with nothing written."""
    opened = open_corpus(corpus)
    units = units_of(opened)
    done = DocumentsDone([unit.rows for unit in units], opened.rows, progress)
    counts = Counts()
    with TemporaryDirectory(prefix="albor-contamination-") as folder:
        job = _CheckJob(units, step)
        for result in each(range(len(units)), job, Path(folder), workers=workers, done=done):
            counts += from_json(result)
    return counts


@dataclass(frozen=True)
class _CheckJob:
    units: Sequence[Unit]
    step: ContaminationStep

    def __call__(self, number: int) -> dict[str, Any]:
        return self.step.apply(read_unit(self.units[number]))[1].to_json()


def check_texts(documents: Iterable[tuple[str, str, str]], step: ContaminationStep) -> Counts:
    """The same for (source, file, text) that are not in a corpus."""
    counts = Counts()
    for part in in_parts(documents, lambda document: document[2]):
        columns = zip(("source", "file", "text"), zip(*part, strict=True), strict=True)
        counts += step.apply(pa.table({name: list(values) for name, values in columns}))[1]
    return counts


def task_texts(label: str, path: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of each task. Raises NotFoundError, DataError naming file and line."""
    if _is_parquet(path):
        for key, raw in open_corpus(path).documents():
            yield f"{label}:{key}", raw.decode("utf-8", "replace")
    elif path.name.endswith(JSON_LINES):
        for number, record in _json_lines(path):
            said = record.get("task_id", number)
            name = said if isinstance(said, str) and said else f"{label}/{said}"
            yield name, "\n".join(strings_in(record))
    else:
        yield label, _text_of(path)


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for number, raw in enumerate(lines, 1):
                if not raw.strip():
                    continue
                try:
                    record = json.loads(raw)
                except (ValueError, RecursionError) as error:
                    raise DataError(
                        f"{path}:{number}: not JSON: {error}", hint="repair or remove that line"
                    ) from error
                if not isinstance(record, dict):
                    raise DataError(
                        f"{path}:{number}: not a JSON object", hint="repair or remove that line"
                    )
                yield number, record
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged: {error}", hint="fetch it again") from error
    except OSError as error:
        raise unreadable(path, error) from error


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_TEXT_BYTES:
            raise DataError(
                f"{path}: larger than {_MOST_TEXT_BYTES >> 20} MiB, and a file is one text",
                hint="make a corpus of it: albor data import",
            )
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text, JSON lines or Parquet", hint="name such a file"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _is_parquet(path: Path) -> bool:
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or folder", hint="check the path and try again")
    return path.is_dir() or path.suffix == ".parquet"


def _hash_of(path: Path) -> str:
    if _is_parquet(path):
        return content_hash(open_corpus(path))
    try:
        return hash_of_file(path)
    except OSError as error:
        raise unreadable(path, error) from error


def _stem(path: Path) -> str:
    name = path.resolve().name
    for suffix in (*JSON_LINES, ".parquet", ".txt"):
        name = name.removesuffix(suffix)
    return name or str(path)
