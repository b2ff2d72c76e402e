"""Files of media that may go: those that nothing tells of, and what a retention leaves out.

The journal decides, not a store: every medium that it ever told of counts, also one that a rewind
took back. Runs that are alive, copies of other hosts' runs, and runs whose journal is damaged are
left alone; so is every file of an artefact, whose version other runs may use.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from albor_core.run.files.media_file import kept, media_path
from albor_core.run.files.pulled_file import read_pulled
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir, open_plain
from albor_core.store.upkeep.remove import SETTLED_S, Garbage, is_old

_MAX_LIST_BYTES = 64 << 20


@dataclass
class _Told:
    """What a journal tells of: hashes of media by key and kind in order, and those of artefacts."""

    size: int
    by_key: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    artifacts: set[str] = field(default_factory=set)


def media_garbage(runs: Iterable[RunDir], *, keep: int | None = None) -> Iterator[Garbage]:
    """Files of media that no record tells of, which a kill may leave; and with `keep` those of all
    but the newest `keep` media of a key and kind.
    """
    for run in runs:
        if run.path.is_symlink() or not run.run_json.is_file() or run.liveness().is_alive:
            continue
        if read_pulled(run) is not None:  # the next pull would bring it again
            continue
        told = _told(run)
        if told is None:
            continue
        lists = told.by_key.values()
        every = told.artifacts.union(*lists)
        newest = told.artifacts.union(*(one[max(0, len(one) - (keep or 0)) :] for one in lists))
        for path, status in kept(run.path):
            digest, size = path.stem, status.st_size
            if digest not in every:
                if is_old(path, SETTLED_S):
                    why = "medium that no record tells of"
                    yield Garbage(path, size, why, run, told.size)
            elif keep is not None and digest not in newest:
                why = f"medium older than the newest {keep:,} of its key"
                yield Garbage(path, size, why, run, told.size)


def _told(run: RunDir) -> _Told | None:
    """The media that records of a run name; None if they cannot be known."""
    try:
        told = _Told(run.journal.stat().st_size)
        for line in read_journal(run.journal):
            if line.record is None:
                return None
            if line.record.get("t") == "b":
                _take(run, line.record, told)
        return told
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _take(run: RunDir, record: Mapping[str, Any], told: _Told) -> None:
    """Add what a record names. Raises OSError, ValueError, TypeError, KeyError for a folder whose
    list cannot be read.
    """
    digest, kind = str(record.get("hash")), str(record.get("kind"))
    if kind != "artifact":
        told.by_key[str(record.get("key")), kind].append(digest)
        return
    told.artifacts.add(digest)
    meta = record.get("meta")
    form = meta.get("format") if isinstance(meta, Mapping) else None
    tree = media_path(run.path, digest, "tree") if form == "tree" else None
    if tree is not None and tree.is_file():
        with open_plain(tree) as file:
            rows = json.loads(file.read(_MAX_LIST_BYTES))["files"]
        told.artifacts.update(row["hash"] for row in rows)
