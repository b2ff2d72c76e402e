"""Where a corpus or a set of shards comes from, and whether it is still what its record says.

Sources with commit and licence, every step with its settings and drops, the hash of every file:
read from records and manifests, and held against the files' bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from albor_core.data.pack.manifest import MANIFEST_NAME, load_manifest
from albor_core.data.pack.shard_check import verify_shards
from albor_core.data.pipeline.history import source_facts
from albor_core.data.pipeline.stats import DataStats, data_stats
from albor_core.data.progress import Progress
from albor_core.data.stage.output import data_hash_of
from albor_core.data.stage.record import RECORD_NAME, read_record
from albor_core.run.errors import AlborError, Problem
from albor_core.run.files.publish import sha256_file
from albor_core.run.rundir import read_json
from albor_core.run.values.lenient import mapping

_FACTS = ("kind", "commit", "dirty", "licence", "url", "version", "revision", "sha256")
_AGAIN = "make it again, with --force"


def provenance(path: Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """albor.data.provenance/1 of the corpus or shards at `path`. Reads and hashes every file.

    `ok` is false where a file is not what a record or manifest says; `problems` tells which.
    Raises NotFoundError, DataError as `data_stats`.
    """
    found = data_stats(path, progress=progress)
    is_corpus = found.kind == "corpus"
    files, problems = _corpus_files(found) if is_corpus else _shard_files(found)
    return {
        "schema": "albor.data.provenance/1",
        "path": str(path),
        "kind": found.kind,
        "ok": not problems,
        "problems": [vars(problem) for problem in problems],
        "albor_version": _version(),
        "documents": found.documents,
        "bytes": found.bytes,
        "tokens": found.tokens,
        "data_hash": _data_hash(found),
        "tokenizer_sha256": None if is_corpus else _tokenizer(found),
        "sources": list(_sources(found)),
        "licences": dict(sorted(found.licences.items())),
        "steps": found.summaries(),
        "splits": [vars(split) for split in found.splits],
        "files": files,
    }


def _sources(found: DataStats) -> Iterator[dict[str, Any]]:
    facts = source_facts(found.steps)
    for name, one in sorted(found.sources.items()):
        fact = facts.get(name, {})
        yield {
            "source": name,
            **{key: fact.get(key) for key in _FACTS},
            "documents_in": one.documents_in,
            "documents": one.documents,
            "bytes": one.bytes,
            "tokens": one.tokens,
            "dropped": dict(sorted((+one.dropped).items())),
        }


def _data_hash(found: DataStats) -> str | None:
    if found.kind == "corpus":
        record = read_record(found.path)
        return record.data_hash if record is not None else None
    return found.splits[0].data_hash if found.kind == "shards" else None


def _tokenizer(found: DataStats) -> str | None:
    """The tokenizer of all splits; None if they differ or do not name it."""
    hashes = {load_manifest(folder).tokenizer_sha256 for folder in _folders(found)}
    return hashes.pop() if len(hashes) == 1 else None


def _folders(found: DataStats) -> list[Path]:
    if found.kind == "shards":
        return [found.path]
    return [found.path / split.name for split in found.splits]


def _corpus_files(found: DataStats) -> tuple[list[dict[str, Any]], list[Problem]]:
    path = found.path
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    hashes = [
        {"file": file.name, "bytes": file.stat().st_size, "sha256": sha256_file(file)}
        for file in files
    ]
    return hashes, list(_corpus_problems(found, hashes))


def _corpus_problems(found: DataStats, hashes: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    record = read_record(found.path)
    if record is None:
        yield Problem(
            "", "has no record: nothing says where it comes from",
            "import it with: albor data import", str(found.path),
        )  # fmt: skip
        return
    counted = (("documents", found.documents, record.documents), ("bytes", found.bytes,
                                                                  record.bytes))  # fmt: skip
    for what, there, said in counted:
        if there != said:
            yield Problem(what, f"{there:,} are there, its record says {said:,}", _AGAIN,
                          str(found.path))  # fmt: skip
    if not found.path.is_dir():
        return
    parts = json.loads((found.path / RECORD_NAME).read_bytes()).get("parts", [])
    try:
        told = {str(part["file"]): part["sha256"] for part in parts}
        is_theirs = data_hash_of(parts) == record.data_hash
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        yield Problem("parts", f"cannot be read: {error}", _AGAIN, str(found.path / RECORD_NAME))
        return
    by_name = {one["file"]: one["sha256"] for one in hashes}
    for name, sha256 in told.items():
        if by_name.pop(name, None) != sha256:
            yield Problem(name, "missing, or its SHA-256 differs from the record's", _AGAIN,
                          str(found.path / name))  # fmt: skip
    for name in by_name:
        yield Problem(name, "is not in the record", "move it away", str(found.path / name))
    if not is_theirs:
        yield Problem("data_hash", "differs from that of the parts", _AGAIN, str(found.path))


def _shard_files(found: DataStats) -> tuple[list[dict[str, Any]], list[Problem]]:
    files: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for folder in _folders(found):
        prefix = "" if folder == found.path else f"{folder.name}/"
        files += [
            {"file": prefix + shard.file, "bytes": shard.bytes, "sha256": shard.sha256}
            for shard in load_manifest(folder).shards
        ]
        try:
            problems += verify_shards(folder, hashes=True)
        except AlborError as error:
            problems.append(Problem("", error.message, error.hint, str(folder)))
    if found.kind == "dataset":
        problems += _dataset_problems(found)
    return files, problems


def _dataset_problems(found: DataStats) -> Iterator[Problem]:
    file = found.path / MANIFEST_NAME
    if not file.is_file():
        return
    said = mapping(read_json(file) or {}, "splits")
    there = {split.name: split.data_hash for split in found.splits}
    for name in sorted({*said, *there}):
        if said.get(name) != there.get(name):
            yield Problem(name, "its data_hash differs from the data set's", _AGAIN, str(file))


def _version() -> str:
    try:
        return version("albor")
    except PackageNotFoundError:
        return "unknown"


def markdown(document: Mapping[str, Any]) -> str:
    """PROVENANCE.md of what `provenance` gave; the same document gives the same bytes."""
    lines = [
        f"# Provenance of {Path(document['path']).name}",
        "",
        f"Made with Albor {document['albor_version']}. "
        + ("Every file is what its record says." if document["ok"] else "Files differ, see below."),
        "",
        *(f"- {key}: {_figure(document[key])}" for key in (
            "kind", "documents", "bytes", "tokens", "data_hash", "tokenizer_sha256",
        ) if document[key] is not None),
    ]  # fmt: skip
    if document["problems"]:
        lines += ["", "## Problems", ""]
        lines += [f"- {one['file']}: {one['message']}" for one in document["problems"]]
    lines += ["", "## Sources", ""]
    lines += _table(
        ("source", "url", "commit or version", "licence", "files read", "documents", "bytes",
         "tokens"),
        (
            (one["source"], one["url"], one["revision"] or one["commit"] or one["version"],
             one["licence"], one["documents_in"], one["documents"], one["bytes"], one["tokens"])
            for one in document["sources"]
        ),
    )  # fmt: skip
    if document["licences"]:
        lines += ["", "## Licences", ""]
        lines += _table(("licence", "documents"), document["licences"].items())
    lines += ["", "## Steps", ""]
    for number, step in enumerate(document["steps"], 1):
        lines += _step_lines(number, step)
    if document["splits"]:
        lines += ["", "## Splits", ""]
        keys = ("name", "documents", "sequences", "seq_len", "tokens", "data_hash")
        lines += _table(keys, ([split[key] for key in keys] for split in document["splits"]))
        lines += ["", "A split ends with its last full sequence: the tokens of the sources may be "
                  "up to seq_len - 1 more for each split."]  # fmt: skip
    lines += ["", "## Files", ""]
    columns = ("file", "bytes", "sha256")
    lines += _table(columns, ([one[key] for key in columns] for one in document["files"]))
    return "\n".join(lines) + "\n"


def _step_lines(number: int, step: Mapping[str, Any]) -> Iterator[str]:
    dropped = Counter(step["dropped"])
    reasons = ", ".join(f"{count:,} {why}" for why, count in sorted(dropped.items()))
    settings = {key: value for key, value in step["settings"].items() if key != "sources"}
    of_splits = f" of {', '.join(step['splits'])}" if step["splits"] else ""
    yield (
        f"{number}. {step['step']}{of_splits}: {step['documents']:,} of "
        f"{step['documents_in']:,} documents; dropped {reasons or 'none'}"
    )
    yield f"   `{json.dumps(settings, sort_keys=True)}`"


def _table(head: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(_figure(cell) for cell in row)} |"


def _figure(value: object) -> str:
    """The text of a table cell, escaped so that foreign text cannot end the cell."""
    if value is None:
        return "unknown"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "".join(c if c.isprintable() else " " for c in str(value)).replace("|", "\\|")
