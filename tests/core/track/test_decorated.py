"""Functions whose calls are runs."""

import asyncio

import pytest

from albor_core import track
from albor_core.feed.run.status import run_status
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.home.folders import albor_home
from albor_core.run.home.runs import runs_in
from albor_core.run.rundir import RunDir, read_json


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setenv("ALBOR_CONSOLE", "0")
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def only_run() -> RunDir:
    (run,) = runs_in(albor_home() / "runs")
    return run


def test_a_decorated_function_is_given_its_run_and_ends_it():
    @track.tracked("tiny", max_steps=3, tags=["a"])
    def train(lr, *, run):
        """How."""
        run.params({"lr": lr})
        run.log({"loss": 1.0}, step=3)
        return run.id

    assert (train.__name__, train.__doc__) == ("train", "How.")
    name = train(0.1)
    run = only_run()
    about = read_json(run.run_json)
    assert (run.id, about["experiment"], about["name"]) == (name, "tiny", "train")
    assert read_json(run.exit)["reason"] == "completed"


def test_each_call_is_a_run_and_its_exception_passes_through():
    @track.tracked
    def work(fails):
        if fails:
            raise ValueError("boom")
        return 7

    assert work(False) == 7
    with pytest.raises(ValueError, match="boom"):
        work(True)
    words = {run_status(run).word for run in runs_in(albor_home() / "runs")}
    assert words == {"completed", "failed"}


def test_a_coroutine_function_is_awaited_inside_its_run():
    @track.tracked(experiment="e", name="given")
    async def work(run):
        await asyncio.sleep(0)
        run.log({"x": 1.0}, step=1)
        return run.dir

    run = asyncio.run(work())
    assert read_json(run.run_json)["name"] == "given"
    assert read_json(run.exit)["step"] == 1


def test_finish_and_close_are_one():
    with track.start() as run:
        run.finish("stopped", "enough")
    assert read_json(run.dir.exit)["reason"] == "stopped"
    with track.start() as run:
        run.close("failed")
    assert read_json(run.dir.exit)["reason"] == "failed"
