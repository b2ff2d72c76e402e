"""docs/how-to/track-your-own-loop.md: its Python is run as written (commands: test_docs_run.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.home.folders import albor_home
from albor_core.run.home.runs import runs_in
from albor_core.run.rundir import RunDir
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "track-your-own-loop.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setenv("ALBOR_CONSOLE", "0")
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def steps(run: RunDir, key: str) -> list[int]:
    drain_index(run)
    with Reader(run.store) as reader:
        return [point[0] for point in reader.points(run.id, key)]


def test_the_first_loop_and_the_decorated_function_are_runs():
    exec(BLOCKS[0], {"loss": 1.0, "lr": 0.1})
    exec(BLOCKS[1], {"track": track})
    trained, looped = runs_in(albor_home() / "runs")
    assert steps(looped, "train/loss") == [*range(1, 1001)]
    assert (trained.metadata()["name"], steps(trained, "train/loss")) == ("train", [1])


def test_the_loop_that_is_continued_is_one_run_and_is_evaluated_next_morning():
    saved = [0]

    def save(step):
        if step == 600 and saved[-1] < 600:
            saved.append(500)
            raise KeyboardInterrupt  # as if the machine had been taken away
        saved.append(step)

    names = {"track": track, "loss": 1.0, "lr": 0.1, "save_checkpoint": save,
             "load_checkpoint": lambda: saved[-1]}  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        exec(BLOCKS[2], names)
    names["save_checkpoint"] = saved.append
    exec(BLOCKS[2], names)
    exec(BLOCKS[3], names)
    (run,) = runs_in(albor_home() / "runs")
    assert saved[601] == 501
    assert steps(run, "train/loss") == [*range(1, 1001)]
    assert steps(run, "test/accuracy") == [1000]


def test_all_code_of_the_page_is_run():
    assert len(BLOCKS) == 4
