"""`albor monitor`: live lines for people, a stream of documents for agents."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.alert_lines import AlertLines
from albor_core.cli.common.count import FiniteRange
from albor_core.cli.common.follow import progress_line
from albor_core.cli.common.output import clean, emit, json_option, print_line, print_note
from albor_core.feed.run.status import gather, judge
from albor_core.feed.runs.of_visible import mains_of
from albor_core.feed.view.run_status import LIVE_WORDS, shown_word
from albor_core.run.errors import NotFoundError, UsageError
from albor_core.run.guard_state import read_guard
from albor_core.run.home.folders import check_home
from albor_core.run.home.runs import registered_runs, runs_in
from albor_core.run.rundir import RunDir, folder_of
from albor_core.run.values.lenient import integer
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.feed.run.detail import RunFeed


@click.command()
@click.argument("target", required=False, metavar="[RUN|DIR]")
@click.option(
    "--interval",
    type=FiniteRange(0.05, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between updates.",
)
@click.option("--once", is_flag=True, help="Print once and exit.")
@json_option
def monitor(target: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Follow a run until it ends; without an argument, every active run.

    With --json each update prints one albor.monitor/1 document per run, on a line of its own; the
    last one of a run shows its end. --once --json without an active run prints one
    albor.monitor.runs/1 document with an empty list. Exits with 0 once all have ended, whatever
    their ends, and with 3 if the run is not found or its folder is removed.
    """
    if math.isnan(interval):
        raise UsageError(
            "--interval nan is not a number of seconds", hint="albor monitor --interval 2"
        )
    runs = _chosen(target)
    if not runs:
        _print_no_run(once=once, as_json=as_json)
    feeds: dict[RunDir, RunFeed] = {}
    alerts: dict[RunDir, AlertLines] = {}
    while runs:
        if not (once or as_json):
            _print_alerts(runs, alerts)
        # asked before the look, so that the last look at each run shows its end
        ended = [run for run in runs if not run.liveness().is_alive]
        ended += _look_at_all(runs, feeds if as_json else None, may_go=target is None)
        _close(feeds, runs if once else ended)
        if once:
            return
        runs = [run for run in runs if run not in ended]
        if target is None:
            runs += [run for run in _chosen(None) if run not in runs]
        if runs:
            time.sleep(interval)


def _print_no_run(*, once: bool, as_json: bool) -> None:
    if not as_json:
        print_note("no run is active; start one with: albor train apply CONFIG, or albor demo")
    elif once:
        from albor_core.feed.snapshot import runs_document
        from albor_core.feed.view.run_view import RunsView

        emit(runs_document(RunsView()))


def _print_alerts(runs: Sequence[RunDir], alerts: dict[RunDir, AlertLines]) -> None:
    """Print alerts since the last time; `alerts` keeps those that were printed of each run."""
    for run in runs:
        if run not in alerts:
            alerts[run] = AlertLines(run)
        for line in alerts[run].news():
            print_note(line)


def _look_at_all(
    runs: Sequence[RunDir], feeds: dict[RunDir, RunFeed] | None, *, may_go: bool
) -> list[RunDir]:
    """Print an update of each run; return those that were removed meanwhile, if that is allowed."""
    gone = []
    for run in runs:
        try:
            _look(run, feeds)
        except NotFoundError:
            if not may_go:
                raise
            gone.append(run)
    return gone


def _close(feeds: dict[RunDir, RunFeed], runs: Sequence[RunDir]) -> None:
    for run in runs:
        if run in feeds:
            feeds.pop(run).close()


def _chosen(target: str | None) -> list[RunDir]:
    if target is None:
        check_home()
        alive = (run for run in registered_runs() if run.liveness().is_alive)
        return [run for run in alive if run.run_json.is_file()]
    folder = folder_of(target)
    if folder is not None and not (folder / "run.json").is_file():
        active = [run for run in runs_in(folder) if run.liveness().is_alive]
        if active:
            return active
        if not runs_in(folder):
            raise NotFoundError(f"{folder}: no run directories here", hint="albor runs ls")
    return [find_run(target)]


def _look(run: RunDir, feeds: dict[RunDir, RunFeed] | None) -> None:
    """Print a document, with `feeds`, or a line. Raises NotFoundError if the run is gone."""
    if not run.run_json.is_file():
        raise NotFoundError(f"{run.path}: no run directory", hint="albor runs ls")
    if feeds is not None:
        _emit_look(run, feeds)
    else:
        _print_status(run)


def _print_status(run: RunDir) -> None:
    evidence = gather(run)
    status = judge(evidence)
    state = dict(evidence.state or {})
    if status.word in LIVE_WORDS:
        if evidence.is_starting:  # all that the file tells is of the attempt before
            state = {"phase": state.get("phase") if evidence.current_state else "starting"}
    else:
        state |= _newest(run, state)
    if status.silent_s is not None:
        state["phase"] = shown_word(status.word, status.silent_s)
    elif status.word != "running":
        state["phase"] = shown_word(status.word)
    if status.word not in ("running", "unguarded") or status.silent_s is not None:
        state |= dict.fromkeys(("eta_seconds", "eta_low_seconds", "eta_high_seconds"))
    mains = mains_of(run, evidence.state or {}, is_live=status.word in LIVE_WORDS)
    line = progress_line(state, read_guard(run), mains)
    print_line(f"{clean(_label(run)):<24} {line}")


def _label(run: RunDir) -> str:
    """The id, and the name where that is another."""
    from albor_core.store.index.annotations import name_of

    name = name_of(run)
    return run.id if name == run.id else f"{run.id} ({name})"


def _newest(run: RunDir, state: dict[str, Any]) -> dict[str, Any]:
    """The figures that a run ended with, which its journal may know better than its state file."""
    from albor_core.feed.view.newest import figures_of_journal, figures_of_state, newest

    found = newest(figures_of_state(state), figures_of_journal(run.journal))
    told = {"global_step": found.step, "loss": found.values.get("loss")}
    told |= {"val_loss": found.values.get("val_loss"), "val_step": found.val_step}
    if found.step != integer(state, "global_step"):
        told["progress_percent"] = None
    return told


def _emit_look(run: RunDir, feeds: dict[RunDir, RunFeed]) -> None:
    """A document; the same feed for all looks at a run, whose clock then tells silence."""
    from albor_core.feed.run.detail import RunFeed
    from albor_core.feed.snapshot import snapshot

    if run not in feeds:
        feeds[run] = RunFeed(run)
    emit(snapshot(run, feed=feeds[run]))
