"""`albor runs tag`, `note`, `pin`, `rename`: what people say about a run; kept with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.output import clean, emit, json_option, say, talk
from albor_core.cli.common.run_name import RUN_NAME
from albor_core.run.errors import StoreError
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.run.rundir import RunDir
    from albor_core.store.index.annotations import Annotation

_INDEXED_S, _LOOK_S = 5.0, 0.1  # so long for an index process, which needs a second


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@click.option("--remove", is_flag=True, help="Remove the tags.")
@json_option
def tag(run_ref: str, tags: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Give RUN one or more tags."""
    found = find_run(run_ref)
    for word in tags:
        _say(found, "untag" if remove else "tag", word)
    _bring_in(found)
    now = _tags(found)
    if as_json:
        emit({"schema": "albor.runs.tag/1", "run": found.id, "tags": now})
    else:
        say(f"{found.id}: {clean(' '.join(now)) or 'no tags'}")


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.argument("text")
@json_option
def note(run_ref: str, text: str, as_json: bool) -> None:
    """Write TEXT as a note of RUN."""
    found = find_run(run_ref)
    said = _say(found, "note", text)
    _bring_in(found)
    if as_json:
        body = {"wall": said.wall, "by": said.by, "text": text}
        emit({"schema": "albor.runs.note/1", "run": found.id, "note": body})
    else:
        say(f"{found.id}: noted")


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.option("--off", is_flag=True, help="Unpin.")
@json_option
def pin(run_ref: str, off: bool, as_json: bool) -> None:
    """Pin RUN as the baseline that others are compared with."""
    found = find_run(run_ref)
    _say(found, "unpin" if off else "pin", None)
    _bring_in(found)
    if as_json:
        emit({"schema": "albor.runs.pin/1", "run": found.id, "pinned": not off})
    else:
        say(f"{found.id}: {'not pinned' if off else 'pinned'}")


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.argument("name", type=RUN_NAME)
@json_option
def rename(run_ref: str, name: str, as_json: bool) -> None:
    """Give RUN another name. Its id and its folder stay; every command takes the name too, as long
    as no other run has it.
    """
    from albor_core.store.query.resolve import called

    found = find_run(run_ref)
    _say(found, "name", name)
    _bring_in(found)
    known = called(name)
    until = time.monotonic() + _INDEXED_S
    while found.id not in known and found.liveness().is_alive and time.monotonic() < until:
        time.sleep(_LOOK_S)  # its index process brings it in: the next command may use the name
        known = called(name)
    if found.id not in known and found.liveness().is_alive:
        talk("  nothing has indexed it yet; until then commands take the id")
    others = [run for run in known if run != found.id]
    if as_json:
        document = {"run": found.id, "name": name, "also_called": others}
        emit({"schema": "albor.runs.rename/1", **document})
        return
    say(f"{found.id}: {clean(name)}")
    if others:
        talk(f"  the name means {clean(', '.join(others[:5]))} as well; commands take the id")


def _say(run: RunDir, kind: str, value: str | None) -> Annotation:
    from albor_core.store.index.annotations import annotate

    return annotate(run, kind, value)


def _bring_in(run: RunDir) -> None:
    """Into the stores. What was said is on disk already, so that they can wait."""
    from albor_core.store.index.catch_up import drain_index

    try:
        drain_index(run)  # of a live run its index process does it, within a second
    except (StoreError, OSError) as error:
        talk(f"albor: {clean(error)}; what you said is in {clean(run.annotations)}, and")
        talk(f"  albor db rebuild {clean(run.path)} brings it into the stores")


def _tags(run: RunDir) -> list[str]:
    """All tags as the run's own file says, whoever indexes it."""
    from albor_core.store.index.annotations import read_annotations

    now: set[str] = set()
    for said in read_annotations(run):
        if said.kind == "tag":
            now.add(str(said.value))
        elif said.kind == "untag":
            now.discard(str(said.value))
    return sorted(now)
