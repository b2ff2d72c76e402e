"""A scheduler's job that is ended and started again, with a program that knows nothing of Albor's
checkpoints: one row, each step once.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from albor_core.guard.deaths.past_attempts import known_nonces
from albor_core.guard.process.processes import ProcessTree
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state
from albor_core.store.file.paths import global_store
from albor_core.store.query.reader import Reader

ROOT = Path(__file__).resolve().parents[3]
ALBOR = [sys.executable, "-P", "-m", "albor_core.cli"]
STEPS = 60
LOOP = f"""
import os, time
from pathlib import Path
from albor_core import track
place = Path("place")
begin = int(place.read_text()) if place.exists() else 0
with track.start("exp-mine", "my-name", {{"lr": 0.1, "seed": 7}}, max_steps={STEPS}) as run:
    for step in range(begin + 1, {STEPS} + 1):
        run.log({{"loss": 1.0 / step}}, step)
        if step % 5 == 0:
            place.write_text(str(step))
        time.sleep(0.02)
"""


def job(restart):
    """The environment of a Slurm job's n-th restart."""
    fresh = {"SLURM_JOB_ID": "11", "SLURM_JOB_NODELIST": "n1", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **fresh, **({"SLURM_RESTART_COUNT": str(restart)} if restart else {})}


def begin(folder, *words, restart=0):
    return subprocess.Popen(
        [*ALBOR, *words],
        cwd=folder,
        env=job(restart),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(what):
    deadline = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def end_job(process, run, number):
    """As a scheduler does: the same signal to every process of the job."""
    alive = run.liveness()
    for pid in (process.pid, alive.guard, alive.trainer):
        if pid:
            os.kill(pid, number)
    said = process.communicate(timeout=60)
    until(lambda: not run.liveness().is_alive)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_loop_whose_job_is_requeued_is_one_row_with_each_step_once(tmp_path, number):
    (tmp_path / "loop.py").write_text(LOOP)
    words = ("guard", "run", "--name", "ck", "--resume-or-start", "--", sys.executable, "loop.py")
    run = RunDir(Path(os.environ["ALBOR_HOME"]) / "runs" / "ck")
    first = begin(tmp_path, *words)
    try:
        until(lambda: ((read_state(run.state) or {}).get("global_step") or 0) >= 12)
        _, said = end_job(first, run, number)
        if number == signal.SIGTERM:
            assert first.returncode == 143
            assert "continues without this terminal" not in said
            reason = (read_json(run.guard / "guard.json") or {})["reason"]
            assert "SIGTERM (143)" in reason and ", slurm job 11 on n1; asked by SIGTERM" in reason
        second = begin(tmp_path, *words, restart=1)
        out, said = second.communicate(timeout=60)
        assert second.returncode == 0, (out, said)
        third = begin(tmp_path, *words, restart=2)
        _, said = third.communicate(timeout=60)
        assert (third.returncode, "nothing to do" in said) == (0, True)
    finally:
        ProcessTree(run.id, known_nonces(run), None, spare=frozenset()).clear(patience_s=0.0)
    with Reader(global_store()) as reader:
        (row,) = reader.runs()
        assert (row.id, row.name, row.experiment, row.seed) == ("ck", "my-name", "exp-mine", 7)
        assert (row.last_step, row.max_steps, row.attempts) == (STEPS, STEPS, 2)
        assert row.ended_status == "completed"
        jobs = [event.data for event in reader.events("ck", names=("guard.job",))]
    assert sorted(one["restart"] for one in jobs) == [0, 1]
    with Reader(run.store) as reader:
        assert [point[0] for point in reader.points("ck", "train/loss")] == [*range(1, STEPS + 1)]
