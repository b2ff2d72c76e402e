"""`albor runs`: list and show, finished or live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.lookup import db_option, locate, locate_whole, open_table
from albor_core.cli.common.output import emit_with_lists, json_option, say
from albor_core.run.errors import NotFoundError, StoreError, TryAgainError

if TYPE_CHECKING:
    from albor_core.store.query.reader import ArtifactRow, Reader

MOST_POINTS = 2000
_PAGE = 10_000


@click.group(
    cls=LazyGroup,
    entries={
        "ls": ("albor_core.cli.runs.listing:ls", "List runs, newest first."),
        "show": (f"{__name__}:show", "Show everything about one run."),
        "diff": (
            "albor_core.cli.runs.compare:diff",
            "Compare runs: what differs, and which is better.",
        ),
        "tail": ("albor_core.cli.runs.records:tail", "Show the newest records of a run."),
        "digest": (
            "albor_core.cli.runs.digest:digest",
            "Print step and hash of the training state.",
        ),
        "export": (
            "albor_core.cli.runs.export:export",
            "Export every point as JSON lines, CSV or Parquet.",
        ),
        "import": (
            "albor_core.cli.runs.imports:import_runs",
            "Import what other trackers recorded.",
        ),
        "tag": ("albor_core.cli.runs.annotate:tag", "Give a run tags."),
        "note": ("albor_core.cli.runs.annotate:note", "Write a note beside a run."),
        "pin": ("albor_core.cli.runs.annotate:pin", "Pin a run."),
        "rename": ("albor_core.cli.runs.annotate:rename", "Give a run another name."),
        "mv": ("albor_core.cli.runs.move:mv", "Move run directories to another folder."),
        "rm": ("albor_core.cli.runs.removal:rm", "Remove runs for good."),
        "gc": ("albor_core.cli.runs.removal:gc", "Remove what killed processes left behind."),
    },
)
def runs() -> None:
    """List, show, compare, export, annotate and remove runs, finished or live."""


class _PointCount(click.ParamType[int | None]):
    name = "count"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | None:
        """A whole number from 0 on; None stands for all."""
        if value is None or value == "all" or isinstance(value, int):
            return None if value == "all" else value
        try:
            count = int(value)
        except ValueError:
            count = -1
        if count < 0:
            self.fail(f"{value!r} is not a whole number from 0 on, and not 'all'", param, ctx)
        return count


@runs.command()
@click.argument("run")
@click.option(
    "--points",
    "most",
    type=_PointCount(),
    default=MOST_POINTS,
    metavar="N|all",
    help=(
        f"With --json: show at most N points a metric ({MOST_POINTS:,} unless told), of longer"
        " series the first, the last and the extremes in between; all streams every point."
    ),
)
@db_option
@json_option
def show(run: str, most: int | None, db: str | None, as_json: bool) -> None:
    """Show config, code, attempts, metrics, alerts and artefacts of RUN."""
    from albor_core.cli.runs.show_text import render_show

    with _opened(run, db) as (reader, run_id):
        document = _document(reader, run_id, db)
        if not as_json:
            say(render_show(document))
            return
        counts = {key: stat["count"] for key, stat in document["summary"].items()}
        if most is not None:
            document["thinned"] = {key: count for key, count in counts.items() if count > most}
        emit_with_lists(
            document, "points", ((key, _pages(reader, run_id, key, most)) for key in counts)
        )


@contextmanager
def _opened(reference: str, db: str | None) -> Iterator[tuple[Reader, str]]:
    """The store that knows most about a run, and the run's id."""
    from albor_core.store.file.paths import global_store
    from albor_core.store.query.reader import Reader

    run_id, local = locate_whole(reference) if db is None else locate(reference, db)
    path = db or (local if local is not None and local.is_file() else global_store())
    if db is None and not Path(path).is_file():
        raise NotFoundError(f"no run {reference!r}: nothing is recorded yet", hint="albor runs ls")
    with Reader(Path(path)) as reader:
        try:
            reader.run(run_id)
        except NotFoundError as error:  # a copy under another name, of which only the old is known
            if local is not None and path == local:
                error.hint = f"albor db rebuild {local.parent.parent}"
            raise
        yield reader, run_id


def _document(reader: Reader, run_id: str, db: str | None) -> dict[str, Any]:
    """All of albor.runs.show/1 but the points."""
    from albor_core.feed.runs.list_states import present
    from albor_core.feed.runs.store_lag import lines_lost

    detail = reader.detail(run_id)
    status, row = present(detail.row)
    return {
        "schema": "albor.runs.show/1",
        "run": asdict(row),
        "argv": list(detail.argv),
        "facts": detail.facts,
        "status": status.word,
        "silent_s": status.silent_s,
        "lines_lost": lines_lost(row.path, detail.facts),
        "parent": reader.parents([run_id]).get(run_id),
        "children": _children(run_id, db),
        "params": reader.params(run_id),
        "summary": {k: asdict(s) for k, s in reader.summary(run_id).items()},
        "thinned": {},
        "events": [asdict(e) for e in reader.events(run_id)],
        "alerts": [asdict(a) for a in reader.alerts(run_id)],
        "attempts": [asdict(a) for a in reader.attempts(run_id)],
        "artifacts": [
            {**asdict(a), "is_gone": _is_gone(a, Path(row.path))} for a in reader.artifacts(run_id)
        ],
        "samples": [asdict(s) for s in reader.samples(run_id)],
        "tags": list(reader.tags(run_id)),
        "notes": [asdict(n) for n in reader.notes(run_id)],
    }


def _is_gone(artifact: ArtifactRow, folder: Path) -> bool:
    """Whether a checkpoint is no longer where it was written, nor in its run's folder, wherever
    that lies now: pruned, or gone with the folder.
    """
    places = folder / artifact.path, folder / "checkpoints" / Path(artifact.path).name
    return artifact.kind == "checkpoint" and not any(place.exists() for place in places)


def _pages(
    reader: Reader, run_id: str, key: str, most: int | None
) -> Iterator[tuple[tuple[int, float, float | None], ...]]:
    """The points of one metric, [step, value, wall], a page at a time."""
    if most is not None:
        yield reader.outline(run_id, key, most)
        return
    after: int | None = None
    while points := reader.points(run_id, key, after, limit=_PAGE):
        yield points
        after = points[-1][0] + 1


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
