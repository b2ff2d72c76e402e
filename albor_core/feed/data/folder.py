"""What lies in the folder of a data set, by its manifest alone: no shard is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from albor_core.run.rundir import load_json, read_json
from albor_core.run.values.lenient import Document, integer, mapping, text

MANIFEST = "manifest.json"
CORPUS, SHARDS, DATASET = "corpus", "shards", "dataset"
KINDS: Mapping[str, str] = {
    "albor.corpus/1": CORPUS,
    "albor.shards/1": SHARDS,
    "albor.dataset/1": DATASET,
}
SEALED = (SHARDS, DATASET)  # kinds that `albor data verify` reads
_MOST_BYTES = 64 << 20  # a manifest names every shard


@dataclass(frozen=True)
class FolderView:
    """A data set as it lies there. `state`: "here"; "gone"; "damaged": its manifest cannot be read;
    "unknown": something is there, and says nothing of itself. `why` says it in words.
    """

    state: str = "here"
    why: str = ""
    kind: str = ""
    documents: int | None = None
    tokens: int | None = None
    sequences: int | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    """The hash that seals each split, by its name; of a corpus its own, by ""."""
    mark: tuple[int, int] = (0, 0)
    """Of a corpus in one file: moves when that is written."""

    def has_sealed(self, seal: str) -> bool | None:
        """Whether what lies here has this hash; None where that is not known."""
        known = {value for value in self.hashes.values() if value}
        return seal in known if seal and known else None


def look_into(path: Path) -> FolderView:
    """The view of a folder. Raises nothing."""
    try:
        if path.is_file():
            there = path.stat()  # what a Parquet file holds is read by `albor data`
            return FolderView(kind=CORPUS, mark=(there.st_mtime_ns, there.st_size))
        if not path.is_dir():
            return FolderView("gone", "nothing is there any more")
        document = load_json(path / MANIFEST, _MOST_BYTES)
    except FileNotFoundError:
        return FolderView("unknown", "no manifest.json: what it holds is not known")
    except OSError as error:
        return FolderView("damaged", f"{MANIFEST}: {error.strerror or error}")
    except ValueError as error:
        return FolderView("damaged", f"{MANIFEST} {error}")
    kind = KINDS.get(text(document, "schema"))
    if kind is None:
        return FolderView("unknown", f"{MANIFEST} is of another program or version")
    return _whole(path, document) if kind == DATASET else _one(document, kind)


def kind_of(path: Path) -> str:
    """The kind of a folder, by its manifest's schema alone; "" if unknown."""
    return KINDS.get(text(read_json(path / MANIFEST, _MOST_BYTES) or {}, "schema"), "")


def _one(document: Document, kind: str) -> FolderView:
    name = text(document, "split") if kind == SHARDS else ""
    return FolderView(
        kind=kind,
        documents=integer(document, "documents"),
        tokens=integer(document, "tokens"),
        sequences=integer(document, "sequences"),
        hashes={name: text(document, "data_hash")},
    )


def _whole(path: Path, document: Document) -> FolderView:
    """A folder of splits; a split that cannot be read makes all of it damaged."""
    splits = [look_into(path / name) for name in mapping(document, "splits") if _is_name(name)]
    bad = next((one for one in splits if one.state != "here"), None)
    if bad is not None:
        return FolderView("damaged", f"a split of it: {bad.why}", DATASET)
    return FolderView(
        kind=DATASET,
        documents=_sum([one.documents for one in splits]),
        tokens=_sum([one.tokens for one in splits]),
        sequences=_sum([one.sequences for one in splits]),
        hashes={name: found for one in splits for name, found in one.hashes.items()},
    )


def _is_name(name: str) -> bool:
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
