"""`albor monitor`: live lines for people, a stream of documents for agents."""

from __future__ import annotations

import time

import click

from albor_core.cli.follow import progress_line
from albor_core.cli.output import clean, emit, json_option, say, talk
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir, find_run, folder_of, read_json, registered_runs, runs_in
from albor_core.run.state import read_state


@click.command()
@click.argument("target", required=False, metavar="[RUN|DIR]")
@click.option("--interval", default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="One look, then leave.")
@json_option
def monitor(target: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Follow a run until it ends; without an argument, every active run.

    With --json each look prints one albor.monitor/1 document per run.
    """
    runs = _chosen(target)
    if not runs:
        if as_json:
            return
        talk("no run is active; start one with: albor train apply CONFIG, or albor demo")
        return
    while runs:
        ended = [run for run in runs if not run.liveness().is_alive]
        for run in runs:
            _look(run, as_json)
        if once:
            return
        # asked before the look, so that the last look at each run shows its end
        runs = [run for run in runs if run not in ended]
        if target is None:
            runs += [run for run in _chosen(None) if run not in (*runs, *ended)]
        if runs:
            time.sleep(interval)


def _chosen(target: str | None) -> list[RunDir]:
    if target is None:
        return [run for run in registered_runs() if run.liveness().is_alive]
    folder = folder_of(target)
    if folder is not None and not (folder / "run.json").is_file():
        active = [run for run in runs_in(folder) if run.liveness().is_alive]
        if active:
            return active
        if not runs_in(folder):
            raise NotFoundError(f"{folder}: no run directories here", hint="albor runs ls")
    return [find_run(target)]


def _look(run: RunDir, as_json: bool) -> None:
    if as_json:
        from albor_core.feed.snapshot import snapshot

        emit(snapshot(run))
        return
    line = progress_line(read_state(run.state), read_json(run.guard / "guard.json"))
    say(f"{clean(run.id):<24} {line}")
