"""`albor attention`: what needs a person now, for people and for programs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import clean, emit, json_option, print_line, print_note
from albor_core.cli.common.time_span import TIME_SPAN
from albor_core.run.errors import NotFoundError, UsageError
from albor_core.run.rundir import folder_of
from albor_core.run.values.quantity import age, duration

if TYPE_CHECKING:
    from albor_core.documents.alerts import AttentionDocument
    from albor_core.feed.attention.item import AttentionItem, AttentionList

OPEN = 4
"""Exit code while something is neither seen nor muted."""
_POLL_S = 1.0
_LATE_S, _AGAIN_S = 10.0, 0.2  # at most, and between two looks, for runs that ended just now
_MOST_S = 366 * 86400.0


@click.group(
    cls=LazyGroup,
    default="ls",
    entries={
        "ls": (f"{__name__}:ls", "List what needs you (what the bare command does)."),
        "ack": (f"{__name__}:ack", "Say that you have seen an entry, or all of a run."),
        "mute": (f"{__name__}:mute", "Leave an entry, or all of a run, out for a time."),
    },
)
def attention() -> None:
    """Show what needs a person now: runs that died, hang or went silent, NaN, rules, GPUs, disks.

    NaN of the metric that you chose for an experiment in the cockpit (m) is told at the first one,
    and the best of the runs that ended is the best by it.

    \b
    albor attention [RUN]... [--all] [--evidence] [--watch] [--json]
    Exits with 4 while something is neither seen nor muted.
    """


@attention.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "everything", is_flag=True, help="Also show entries that are seen or muted.")
@click.option(
    "--evidence", is_flag=True, help="Also show the evidence: last lines, report, stacks or values."
)
@click.option(
    "--watch", is_flag=True, help="Keep running, and print each entry that appears or disappears."
)
@json_option
def ls(runs: tuple[str, ...], everything: bool, evidence: bool, watch: bool, as_json: bool) -> None:
    """List what needs you, the worst first, of all runs or of each RUN.

    With --watch and --json each change is one albor.attention.change/1 document on a line of its
    own. For records of runs that have just ended the command waits at most ten seconds;
    "being_read" lists runs that are not fully read by then. Exits with 4 while an entry is neither
    seen nor muted, 0 otherwise.
    """
    look = _looker(runs)
    found = look(_LATE_S)
    proofs = _evidence(found, everything=everything) if evidence else {}
    if as_json:
        emit(document(found, proofs))
    else:
        for line in _lines(found, proofs, everything=everything):
            print_line(line)
    if not runs and not as_json:
        _note_look()
    if watch:
        _follow(look, found, as_json=as_json)
    if found.open:
        click.get_current_context().exit(OPEN)


@attention.command()
@click.argument("entry", metavar="ENTRY|RUN")
@json_option
def ack(entry: str, as_json: bool) -> None:
    """Mark ENTRY, or all open entries of RUN, as seen.

    The mark is stored with the run. An entry that comes back in a later attempt is open again.
    """
    from albor_core.feed.attention.marks import acknowledge

    chosen = _chosen(entry)
    for item in chosen:
        acknowledge(item)
    _say_done("ack", "acknowledged", chosen, {}, as_json=as_json)


@attention.command()
@click.argument("entry", metavar="ENTRY|RUN")
@click.option(
    "--for", "seconds", type=TIME_SPAN, required=True, metavar="TIME",
    help="Mute for this time: 30m, 1h, 2d.",
)  # fmt: skip
@json_option
def mute(entry: str, seconds: float, as_json: bool) -> None:
    """Mute ENTRY, or all open entries of RUN: they are not counted for a time."""
    from albor_core.feed.attention.marks import mute as set_muted

    if seconds > _MOST_S:
        raise UsageError(
            f"cannot mute for {duration(seconds)}: a year is the longest",
            hint=f"albor attention ack {entry}",
        )
    until = time.time() + seconds
    chosen = _chosen(entry)
    for item in chosen:
        set_muted(item, until)
    _say_done("mute", "muted", chosen, {"until": until}, as_json=as_json)


def document(found: AttentionList, proofs: Mapping[str, Sequence[str]]) -> AttentionDocument:
    """albor.attention/1, with lines of evidence by id of the entry where they were asked for."""
    from albor_core.feed.view.run_view import plain

    worst: Any = found.severity or None
    items: Any = [
        {**item.to_json(), **({"evidence": list(proofs[item.id])} if item.id in proofs else {})}
        for item in found.items
    ]
    return {
        "schema": "albor.attention/1",
        "open": len(found.open),
        "severity": worst,
        "quiet": found.is_quiet,
        "gpu_hours": round(found.gpu_hours, 4),
        "fine": list(found.fine),
        "not_watched": list(found.not_watched),
        "tells_only": list(found.tells_only),
        "being_read": list(found.being_read),
        "since_last_looked": plain(found.since_last_looked),
        "problem": found.problem,
        "items": items,
    }


def _looker(references: Sequence[str]) -> Callable[[float], AttentionList]:
    """What gives the list, again and again: of all runs, or of those that are named. It waits as
    many seconds as it is given for runs that are still being read.
    """
    from albor_core.feed.attention.derive import narrowed
    from albor_core.feed.attention.watch import AttentionFeed
    from albor_core.feed.runs.watch import RunsFeed
    from albor_core.feed.workspace.views import ViewsFile
    from albor_core.run.home.folders import check_home
    from albor_core.store.query.resolve import find_run

    check_home()
    chosen = [find_run(reference) for reference in references]
    is_one = len(chosen) == 1 and not chosen[0].alias and chosen[0].run_json.is_file()
    metrics = ViewsFile().read().metrics
    feed = RunsFeed(chosen[0].path if is_one else None, chosen=lambda: metrics)
    wanted = frozenset(run.id for run in chosen)
    watch = AttentionFeed(look_s=0.0, chosen=lambda: metrics)

    def is_waited_for(found: AttentionList) -> bool:
        return bool(wanted.intersection(found.being_read) if wanted else found.being_read)

    def look(wait_s: float) -> AttentionList:
        until = time.monotonic() + wait_s
        view = feed.poll(wanted=wanted)
        found = watch.look(view, feed.store)
        while not found.is_complete or (is_waited_for(found) and time.monotonic() < until):
            if found.is_complete:
                time.sleep(_AGAIN_S)
                feed.store.refresh()
            view = feed.poll(wanted=wanted)
            found = watch.look(view, feed.store)
        if missing := wanted - {row.id for row in view.rows}:
            first = min(missing)
            path = next(run.path for run in chosen if run.id == first)
            raise NotFoundError(
                f"cannot look at {first!r} beside others: it is not registered in this home",
                hint=f"albor attention {shlex.quote(str(path))}",
            )
        return narrowed(found, tuple(wanted)) if wanted else found

    return look


def _chosen(entry: str) -> tuple[AttentionItem, ...]:
    """The open entries that are meant. Raises NotFoundError."""
    if "/" in entry and folder_of(entry) is None:
        found = tuple(item for item in _looker(())(_LATE_S).items if item.id == entry)
        if not found:
            raise NotFoundError(
                f"cannot find an entry {entry!r} of attention", hint="albor attention --all"
            )
        return found
    try:
        return _looker((entry,))(_LATE_S).open
    except NotFoundError:  # its folder may be gone: the list has it all the same
        found = tuple(item for item in _looker(())(_LATE_S).open if item.run_id == entry)
        if not found:
            raise
        return found


def _say_done(
    verb: str,
    done: str,
    chosen: Sequence[AttentionItem],
    more: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    if as_json:
        ids = [item.id for item in chosen]
        document: Any = {"schema": f"albor.attention.{verb}/1", "entries": ids, **more}
        emit(document)
        return
    for item in chosen:
        print_line(f"{done} {clean(item.id)}")
    if not chosen:
        print_note("nothing of it is open")


def _note_look() -> None:
    from albor_core.feed.attention.marks import note_look
    from albor_core.run.home.folders import albor_home

    if albor_home().is_dir():
        note_look(albor_home(), time.time())


def _evidence(found: AttentionList, *, everything: bool) -> dict[str, tuple[str, ...]]:
    from albor_core.feed.attention.evidence import evidence

    return {item.id: evidence(item) for item in (found.items if everything else found.open)}


def _lines(
    found: AttentionList, proofs: Mapping[str, Sequence[str]], *, everything: bool
) -> Iterator[str]:
    yield _head(found)
    shown = found.items if everything else found.open
    for item in shown:
        yield from _item_lines(item)
        for line in proofs.get(item.id, ()):
            yield f"    | {line}".rstrip()
    hidden = len(found.items) - len(shown)
    if hidden:
        yield f"{hidden} seen or muted; more with --all"
    if found.not_watched:
        yield f"not watched: {_some(found.not_watched)}"
    if found.tells_only:
        yield f"tells only, nothing can act: {_some(found.tells_only)}"
    if found.being_read:
        yield f"ended just now and not read to the end: {_some(found.being_read)}"
        yield "  next: the same again in a moment"
    if sentence := found.since_last_looked.sentence:
        ago = age(time.time() - (found.since_last_looked.wall or 0.0))
        yield clean(f"since you last looked, {ago} ago: {sentence}")
    if found.problem:
        yield clean(f"not everything could be read: {found.problem}")


def _head(found: AttentionList) -> str:
    count = len(found.open)
    if not count and (found.problem or found.being_read or not found.is_complete):
        return "nothing that could be read needs you"
    if not count:
        if found.is_quiet and found.fine:
            return f"quiet: {len(found.fine)} watched, nothing is wrong"
        return "nothing needs you" if not found.fine else f"nothing needs you, {_fine(found)}"
    needs = "1 needs you" if count == 1 else f"{count} need you"
    parts = [needs, _fine(found) if found.fine else ""]
    if found.gpu_hours >= 0.05:
        parts.append(f"{found.gpu_hours:.1f} hours lost or at risk")
    return ", ".join(part for part in parts if part)


def _fine(found: AttentionList) -> str:
    return f"{len(found.fine)} fine"


def _item_lines(item: AttentionItem) -> Iterator[str]:
    whose = item.run_id or item.host
    name = f" ({item.run_name})" if item.run_name not in ("", item.run_id) else ""
    ago = "" if item.since_wall is None else f" {age(time.time() - item.since_wall)}"
    yield clean(f"{item.word}{ago}  {whose}{name}: {item.summary}")
    seen = f"seen by {item.acked_by}" if item.acked_by else ""
    if not seen and item.muted_until is not None:
        seen = f"muted for {duration(item.muted_until - time.time())}"
    told = (("cost", item.cost), ("likely", item.cause), ("next", item.command), ("", seen))
    for head, text in (*told, ("entry", item.id) if seen else ("once seen", item.ack)):
        if text:
            yield clean(f"    {head + ': ' if head else ''}{text}")


def _some(runs: Sequence[str]) -> str:
    names = " ".join(clean(run) for run in runs[:5])
    return f"{names} and {len(runs) - 5} more" if len(runs) > 5 else names


def _follow(look: Callable[[float], AttentionList], found: AttentionList, *, as_json: bool) -> None:
    """Print what comes and goes until it is ended."""
    before = {item.id: item for item in found.open}
    while True:
        time.sleep(_POLL_S)
        now = {item.id: item for item in look(0.0).open}
        for change, item in _changes(before, now):
            if as_json:
                emit(
                    {
                        "schema": "albor.attention.change/1",
                        "change": change,
                        "wall": time.time(),
                        "item": item.to_json(),
                    }
                )
            elif change == "gone":
                print_line(clean(f"gone: {item.word}  {item.run_id or item.host}"))
            else:
                for line in _item_lines(item):
                    print_line(line)
        before = now


def _changes(
    before: dict[str, AttentionItem], now: dict[str, AttentionItem]
) -> Iterator[tuple[Literal["new", "changed", "gone"], AttentionItem]]:
    for item_id, item in before.items():
        if item_id not in now:
            yield "gone", item
    for item_id, item in now.items():
        known = before.get(item_id)
        if known is None:
            yield "new", item
        elif (known.word, known.severity) != (item.word, item.severity):
            yield "changed", item
