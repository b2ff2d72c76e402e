"""Runs on several ranks that a module's tests look at, trained once for all of them.

Tolerance. Ranks add the same fp32 numbers in another order: sums of n terms of one size differ by
some sqrt(n) * 2^-24 of it, here below 1e-6 of a loss of 4. Weights move by lr * g / (|g| + eps) in
Adam's first step: with eps = 1e-4 and gradients of 1e-2 that carry an error of 1e-8, one step
changes a weight by at most 3e-3 * 1e-8 / 1e-4 = 3e-7 where it would otherwise be the sign of a
rounding error that moves it by the whole learning rate.
"""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked_ranks import Job, write_jobs
from tiny_run import events, history, make_run

from albor_core.checkpoint.folder import MODEL, list_checkpoints, verify
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir
from albor_core.train.resume.digest import digest

SHARED = {
    "data__batch_size": 2,
    "training__gradient_accumulation": 8,
    "training__eval_batches": 3,
    "training__max_steps": 8,
    "training__eval_interval": 4,
    "training__checkpoint": {"save_every": 4},
    "optimizer__eps": 1e-4,
}
TOLERANCE = 1e-6
KEYS = ("train/loss", "optim/grad_norm", "val/loss")

TESTS = Path(__file__).resolve().parents[2]  # where tiny_run.py is
QUIET = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def ranks(world_size, strategy="ddp"):
    return {"training__distributed": {"world_size": world_size, "strategy": strategy}}


class Stage:
    """Runs that one driver process trains, before the first test that looks at them.

    Whichever of pytest's workers comes first has it train; the others find the runs there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.jobs, self.runs = folder, [], {}
        self.done = folder / "done.json"

    def plan(self, name, *lives, **changes):
        """A run and its attempts; an attempt is what a Job says besides the run."""
        run = RunDir(self.folder / name / "out" / name)
        if not self.done.exists():
            run = make_run(self.folder / name, name, **{**SHARED, **changes})
        self.runs[name] = run
        self.jobs += [Job(str(run.path), attempt, **life) for attempt, life in enumerate(lives, 1)]

    def trace(self, name):
        (self.folder / name / "trace").mkdir(parents=True, exist_ok=True)
        return str(self.folder / name / "trace")

    def train(self):
        if not self.done.exists():
            self._drive()
        codes, self.stderr = json.loads(self.done.read_text())
        ended = zip(self.jobs, codes, strict=True)
        self.failed = [Path(job.run).name for job, code in ended if code]
        return self

    def _drive(self):
        path = write_jobs(self.folder / "jobs.json", self.jobs)
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("forked_ranks.py")), str(path)],
            env={**os.environ, **QUIET, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        codes = json.loads(done.stdout.splitlines()[-1])
        self.done.write_text(json.dumps([codes, done.stderr]))

    def assert_ended_well(self, *names):
        """Otherwise what the ranks said, which no file of a run holds."""
        assert not set(names) & set(self.failed), f"{self.failed} failed:\n{self.stderr}"

    def tensors(self, name):
        checkpoint = verify(list_checkpoints(self.runs[name].checkpoints)[0])
        return {**checkpoint.model(), **checkpoint.optimizer()}

    def bytes_of(self, name):
        self.assert_ended_well(name)
        newest = list_checkpoints(self.runs[name].checkpoints)[0]
        return (newest / MODEL).read_bytes(), digest(self.runs[name])


def staged(tmp_path_factory, name, plan):
    """The stage of a module, trained as `plan(stage)` says."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / name
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, (folder / "lock").open("w") as lock:
        patch.setenv("ALBOR_HOME", str(folder / "home"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        stage = Stage(folder)
        plan(stage)
        return stage.train()


def assert_same_course(stage, name, reference="one"):
    stage.assert_ended_well(reference, name)
    one, other = stage.runs[reference], stage.runs[name]
    for key in KEYS:
        expected, found = history(one, (key,)), history(other, (key,))
        assert [step for step, *_ in found] == [step for step, *_ in expected]
        for (_, _, a), (step, _, b) in zip(expected, found, strict=True):
            assert b == pytest.approx(a, rel=TOLERANCE, nan_ok=True), (key, step)
    expected, found = stage.tensors(reference), stage.tensors(name)
    assert found.keys() == expected.keys()
    for tensor in expected:
        assert found[tensor].shape == expected[tensor].shape
        difference = (found[tensor].double() - expected[tensor].double()).abs().max()
        assert float(difference) < TOLERANCE, tensor


def assert_read_together(stage, world_size):
    """The ranks of `ddpN` read what `one` does: each sequence of a step once, in its order."""

    def lines(name, rank):
        path = stage.folder / name / "trace" / f"rank{rank}"
        return [json.loads(line) for line in path.read_text().splitlines()]

    alone = [index for line in lines("one", 0) for index in line]
    by_rank = [lines(f"ddp{world_size}", rank) for rank in range(world_size)]
    assert {len(mine) for mine in by_rank} == {8 * 8 // world_size}
    together = [index for micro in zip(*by_rank, strict=True) for part in micro for index in part]
    assert together == alone


def assert_same_bits(stage, name):
    """A stop after step 3 and a resume on as many ranks changed nothing."""
    assert stage.bytes_of(f"{name}-again") == stage.bytes_of(name)
    starts = events(stage.runs[f"{name}-again"], "run.start")
    assert [start["data"]["resumed_from"] for start in starts] == [None, 3]


def assert_moved(stage, sizes, steps):
    """`moved` went on with these numbers of ranks from these steps, and came where `one` did."""
    starts = events(stage.runs["moved"], "run.start")
    assert [start["data"]["world_size"] for start in starts] == sizes
    assert [start["data"]["resumed_from"] for start in starts] == steps
    assert_same_course(stage, "moved")


def assert_one_writer(stage, name):
    """Rank 0 alone wrote a line of losses for each of the eight steps."""
    said = [line.record for line in read_journal(stage.runs[name].journal)]
    assert len([r for r in said if r["t"] == "m" and "train/loss" in r["v"]]) == 8
