"""The bricks of a real run on a CPU: each is timed, and a delay in it is named; traces are kept."""

import gzip
import json
from types import SimpleNamespace

import pytest
from tiny_run import events, make_run, train_here

from albor_core.andon.alert import Alert
from albor_core.andon.bricks import coverage, variation, window
from albor_core.andon.bricks.names import BRICKS, OF_INTERVAL, OF_STEP
from albor_core.andon.health.watch import HealthWatch
from albor_core.run.journal import read_journal
from albor_core.run.state import read_state
from albor_core.train.observe import run_queue
from albor_core.train.observe.run_queue import RunQueue
from albor_core.train.process import faults as process_faults
from albor_core.train.step import brick_timer, brick_trace

SLOW_S = 0.2
SLOW_DATA = f"data:sleep={SLOW_S}@10"


def rows(run):
    return [line.record for line in read_journal(run.journal) if line.record["t"] == "m"]


def alerts(run, kind="brick"):
    found = [event["data"] for event in events(run, "andon.alert")]
    return [alert for alert in found if alert["kind"] == kind]


def quiet(tmp_path, run_id="tiny", **changes):
    """A run of some log intervals, with nothing between its steps but their lines."""
    return make_run(
        tmp_path,
        run_id,
        **{
            "training__epochs": 200,
            "training__max_steps": 60,
            "training__eval_interval": 1000,
            "training__checkpoint": {"save_every": 1000},
            **changes,
        },
    )


def slow_data(tmp_path, run_id="tiny", *, trace=True):
    """With an alert for its data at step 10."""
    bricks = {"data_ms": 1000 * SLOW_S / 2.5, "trace": trace}
    return quiet(tmp_path, run_id, training__max_steps=20, monitoring__bricks=bricks)


@pytest.fixture
def goes_on_by_itself(monkeypatch):
    """A pause ends as soon as it begins."""
    monkeypatch.setattr("albor_core.train.requests.Requests.pause", lambda self, reason: None)


@pytest.fixture
def ticking(monkeypatch):
    """Time that passes by looking at the clock, a millisecond each time, and by planned delays."""
    now = [0.0]

    def pass_by(seconds):
        now[0] += seconds
        return now[0]

    clock = SimpleNamespace(perf_counter=lambda: pass_by(0.001))
    monkeypatch.setattr(brick_timer, "time", clock)
    monkeypatch.setattr(process_faults, "time", SimpleNamespace(sleep=pass_by))
    monkeypatch.setattr(window, "BLOCK_S", 0.0)
    monkeypatch.setattr(RunQueue, "was_crowded", lambda self, seconds: False)


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("brick", [*OF_STEP, "log"])
def test_a_delay_in_a_brick_trips_that_brick_alone_within_one_window(tmp_path, brick):
    run = quiet(tmp_path, monitoring__bricks={"trace": False})
    train_here(run, faults=f"{brick}:sleep={SLOW_S}@30-60")
    (alert,) = [alert for alert in alerts(run) if alert["rule"] != "brick-coverage"]
    assert alert["rule"] == f"brick-{brick}-learned"
    assert alert["value"] >= 1000 * SLOW_S / 2 > alert["threshold"]
    assert 30 < alert["step"] <= 30 + window.WINDOW


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("brick", ["eval", "checkpoint"])
def test_a_delay_between_steps_trips_its_brick_alone(tmp_path, brick):
    often = {"training__eval_interval": 4, "training__checkpoint": {"save_every": 4}}
    run = quiet(tmp_path, monitoring__bricks={"trace": False}, **often)
    train_here(run, faults=f"{brick}:sleep={SLOW_S}@30-60")
    (alert,) = [alert for alert in alerts(run) if alert["rule"] != "brick-coverage"]
    assert alert["rule"] == f"brick-{brick}-learned"


@pytest.mark.usefixtures("ticking", "goes_on_by_itself")
@pytest.mark.parametrize("brick", [*OF_STEP, *OF_INTERVAL])
def test_a_delay_above_a_budget_pauses_the_run_for_that_brick(tmp_path, brick):
    often = {"training__eval_interval": 8, "training__checkpoint": {"save_every": 8}}
    bricks = {f"{name}_ms": 1000 * SLOW_S / 2.5 for name in BRICKS} | {"learn": False}
    run = quiet(tmp_path, training__max_steps=20, monitoring__bricks=bricks, **often)
    train_here(run, faults=f"{brick}:sleep={SLOW_S}@16-17")
    assert {event["data"]["brick"] for event in events(run, "jidoka.pause")} == {brick}


def test_what_happens_between_steps_is_in_the_interval_in_which_it_ends_and_in_no_other(tmp_path):
    run = quiet(
        tmp_path,
        training__max_steps=12,
        training__log_interval=2,
        training__eval_interval=4,
        training__checkpoint={"save_every": 6},
    )
    train_here(run)
    found = {row["step"]: row["v"] for row in rows(run) if "train/loss" in row["v"]}
    has = {name: [step for step, v in found.items() if f"brick/{name}_ms" in v] for name in BRICKS}
    assert has["eval"] == [2, 6, 10]  # of steps 0, 4 and 8; that of step 12 ends in no interval
    assert has["checkpoint"] == [8]
    assert has["log"] == [4, 6, 8, 10, 12]
    assert all(has[name] == [2, 4, 6, 8, 10, 12] for name in OF_STEP)


def test_bricks_and_other_add_up_to_the_step_and_coverage_says_how_much_they_explain(tmp_path):
    run = quiet(tmp_path, training__max_steps=12)
    train_here(run)
    for row in rows(run):
        if "perf/step_ms" not in row["v"]:
            continue
        bricks = {name: row["v"][f"brick/{name}_ms"] for name in OF_STEP}
        step_ms = row["v"]["perf/step_ms"]
        assert sum(bricks.values()) == pytest.approx(step_ms, abs=0.01)
        covered = 1 - bricks["other"] / step_ms
        assert row["v"][coverage.COVERAGE_KEY] == pytest.approx(covered, abs=0.001)
    state = read_state(run.state)
    assert 0 < state["brick_coverage"] <= 1


@pytest.mark.usefixtures("ticking", "goes_on_by_itself")
def test_an_alert_of_a_brick_keeps_a_trace_of_the_next_steps_and_names_it(tmp_path):
    run = slow_data(tmp_path)
    train_here(run, faults=SLOW_DATA)
    (alert, *_) = [alert for alert in alerts(run) if "trace" in alert["message"]]
    (event,) = events(run, "brick.traced")
    (path,) = run.traces.iterdir()
    assert f"traces/{path.name}" in alert["message"]
    assert event["data"]["path"] == str(path)
    assert event["data"]["bytes"] == path.stat().st_size <= variation.TRACE_BYTES
    names = [e.get("name") for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]
    assert names.count("brick data") == variation.TRACE_STEPS


@pytest.mark.usefixtures("ticking", "goes_on_by_itself")
def test_a_trace_changes_no_bit_of_the_training(tmp_path):
    from albor_core.train.resume.digest import digest

    traced, plain = (slow_data(tmp_path / name, name, trace=name == "on") for name in ("on", "off"))
    for run in (traced, plain):
        train_here(run, faults=SLOW_DATA)
    assert events(traced, "brick.traced") and not events(plain, "brick.traced")
    assert digest(traced) == digest(plain)


@pytest.mark.usefixtures("ticking", "goes_on_by_itself")
@pytest.mark.parametrize(("size", "kept"), [(1, 0), (10 << 20, 1)])
def test_a_trace_that_is_too_large_is_not_kept_and_training_goes_on(
    tmp_path, monkeypatch, size, kept
):
    monkeypatch.setattr(brick_trace, "TRACE_BYTES", size)
    run = slow_data(tmp_path)
    outcome = train_here(run, faults=SLOW_DATA)
    assert outcome.reason == "completed"
    assert len([*run.traces.iterdir()]) == kept
    assert len(events(run, "brick.untraced")) == 1 - kept


@pytest.mark.usefixtures("ticking", "goes_on_by_itself")
def test_a_profiler_that_fails_costs_the_trace_alone(tmp_path, monkeypatch):
    def broken(**_):
        raise RuntimeError("no tracer here")

    monkeypatch.setattr("torch.profiler.profile", broken)
    run = slow_data(tmp_path)
    assert train_here(run, faults=SLOW_DATA).reason == "completed"
    (event,) = events(run, "brick.untraced")
    assert "no tracer here" in event["data"]["reason"]


def test_a_trouble_of_the_training_s_health_is_told_and_halts_nothing(tmp_path, monkeypatch):
    def odd(self, step, values, wall):
        return (plateau,) if step == 5 else ()

    plateau = Alert(
        "plateau@1.5", "plateau", "health", "warning", "notify", "train/loss", 4.0, 0.0, "flat", 5
    )
    monkeypatch.setattr(HealthWatch, "take_step", odd)
    run = quiet(tmp_path, training__max_steps=8)
    assert train_here(run).reason == "completed"
    assert [alert["rule"] for alert in alerts(run, "health")] == ["plateau"]


def test_a_machine_is_crowded_where_a_thread_waits_for_a_processor(tmp_path, monkeypatch):
    counts = tmp_path / "schedstat"
    monkeypatch.setattr(run_queue, "COUNTS", counts)
    counts.write_text("500000000 100000000 7\n")
    queue = RunQueue()
    counts.write_text("900000000 140000000 9\n")
    assert not queue.was_crowded(1.0)
    counts.write_text("950000000 240000000 9\n")
    assert queue.was_crowded(1.0)
    counts.unlink()
    assert not queue.was_crowded(1.0)


def test_gradient_norms_of_layers_are_sampled_and_of_few_layers(tmp_path):
    run = quiet(tmp_path, training__max_steps=25)
    train_here(run)
    key = "optim/grad_norm_layer_01"
    assert [row["step"] for row in rows(run) if key in row["v"]] == [1, 11, 21]


def test_the_time_left_is_told_with_its_interval(tmp_path):
    run = quiet(tmp_path, training__max_steps=2000)
    train_here(run, stop_after=50)
    state = read_state(run.state)
    low, middle, high = (state[f"eta_{end}seconds"] for end in ("low_", "", "high_"))
    assert 0 <= low <= middle <= high
    assert middle > 0
