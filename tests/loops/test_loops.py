"""Ten loops as each library's own example has them, in `before/`, and the same in `after/` with at
most three changed lines: tracked, and otherwise as they were.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from albor_core.run.rundir import RunDir
from albor_core.store.index.catch_up import drain_index

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GUARD = ("albor", "guard", "run", "--restarts", "0", "--")
KERNEL = ("python", "-m", "nbconvert", "--to", "notebook", "--execute", "--stdout")


@dataclass(frozen=True)
class Loop:
    """A pair of files: what runs them, what they need, and what the run must hold after."""

    file: str
    metric: str
    points: int
    needs: tuple[str, ...] = ()
    runs: tuple[str, ...] = ("python",)
    guard: tuple[str, ...] = ()
    command: str = ""  # where it is not the file, as the run records it


LOOPS = (
    Loop("torch_loop.py", "train/loss", 40, ("torch",)),
    Loop("trainer_loop.py", "train/loss", 24, ("transformers", "accelerate", "torch")),
    Loop("accelerate_loop.py", "train/loss", 40, ("accelerate", "torch")),
    Loop("lightning_loop.py", "train/loss", 40, ("lightning", "torch")),
    Loop("sklearn_loop.py", "accuracy", 30, ("sklearn", "numpy")),
    Loop("xgboost_loop.py", "test/rmse", 25, ("xgboost", "numpy")),
    Loop("gymnasium_loop.py", "episode/mean_return", 200, ("gymnasium", "numpy")),
    Loop("numpy_loop.py", "mse", 60, ("numpy",)),
    Loop("shell_loop.sh", "error", 12, runs=("sh",), guard=GUARD),
    Loop(
        "notebook_loop.ipynb", "pi/estimate", 30, ("nbconvert", "ipykernel", "numpy"), KERNEL,
        command="ipykernel_launcher.py",
    ),
)  # fmt: skip
PAIRS = [pytest.param(loop, id=loop.file.partition("_")[0]) for loop in LOOPS]


@pytest.fixture
def desk(tmp_path, albor_home):
    return Desk(tmp_path, albor_home)


class Desk:
    """A repository of one's own, with nothing in it but a loop."""

    def __init__(self, folder, home):
        self.folder, self.home = folder / "work", home
        self.folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (programs / "albor").write_text(
            f'#!/bin/sh\nexec {sys.executable} -P -m albor_core.cli "$@"\n'
        )
        for program in programs.iterdir():
            program.chmod(0o755)
        self.environment = {
            **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
        }  # fmt: skip

    def put(self, loop, form):
        """The loop, committed."""
        (self.folder / loop.file).write_bytes((HERE / form / loop.file).read_bytes())
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", form)):
            subprocess.run(["git", *words], cwd=self.folder, check=True, timeout=30)

    def run(self, *words, **more):
        return subprocess.run(
            words, cwd=self.folder, env={**self.environment, **more}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip

    def albor(self, *words):
        done = self.run("albor", *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def head(self):
        return self.run("git", "rev-parse", "HEAD").stdout.strip()


def skip_where_absent(loop):
    missing = [name for name in loop.needs if find_spec(name) is None]
    if missing:
        pytest.skip(f"{loop.file}: {', '.join(missing)} not installed")


def printed(loop, out):
    """What a person saw: of a notebook its outputs, and no time that a library measured."""
    if loop.file.endswith(".ipynb"):
        cells = json.loads(out)["cells"]
        out = "".join("".join(part["text"]) for cell in cells for part in cell["outputs"])
    return without_times(out)


def without_times(out):
    return re.sub(r"'(\w+_(?:runtime|per_second))': '?[\d.]+'?", r"'\1'", out)


def unrecorded(desk, run, out):
    """Lines that were seen and are not in the run's log, which has those of stderr too."""
    logged = without_times(desk.run("albor", "logs", run).stdout)
    return [line for line in out.splitlines() if line not in logged]


def source(path):
    if path.suffix != ".ipynb":
        return path.read_text().splitlines()
    cells = json.loads(path.read_text())["cells"]
    return [line for cell in cells for line in "".join(cell["source"]).splitlines()]


def changed_lines(before, after):
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for tag, a, b, c, d in blocks if tag != "equal")


def test_every_loop_has_both_forms_and_is_tried():
    for form in ("before", "after"):
        found = {path.name for path in (HERE / form).glob("*_loop.*")}
        assert found == {loop.file for loop in LOOPS}
    assert len(LOOPS) == 10


@pytest.mark.parametrize("loop", PAIRS)
def test_at_most_three_lines_of_a_loop_change(loop):
    before, after = (source(HERE / form / loop.file) for form in ("before", "after"))
    assert 1 <= changed_lines(before, after) <= 3
    assert not any("albor" in line for line in before)


@pytest.mark.parametrize("loop", PAIRS)
def test_a_tracked_loop_prints_what_it_did_and_its_run_says_how_it_was_made(loop, desk):
    skip_where_absent(loop)
    desk.put(loop, "before")
    plain = desk.run(*loop.runs, loop.file)
    assert plain.returncode == 0, plain.stderr
    desk.put(loop, "after")
    tracked = desk.run(*loop.guard, *loop.runs, loop.file)
    assert tracked.returncode == 0, tracked.stderr
    assert printed(loop, tracked.stdout) == printed(loop, plain.stdout) != ""

    (run,) = map(RunDir, (desk.home / "runs").glob("*/"))
    drain_index(run)
    (row,) = desk.albor("runs", "ls", "--columns", loop.metric)["runs"]
    assert (row["status"], row["git_commit"], row["git_dirty"]) == ("completed", desk.head(), False)
    shown = desk.albor("runs", "show", row["id"])
    assert (loop.command or loop.file) in " ".join(shown["argv"])
    summary = shown["summary"][loop.metric]
    assert (summary["count"], summary["nonfinite"]) == (loop.points, 0)
    assert not unrecorded(desk, row["id"], printed(loop, tracked.stdout))
    value = row["loss"] if loop.metric == "train/loss" else row["values"][loop.metric]
    assert value == summary["last"]


@pytest.mark.parametrize("loop", PAIRS)
def test_kill_9_takes_nothing_that_a_loop_was_told_is_kept(loop, desk, tmp_path):
    skip_where_absent(loop)
    desk.put(loop, "after")
    kept = tmp_path / "acknowledged"
    killed = desk.run(
        *loop.guard, *loop.runs, loop.file,
        PYTHONPATH=f"{HERE / 'killed'}:{ROOT}", LOOP_DIES_AFTER="7", LOOP_ACKNOWLEDGED=str(kept),
        PYTHONUNBUFFERED="1",
    )  # fmt: skip
    assert killed.returncode != 0
    told = [line.split() for line in kept.read_text().splitlines()]
    assert len({step for _, step, *_ in told}) == 7
    run = RunDir(desk.home / "runs" / told[0][0])
    drain_index(run)
    assert run.liveness().trainer is None
    shown = desk.albor("runs", "show", run.id)
    assert shown["status"] != "completed"
    assert not unrecorded(desk, run.id, killed.stdout)
    points = shown["points"]  # and those of the machine, which are nobody's words
    found = {(name, p[0]): p[1] for name in {name for *_, name, _ in told} for p in points[name]}
    assert found == {(name, int(step)): float(value) for _, step, name, value in told}
