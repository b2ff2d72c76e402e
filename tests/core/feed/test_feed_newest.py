"""Whatever tells of a run, its newest figures are shown: by journal, store or state file."""

from __future__ import annotations

import json
import signal
import time

import pytest
from click.testing import CliRunner
from test_feed_status import exits, guard_says, hold, kill, run  # noqa: F401

from albor_core import history
from albor_core.cli.main import cli
from albor_core.feed.run.detail import RunFeed
from albor_core.feed.run.files import RunFiles
from albor_core.feed.run.status import Evidence, judge
from albor_core.feed.run.store_follower import merge
from albor_core.feed.runs.listed_status import now_of
from albor_core.feed.runs.watch import RunsFeed
from albor_core.feed.view.newest import NewestFigures, figures_of_records, newest
from albor_core.feed.view.run_view import RunView
from albor_core.run.files.whole_file import write_json
from albor_core.run.journal import Journal
from albor_core.run.liveness import Liveness, boot_id
from albor_core.run.state import StateWriter
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now
from albor_core.store.query.reader import Reader


def write_state(run, step, *, attempt=1, phase="training", **fields):  # noqa: F811
    writer = StateWriter(run.state, run_id=run.id, attempt=attempt, nonce=f"n{attempt}")
    writer.fields = {"global_step": step, "max_steps": 400, **fields}
    writer.phase(phase)


def log(run, *steps, attempt=1):  # noqa: F811
    journal = Journal(run.journal, attempt=attempt)
    for step in steps:
        journal.metrics(step, {"train/loss": 1.0 / step, "train/tokens": step * 10})
    journal.close()


def row_of(run):  # noqa: F811
    with Reader(global_store()) as reader:
        return reader.run(run.id)


def shown(run):  # noqa: F811
    """Step and loss in the list, on the run's screen and in the table of the command line."""
    (listed,) = (row for row in RunsFeed().complete().rows if row.id == run.id)
    feed = RunFeed(run)
    opened = feed.poll()
    feed.close()
    views = {(view.step, view.loss, view.progress) for view in (listed, opened)}
    row = now_of(row_of(run)).row
    return views | {(row.last_step, row.loss, row.last_step and row.last_step / 400)}


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_run_that_was_killed_shows_the_step_its_journal_ends_with(run, is_indexed):  # noqa: F811
    write_state(run, 0)
    index_now(run, global_store())
    log(run, *range(1, 200))
    if is_indexed:
        index_now(run, global_store())
    assert shown(run) == {(199, 1.0 / 199, 199 / 400)}


def test_a_store_that_went_on_when_the_state_file_could_not_be_written_counts(run, hold):  # noqa: F811
    hold("t")  # its state says step 7 of 10
    log(run, *range(1, 9))
    index_now(run, global_store())
    (view,) = RunsFeed().complete().rows
    assert (view.status, view.step, view.loss, view.progress) == ("running", 8, 1.0 / 8, 0.8)


def test_a_state_file_that_is_younger_than_the_store_counts(run, hold):  # noqa: F811
    log(run, 1, 2)
    index_now(run, global_store())
    hold("t")
    (view,) = RunsFeed().complete().rows
    assert (view.step, view.loss) == (7, 2.5)
    assert now_of(row_of(run)).row.last_step == 7


@pytest.mark.parametrize("phase", ["none", "initializing"])
def test_while_a_life_starts_the_step_of_the_dead_one_is_not_shown(run, hold, phase):  # noqa: F811
    kill(hold("t"))
    log(run, *range(1, 200))
    index_now(run, global_store())
    guard_says(run, "starting", attempt=2)
    hold("tg", phase="none", attempt=2)
    if phase != "none":
        write_state(run, 0, attempt=2, phase=phase)
    (view,) = RunsFeed().complete().rows
    assert (view.status, view.step, view.progress, view.is_starting) == (
        "running",
        None,
        None,
        True,
    )
    assert now_of(row_of(run)).row.last_step is None
    write_state(run, 150, attempt=2, loss=0.5)
    (view,) = RunsFeed().complete().rows
    assert (view.step, view.is_starting) == (150, False)
    assert now_of(row_of(run)).row.last_step == 150


def test_a_life_that_dies_before_its_first_step_leaves_the_step_of_the_one_before(run):  # noqa: F811
    log(run, *range(1, 200))
    index_now(run, global_store())
    write_state(run, 0, attempt=2, phase="initializing")
    exits(run, "config", 2, attempt=2)
    assert shown(run) == {(199, 1.0 / 199, 199 / 400)}


def test_what_a_rewind_took_back_is_not_the_newest():
    def record(step, loss):
        return {"t": "m", "step": step, "wall": 100.0 + step, "v": {"train/loss": loss}}

    told = [record(8, 0.8), record(9, 0.9), {"t": "r", "to": 8}]
    assert figures_of_records(told) == NewestFigures(108.0, 8, values={"loss": 0.8})
    on = [*told, record(9, 0.4)]
    assert (figures_of_records(on).step, figures_of_records(on).values) == (9, {"loss": 0.4})
    assert figures_of_records([{"t": "m", "step": "x", "v": 3}, {"t": "e"}]) == NewestFigures()


def test_the_step_of_a_validation_stands_with_its_own_value():
    early = {"t": "m", "step": 4, "wall": 4.0, "v": {"val/loss": 8.0}}
    late = {"t": "m", "step": 9, "wall": 9.0, "v": {"train/loss": 3.0}}
    told = figures_of_records([early, late])
    assert (told.step, told.val_step, told.values["val_loss"]) == (9, 4, 8.0)
    unplaced = NewestFigures(10.0, 10, values={"val_loss": 7.0})
    assert newest(unplaced, told).val_step is None  # 7.0 is not of step 4


def evidence(age_s, **state):
    told = {"phase": "training", "attempt": 1, "boot_id": boot_id(), "eta_seconds": 360.0, **state}
    return Evidence(Liveness(trainer=1, guard=None), told, None, None, age_s)


@pytest.mark.parametrize(
    ("age_s", "state", "is_silent"),
    [
        (29.0, {"step_ms": 100.0}, False),
        (31.0, {"step_ms": 100.0}, True),
        (99.0, {"step_ms": 10_000.0}, False),
        (101.0, {"step_ms": 10_000.0}, True),
        (31.0, {"news_gap_seconds": 0.2}, True),  # a loop of somebody else's, by what it logs
        (31.0, {"news_gap_seconds": 20.0, "step_ms": 1.0}, False),
        (120.0, {}, False),  # how long its steps take is not known
        (120.0, {"step_ms": 100.0, "phase": "evaluating"}, False),
        (120.0, {"step_ms": 100.0, "phase": "paused"}, False),
    ],
)
def test_a_run_is_silent_from_ten_of_its_step_times_on(age_s, state, is_silent):
    status = judge(evidence(age_s, **state))
    assert status.word in ("running", "paused")
    assert (status.silent_s == age_s) is is_silent
    assert ("no news for" in status.detail) is is_silent


def test_what_is_silent_past_the_patience_is_stalled_and_said_in_minutes():
    status = judge(evidence(1386.0, step_ms=100.0))
    assert (status.word, status.silent_s) == ("stalled", None)
    assert status.detail == "no news for 23m while training"


def test_a_silent_run_has_no_time_of_arrival_and_its_time_goes_on(run, hold):  # noqa: F811
    process = hold("t")
    write_state(run, 7, step_ms=100.0, eta_seconds=360.0, elapsed_seconds=2.0)
    process.send_signal(signal.SIGSTOP)
    files = RunFiles(run)
    now = [time.monotonic()]
    files._freshness.clock = lambda: now[0]
    view = files.view()
    assert (view.is_silent, view.eta_s, view.elapsed_s) == (False, 360.0, 2.0)
    now[0] += 120.0
    view = files.view()
    assert (view.status, view.is_silent, view.eta_s) == ("running", True, None)
    assert view.elapsed_s == pytest.approx(122.0, abs=60.0)


def test_a_program_that_says_nothing_has_worked_since_its_guard_made_it(run, hold):  # noqa: F811
    created = run.metadata()["created"]
    process = hold("tg", "none")
    guard_says(run, "running", wall=created + 1)
    alive = RunFiles(run).view()
    assert (alive.status, alive.phase) == ("running", None)
    assert alive.elapsed_s == pytest.approx(time.time() - created, abs=30.0)
    kill(process)
    guard_says(run, "done", wall=created + 4000)
    assert RunFiles(run).view().elapsed_s == pytest.approx(4000)


def test_a_copied_run_that_is_synced_no_more_says_since_when(run):  # noqa: F811
    meta = run.metadata()
    write_json(run.run_json, {**meta, "host": "elsewhere"})
    log(run, 1, 2, 3)
    write_state(run, 3)
    state = json.loads(run.state.read_bytes())
    write_json(run.state, {**state, "boot_id": "of another kernel", "wall": time.time() - 3600})
    index_now(run, global_store())
    (view,) = RunsFeed().complete().rows
    assert (view.status, view.is_active, view.step) == ("unknown", False, 3)
    assert now_of(row_of(run)).status.word == "unknown"


def test_a_run_that_its_guard_starts_again_has_no_end_until_it_ends(run, hold):  # noqa: F811
    log(run, 1, 2)
    exits(run, "stopped", 143, message="SIGTERM")
    guard_says(run, "backoff", class_last="external")
    index_now(run, global_store())
    assert row_of(run).ended_status == "stopped"
    holder = hold("g", "none")
    status, row, _ = now_of(row_of(run))
    assert status.word == "restarting"
    assert (row.ended_status, row.ended_reason, row.ended_wall) == (None, None, None)
    told = CliRunner().invoke(cli, ["runs", "show", run.id]).output
    assert "restarting" in told and "stopped" not in told and "ended" not in told
    for read in (history.run(run.id), history.runs()[0]):
        assert (read.status, read.ended) == ("restarting", None)
    assert history.runs().to_list()[0]["status"] == "restarting"
    kill(holder)
    status, row, _ = now_of(row_of(run))
    assert (status.word, row.ended_status) == ("stopped", "stopped")


@pytest.mark.parametrize(
    ("status", "said", "stored", "elapsed"),
    [
        ("failed", 36.0, 103.0, 103.0),  # the program told of its last attempt alone
        ("running", 36.0, 30.0, 36.0),
        ("running", None, 30.0, 30.0),
        ("failed", 36.0, None, 36.0),
    ],
)
def test_a_run_that_is_over_took_as_long_on_its_screen_as_in_the_list(
    status, said, stored, elapsed
):
    view, row = RunView("r", status=status, elapsed_s=said), RunView("r", elapsed_s=stored)
    assert merge(view, row).elapsed_s == elapsed
