"""`albor runs`: list and show, finished or live."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from albor_core.cli.lazy import LazyGroup
from albor_core.cli.lookup import db_option, locate, locate_whole, open_table
from albor_core.cli.output import emit, json_option, say
from albor_core.run.errors import NotFoundError, StoreError, TryAgainError


@click.group(
    cls=LazyGroup,
    entries={
        "ls": ("albor_core.cli.listing:ls", "All runs, newest first."),
        "show": (f"{__name__}:show", "Everything about one run."),
        "diff": ("albor_core.cli.compare:diff", "What differs between runs, and which is better."),
        "tail": ("albor_core.cli.records:tail", "The newest records of a run."),
        "export": ("albor_core.cli.export:export", "Every point as JSON lines, CSV or Parquet."),
        "import": ("albor_core.cli.imports:import_runs", "Bring in what other trackers recorded."),
        "tag": ("albor_core.cli.annotate:tag", "Give a run tags."),
        "note": ("albor_core.cli.annotate:note", "Write something down beside a run."),
        "pin": ("albor_core.cli.annotate:pin", "Pin a run."),
        "mv": ("albor_core.cli.move:mv", "Let runs lie in another folder."),
        "rm": ("albor_core.cli.removal:rm", "Remove runs for good."),
        "gc": ("albor_core.cli.removal:gc", "Remove what killed processes left behind."),
    },
)
def runs() -> None:
    """List, show, compare, export, annotate and remove runs, finished or live."""


@runs.command()
@click.argument("run")
@db_option
@json_option
def show(run: str, db: str | None, as_json: bool) -> None:
    """Config, code, attempts, metrics, alerts and artefacts of RUN."""
    from albor_core.cli.show_text import render_show

    document = _document(run, db, with_points=as_json)
    if as_json:
        emit(document)
    else:
        say(render_show(document))


def _document(reference: str, db: str | None, *, with_points: bool) -> dict[str, Any]:
    from albor_core.feed.words import word_of
    from albor_core.store.paths import global_store
    from albor_core.store.reader import Reader

    run_id, local = locate_whole(reference) if db is None else locate(reference)
    from pathlib import Path

    path = db or (local if local is not None and local.is_file() else global_store())
    if db is None and not Path(path).is_file():
        raise NotFoundError(f"no run {reference!r}: nothing is recorded yet", hint="albor runs ls")
    with Reader(Path(path)) as reader:
        try:
            detail = reader.detail(run_id)
        except NotFoundError as error:  # a copy under another name, of which only the old is known
            if local is not None and path == local:
                error.hint = f"albor db rebuild {local.parent.parent}"
            raise
        row = detail.row
        keys = reader.keys(run_id) if with_points else ()
        return {
            "schema": "albor.runs.show/1",
            "run": asdict(row),
            "argv": list(detail.argv),
            "facts": detail.facts,
            "status": word_of(row),
            "parent": reader.parents([run_id]).get(run_id),
            "children": _children(run_id, db),
            "params": reader.params(run_id),
            "summary": {k: asdict(s) for k, s in reader.summary(run_id).items()},
            "points": {key: [list(p) for p in reader.points(run_id, key)] for key in keys},
            "events": [asdict(e) for e in reader.events(run_id)],
            "alerts": [asdict(a) for a in reader.alerts(run_id)],
            "attempts": [asdict(a) for a in reader.attempts(run_id)],
            "artifacts": [asdict(a) for a in reader.artifacts(run_id)],
            "samples": [asdict(s) for s in reader.samples(run_id)],
            "tags": list(reader.tags(run_id)),
            "notes": [asdict(n) for n in reader.notes(run_id)],
        }


def _children(run_id: str, db: str | None) -> list[str]:
    """Other runs are known to the global store only, or to the one that was named."""
    try:
        table = open_table(db)
        if table is None:
            return []
        with table:
            return sorted(table.children(run_id))
    except (StoreError, TryAgainError):  # the run's own store is well: show what it says
        return []
