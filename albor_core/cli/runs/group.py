"""`albor runs`: list and show, finished or live."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.lookup import db_option, find, locate, locate_whole, open_store
from albor_core.cli.common.output import (
    clean,
    emit_with_lists,
    json_option,
    print_line,
    print_note,
    write_stdout,
)
from albor_core.run.errors import NotFoundError, StoreError, TryAgainError
from albor_core.run.home.runs import placed
from albor_core.run.rundir import RunDir, read_json

if TYPE_CHECKING:
    from albor_core.feed.archive.card import RunCard
    from albor_core.store.query.reader import Reader
    from albor_core.store.rows.rows import ArtifactRow, AttemptRow
    from albor_core.store.rows.run_row import RunRow

MOST_POINTS = 2000
_PAGE = 10_000
T = TypeVar("T")


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
        "pull": ("albor_core.cli.runs.transfer.pull:pull", "Copy the runs of another host here."),
        "wait": ("albor_core.cli.runs.wait:wait", "Sleep until runs meet a condition."),
        "digest": (
            "albor_core.cli.runs.digest:digest",
            "Print step and hash of the training state.",
        ),
        "export": (
            "albor_core.cli.runs.transfer.export:export",
            "Export runs or their points as JSON lines, CSV or Parquet.",
        ),
        "plot": ("albor_core.cli.runs.transfer.plot:plot", "Plot a metric of runs as SVG or PNG."),
        "import": (
            "albor_core.cli.runs.transfer.imports:import_runs",
            "Import what other trackers recorded, or runs from another folder.",
        ),
        "tag": ("albor_core.cli.runs.annotate:tag", "Give a run tags."),
        "note": ("albor_core.cli.runs.annotate:note", "Write a note beside a run."),
        "pin": ("albor_core.cli.runs.annotate:pin", "Pin a run."),
        "rename": ("albor_core.cli.runs.annotate:rename", "Give a run another name."),
        "mv": ("albor_core.cli.runs.transfer.move:mv", "Move run directories to another folder."),
        "restore": (
            "albor_core.cli.runs.restore:restore",
            "Bring back what a rewind took back.",
        ),
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
@click.option(
    "--patch", is_flag=True, help="Print the whole patch over its commit, as `git apply` takes it."
)
@db_option
@json_option
def show(run: str, most: int | None, patch: bool, db: str | None, as_json: bool) -> None:
    """Show notes, code, config, attempts, metrics, alerts, crashes, artefacts and related runs of
    RUN.
    """
    from albor_core.cli.runs.show_text import render_show
    from albor_core.store.query.media import media_in

    with _opened(run, db) as (reader, run_id):
        document, card = _document(reader, run_id, db)
        if patch:
            _write_patch(card)
            return
        if not as_json:
            unread = sum(at.ignored for at in reader.positions(run_id))
            print_line(render_show(document, card, unread))
            return
        run_dir = placed(run_id, document["run"]["path"])
        document["media"] = [one.to_json() for one in media_in(reader, run_dir)]
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
        raise _not_indexed(reference)
    with Reader(Path(path)) as reader:
        try:
            reader.run(run_id)
        except NotFoundError as error:
            if local is None:
                raise
            if path != local:
                raise _not_indexed(reference) from None
            # a copy under another name, of which only the old is known
            error.hint = f"albor db rebuild {_folder(reference)}"
            raise
        yield reader, run_id


def _not_indexed(reference: str) -> NotFoundError:
    """The error of a run that no store has."""
    folder = _folder(reference)
    if folder is None:
        return NotFoundError(f"no run {reference!r}: nothing is recorded yet", hint="albor runs ls")
    return NotFoundError(
        f"run {reference!r} is in no store yet: its index process has written none so far",
        hint=f"the same again in a moment, or albor db rebuild {folder}",
    )


def _folder(reference: str) -> str | None:
    _, run = find(reference)
    return None if run is None else clean(shlex.quote(str(run.path)))


def _document(reader: Reader, run_id: str, db: str | None) -> tuple[dict[str, Any], RunCard]:
    """All of albor.runs.show/1 but the points and media, and the card that it has a part of."""
    from albor_core.feed.runs.listed_status import now_of
    from albor_core.feed.runs.store_lag import console_bytes_lost, lines_lost
    from albor_core.run.files.pulled_file import read_pulled

    detail = reader.detail(run_id)
    status, row, _ = now_of(detail.row)
    pulled = read_pulled(placed(run_id, row.path)) if db is None and row.path else None
    card = _card(reader, placed(run_id, row.path), db)
    document = {
        "schema": "albor.runs.show/1",
        "run": asdict(row),
        "argv": list(detail.argv),
        "facts": detail.facts,
        "status": status.word,
        "silent_s": status.silent_s,
        **(_attention(Path(row.path), run_id) if db is None else _NOT_LOOKED_AT),
        "lines_lost": lines_lost(row.path, detail.facts),
        "console_bytes_lost": console_bytes_lost(row.path, detail.facts),
        "cut_short": _cut_short(placed(run_id, row.path)) if db is None and row.path else "",
        "pulled": None if pulled is None else asdict(pulled),
        "parent": reader.parents([run_id]).get(run_id),
        "children": list(card.child_ids),
        "params": reader.params(run_id),
        "summary": {k: asdict(s) for k, s in reader.summary(run_id).items()},
        "thinned": {},
        "events": [asdict(e) for e in reader.events(run_id)],
        "alerts": [asdict(a) for a in reader.alerts(run_id)],
        "attempts": [asdict(a) for a in _attempts(reader, row, is_lost=status.word == "lost")],
        "artifacts": [
            {**asdict(a), "is_gone": _is_gone(a, Path(row.path))} for a in reader.artifacts(run_id)
        ],
        "samples": [asdict(s) for s in reader.samples(run_id)],
        "trace": _trace(reader.span_ids(run_id), placed(run_id, row.path), is_here=db is None),
        "tags": list(card.tags),
        **card.to_json(),
    }
    return document, card


def _cut_short(run: RunDir) -> str:
    from albor_core.store.file.paths import global_store
    from albor_core.store.upkeep.cut_short import cut_short

    return cut_short(run, global_store()) if run.path.is_dir() else ""


def _trace(
    ids: Mapping[str, tuple[str, str]], run: RunDir, *, is_here: bool
) -> dict[str, Any] | None:
    """Where the run is found in traces, and what of it a collector has got; None where a store is
    older than such ids.
    """
    from albor_core.run.files.spans_file import read_spans_sent

    if "run" not in ids:
        return None
    sent = read_spans_sent(run) if is_here else None
    return {
        "trace_id": ids["run"][0],
        "span_ids": {name: span_id for name, (_, span_id) in ids.items()},
        "sent": None if sent is None else sent.summary(),
    }


def _attempts(reader: Reader, row: RunRow, *, is_lost: bool) -> Iterator[AttemptRow]:
    """Attempts of a run. If the run is lost, the newest counts as ended."""
    from albor_core.store.query.attempts import with_unseen_end

    *earlier, newest = reader.attempts(row.id) or (None,)
    yield from filter(None, earlier)
    if newest is not None:
        is_unseen = is_lost and newest.ended is None
        yield with_unseen_end(newest, row.last_wall) if is_unseen else newest


def _card(reader: Reader, run: RunDir, db: str | None) -> RunCard:
    """The card of a run in a store that is open; other runs are known to the global store only, or
    to the one that was named.
    """
    from albor_core.feed.archive.card import CardShelf

    def of_everybody(name: str, question: Callable[[Reader], T]) -> T | None:
        try:
            everybody = open_store(db)
            if everybody is None:
                return None
            with everybody:
                return question(everybody)
        except (StoreError, TryAgainError):  # the run's own store is well: show what it says
            return None

    def own(name: str, question: Callable[[Reader], T]) -> T | None:
        return question(reader)

    is_copy = db is not None
    return CardShelf(run, own=own, everybody=of_everybody, is_copy=is_copy).look()


def _write_patch(card: RunCard) -> None:
    """Print the patch. Raises NotFoundError if the run has none, or no longer all of it."""
    git = (read_json(Path(card.code.patch_path)) or {}).get("git") if card.code.patch_path else None
    patch = git.get("patch") if isinstance(git, dict) else None
    if not isinstance(patch, str) or not patch:
        what = "all of its patch" if card.code.patch is not None else "a patch"
        raise NotFoundError(f"{Path(card.path).name} has not kept {what}", hint="albor runs show")
    if card.code.patch is not None and card.code.patch.is_cut:
        print_note("  the patch was larger than a run keeps: its end is missing")
    if sys.stdout.isatty():  # a terminal must not obey it; what is piped is applied
        patch = "".join(f"{clean(line.expandtabs(8))}\n" for line in patch.splitlines())
    write_stdout(patch, is_raw=True)


_NOT_LOOKED_AT: dict[str, Any] = {"watched": "", "attention": [], "sinks": []}
"""Of a run in a store that was named: it may be a copy of one that is not of this home."""


def _attention(path: Path, run_id: str) -> dict[str, Any]:
    """What watches a run, its attention entries, and the sinks of its alerts."""
    from albor_core.feed.attention.watch import entries_of
    from albor_core.feed.run.detail import RunFeed
    from albor_core.run.files.watch_file import read_watch

    run = placed(run_id, path)
    told = read_watch(run)
    feed = RunFeed(run)
    try:
        view = feed.poll()
    finally:
        feed.close()
    open_ones = [item.to_json() for item in entries_of(view) if item.is_open]
    watched = view.diagnostics.watched.words if view is not None and view.is_active else ""
    sinks = [] if told is None else [asdict(sink) for sink in told.sinks]
    return {"watched": watched, "attention": open_ones, "sinks": sinks}


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
    yield from reader.pages_of(reader.series_ids(run_id, (key,)), key, _PAGE)
