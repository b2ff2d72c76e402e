"""system.jsonl in the stores: figures over seconds, and the alerts of the watcher."""

from __future__ import annotations

import pytest

from albor_core.run.journal import Journal
from albor_core.run.rundir import create_run
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.indexer import index_now
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.check import check
from albor_core.store.upkeep.rebuild import rebuild


@pytest.fixture
def watched(bench):
    """A run of ten steps over an hour, whose machine was looked at each minute."""
    run = bench.run()
    bench.journal(run).metrics(10, {"train/loss": 2.5})
    system = Journal(run.system, attempt=1)
    for second in range(0, 3600, 60):
        system.metrics(second, {"gpu0/util_percent": 90.0, "host/cpu_percent": second / 60})
    system.event("andon.alert", severity="warning", id="gpu0-hot@1.0", rule="gpu0-hot")
    system.event("andon.clear", severity="info", id="gpu0-hot@1.0", rule="gpu0-hot")
    system.close()
    return run


def test_figures_of_the_machine_are_series_over_seconds(bench, watched):
    bench.index(watched)
    created = watched.metadata()["created"]
    for path in (local_store(watched), global_store()):
        with Reader(path) as reader:
            found = reader.summary(watched.id)
            assert found["host/cpu_percent"].axis == "seconds"
            assert found["host/cpu_percent"].last_step == 3540
            assert found["train/loss"].axis == "step"
            assert reader.run(watched.id).last_step == 10  # seconds are no steps
    with Reader(local_store(watched)) as reader:
        points = reader.points(watched.id, "host/cpu_percent")
        assert points[2] == (120, 2.0, created + 120)


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
        assert reader.summary(watched.id)["train/loss"].count == 1


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


def test_a_rewind_of_the_program_takes_no_figure_of_the_machine_back(bench, watched):
    bench.index(watched)
    bench.journals[watched.id].rewind(5)
    bench.index(watched)
    with Reader(local_store(watched)) as reader:
        found = reader.summary(watched.id)
        assert (found["train/loss"].count, found["host/cpu_percent"].count) == (0, 60)


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
