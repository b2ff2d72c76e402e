"""What is in a corpus, in the shards of one split, or in a folder of splits: one document for all.

A corpus is read once, for its lengths; of shards only the manifests are. What an older manifest
does not say is None.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albor_core.data.mix.split import DRAWS, NO_PART, OTHER_PART
from albor_core.data.pack.manifest import MANIFEST_NAME, SCHEMA, Manifest, load_manifest
from albor_core.data.pipeline.history import (
    History,
    SourceStats,
    contamination_of,
    source_facts,
    sources_of,
    step_summary,
)
from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import IMPORT_HINT, Corpus, open_corpus
from albor_core.data.stage.lengths import LengthHistogram
from albor_core.data.stage.record import CORPUS_SCHEMA, read_record
from albor_core.data.stage.survey import UNKNOWN, survey
from albor_core.run.errors import DataError, NotFoundError


@dataclass(frozen=True)
class SplitStats:
    """One split of shards."""

    name: str
    documents: int | None
    tokens: int
    sequences: int
    seq_len: int
    data_hash: str


@dataclass(frozen=True)
class DataStats:
    """Statistics of the data at `path`; `to_json` is albor.data.stats/1."""

    path: Path
    kind: str
    """corpus, shards (one split) or dataset (a folder of splits)."""
    documents: int | None
    bytes: int | None
    tokens: int | None
    vocab_size: int | None
    seq_len: int | None
    splits: tuple[SplitStats, ...]
    sources: Mapping[str, SourceStats]
    steps: History
    step_splits: Sequence[Sequence[str]]
    """Of each step the splits that it made; empty where it made all of them."""
    histogram: Mapping[str, Any] | None
    licences: Mapping[str, int]
    """Empty where it is not known."""

    def summaries(self) -> list[dict[str, Any]]:
        return [
            step_summary(step, splits)
            for step, splits in zip(self.steps, self.step_splits, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "albor.data.stats/1",
            "path": str(self.path),
            "kind": self.kind,
            "documents": self.documents,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "vocab_size": self.vocab_size,
            "seq_len": self.seq_len,
            "splits": [vars(split) for split in self.splits],
            "sources": [
                {"source": name, **vars(one), "dropped": dict(sorted((+one.dropped).items()))}
                for name, one in sorted(self.sources.items())
            ],
            "steps": self.summaries(),
            "histogram": self.histogram,
            "licences": dict(sorted(self.licences.items())),
            "contamination": contamination_of(self.steps, self.step_splits),
        }


def data_stats(path: Path, *, progress: Progress | None = None) -> DataStats:
    """Look at what is at `path`. `progress` is called with the documents read and all of a corpus.

    Raises NotFoundError where nothing is, DataError naming a damaged file and its cause.
    """
    schemas = _manifests_in(path)
    if schemas.get("") == SCHEMA:
        return _shard_stats(path, "shards", [load_manifest(path)])
    if names := [name for name in schemas if schemas[name] == SCHEMA]:
        names.sort(key=lambda name: (name in DRAWS and -DRAWS.index(name) - 1, name))
        return _shard_stats(path, "dataset", [load_manifest(path / name) for name in names])
    parts = sorted(name for name in schemas if name and schemas[name] == CORPUS_SCHEMA)
    if parts and "" not in schemas:
        raise DataError(
            f"{path}: holds several corpora ({', '.join(parts)})",
            hint=f"name one of them: albor data stats {path / parts[0]}",
        )
    return _corpus_stats(open_corpus(path), progress)


def _manifests_in(path: Path) -> dict[str, str]:
    """The schemas of the manifests in the folder `path` ("") and in its folders (their names)."""
    if not path.exists():
        raise NotFoundError(f"{path}: no such corpus or folder of shards", hint=IMPORT_HINT)
    if not path.is_dir():
        return {}
    found = {}
    for folder in (path, *sorted(one for one in path.iterdir() if one.is_dir())):
        file = folder / MANIFEST_NAME
        if file.is_file():
            found["" if folder == path else folder.name] = str(_read(file).get("schema"))
    return found


def _read(file: Path) -> dict[str, Any]:
    hint = "make it again, with --force"
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: not JSON: {error}", hint=hint) from error
    if not isinstance(document, dict):
        raise DataError(f"{file}: not a JSON object", hint=hint)
    return document


def _corpus_stats(corpus: Corpus, progress: Progress | None) -> DataStats:
    record = read_record(corpus.path)
    steps: History = record.steps() if record is not None else ()
    found = survey(corpus, progress)
    sources = sources_of(steps)
    for name, (documents, size) in found.sources.items():
        one = sources.setdefault(name, SourceStats())
        one.documents, one.bytes = documents, size
    return DataStats(
        corpus.path, "corpus", found.documents, found.bytes, None, None, None, (), sources, steps,
        ((),) * len(steps), found.lengths.to_json("bytes"), found.licences,
    )  # fmt: skip


def _shard_stats(path: Path, kind: str, manifests: Sequence[Manifest]) -> DataStats:
    said = [_read(manifest.directory / MANIFEST_NAME) for manifest in manifests]
    try:
        histories = _histories(said)
        steps = _steps(histories)
        sources = _shard_sources(said, histories, steps)
        lengths = _lengths(said)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path}: a manifest's sources, histogram or history cannot be read: {error}",
            hint="pack it again: albor data pretokenize CORPUS ... --force",
        ) from error
    return DataStats(
        path,
        kind,
        _total([manifest.documents for manifest in manifests]),
        _total([source.bytes for source in sources.values()]) if sources else None,
        sum(manifest.tokens for manifest in manifests),
        manifests[0].vocab_size,
        manifests[0].seq_len,
        tuple(
            SplitStats(m.split, m.documents, m.tokens, m.sequences, m.seq_len, m.data_hash)
            for m in manifests
        ),
        sources,
        steps,
        [_splits_of(step, manifests, said) for step in steps],
        lengths,
        _licences(sources, steps),
    )  # fmt: skip


def _histories(said: Sequence[Mapping[str, Any]]) -> list[History]:
    """The distinct histories of the splits."""
    found: list[History] = []
    for one in said:
        if (history := list(one.get("history") or ())) and history not in found:
            found.append(history)
    return found


def _steps(histories: Sequence[History]) -> History:
    """The steps of all histories; common steps appear once."""
    return [
        step
        for number, history in enumerate(histories)
        for step in history
        if not any(step in earlier for earlier in histories[:number])
    ]


def _splits_of(
    step: Mapping[str, Any], manifests: Sequence[Manifest], said: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The splits that a step made; none where it made all of them."""
    names = [
        manifest.split
        for manifest, one in zip(manifests, said, strict=True)
        if step in (one.get("history") or ())
    ]
    return names if len(names) < len(manifests) else []


def _shard_sources(
    said: Sequence[Mapping[str, Any]], histories: Sequence[History], steps: History
) -> dict[str, SourceStats]:
    found: dict[str, SourceStats] = {}
    has_own = any(one.get("sources") for one in said)
    for history in histories:
        for name, told in sources_of(history).items():
            if has_own:  # the splits say how many of them they have
                told.documents, told.bytes = 0, None
            found.setdefault(name, SourceStats()).merge(told)
    for step in steps:
        for name, counts in step.get("sources", {}).items():
            if name in found:
                found[name].add_drops(step["step"], _lost(counts["dropped"]))
                if in_none := counts["dropped"].get(NO_PART):  # each part of a split says it
                    found[name].dropped[NO_PART] = in_none
    for one in said:
        for name, own in (one.get("sources") or {}).items():
            counts = SourceStats(
                documents=own["documents"], bytes=own["bytes"], tokens=own["tokens"]
            )
            found.setdefault(name, SourceStats()).merge(counts)
    return found


def _lost(dropped: Mapping[str, int]) -> dict[str, int]:
    """Counts of dropped documents that are in no split."""
    return {
        reason: number for reason, number in dropped.items() if reason not in (OTHER_PART, NO_PART)
    }


def _licences(sources: Mapping[str, SourceStats], steps: History) -> Counter[str]:
    """Licences of the sources, from their imports; empty if none names any."""
    facts = source_facts(steps)
    found: Counter[str] = Counter()
    for name, one in sources.items() if facts else ():
        found[facts.get(name, {}).get("licence") or UNKNOWN] += one.documents
    return found


def _lengths(said: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Length statistics in tokens; None if a split has none."""
    lengths = LengthHistogram()
    for one in said:
        if not one.get("histogram"):
            return None
        lengths.add_counts(one["histogram"])
    return lengths.to_json("tokens")


def _total(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
