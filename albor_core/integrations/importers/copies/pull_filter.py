"""Which runs of a source a filter keeps, by the same language and the same SQL as `albor runs ls`.

What run.json tells (name, id, experiment, host, kind, commit, parent, time) is asked first, with
what its files say of its status. Tags, notes, params, metrics and words are in the lines of a run:
of the runs that are left those are brought to a temporary folder, and asked there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from albor_core.feed.run.status import run_status
from albor_core.integrations.importers.copies.copied_runs import CopiedSource, Copy, FoundRun
from albor_core.run.files.pulled_file import Pulled, write_pulled
from albor_core.run.home.folders import private_folder
from albor_core.run.rundir import RunDir, is_run_id
from albor_core.store.index.indexer import Indexer
from albor_core.store.query.table import RunList
from albor_core.store.query.terms import Filter

_OF_HEADS = ("experiment", "name", "id", "host", "kind", "commit")
_LINES = ("journal.jsonl", "system.jsonl", "annotations.jsonl")


def chosen(source: CopiedSource, found: Sequence[FoundRun], where: Filter) -> Sequence[FoundRun]:
    """The runs that `where` keeps. Raises FilterError, and what the source raises."""
    if not where.terms:
        return found
    simple = Filter(tuple(term for term in where.terms if _is_simple(term.kind, term.field)))
    with tempfile.TemporaryDirectory(prefix="albor-pull-") as name:
        folder = Path(name)
        staged = {
            f"{number}": (one, _staged(source, one, folder / "runs" / str(number)))
            for number, one in enumerate(found)
            if is_run_id(one.id) and one.about.get("id") == one.id
        }
        kept = _matching(staged, folder / "heads.db", simple)
        if len(simple.terms) < len(where.terms):
            staged = {number: staged[number] for number in kept}
            source.fetch([_lines_of(one, run) for one, run in staged.values()])
            kept = _matching(staged, folder / "whole.db", where)
        return [staged[number][0] for number in kept]


def _is_simple(kind: str, field: str) -> bool:
    return kind in ("status", "time") or (kind == "text" and field in _OF_HEADS)


def _staged(source: CopiedSource, found: FoundRun, folder: Path) -> RunDir:
    """The heads of a run as a run directory."""
    run = RunDir(folder / found.id)
    for place in (folder.parent, folder, run.path, run.guard, run.store.parent):
        private_folder(place)
    for name, content in found.heads.items():
        (run.path / name).write_bytes(content)
    write_pulled(run, Pulled(source.host or "here", found.folder))
    return run


def _lines_of(found: FoundRun, run: RunDir) -> Copy:
    sizes = {name: found.files[name][0] for name in _LINES if name in found.files}
    return Copy(found.folder, run.path, sizes)


def _matching(
    staged: Mapping[str, tuple[FoundRun, RunDir]], store: Path, where: Filter
) -> list[str]:
    """Index the staged runs in `store` and return the keys of those that the filter keeps. A run is
    indexed as ID@KEY, since two runs may have the same id.
    """
    words = {}
    for number, (_, run) in staged.items():
        known = RunDir(run.path, f"{run.own_id}@{number}")
        run.store.unlink(missing_ok=True)
        with Indexer(known, store) as indexer:
            indexer.drain()
        words[known.id] = run_status(run).word
    if not staged:
        return []
    with RunList(store) as table:
        kept = table.matching(where, words)
    return [number for number, (_, run) in staged.items() if f"{run.own_id}@{number}" in kept]
