from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from albor_core.feed.run.store_follower import view_of_row
from albor_core.feed.runs.watch import RunFeed, RunsFeed
from albor_core.feed.snapshot import runs_document, snapshot
from albor_core.run.errors import NotFoundError
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.state import StateWriter
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now
from albor_core.store.query.reader import Reader

HOLD = """
import sys
from dataclasses import replace
from pathlib import Path
from albor_core.run.liveness import take_lock
held = take_lock(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALBOR_FAKE_NVML", str(tmp_path / "gpus.json"))
    (tmp_path / "gpus.json").write_text('{"gpus": [{"name": "fake", "util_percent": 50}]}')
    return tmp_path / "home"


@pytest.fixture
def hold():
    """Hold the trainer lock of a run in another process; `hold.release(run)` kills it."""
    holders = {}

    def take(run):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(run.run_lock)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        holders[run.id] = holder
        assert holder.stdout.readline() == b"ready\n"

    def release(run):
        holders[run.id].kill()
        holders[run.id].wait()

    take.release = release
    yield take
    for holder in holders.values():
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()


def make_run(tmp_path, name, *, losses=(), ended=None, alert=False, state=True):
    run = create_run(
        tmp_path / "out", name, experiment="exp", name=f"name of {name}", kind="train", argv=["x"]
    )
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start", attempt=1)
    for step, loss in enumerate(losses, start=1):
        journal.metrics(step, {"train/loss": loss, "train/tokens": step * 100})
    if alert:
        data = {"id": f"loss-gt-10@1.{len(losses)}", "rule": "loss-gt-10", "kind": "rule"}
        more = {
            "action": "stop",
            "metric": "train/loss",
            "value": 11.0,
            "threshold": 10.0,
            "message": "too high",
        }
        journal.event("andon.alert", step=len(losses), severity="error", **data, **more)
    if ended:
        journal.event("run.end", step=len(losses), status=ended, reason=ended, code=0)
        body = {"schema": "albor.exit/1", "attempt": 1, "reason": ended, "code": 0}
        write_json(run.exit, {**body, "wall": time.time()})
    journal.close()
    if state:
        write_state(run, losses, phase=ended or "training")
    return run


def write_state(run, losses, phase="training", **fields):
    writer = StateWriter(run.state, run_id=run.id, attempt=1, nonce="n")
    writer.fields = {
        "global_step": len(losses),
        "max_steps": 100,
        "loss": losses[-1] if losses else None,
        "loss_history": list(losses)[-120:],
        "history_steps": list(range(1, len(losses) + 1))[-120:],
        "bricks_ms": {"data": 3.0, "forward": 10.0},
        "brick_budgets_ms": {"data": 1.0, "forward": None},
        "gpu": [{"name": "H100", "util_percent": 97.0}],
        "host": {"cpu_percent": 12.0, "rss_bytes": 5},
        "checkpoint": {
            "last": {"step": 2, "path": "step-00000002", "wall": 1.0},
            "best": {"step": 2, "value": 1.5},
            "in_flight": True,
            "failures": 1,
        },
        **fields,
    }
    writer.phase(phase)


def index(run):
    index_now(run, global_store())


def poll_until(feed, condition, *, seconds=10.0, **arguments):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        view = feed.poll(**arguments)
        if condition(view):
            return view
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {view}")


def words(view):
    return {row.id: row.status for row in view.rows}


def test_a_running_and_an_ended_run_are_told_apart(tmp_path, hold):
    alive, ended = (
        make_run(tmp_path, "alive", losses=[3.0, 2.0]),
        make_run(tmp_path, "ended", losses=[3.0, 1.0], ended="completed"),
    )
    index(ended)
    hold(alive)
    view = RunsFeed().poll()
    assert words(view) == {"alive": "running", "ended": "completed"}
    (row,) = view.active
    assert (row.id, row.loss, row.step, row.progress, row.is_live) == ("alive", 2.0, 2, 0.02, True)
    assert (view.gpus[0].name, view.gpus[0].util_percent) == ("fake", 50)


def test_a_run_started_and_killed_elsewhere_is_seen_without_any_store(tmp_path, hold):
    feed = RunsFeed()
    assert feed.poll().rows == ()
    run = make_run(tmp_path, "new", losses=[3.0])
    hold(run)
    poll_until(feed, lambda view: words(view) == {"new": "running"})
    hold.release(run)
    view = poll_until(feed, lambda view: words(view) == {"new": "lost"})
    assert not view.rows[0].is_live


def test_a_dead_run_that_somebody_wakes_by_hand_is_found(tmp_path, hold):
    run = make_run(tmp_path, "old", losses=[3.0], ended="completed")
    index(run)
    feed = RunsFeed()
    assert words(feed.poll()) == {"old": "completed"}
    hold(run)
    poll_until(feed, lambda view: words(view) == {"old": "running"})


def test_nothing_new_gives_the_same_object(tmp_path, hold):
    run = make_run(tmp_path, "a", losses=[3.0])
    hold(run)
    feed = RunsFeed()
    first = feed.poll()
    assert feed.poll() is first
    write_state(run, [3.0, 2.5])
    later = feed.poll()
    assert later.version == first.version + 1
    assert later.rows[0].loss == 2.5


def test_a_run_whose_folder_is_gone_keeps_its_row_and_its_curve(tmp_path):
    run = make_run(tmp_path, "gone", losses=[5.0, 4.0, 3.0], ended="completed")
    index(run)
    shutil.rmtree(run.path)
    feed = RunsFeed()
    (row,) = feed.poll(visible=["gone"]).rows
    assert (row.status, row.loss, row.is_live) == ("completed", 3.0, False)
    assert row.loss_history == (5.0, 4.0, 3.0)
    view = RunFeed(run).poll()
    assert view is not None and view.status == "completed"
    assert RunFeed(run).curves(["train/loss"])["train/loss"].mean == (5.0, 4.0, 3.0)


def test_a_run_that_lost_only_its_own_store_has_the_curve_of_the_global_one(tmp_path):
    run = make_run(tmp_path, "half", losses=[3.0, 2.5], ended="completed", state=False)
    index(run)
    shutil.rmtree(run.path / ".albor")
    feed = RunFeed(run)
    try:
        curve = feed.curves(("train/loss",))["train/loss"]
        assert curve.mean == (3.0, 2.5)
        known = feed.keys()
        assert "train/loss" in known
    finally:
        feed.close()


def test_the_curve_of_an_ended_run_comes_when_the_index_has_caught_up(tmp_path):
    run = make_run(tmp_path, "late", losses=[5.0, 4.0, 3.0], ended="completed", state=False)
    write_state(run, [5.0, 4.0, 3.0], phase="completed", loss_history=[], history_steps=[])
    feed = RunsFeed()
    (row,) = feed.poll(visible=["late"]).rows
    assert (row.step, row.loss_history) == (3, ())
    index(run)
    view = poll_until(feed, lambda v: bool(v.rows[0].loss_history), visible=["late"])
    assert view.rows[0].loss_history == (5.0, 4.0, 3.0)


def test_a_store_that_cannot_answer_now_is_asked_again_and_one_that_can_is_not(
    tmp_path, monkeypatch
):
    index(make_run(tmp_path, "ended", losses=[5.0, 4.0], ended="completed", state=False))
    feed = RunsFeed()
    answers, asked = [None, (5.0, 4.0)], []
    monkeypatch.setattr(
        feed.visible, "trend", lambda run_id, _: asked.append(run_id) or answers.pop(0)
    )
    assert feed.poll(visible=["ended"]).rows[0].loss_history == ()
    assert feed.poll(visible=["ended"]).rows[0].loss_history == (5.0, 4.0)
    for _ in range(3):
        assert feed.poll(visible=["ended"]).rows[0].loss_history == (5.0, 4.0)
    assert asked == ["ended"] * 2


def test_a_run_without_a_loss_is_not_asked_about_until_the_store_has_news(tmp_path, monkeypatch):
    index(make_run(tmp_path, "plain", ended="completed", state=False))
    feed, asked = RunsFeed(), []
    monkeypatch.setattr(feed.visible, "trend", lambda run_id, _: asked.append(run_id) or ())
    for _ in range(3):
        feed.poll(visible=["plain"])
    assert asked == ["plain"]
    index(make_run(tmp_path, "other", losses=[1.0], ended="completed", state=False))
    poll_until(feed, lambda _: len(asked) > 1, visible=["plain"])
    feed.poll(visible=["plain"])
    assert asked == ["plain"] * 2


def test_a_store_that_is_replaced_is_reopened(tmp_path):
    index(make_run(tmp_path, "one", losses=[1.0], ended="completed"))
    feed = RunsFeed()
    assert words(feed.poll()) == {"one": "completed"}
    spare = tmp_path / "spare.db"
    index_now(make_run(tmp_path, "two", losses=[2.0], ended="completed"), spare)
    for end in ("-wal", "-shm"):
        global_store().with_name(global_store().name + end).unlink(missing_ok=True)
    spare.replace(global_store())
    poll_until(feed, lambda view: "two" in words(view))


def test_a_damaged_store_is_a_message_and_live_runs_are_still_shown(tmp_path, home, hold):
    run = make_run(tmp_path, "a", losses=[3.0])
    hold(run)
    global_store().write_bytes(b"this is no database" * 1000)
    view = RunsFeed().poll()
    assert words(view) == {"a": "running"}
    assert view.problem


def test_sources_output_dir_run_dir_and_databases(tmp_path):
    one = make_run(tmp_path, "one", losses=[1.0], ended="completed")
    two = make_run(tmp_path, "two", losses=[2.0], ended="completed")
    for run in (one, two):
        index(run)
    assert words(RunsFeed(tmp_path / "out").poll()).keys() == {"one", "two"}
    assert words(RunsFeed(one.path).poll()).keys() == {"one"}
    assert words(RunsFeed(global_store()).poll()).keys() == {"one", "two"}
    assert words(RunsFeed(two.store).poll()).keys() == {"two"}
    with pytest.raises(NotFoundError):
        RunsFeed(tmp_path / "nothing")


def test_open_alerts_colour_the_row_until_somebody_acknowledges(tmp_path):
    from albor_core.feed.run.alerts import open_alerts
    from albor_core.store.index.annotations import annotate

    run = make_run(tmp_path, "a", losses=[3.0, 11.0], ended="stopped", alert=True)
    assert open_alerts(run) == ("loss-gt-10@1.2",)  # from the journal's end, before any index
    index(run)
    feed = RunsFeed()
    (row,) = feed.poll().rows
    assert (row.alerts_open, row.severity) == (1, "error")
    (alert,) = RunFeed(run).poll().to_json()["alerts"]
    assert (alert["id"], alert["message"]) == ("loss-gt-10@1.2", "too high")
    assert not alert["is_acknowledged"]
    annotate(run, "ack", "loss-gt-10@1.2")
    assert open_alerts(run) == ()
    index(run)
    row = poll_until(feed, lambda view: view.rows[0].alerts_open == 0).rows[0]
    assert row.severity == "info"
    assert RunFeed(run).poll().to_json()["alerts"] == [alert | {"is_acknowledged": True}]


def test_a_document_says_the_same_of_alerts_and_events_before_and_after_an_index(tmp_path):
    run = make_run(tmp_path, "a", losses=[3.0, 11.0], ended="stopped", alert=True)
    before = RunFeed(run).poll().to_json()
    index(run)
    after = RunFeed(run).poll().to_json()
    assert (after["alerts"], after["events"]) == (before["alerts"], before["events"])
    assert {*after["events"][0]} == {"name", "severity", "step", "wall", "attempt", "data"}


def test_one_run_in_full(tmp_path, hold):
    run = make_run(tmp_path, "r", losses=[3.0, math.nan, 2.0], alert=True)
    hold(run)
    run.log(1).write_bytes(b"hello\n")
    index(run)
    feed = RunFeed(run)
    view = feed.poll()
    assert (view.status, view.step, view.alerts_open, view.severity) == ("running", 3, 1, "error")
    assert [event.name for event in view.events] == ["run.start", "andon.alert"]
    bricks = {brick.name: brick for brick in view.bricks}
    assert bricks["data"].is_over and not bricks["forward"].is_over
    saved = view.checkpoint
    assert (saved.last_step, saved.best_value, saved.in_flight) == (2, 1.5, True)
    assert (view.system.cpu_percent, view.gpu[0].name) == (12.0, "H100")
    assert math.isnan(view.loss_history[1])
    assert feed.keys()[0] == "train/loss"
    assert feed.log.read() == ["hello"]


def test_a_program_without_an_exit_file_ended_when_its_guard_says(tmp_path):
    run = create_run(
        tmp_path / "out", "true", experiment="exp", name="true", kind="guard", argv=["true"]
    )
    told = {"schema": "albor.guard/1", "run_id": run.id, "attempt": 1, "state": "done"}
    write_json(run.guard / "guard.json", {**told, "wall": time.time() - 100})
    view = RunFeed(run).poll()
    assert view.status == "completed" and 100 <= view.age_s < 160
    index(run)
    with Reader(global_store()) as reader:
        row = replace(reader.run(run.id), last_wall=None, ended_status="completed", ended_wall=5.0)
    assert view_of_row(row).last_wall == 5.0


def test_a_metric_that_a_run_never_logged_is_none_of_its_keys(tmp_path):
    run = make_run(tmp_path, "ppo", losses=[None, None], ended="completed")
    index(run)
    feed = RunFeed(run)
    feed.poll()
    assert not {"train/loss", "optim/lr", "optim/grad_norm"} & {*feed.keys()}


def test_before_any_index_the_end_of_the_curve_comes_from_the_live_state(tmp_path, hold):
    run = make_run(tmp_path, "r", losses=[3.0, 2.5, 2.0], alert=True)
    hold(run)
    feed = RunFeed(run)
    view = feed.poll()
    assert [alert.id for alert in view.alerts] == ["loss-gt-10@1.3"]
    curve = feed.curves(["train/loss"])["train/loss"]
    assert (curve.steps, curve.mean) == ((1, 2, 3), (3.0, 2.5, 2.0))
    index(run)
    write_state(run, [3.0, 2.5, 2.0, 1.5])
    curve = feed.curves(["train/loss"])["train/loss"]
    assert curve.steps == (1, 2, 3, 4)
    assert feed.curves(["train/loss"], lo=2, hi=3)["train/loss"].steps == (2, 3)
    assert feed.curves(["no/such"])["no/such"].is_empty


def test_a_spike_survives_in_the_envelope(tmp_path):
    losses = [2.0] * 5000
    losses[1234] = 99.0
    run = make_run(tmp_path, "r", losses=losses, ended="completed", state=False)
    index(run)
    curve = RunFeed(run).curves(["train/loss"], max_points=100)["train/loss"]
    assert len(curve.steps) <= 100 and not curve.is_raw
    assert max(curve.maximum) == 99.0


def test_documents_are_strict_json_with_every_field_of_the_screens(tmp_path, hold):
    run = make_run(tmp_path, "r", losses=[3.0, math.nan], alert=True)
    hold(run)
    run.log(1).write_bytes(b"\x1b[2Jhi\n")
    write_json(run.guard / "guard.json", {"attempt": 1, "state": "running"})
    write_json(run.run_json, {**run.metadata(), "git": {"commit": "c0ffee", "patch": "secret"}})
    index(run)

    def refuse(name):
        raise AssertionError(name)

    document = json.loads(json.dumps(snapshot(run), allow_nan=False), parse_constant=refuse)
    assert document["schema"] == "albor.monitor/1"
    assert document["status"]["word"] == "unguarded"
    assert document["log_tail"] == ["\u241b[2Jhi"]
    assert document["run"]["git"] == {"commit": "c0ffee", "dirty": None}
    assert document["now"]["git_commit"] == "c0ffee"
    assert document["now"]["bricks"][0] == {
        "name": "data",
        "measured_ms": 3.0,
        "budget_ms": 1.0,
        "learned_ms": None,
    }
    assert document["alerts"][0]["message"] == "too high"
    everything = json.loads(json.dumps(runs_document(RunsFeed().poll()), allow_nan=False))
    assert everything["runs"][0]["status"] == "unguarded"
    assert everything["gpus"][0]["name"] == "fake"
    with pytest.raises(NotFoundError):
        snapshot(type(run)(tmp_path / "none"))


def test_a_crowd_of_ended_runs_costs_a_poll_next_to_nothing(tmp_path, home, hold):
    """2,000 registered, ended runs: after the first look a poll neither reads nor queries them."""
    import sqlite3

    run = make_run(tmp_path, "first", losses=[1.0], ended="completed")
    index(run)
    names = [f"r-{number:05d}" for number in range(2000)]
    with sqlite3.connect(global_store()) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(runs)")]
        kept = ", ".join(c for c in columns if c not in ("id", "run"))
        db.executemany(
            f"INSERT INTO runs (run, {kept}) SELECT ?, {kept} FROM runs WHERE run = 'first'",
            [(name,) for name in names],
        )
    for name in names:
        (home / "runs" / f"{name}.json").write_text(
            json.dumps({"path": str(run.path), "created": 1})
        )
    alive = make_run(tmp_path, "alive", losses=[3.0])
    hold(alive)
    feed = RunsFeed()
    view = feed.poll()
    assert 0 < len(view.rows) < 2002 and not view.is_complete  # a first screen at once
    view = feed.complete()
    assert len(view.rows) == 2002
    assert words(view)["alive"] == "running"
    best = math.inf
    for _ in range(20):
        began = time.perf_counter()
        feed.poll()
        best = min(best, time.perf_counter() - began)
    assert best < 0.05  # 4 polls a second would cost a fifth of one core at the very most


def test_a_run_that_ended_without_a_state_file_is_known_from_its_records(tmp_path):
    run = create_run(tmp_path / "out", "a", experiment="e", name="a", kind="train", argv=["x"])
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start", attempt=1, device="NVIDIA H200")
    for step in (1, 2, 3):
        journal.metrics(step, {"train/loss": 3.0, "optim/lr": step / 1000, "optim/grad_norm": 0.5})
        journal.event("checkpoint.saved", step=step, path=f"step-{step}")
    journal.event("run.end", step=3, status="completed", reason="completed", code=0)
    journal.close()
    write_json(run.exit, {"attempt": 1, "reason": "completed", "code": 0, "wall": time.time()})
    index_now(run)
    feed = RunFeed(run)
    for _ in range(2):  # the second time without asking again
        view = feed.poll()
        assert (view.lr, view.grad_norm, view.device) == (0.003, 0.5, "NVIDIA H200")
        assert (view.checkpoint.last_step, view.checkpoint.last_path) == (3, "step-3")
    feed.close()


def test_what_the_state_file_says_of_a_run_that_ended_stays(tmp_path):
    run = make_run(tmp_path, "a", losses=[3.0, 2.0], ended="completed", state=False)
    write_state(run, [3.0, 2.0], phase="completed", learning_rate=0.25, device="cpu")
    journal = Journal(run.journal, attempt=1)
    journal.metrics(2, {"optim/lr": 0.5})
    journal.event("checkpoint.saved", step=9, path="later")
    journal.close()
    index_now(run)
    view = RunFeed(run).poll()
    assert (view.lr, view.device, view.checkpoint.last_step) == (0.25, "cpu", 2)
