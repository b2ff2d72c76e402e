"""system.jsonl in the stores: figures where the run was, and the alerts of the watcher."""

from __future__ import annotations

import bisect

import pytest

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.indexer import index_now
from albor_core.store.index.series import step_clock
from albor_core.store.query.export import pages
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.check import check
from albor_core.store.upkeep.rebuild import rebuild


@pytest.fixture
def watched(bench):
    """A run of ten steps over an hour, whose machine was looked at each minute."""
    run = bench.run()
    created = run.metadata()["created"]
    journal = bench.journal(run)
    for step in range(1, 11):
        journal.metrics(step, {"train/loss": 2.5}, wall=created + 360 * step)
    system = Journal(run.system, attempt=1)
    for second in range(0, 3600, 60):
        system.metrics(second, {"gpu0/util_percent": 90.0, "host/cpu_percent": second / 60})
    system.event("andon.alert", severity="warning", id="gpu0-hot@1.0", rule="gpu0-hot")
    system.event("andon.clear", severity="info", id="gpu0-hot@1.0", rule="gpu0-hot")
    system.close()
    return run


def seen(run, path=None):
    """Step and value of the host's figures."""
    with Reader(path or local_store(run)) as reader:
        return [point[:2] for point in reader.points(run.id, "host/cpu_percent")]


def test_figures_of_the_machine_stand_at_the_step_where_the_run_was(bench, watched):
    bench.index(watched)
    created = watched.metadata()["created"]
    for path in (local_store(watched), global_store()):
        with Reader(path) as reader:
            found = reader.summary(watched.id)
            figures = found["host/cpu_percent"]
            assert (figures.axis, figures.first_step, figures.last_step) == ("step", 0, 9)
            assert found["train/loss"].axis == "step"
            assert reader.run(watched.id).last_step == 10
            drawn = reader.series(watched.id, "host/cpu_percent")
            assert (drawn.axis, drawn.steps[0]) == ("step", 0)
            assert 9 < drawn.steps[-1] < 10
    with Reader(local_store(watched)) as reader:
        assert seen(watched) == [(minute // 6, float(minute)) for minute in range(60)]
        assert reader.points(watched.id, "host/cpu_percent")[2] == (0, 2.0, created + 120)
        assert reader.outline(watched.id, "host/cpu_percent", 3)[-1] == (9, 59.0, created + 3540)
        window = reader.series(watched.id, "host/cpu_percent", lo=3, hi=4)
        assert (window.steps[0], window.mean[0], window.steps[-1]) == (3, 18.0, 4)


def test_figures_have_the_steps_that_a_long_run_logged_between_those_of_its_clock(
    bench, monkeypatch
):
    run = bench.run()
    created = run.metadata()["created"]
    journal = bench.journal(run)
    # slow and fast by turns, so that a straight line between far places is wrong
    walls = {step: created + step + 40 * (step // 50) for step in range(5, 2000)}
    for step, wall in walls.items():
        journal.metrics(step, {"train/loss": 1.0}, wall=wall)
    system = Journal(run.system, attempt=1)
    for second in range(0, 3700, 10):
        system.metrics(second, {"host/cpu_percent": float(second)})
    system.close()
    monkeypatch.setattr(step_clock, "KNOTS", 40)
    bench.index(run)
    logged = sorted(walls.items())
    for step, second in seen(run):
        place = bisect.bisect_right(logged, second, key=lambda one: one[1] - created) - 1
        known = logged[place][0] if place >= 0 else 4
        assert known <= step <= known + (place < 0), second


def test_a_run_without_steps_has_the_figures_by_seconds(bench, tmp_path):
    run = bench.run()
    bench.journal(run)
    system = Journal(run.system, attempt=1)
    system.metrics(70, {"host/cpu_percent": 3.0})
    system.close()
    bench.index(run)
    with Reader(local_store(run)) as reader:
        assert reader.summary(run.id)["host/cpu_percent"].axis == "seconds"
        drawn = reader.series(run.id, "host/cpu_percent")
        assert (drawn.axis, drawn.steps) == ("seconds", (70,))
    created = run.metadata()["created"]
    assert [row for page in pages(run) for row in page] == [
        (run.id, "exp", "host/cpu_percent", None, created + 70, 3.0)
    ]


def test_pages_of_figures_leave_none_out_where_many_stand_at_one_step(bench, watched):
    bench.index(watched)
    rows = [row for page in pages(watched, keys=["host/cpu_percent"], page=4) for row in page]
    assert [row[3] for row in rows] == [minute // 6 for minute in range(60)]


def test_alerts_of_the_watcher_are_events_of_their_own_source(bench, watched):
    bench.index(watched)
    with Reader(global_store()) as reader:
        events = reader.events(watched.id, names=("andon.alert", "andon.clear"))
        assert {event.source for event in events} == {"system"}
        assert [alert.id for alert in reader.alerts(watched.id)] == ["gpu0-hot@1.0"]


def test_the_machine_is_no_sign_of_life_of_the_program(bench, watched):
    bench.index(watched)
    before = last_wall(watched)
    system = Journal(watched.system, attempt=1)
    system.metrics(7200, {"host/cpu_percent": 1.0}, wall=9e9)
    system.append("e", name="andon.alert", severity="warning", data={"id": "x"}, wall=9e9)
    system.close()
    bench.index(watched)
    assert last_wall(watched) == before


def last_wall(run):
    with Reader(local_store(run)) as reader:
        return reader.run(run.id).last_wall


def test_only_the_watchers_own_events_are_taken(bench, watched):
    system = Journal(watched.system, attempt=1)
    system.event("run.end", status="failed", code=1)
    system.event("guard.state", state="done")
    system.append("r", to=0)
    system.close()
    bench.index(watched)
    with Reader(local_store(watched)) as reader:
        assert reader.events(watched.id, names=("run.end", "guard.state")) == ()
        assert reader.summary(watched.id)["train/loss"].count == 10


def test_a_name_that_the_program_logs_itself_is_the_programs(bench, watched, snapshot_of):
    bench.index(watched)
    journal = bench.journals[watched.id]
    journal.metrics(11, {"host/cpu_percent": 7.0})
    bench.index(watched)
    system = Journal(watched.system, attempt=1)
    system.metrics(9000, {"host/cpu_percent": 1.0})
    system.close()
    bench.index(watched)
    with Reader(local_store(watched)) as reader:
        found = reader.summary(watched.id)["host/cpu_percent"]
        assert (found.axis, found.count, found.last) == ("step", 1, 7.0)


def test_a_rebuild_gives_the_same_rows(bench, watched, snapshot_of):
    bench.index(watched)
    stores = (local_store(watched), global_store())
    before = [snapshot_of(path) for path in stores]
    assert rebuild(None, [watched]).problems == []
    assert [snapshot_of(path) for path in stores] == before
    assert check(global_store(), [watched]).problems == []


def test_a_damaged_line_costs_itself(bench, watched):
    raw = watched.system.read_bytes().splitlines(keepends=True)
    raw[3] = raw[3][:20] + b"XX" + raw[3][22:]
    watched.system.write_bytes(b"".join(raw))
    bench.index(watched)
    with Reader(local_store(watched)) as reader:
        assert reader.summary(watched.id)["host/cpu_percent"].count == 59
    assert check(global_store(), [watched]).damaged_lines == {watched.id: 1}


def test_figures_of_a_stretch_that_was_taken_back_stand_at_no_step(bench, watched):
    """A crash after step 10, and an attempt that goes on from step 5 a quarter of an hour later."""
    created = watched.metadata()["created"]
    journal = bench.journal(watched, attempt=2)
    journal.append("e", name="run.start", data={}, wall=created + 4500, step=5)
    journal.rewind(5)
    for step in range(6, 9):
        journal.metrics(step, {"train/loss": 2.0}, wall=created + 4500 + 600 * (step - 5))
    system = Journal(watched.system, attempt=2)
    for second in range(3660, 6300, 60):
        system.metrics(second, {"host/cpu_percent": second / 60})
    system.close()
    bench.index(watched)
    by_minute = {minute: step for step, minute in seen(watched)}
    before = {minute: minute // 6 for minute in range(36)}  # up to step 6, which was taken back
    after = {minute: 5 + (minute - 75) // 10 for minute in range(75, 105)}
    assert by_minute == before | after
    with Reader(local_store(watched)) as reader:
        assert reader.summary(watched.id)["host/cpu_percent"].count == 60 + 44  # all by time
        assert len(reader.series(watched.id, "host/cpu_percent", is_timed=True).steps) == 104


def test_a_rewind_within_an_attempt_moves_what_was_seen_meanwhile(bench, watched):
    created = watched.metadata()["created"]
    journal = bench.journals[watched.id]
    journal.rewind(8)
    journal.metrics(9, {"train/loss": 2.0}, wall=created + 7200)
    bench.index(watched)
    assert seen(watched)[-1] == (8, 53.0)  # step 9 was logged at minute 54


def test_a_score_of_an_old_step_moves_no_figure(bench, watched):
    journal = bench.journals[watched.id]
    journal.metrics(3, {"val/loss": 2.0}, wall=watched.metadata()["created"] + 86400)
    bench.index(watched)
    assert dict(map(reversed, seen(watched)))[30.0] == 5


def test_an_alert_is_open_until_it_is_over_or_seen_and_again_when_it_fires_again(tmp_path):
    run = create_run(tmp_path, "r", experiment="e", name="r", kind="track", argv=[])
    journal = Journal(run.journal, attempt=1)
    for step, (name, alert_id) in enumerate(
        [
            ("andon.alert", "over@1.1"),
            ("andon.alert", "again@1.2"),
            ("andon.alert", "open@1.3"),
            ("andon.clear", "over@1.1"),
            ("andon.clear", "again@1.2"),
            ("andon.alert", "again@1.2"),
        ],
        1,
    ):
        journal.append("e", step=step, name=name, wall=1000.0 + step, data={"id": alert_id})
    index_now(run)
    with Reader(local_store(run)) as reader:
        every = {row.id: row for row in reader.alerts(run.id)}
        assert {name: row.cleared_wall for name, row in every.items()} == {
            "over@1.1": 1004.0,
            "again@1.2": None,
            "open@1.3": None,
        }
        assert [row.id for row in reader.alerts(run.id, open_only=True)] == [
            "again@1.2",
            "open@1.3",
        ]
        assert reader.run(run.id).alerts_open == 2


@pytest.mark.parametrize(
    ("steps", "first"), [((1000, 1010, 1020), 1000), ((7,), 7), ((10, 20, 30), 0), ((1, 2), 0)]
)
def test_nothing_of_the_machine_stands_before_where_a_run_may_have_begun(steps, first):
    clock = step_clock.StepsByTime([(step, 200.0 + i * 60) for i, step in enumerate(steps)], 100.0)
    assert [clock.at(second) for second in (0.0, 100.0)] == [first, steps[0]]
    assert first <= clock.at(50.0) <= steps[0]
