"""`albor demo`: the main job, end to end, on this machine's own Python library."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.count import COUNT
from albor_core.cli.common.environment import check_environment
from albor_core.cli.common.follow import progress_line
from albor_core.cli.common.output import emit, json_option, number, print_line, print_note
from albor_core.run.guard_state import read_guard
from albor_core.run.program.argv import module_argv, module_env
from albor_core.run.state import read_state

if TYPE_CHECKING:
    from albor_core.demo.recipe import DemoRun

_LINE_EVERY_S = 15.0


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
@click.option("--no-tui", is_flag=True, help="Print lines; never open the cockpit.")
@json_option
def demo(out: Path, tokens: int, no_tui: bool, as_json: bool) -> None:
    """Train two ~2M-parameter models on the Python standard library and compare them.

    On a terminal the cockpit opens on the first run; quit with q and the demo continues. Run it
    again and finished runs are reused.
    """
    from albor_core.cli.runs.diff_text import render_diff
    from albor_core.demo.corpus import prepare
    from albor_core.demo.recipe import check_tokens, report, start_runs, wait

    began = time.monotonic()
    root = out.absolute()
    check_tokens(tokens)
    check_environment()
    data = prepare(root, print_note)
    runs = start_runs(root, data, tokens=tokens, say=print_note)
    if sys.stdout.isatty() and not as_json and not no_tui and not all(r.reused for r in runs):
        cockpit = module_argv("albor_tui.main", str(runs[0].run.path))
        subprocess.run(cockpit, env=module_env(), check=False)
    wait(runs, _Progress())
    document = report(data, runs, time.monotonic() - began)
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
