"""`albor runs tag`, `note`, `pin`, `rename`: what people say about a run; kept with it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
)
from albor_core.cli.common.run_name import RUN_NAME
from albor_core.run.errors import NotFoundError, StoreError, UsageError
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from collections.abc import Collection

    from albor_core.run.rundir import RunDir
    from albor_core.store.index.annotations import Annotation, Note

_INDEXED_S, _LOOK_S = 5.0, 0.1  # so long for an index process, which needs a second
_TOLD = 8  # numbers of notes in a message


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@click.option("--remove", is_flag=True, help="Remove the tags.")
@json_option
def tag(run_ref: str, tags: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Give RUN one or more tags."""
    found = find_run(run_ref)
    for word in tags:
        _annotate(found, "untag" if remove else "tag", word)
    _update_stores(found)
    now = _tags(found)
    if as_json:
        emit({"schema": "albor.runs.tag/1", "run": found.id, "tags": now})
    else:
        print_line(f"{found.id}: {clean(' '.join(now)) or 'no tags'}")


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.argument("text", required=False)
@click.option(
    "--replace", type=Count(1), metavar="N", help="Replace note N of `runs show` by TEXT."
)
@click.option("--remove", type=Count(1), metavar="N", help="Remove note N of `runs show`.")
@json_option
def note(
    run_ref: str, text: str | None, replace: int | None, remove: int | None, as_json: bool
) -> None:
    """Add TEXT as a note of RUN, or change an existing note."""
    from albor_core.store.index.annotations import check_text

    if (remove is None) == (text is None) or (remove is not None and replace is not None):
        raise UsageError(
            "cannot tell what to write: give TEXT, TEXT with --replace N, or --remove N alone",
            hint="albor runs note RUN TEXT",
        )
    if text is not None:
        check_text("note", text)
    found = find_run(run_ref)
    number = remove if replace is None else replace
    if number is None:
        _annotate(found, "note", text)
    else:
        _annotate(found, "note.edit", {"at": _note(found, number).at, "text": text or ""})
    _update_stores(found)
    if as_json:
        notes = {one.number: field_values(one) for one in _notes(found)}
        now = notes.get(max(notes, default=0) if number is None else number)
        body: Any = now and {k: now[k] for k in ("number", "wall", "by", "text")}
        emit({"schema": "albor.runs.note/1", "run": found.id, "note": body})
    else:
        print_line(f"{found.id}: {'noted' if remove is None else f'note {remove} taken back'}")


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.argument("metrics", nargs=-1, metavar="[METRIC]...")
@click.option("--off", is_flag=True, help="Unpin.")
@json_option
def pin(run_ref: str, metrics: tuple[str, ...], off: bool, as_json: bool) -> None:
    """Pin RUN as the baseline that other runs are compared with. With METRICs, pin those metrics
    instead: they stand for the run in lists and on its first screen.
    """
    found = find_run(run_ref)
    kind = "unpin" if off else "pin"
    known = _metrics_of(found) if metrics else ()
    for name in [_meant(found, name, known, may_be_new=not off) for name in metrics]:
        _annotate(found, f"metric.{kind}", name)
    if not metrics:
        _annotate(found, kind, None)
    _update_stores(found)
    is_pinned, names = _pins(found)
    if as_json:
        emit({"schema": "albor.runs.pin/1", "run": found.id, "pinned": is_pinned,
              "metrics": names})  # fmt: skip
    elif metrics:
        words = f"pinned metrics {', '.join(map(clean, names))}" if names else "no pinned metrics"
        print_line(f"{found.id}: {words}")
    else:
        print_line(f"{found.id}: {'not pinned' if off else 'pinned'}")


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.argument("name", type=RUN_NAME)
@json_option
def rename(run_ref: str, name: str, as_json: bool) -> None:
    """Give RUN another name. Its id and its folder stay; every command accepts the name too, as
    long as no other run has it.
    """
    from albor_core.store.query.resolve import called

    found = find_run(run_ref)
    _annotate(found, "name", name)
    _update_stores(found)
    known = called(name)
    until = time.monotonic() + _INDEXED_S
    while found.id not in known and found.liveness().is_alive and time.monotonic() < until:
        time.sleep(_LOOK_S)  # its index process brings it in: the next command may use the name
        known = called(name)
    if found.id not in known and found.liveness().is_alive:
        print_note("  nothing has indexed it yet; until then commands take the id")
    others = [run for run in known if run != found.id]
    if as_json:
        emit({"schema": "albor.runs.rename/1", "run": found.id, "name": name,
              "also_called": others})  # fmt: skip
        return
    print_line(f"{found.id}: {clean(name)}")
    if others:
        print_note(f"  the name means {clean(', '.join(others[:5]))} as well; commands take the id")


def _annotate(run: RunDir, kind: str, value: str | Mapping[str, Any] | None) -> Annotation:
    from albor_core.store.index.annotations import annotate

    return annotate(run, kind, value)


def _update_stores(run: RunDir) -> None:
    """Into the stores. What was said is on disk already, so that they can wait."""
    from albor_core.store.index.catch_up import drain_index

    try:
        drain_index(run)  # of a live run its index process does it, within a second
    except (StoreError, OSError) as error:
        print_note(f"albor: {clean(error)}; what you said is in {clean(run.annotations)}, and")
        print_note(f"  albor db rebuild {clean(run.path)} brings it into the stores")


def _metrics_of(run: RunDir) -> frozenset[str]:
    """The metrics of the run, from its stores and its state file."""
    from albor_core.feed.run.detail import RunFeed
    from albor_core.feed.view.newest import metrics_of_state

    feed = RunFeed(run)
    try:
        told = metrics_of_state(feed.files.state.get() or {})
        return frozenset((*feed.keys(), *(one.name for one in told), *_pins(run)[1]))
    finally:
        feed.close()


def _meant(run: RunDir, said: str, known: Collection[str], *, may_be_new: bool) -> str:
    """The metric; `may_be_new`: also one that the run logged when its store had no room."""
    from albor_core.run.values import metrics
    from albor_core.store.file.crowded import logged_without_room
    from albor_core.store.query.names import has_metric, metric_of

    is_full = len(known) >= metrics.MAX_NAMES and not has_metric(said, known)
    if may_be_new and is_full and logged_without_room([run], said):
        return said
    return metric_of(run, said, known)


def _pins(run: RunDir) -> tuple[bool, list[str]]:
    """Whether it is pinned, and its pinned metrics, as the run's own file says."""
    from albor_core.run.values.main_metrics import pinned_after
    from albor_core.store.index.annotations import read_annotations

    said = read_annotations(run)
    kinds = [one.kind for one in said if one.kind in ("pin", "unpin")]
    names = pinned_after((one.kind, str(one.value)) for one in said if "metric." in one.kind)
    return kinds[-1:] == ["pin"], [*names]


def _tags(run: RunDir) -> list[str]:
    """All tags as the run's own file says, whoever indexes it."""
    from albor_core.store.index.annotations import read_annotations, tags_in

    return [*tags_in(read_annotations(run))]


def _notes(run: RunDir) -> tuple[Note, ...]:
    from albor_core.store.index.annotations import notes_in, read_annotations

    return notes_in(read_annotations(run))


def _note(run: RunDir, number: int) -> Note:
    """A note by its number. Raises NotFoundError where it has none."""
    notes = _notes(run)
    for one in notes:
        if one.number == number:
            return one
    numbers = ", ".join(str(one.number) for one in notes[-_TOLD:])
    has = f"its notes are {numbers}" if notes else "it has no notes"
    raise NotFoundError(f"no note {number} of {run.id}: {has}", hint=f"albor runs show {run.id}")
