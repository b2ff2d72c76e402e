"""`albor demo`: the main job, end to end, on this machine's own Python library; or a run of the
350M model that was recorded, to look at.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from albor_core.cli.common.count import COUNT
from albor_core.cli.common.environment import check_environment
from albor_core.cli.common.follow import progress_line
from albor_core.cli.common.output import (
    emit,
    json_option,
    number,
    print_line,
    print_note,
    screen_width,
    when,
)
from albor_core.cli.plans.file_plan import Estimate, Parameters, plans
from albor_core.run.errors import UsageError
from albor_core.run.guard_state import read_guard
from albor_core.run.program.argv import module_argv, module_env
from albor_core.run.rundir import RunDir
from albor_core.run.state import read_state
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.demo.recipe import DemoRun

_LINE_EVERY_S = 15.0


def _reads(told: Parameters) -> list[Path]:
    from albor_core.demo.corpus import python_sources
    from albor_core.demo.proof import RECORD

    return [RECORD if told["proof"] else python_sources()]


def _writes(told: Parameters) -> list[Path]:
    from albor_core.demo.proof import place_of

    return [place_of(told["out"]).path if told["proof"] else told["out"]]


def _planned(_: Callable[..., Any], told: Parameters) -> Estimate:
    """The plan of a demo without bytes: its shards are packed by a tokenizer that it trains."""
    from albor_core.demo.folder import refuse_file
    from albor_core.demo.proof import bytes_of_proof
    from albor_core.demo.recipe import check_tokens

    root = told["out"].absolute()
    refuse_file(root)
    if told["proof"]:
        _check_proof()
        return Estimate(bytes_of_proof(root))
    check_tokens(told["tokens"])
    check_environment()
    return Estimate()


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Write corpus, shards and runs to this folder.",
)
@click.option(
    "--tokens",
    type=COUNT,
    default=1_000_000,
    show_default="1,000,000",
    help="Train each run on this many tokens.",
)
@click.option(
    "--proof", is_flag=True, help="Train nothing: open a recorded run of the 350M model on a GPU."
)
@click.option("--no-tui", is_flag=True, help="Print progress as lines; do not open the cockpit.")
@json_option
@plans(_reads, _writes, _planned)
def demo(out: Path, tokens: int, proof: bool, no_tui: bool, as_json: bool) -> None:
    """Train two ~2M-parameter models on the Python standard library and compare them.

    On a terminal the cockpit opens on the first run; quit with q and the demo continues. Run it
    again and finished runs are reused.

    With --proof a recorded run that comes with Albor (without its weights) is copied to
    OUT/runs/proof and listed like any other: 398.5M parameters on one H200, its trainer killed
    twice. It needs neither a GPU nor the network.
    """
    has_screen = sys.stdout.isatty() and not as_json and not no_tui
    if proof:
        _check_proof()
        _show_proof(out.absolute(), has_screen=has_screen, as_json=as_json)
        return
    from albor_core.cli.runs.diff_text import render_diff
    from albor_core.demo.corpus import prepare
    from albor_core.demo.recipe import check_tokens, report, start_runs, wait

    began = time.monotonic()
    root = out.absolute()
    check_tokens(tokens)
    check_environment()
    data = prepare(root, print_note)
    runs = start_runs(root, data, tokens=tokens, say=print_note)
    if has_screen and not all(r.reused for r in runs):
        _open_cockpit(runs[0].run)
    wait(runs, _Progress())
    document: Any = report(data, runs, time.monotonic() - began)
    if as_json:
        emit(document)
        return
    for one in document["runs"]:
        print_line(
            f"{one['id']}: lr {one['learning_rate']:g}, {one['tokens']:,.0f} tokens, val loss"
            f" {number(one['val_loss_first'], '.3f')} -> {number(one['val_loss'], '.3f')},"
            f" ppl {number(one['val_ppl'], '.1f')}{' (reused)' if one['reused'] else ''}"
        )
    print_line()
    print_line(render_diff(document["diff"]))
    print_line(f"\nlook closer: albor-tui {root / 'runs'}")


def _check_proof() -> None:
    source = click.get_current_context().get_parameter_source("tokens")
    if source is not ParameterSource.DEFAULT:
        raise UsageError(
            "--tokens has no effect beside --proof: nothing is trained", hint="albor demo --proof"
        )


def _open_cockpit(run: RunDir) -> None:
    subprocess.run(module_argv("albor_tui.main", str(run.path)), env=module_env(), check=False)


def _show_proof(root: Path, *, has_screen: bool, as_json: bool) -> None:
    from albor_core.demo.proof import facts, open_proof

    began = time.monotonic()
    opened = open_proof(root)
    run = opened.run
    document: Any = {
        "schema": "albor.demo.proof/1",
        "run": run.id,
        "path": str(run.path),
        "reused": opened.reused,
        "seconds": round(time.monotonic() - began, 1),
        **facts(run),
    }
    if as_json:
        emit(document)
        return
    if has_screen:
        _open_cockpit(run)
    print_line(f"{run.id}: {document['status']}, recorded {when(document['created'])} UTC")
    width = screen_width()
    for name, said in _proof_lines(document):
        first, *rest = [said] if width is None else textwrap.wrap(said, width - 19)
        print_line(f"  {name:<15}  {first}")
        for line in rest:
            print_line(f"{'':19}{line}")
    print_line(f"\nlook closer: albor-tui {run.path}")
    for words in (f"runs show {run.id}", f"logs {run.id}", f"guard report {run.id}"):
        print_line(f"             albor {words}")
    print_line(f"             albor report {run.id} -o {run.id}.html")


def _proof_lines(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The facts for people, each with its name."""
    yield "model", f"{number(found['parameters'])} parameters"
    yield "on", f"{found['device'] or '-'}, torch {found['torch'] or '-'}"
    missing = found["steps_not_once"]
    once = f"{counted(missing, 'step')} not once" if missing else "each once"
    yield "steps", f"{number(found['steps'])}, {once}; {number(found['step_seconds'], '.1f')} s"
    yield "step times", found["step_times"]
    yield "tokens", number(found["tokens"])
    yield "attempts", f"{found['attempts']}: {counted(found['restarts'], 'restart')} by the guard"
    for kill in found["kills"]:
        resumed = number(kill["resumed_from"])
        yield "killed", f"{kill['signal']} at step {number(kill['step'])}, resumed from {resumed}"
    yield "train loss", number(found["train_loss"], ".4f")
    yield "val loss", number(found["val_loss"], ".4f")
    yield "val/bpb", number(found["val_bpb"], ".4f")
    for score in found["scores"]:
        yield score["name"], f"{number(score['value'], '.4g')} ({counted(score['n'], 'item')})"
    yield "weights", "left out of the record"


class _Progress:
    """A line per run every few seconds."""

    def __init__(self) -> None:
        self._last = -1e9

    def __call__(self, runs: list[DemoRun]) -> None:
        if time.monotonic() - self._last < _LINE_EVERY_S:
            return
        self._last = time.monotonic()
        for one in runs:
            if not one.reused:
                guard = read_guard(one.run)
                print_note(f"lr {one.lr:<7g} {progress_line(read_state(one.run.state), guard)}")
