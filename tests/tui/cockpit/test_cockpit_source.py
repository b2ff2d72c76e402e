"""The live source: real run directories, a real guard lock, real stores."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import sim_run
from sim_run import make

from albor_core import track
from albor_core.feed.attention.marks import note_look
from albor_core.feed.attention.watch import AttentionFeed
from albor_core.feed.runs.watch import RunsFeed
from albor_core.feed.view.run_view import RunView
from albor_core.run.home.folders import albor_home
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate, read_annotations
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader
from albor_tui.model import source
from albor_tui.model.desk import StoreBoard
from albor_tui.model.source import LiveSource, deliver

OBEDIENT_GUARD = """
import sys, time
from pathlib import Path
from albor_core.run.control import answer, take_commands
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
lock = take_lock(run.guard_lock)
print("ready", flush=True)
while True:
    for command in take_commands(run, time.time()):
        answer(run, command.id, "accepted")
        if command.cmd == "pause":
            continue  # never done
        time.sleep(0.3)
        answer(run, command.id, "done", f"{command.cmd} by the guard")
    time.sleep(0.02)
"""


@pytest.fixture
def run(tmp_path) -> RunDir:
    return make(tmp_path / "out", "mine")


@pytest.fixture
def guard(run) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OBEDIENT_GUARD, str(run.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def view_of(run: RunDir) -> RunView:
    return RunView(id=run.id, name="mine", path=str(run.path))


def test_a_command_is_sent_accepted_and_done(run, guard):
    reports = list(deliver(view_of(run), "checkpoint"))
    assert [report.status for report in reports] == ["sent", "accepted", "done"]
    assert reports[-1].detail == "checkpoint by the guard"


def test_a_command_that_is_accepted_and_never_done_is_not_waited_for_without_end(
    run, guard, monkeypatch
):
    monkeypatch.setattr(source, "DONE_S", 0.2)
    reports = list(deliver(view_of(run), "pause"))
    assert [report.status for report in reports] == ["sent", "accepted", "no answer"]
    assert reports[-1].detail == "still under way after 0 s"


def test_without_a_guard_nothing_is_sent(run):
    reports = list(deliver(view_of(run), "stop"))
    assert [report.status for report in reports] == ["no guard"]
    assert not list((run.guard / "inbox").iterdir())


def test_a_run_whose_folder_is_gone_takes_no_commands(tmp_path):
    gone = RunView(id="gone", path=str(tmp_path / "gone"))
    assert [report.status for report in deliver(gone, "stop")] == ["refused"]


def test_an_acknowledgement_is_written_beside_the_run(run):
    LiveSource().acknowledge(view_of(run), "grad_norm@1.25")
    said = read_annotations(run)
    assert [(one.kind, one.value) for one in said] == [("ack", "grad_norm@1.25")]


def nan_run():
    """An ended run whose val/mse was NaN from a step on, in the stores with its alert."""
    with track.start(experiment="mlp", name="mlp") as run:
        for step in range(1, 21):
            run.log({"val/mse": math.nan if step > 6 else 1.0 / step}, step=step)
    journal = Journal(run.dir.system, attempt=1)  # as the process does that watches it
    told = {"rule": "not-finite-val-mse", "metric": "val/mse", "value": "nan"}
    told |= {"severity": "error", "action": "notify", "message": "val/mse is NaN"}
    data = {"id": "not-finite-val-mse@1.7", "step": 7, **told}
    journal.append("e", step=7, name="andon.alert", data=data)
    journal.close()
    deadline = time.monotonic() + 20
    while not drain_index(run.dir) and time.monotonic() < deadline:
        time.sleep(0.05)
    return run


def open_in_store() -> list[str]:
    with Reader(global_store()) as reader:
        return [alert.id for alert in reader.alerts(None, open_only=True)]


def told_in_attention() -> list[str]:
    feed, runs = AttentionFeed(), RunsFeed()
    try:
        deadline = time.monotonic() + 20
        while not (view := runs.poll()).is_complete and time.monotonic() < deadline:
            time.sleep(0.05)
        return [item.summary for item in feed.look(view).open]
    finally:
        runs.close()


def test_nan_of_an_ended_run_needs_a_person_until_acknowledged_and_everywhere_alike():
    run = nan_run()
    assert open_in_store() == ["not-finite-val-mse@1.7"]
    note_look(albor_home(), time.time() + 60)  # who looked elsewhere has not seen it
    assert told_in_attention() == ["completed, but val/mse was NaN from step 7"]
    LiveSource().acknowledge(RunView(id=run.id, path=str(run.path)), "not-finite-val-mse@1.7")
    assert open_in_store() == told_in_attention() == []


def test_an_acknowledgement_that_no_store_has_is_brought_there_by_the_alerts():
    run = nan_run()
    annotate(run.dir, "ack", "not-finite-val-mse@1.7")
    board = StoreBoard(global_store())
    try:
        (alert,) = board.poll() or ()
    finally:
        board.close()
    assert alert.acked_by and open_in_store() == []


def test_a_tracked_loop_without_a_loss_is_followed_by_its_own_metrics():
    with track.start(experiment="ppo", name="ppo") as run:
        run.log({"episode_reward": 4.0}, step=1)
        run.log({"episode_reward": 5.0, "approx_kl": 0.1}, step=2)
    follower = LiveSource().follow(RunView(id=run.id, path=str(run.path), kind="track"))
    try:
        first = follower.poll()  # before anything of it is indexed, maybe
        deadline = time.monotonic() + 20
        while not drain_index(run.dir) and time.monotonic() < deadline:
            time.sleep(0.05)
        view = follower.poll() or first
    finally:
        follower.close()
    assert view is not None and view.terminal is not None
    assert view.terminal.metrics == ("episode_reward", "approx_kl")


def test_overview_follower_and_comparison_agree_on_two_finished_runs(tmp_path):
    for seed in (1, 2):
        subprocess.run(
            [sys.executable, sim_run.__file__, str(tmp_path / "out"), "--steps", "200",
             "--rate", "0", "--name", f"run-{seed}", "--seed", str(seed)],
            check=True, timeout=60, capture_output=True,
        )  # fmt: skip
    for folder in (tmp_path / "out").iterdir():
        subprocess.run(
            [sys.executable, "-m", "albor_core.store.index", str(folder), "--once"],
            check=True, timeout=60,
        )  # fmt: skip
    source = LiveSource()
    overview = source.overview()
    deadline = time.monotonic() + 20
    while len((shown := overview.poll()).rows) < 2 or not shown.is_complete:
        assert time.monotonic() < deadline
    overview.close()
    assert {row.status for row in shown.rows} == {"completed"}
    follower = source.follow(shown.rows[0])
    view = follower.poll()
    assert view is not None and view.step == 200
    curves = follower.curves(("train/loss", "val/loss", "no/such"), 100)
    follower.close()
    assert set(curves) == {"train/loss", "val/loss"}
    assert curves["train/loss"].steps[-1] <= 200
    document = source.compare([row.id for row in shown.rows])
    assert document["schema"] == "albor.runs.diff/1"
    assert {run["id"] for run in document["runs"]} == {row.id for row in shown.rows}
