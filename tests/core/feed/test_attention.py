"""What is in the list of attention and what is not: one situation a line, of values alone."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import pytest

from albor_core.andon.health.gpu import GpuTrouble
from albor_core.feed.attention.derive import KEPT_S, attention, is_candidate, since_looked
from albor_core.feed.attention.item import KINDS, SEVERITIES, AttentionList, AttentionMarks
from albor_core.feed.attention.machine import MachineTrouble, MachineView, MachineWatch, Reading
from albor_core.feed.view.diagnostics import NonFinite, RunDiagnostics, Watched
from albor_core.feed.view.run_view import BrickView, BudgetView, CheckpointView, RunView
from albor_core.run.values.main_metrics import MainMetric
from albor_core.store.rows.rows import AlertRow, AttemptRow
from albor_core.telemetry.sample import GpuProcess, GpuSample, HostSample

NOW = 1_700_000_000.0
HOUR = 3600.0
GIB = 1 << 30
WATCHED = Watched(3, by="loop", acts=True)
NOWHERE, NO_MARKS = MachineView(), AttentionMarks()


def a_run(**given: Any) -> RunView:
    """A guarded training run, an hour old, at step 1000, healthy, watched by three rules."""
    diagnostics = {"watched": WATCHED, "save_every": 100, **given.pop("diagnostics", {})}
    usual: dict[str, Any] = {
        "id": "r",
        "name": "run r",
        "kind": "train",
        "host": "here",
        "created": NOW - HOUR,
        "status": "running",
        "is_live": True,
        "age_s": 0.4,
        "last_wall": NOW - 0.4,
        "phase": "training",
        "attempt": 1,
        "step": 1000,
        "max_steps": 4000,
        "progress": 0.25,
        "loss": 2.5,
        "step_ms": 3600.0,
        "elapsed_s": HOUR,
        "trainer_pid": 11,
        "guard_pid": 10,
        "guard": {"state": "running", "wall": NOW - 1},
        "checkpoint": CheckpointView(last_step=900, last_wall=NOW - 360),
        "rules_watching": 3,
    }
    return RunView(**(usual | given), diagnostics=RunDiagnostics(**diagnostics))


def a_tracked_run(**given: Any) -> RunView:
    """A loop that was tracked and has neither guard nor checkpoints."""
    own: dict[str, Any] = {"kind": "track", "guard_pid": None, "guard": None}
    own |= {"checkpoint": CheckpointView(), "diagnostics": {"save_every": None}}
    return a_run(**(own | given))


def ended(status: str, **given: Any) -> RunView:
    gone: dict[str, Any] = {"trainer_pid": None, "guard_pid": None, "is_live": False}
    return a_run(**(gone | {"status": status, "ended_wall": NOW - HOUR} | given))


def an_alert(rule: str, **given: Any) -> AlertRow:
    said: dict[str, Any] = {"severity": "warning", "message": f"{rule} fired", "step": 990}
    return AlertRow(f"{rule}@1.990", "r", rule=rule, wall=NOW - 60, **(said | given))


def derived(
    *runs: RunView,
    machine: MachineView = NOWHERE,
    marks: AttentionMarks = NO_MARKS,
) -> AttentionList:
    return attention(runs, machine, marks, now=NOW)


def on_gpu(kind: str, **given: Any) -> MachineView:
    found = GpuTrouble(5, kind, NOW - 60, 41.0, 97.0, "41 % busy, the run's other GPUs 97 %")
    return MachineView((MachineTrouble("here", found, "r"),), run_gpus={"r": 8}, **given)


def with_room(**given: Any) -> MachineView:
    plenty = HostSample(
        memory_available_bytes=80 * GIB, memory_total_bytes=128 * GIB, disk_free_bytes=400 * GIB
    )
    return MachineView(hosts={"here": replace(plenty, **given)})


def with_alert(rule: str, **given: Any) -> RunView:
    return a_run(diagnostics={"alerts": (an_alert(rule, **given),)})


ROOM = with_room()
RESTART = AttemptRow(
    1, ended=NOW - 600, exit_class="oom_host", action="restart", reason="oom_host", step=1040
)
SITUATIONS: dict[str, tuple[str, str, RunView, MachineView]] = {
    "an exception": (
        "died",
        "error",
        ended(
            "failed",
            diagnostics={"error": "ValueError: no such key (train.py:7)", "exit_code": 1},
        ),
        MachineView(),
    ),
    "a refused config": (
        "failed",
        "error",
        ended("failed", diagnostics={"exit_class": "config", "exit_code": 2}),
        MachineView(),
    ),
    "a guard that never started it": ("failed", "error", ended("failed", attempt=None), ROOM),
    "a folder taken away": (
        "folder_gone", "critical", a_run(detail="its folder is gone, and process 7"), ROOM,
    ),
    "no last words": ("lost", "error", ended("lost"), MachineView()),
    "silence beyond the limit": (
        "hung",
        "critical",
        a_run(status="stalled", is_live=False, age_s=400.0),
        MachineView(),
    ),
    "a guard's verdict": (
        "hung",
        "critical",
        a_run(guard={"state": "hung"}, age_s=90.0),
        MachineView(),
    ),
    "silence beyond its steps": (
        "silent",
        "warning",
        a_tracked_run(is_silent=True, is_live=False, age_s=60.0, step_ms=200.0),
        MachineView(),
    ),
    "a restart": (
        "restarted",
        "warning",
        a_run(attempt=2, diagnostics={"attempts": (RESTART, AttemptRow(2, started=NOW - 590))}),
        MachineView(),
    ),
    "three restarts": (
        "restarted",
        "error",
        a_run(
            attempt=4,
            diagnostics={"attempts": tuple(replace(RESTART, attempt=n) for n in (1, 2, 3))},
        ),
        MachineView(),
    ),
    "a loss that is NaN": ("non_finite", "error", a_run(loss=math.nan), MachineView()),
    "a NaN that has passed": (
        "non_finite",
        "error",
        a_run(
            diagnostics={
                "non_finite": (NonFinite("train/loss", "nan", 4, 940, 943, NOW - 99, NOW),)
            }
        ),
        MachineView(),
    ),
    "a rule": ("rule", "critical", with_alert("loss", severity="critical"), MachineView()),
    "a rule of old colours": ("rule", "error", with_alert("loss", severity="red"), MachineView()),
    "a brick's alert": ("brick", "warning", with_alert("brick-data"), MachineView()),
    "a brick beyond its budget": (
        "brick",
        "warning",
        a_run(bricks=(BrickView("data", 31.0, 25.0),)),
        MachineView(),
    ),
    "a budget's alert": ("budget", "warning", with_alert("budget-tokens-90"), MachineView()),
    "a budget that is too small": (
        "budget",
        "warning",
        a_tracked_run(budgets=(BudgetView("money", "EUR", 1.0, 3.0, at_completion=4.0),)),
        MachineView(),
    ),
    "a budget that is used up": (
        "budget",
        "error",
        a_run(budgets=(BudgetView("tokens", "tokens", 3.0, 3.0, at_completion=12.0),)),
        MachineView(),
    ),
    "an old checkpoint": (
        "checkpoint",
        "warning",
        a_run(checkpoint=CheckpointView(last_step=100, last_wall=NOW - 0.9 * HOUR)),
        MachineView(),
    ),
    "checkpoints that fail": (
        "checkpoint_failing",
        "error",
        a_run(checkpoint=CheckpointView(last_step=900, last_wall=NOW - 360, failures=2)),
        MachineView(),
    ),
    "a guard that is gone": (
        "unguarded",
        "warning",
        a_run(status="unguarded", guard_pid=None),
        MachineView(),
    ),
    "lines that no disk took": (
        "lines_lost",
        "warning",
        a_run(diagnostics={"lines_lost": 7}),
        ROOM,
    ),
    "lines of a completed run that no disk took": (
        "lines_lost",
        "warning",
        ended("completed", lines_lost=7),
        ROOM,
    ),
    "lines of a stopped run that no disk took": (
        "lines_lost",
        "warning",
        ended("stopped", diagnostics={"lines_lost": 7}),
        ROOM,
    ),
    "a log that lacks some of what was printed": (
        "console_lost",
        "warning",
        ended("completed", console_bytes_lost=7),
        ROOM,
    ),
    "a rule that cannot be read": (
        "watching",
        "error",
        a_run(
            diagnostics={
                "watched": replace(WATCHED, problems=("rules.yaml: line 2: not a rule",))
            }
        ),
        ROOM,
    ),
    "a hot GPU": ("gpu_hot", "warning", a_run(), on_gpu("hot")),
    "a throttled GPU": ("gpu_throttled", "warning", a_run(), on_gpu("throttled")),
    "a GPU behind its siblings": ("gpu_straggling", "warning", a_run(), on_gpu("straggling")),
    "a GPU that does nothing": ("gpu_idle", "warning", a_run(), on_gpu("idle")),
    "memory errors of a GPU": ("gpu_ecc", "error", a_run(), on_gpu("ecc")),
    "a fault of a GPU": ("gpu_xid", "error", a_run(), on_gpu("xid")),
    "a full disk": ("disk", "critical", a_run(), with_room(disk_free_bytes=GIB // 2)),
    "a nearly full disk": ("disk", "error", a_run(), with_room(disk_free_bytes=4 * GIB)),
    "a size of a home that is none": (
        "home_cap", "warning", a_run(), MachineView(caps={"here": "cannot read it"})
    ),
    "a home near its size": ("home", "warning", a_run(), MachineView(homes={"here": "9 of 10"})),
    "no memory": ("memory", "error", a_run(), with_room(memory_available_bytes=GIB)),
}  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_trouble_is_one_entry_with_its_word_and_severity(situation: str) -> None:
    kind, severity, run, machine = SITUATIONS[situation]
    (item,) = derived(run, machine=machine).items
    assert (item.kind, item.severity) == (kind, severity)
    assert item.summary, "an entry says what is wrong"
    assert item.command.startswith("albor "), "and what to do next"
    assert item.is_open
    assert item.id.partition("/")[0] in ("r", "here")


def test_every_kind_of_trouble_has_a_situation_in_this_test() -> None:
    tried = {kind for kind, *_ in SITUATIONS.values()}
    assert tried == KINDS.keys() - {"health"}, "health comes as the alerts of andon.health"
    assert all(table.severity in SEVERITIES for table in KINDS.values())


HEALTHY: dict[str, RunView] = {
    "at its steps": a_run(),
    "tracked": a_tracked_run(),
    "paused by its user": a_run(status="paused", phase="paused", age_s=4000.0, is_live=False),
    "in a long evaluation": a_run(phase="evaluating", age_s=100.0),
    "writing a checkpoint that is due": a_run(
        checkpoint=CheckpointView(last_step=600, last_wall=NOW - 0.9 * HOUR, in_flight=True)
    ),
    "with a young checkpoint": a_run(checkpoint=CheckpointView(last_step=800, last_wall=NOW - 700)),
    "of slow steps and few checkpoints": a_run(
        step=150, step_ms=24_000.0, checkpoint=CheckpointView(last_step=100, last_wall=NOW - 1200)
    ),
    "that was never to have checkpoints yet": a_run(step=20, checkpoint=CheckpointView()),
    "with an alert that was seen": a_run(diagnostics={"settled": frozenset({"loss@1.990"})}),
    "restarted hours ago": a_run(
        attempt=2, diagnostics={"attempts": (replace(RESTART, ended=NOW - 3 * HOUR),)}
    ),
    "resumed by its user": a_run(
        attempt=2,
        diagnostics={"attempts": (replace(RESTART, action="stop", exit_class="stopped"),)},
    ),
    "whose NaN is hours old": a_run(
        diagnostics={"non_finite": (NonFinite("train/loss", "nan", 1, 9, 9, 0.0, NOW - 2 * HOUR),)}
    ),
    "with bricks below and just at their budgets": a_run(
        bricks=(BrickView("data", 24.0, 25.0), BrickView("forward", 104.0, 100.0))
    ),
    "whose budget suffices": a_run(
        budgets=(
            BudgetView("tokens", "tokens", 1.0, 4.2, at_completion=4.0),
            BudgetView("steps", "steps", 1.0),
        )
    ),
    "that completed": ended("completed"),
    "that completed and ended in NaN": ended("completed", loss=math.nan),
    "that its user stopped": ended("stopped", detail="stopped by a person"),
    "that waits for its start": a_run(status="queued", trainer_pid=None, guard_pid=None),
    "of a copy that is old": ended("unknown"),
    "imported, which failed elsewhere": ended("failed", kind="imported"),
    "that failed long ago": ended("failed", ended_wall=NOW - KEPT_S - 60, last_wall=NOW - KEPT_S),
}


@pytest.mark.parametrize("neighbour", HEALTHY)
def test_a_healthy_run_is_not_in_the_list(neighbour: str) -> None:
    assert derived(HEALTHY[neighbour], machine=with_room()).items == ()


def test_a_run_that_a_rule_stopped_stays_until_somebody_sees_it() -> None:
    run = ended("stopped", detail="loss > 10 at step 40", diagnostics={"exit_code": 4})
    (item,) = derived(run).items
    assert item.kind == "rule" and "loss > 10" in item.summary
    assert item.key == "R", "and it can be started again"


def test_only_runs_at_work_and_those_that_ended_badly_this_week_are_read() -> None:
    assert is_candidate(a_run(), NOW)
    assert is_candidate(ended("lost"), NOW)
    assert is_candidate(ended("completed", lines_lost=1), NOW)
    assert not is_candidate(ended("completed"), NOW)
    assert not is_candidate(ended("completed", lines_lost=1, ended_wall=NOW - KEPT_S - 1), NOW)
    assert not is_candidate(ended("lost", ended_wall=NOW - KEPT_S - 1), NOW)


def test_the_worst_entry_is_first_and_what_was_seen_is_last() -> None:
    hung = a_run(id="b", status="stalled", age_s=400.0)
    silent = a_run(id="c", is_silent=True, age_s=90.0)
    seen = {"acked": {"a/died@1": "somebody"}, "exit_code": 1, "error": "E: x"}
    found = derived(ended("failed", id="a", diagnostics=seen), silent, hung)
    assert [item.run_id for item in found.items] == ["b", "c", "a"]
    assert [item.run_id for item in found.open] == ["b", "c"]
    assert found.severity == "critical"


def test_a_mark_holds_for_its_trouble_and_its_life_alone() -> None:
    first = a_run(loss=math.nan, diagnostics={"acked": {"r/non_finite@1": "me"}})
    assert not derived(first).open
    again = a_run(loss=math.nan, attempt=2, diagnostics={"acked": {"r/non_finite@1": "me"}})
    assert [item.kind for item in derived(again).open] == ["non_finite"]
    hung = a_run(status="stalled", age_s=400.0, diagnostics={"acked": {"r/hung@1.1000": "me"}})
    assert not derived(hung).open
    assert derived(replace(hung, step=1001)).open, "it moved, and hangs again"


def test_a_muted_entry_comes_back_when_its_time_is_over() -> None:
    until = {"muted": {"r/non_finite@1": NOW + 60}}
    run = a_run(loss=math.nan, diagnostics=until)
    assert derived(run).items and not derived(run).open
    later = attention((run,), MachineView(), AttentionMarks(), now=NOW + 61)
    assert len(later.open) == 1


def test_marks_of_a_machine_come_from_the_home() -> None:
    seen = AttentionMarks(acked={"here/gpu_hot:5": "me"})
    found = derived(a_run(), machine=on_gpu("hot"), marks=seen)
    assert [item.acked_by for item in found.items] == ["me"]


def test_a_rule_that_fired_often_is_one_entry_with_all_its_alerts() -> None:
    fired = tuple(
        replace(an_alert("loss"), id=f"loss@1.{step}", step=step) for step in (10, 20, 30)
    )
    (item,) = derived(a_run(diagnostics={"alerts": fired})).items
    assert item.alert_ids == ("loss@1.10", "loss@1.20", "loss@1.30")
    assert "3 times" in item.summary


def test_one_budget_is_one_entry_by_the_worse_of_its_alerts() -> None:
    soft = an_alert("budget-wall_hours-90", kind="budget", message="90% of 2 wall hours is used")
    hard = an_alert("budget-wall_hours", kind="budget", severity="error", message="used up")
    other = an_alert("budget-tokens-90", kind="budget")
    use = BudgetView("wall_hours", "wall hours", 2.1, 2.0, at_completion=4.0)
    first, second = derived(
        a_run(budgets=(use,), diagnostics={"alerts": (soft, hard, other)})
    ).items
    assert (first.severity, first.alert_ids) == ("error", (soft.id, hard.id))
    assert "used up" in first.summary and "times" not in first.summary
    assert second.alert_ids == (other.id,)
    (early,) = derived(a_run(diagnostics={"alerts": (soft,)})).items
    assert early.id != first.id, "that it was nearly used up was seen, not that it is"


def test_what_nothing_carries_out_is_said() -> None:
    tells = Watched(1, by="index", why_tells_only="no guard")
    run = a_tracked_run(
        diagnostics={"watched": tells, "alerts": (an_alert("loss", action="stop"),)}
    )
    found = derived(run)
    assert found.tells_only == ("r",)
    assert "nothing carries out: no guard" in found.items[0].cause


def test_a_damaged_rules_file_is_one_entry_for_all_runs_and_is_seen_once() -> None:
    watched = replace(WATCHED, problems=("/home/rules.yaml: line 2, column 5: not a rule",))
    runs = [a_run(id=name, diagnostics={"watched": watched}) for name in ("a", "b", "c")]
    (item,) = derived(*runs).items
    assert "line 2" in item.summary and "for 3 runs" in item.summary
    assert not item.is_of_run
    assert not derived(*runs, marks=AttentionMarks(acked={item.id: "me"})).open
    assert derived(*runs).fine == ("a", "b", "c"), "all else of them is watched"


def test_quiet_is_only_what_is_watched() -> None:
    assert derived(a_run()).is_quiet
    assert derived(a_run()).fine == ("r",)
    unwatched = derived(a_run(diagnostics={"watched": Watched(0)}))
    assert not unwatched.is_quiet and unwatched.not_watched == ("r",) and unwatched.fine == ()
    assert not attention(
        (a_run(),), MachineView(), AttentionMarks(), now=NOW, is_complete=False
    ).is_quiet
    assert not attention(
        (a_run(),), MachineView(), AttentionMarks(), now=NOW, problem="damaged"
    ).is_quiet


@pytest.mark.parametrize(
    ("watched", "words"),
    [
        (WATCHED, "watched by 3 rules"),
        (Watched(1, 2, "loop", True), "watched by 1 rule and 2 budgets"),
        (Watched(0, 1, "index"), "watched by 1 budget, tells only: no guard"),
        (Watched(1, by="index", why_tells_only="frozen"), "watched by 1 rule, tells only: frozen"),
        (Watched(2, 1), "not watched"),
        (Watched(0, by="index", acts=True), "not watched"),
        (Watched(None), "not watched"),
    ],
)
def test_what_watches_a_run_is_said_in_words(watched: Watched, words: str) -> None:
    assert watched.words == words


def test_work_at_risk_is_counted_in_hours_of_all_gpus() -> None:
    run = ended("failed", last_wall=NOW - HOUR, diagnostics={"exit_code": 1, "error": "E: x"},
                checkpoint=CheckpointView(last_step=900, last_wall=NOW - 1.2 * HOUR))  # fmt: skip
    (item,) = attention((run,), MachineView(run_gpus={"r": 8}), AttentionMarks(), now=NOW).items
    assert item.cost_gpu_hours == pytest.approx(1.6)
    assert item.cost == "1.6 GPU-h lost since the checkpoint at step 900"
    (alone,) = derived(run).items
    assert alone.cost_gpu_hours == pytest.approx(0.2)
    assert alone.cost.startswith("12m 00s of work lost")
    assert (item.is_of_gpus, alone.is_of_gpus) == (True, False)
    assert "is_of_gpus" not in alone.to_json()


@pytest.mark.parametrize(
    ("run", "key", "command"),
    [
        (ended("failed", diagnostics={"exit_code": 1}), "R", "albor train resume r"),
        (ended("failed", kind="guard", diagnostics={"exit_code": 1}), "R", "albor guard retry r"),
        (ended("failed", kind="track", diagnostics={"exit_code": 1}), "enter", "albor runs show r"),
        (a_run(status="stalled", age_s=400.0), "x", "albor guard stop r"),
        (a_tracked_run(status="stalled", age_s=400.0), "x", "albor guard stop r"),
        (a_tracked_run(status="stalled", trainer_pid=0), "enter", "albor runs show r"),
        (a_run(status="unguarded", guard_pid=None), "R", "albor train resume r"),
        (a_run(is_silent=True, age_s=90.0), "enter", "albor logs r"),
        (a_tracked_run(is_silent=True, age_s=90.0), "enter", "albor logs r"),
    ],
)
def test_the_key_and_the_command_are_those_that_work_on_the_run(
    run: RunView, key: str, command: str
) -> None:
    run = replace(run, host="", command=("python", "x.py"))
    item = derived(run).items[0]
    assert (item.key, item.command) == (key, command)


def test_since_somebody_looked_the_ended_runs_are_counted() -> None:
    looked = AttentionMarks(looked_wall=NOW - 2 * HOUR)
    runs = (
        ended("completed", id="a", name="one", best_val_loss=2.6),
        ended("completed", id="b", name="two", best_val_loss=2.4),
        ended("completed", id="c", ended_wall=NOW - 9 * HOUR, best_val_loss=1.0),
        ended("stopped", id="d"),
        ended("lost", id="e"),
        a_run(id="f"),
    )
    told = attention(runs, MachineView(), looked, now=NOW).since_last_looked
    assert told.sentence == "2 completed (best val/loss: two 2.4), 1 died, 1 stopped"
    assert (
        attention(runs, MachineView(), AttentionMarks(), now=NOW).since_last_looked.sentence == ""
    )


def test_the_best_of_the_ended_runs_is_the_best_by_what_a_person_chose() -> None:
    def one(name: str, mse: float, r2: float) -> RunView:
        metrics = (MainMetric("val/mse", mse, "min"), MainMetric("val/r2", r2, "max"))
        return ended("completed", id=name, name=name, experiment="sweep", metrics=metrics)

    runs, looked = (one("a", 0.1, 0.5), one("b", 0.2, 0.9)), NOW - 2 * HOUR
    assert since_looked(runs, looked).best_run == "a"
    assert since_looked(runs, looked, {"sweep": "val/r2"}).best_run == "b"
    assert since_looked(runs, looked, {"sweep": "gone", "x": "val/r2"}).best_run == "a"


def eight_gpus(slow: int, throttled: int) -> tuple[GpuSample, ...]:
    mine = (GpuProcess(os.getpid()),)
    return tuple(
        GpuSample(
            index=index,
            util_percent=41.0 if index == slow else 97.0,
            temperature_c=70.0,
            throttle_reasons=("thermal",) if index == throttled else (),
            processes=mine,
        )
        for index in range(8)
    )


def test_of_eight_gpus_the_slow_and_the_throttled_one_are_named() -> None:
    watch = MachineWatch()
    run = a_run(host="elsewhere", trainer_pid=os.getpid())
    for second in range(40):
        seen = replace(run, last_wall=NOW + second, gpu=eight_gpus(5, 7))
        machine = watch.look([seen], NOW + second)
    found = attention((seen,), machine, NO_MARKS, now=NOW + 40)
    told = {item.word: item for item in found.items}
    assert sorted(told) == ["gpu 5 straggling", "gpu 7 throttled"]
    assert machine.run_gpus == {"r": 8}
    straggler = told["gpu 5 straggling"]
    assert straggler.run_id == "r" and "41 %" in straggler.summary
    assert straggler.cost_gpu_hours and straggler.cost_gpu_hours > 0


def test_a_gpu_of_this_machine_is_judged_by_the_samples_since_the_run_began() -> None:
    watch = MachineWatch()
    run = a_run(host=os.uname().nodename, trainer_pid=os.getpid(), created=NOW + 200)
    samples = [Reading(NOW + second, eight_gpus(5, 7)) for second in range(205)]
    watch.take(samples)
    machine = watch.look([run], NOW + 205)
    assert {one.gpu.kind for one in machine.troubles} == {"throttled"}, "five seconds are too few"


def test_a_gpu_that_an_alert_and_the_samples_tell_of_is_one_entry() -> None:
    told = an_alert("gpu5-hot", kind="machine", metric="gpu5.hot", message="GPU 5 hot: 88 C")
    run = a_run(diagnostics={"alerts": (told,)})
    assert [item.word for item in derived(run).items] == ["gpu 5 hot"]
    both = derived(run, machine=on_gpu("hot"))
    assert [item.id for item in both.items] == ["here/gpu_hot:5"]


def test_a_rule_of_the_users_own_about_a_gpu_is_a_rule() -> None:
    told = an_alert("gpu-temperature-gt-80", kind="rule", metric="gpu.temperature", value=83.0)
    (item,) = derived(a_run(diagnostics={"alerts": (told,)}), machine=on_gpu("hot")).open[1:]
    assert item.kind == "rule"
    assert item.summary == "gpu-temperature-gt-80 fired: 83 at step 990"


def test_a_nan_that_a_rule_tells_of_is_one_entry_unless_the_rule_asks_for_more() -> None:
    told = an_alert("loss-is-nan", kind="rule", metric="train/loss", value=math.nan, action="warn")
    seen = (NonFinite("train/loss", "nan", 2, 940, 943, NOW - 99, NOW),)
    (item,) = derived(a_run(diagnostics={"non_finite": seen, "alerts": (told,)})).items
    assert (item.kind, item.alert_ids) == ("non_finite", (told.id,))
    asks = replace(told, action="stop")
    both = derived(a_run(diagnostics={"non_finite": seen, "alerts": (asks,)})).items
    assert sorted(one.kind for one in both) == ["non_finite", "rule"]


def test_a_silent_run_is_one_entry_with_the_alert_that_tells_of_its_silence() -> None:
    said = an_alert("silence", metric="seconds_since_step", value=61.0)
    run = a_tracked_run(is_silent=True, age_s=60.0, step_ms=200.0, diagnostics={"alerts": (said,)})
    (item,) = derived(run).items
    assert (item.kind, item.alert_ids) == ("silent", ("silence@1.990",))
    seen = {"alerts": (said,), "acked": {item.id: "me"}}
    assert not derived(replace(run, diagnostics=RunDiagnostics(**seen))).open


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("silence", "silent"),
        ("disk-full", "disk"),
        ("memory-full", "memory"),
        ("not-finite-aux-loss", "non_finite"),
    ],
)
def test_what_nobody_wrote_a_rule_for_is_not_called_a_rule(rule: str, kind: str) -> None:
    (item,) = derived(with_alert(rule, kind="machine" if "full" in rule else "rule")).items
    assert item.kind == kind and item.word != "rule fired"


def test_a_full_disk_that_a_run_tells_of_is_the_entry_of_its_machine() -> None:
    found = derived(with_alert("disk-full", kind="machine"), machine=with_room(disk_free_bytes=GIB))
    assert [item.id for item in found.items] == ["here/disk"]


def test_free_bytes_are_said_in_units_and_silence_once() -> None:
    disk = an_alert("disk", message="disk_free < 20GB", metric="disk_free", value=66.0 * GIB)
    quiet = an_alert("quiet", message="quiet for 61 s", metric="seconds_since_step", value=60.7)
    texts = [item.summary for item in derived(a_run(diagnostics={"alerts": (disk, quiet)})).items]
    assert sorted(texts) == ["disk_free < 20GB: 66.0 GiB at step 990", "quiet for 61 s at step 990"]


def test_a_rule_that_tells_of_nan_is_never_left_out_with_it() -> None:
    told = an_alert("loss-is-nan", kind="rule", metric="train/loss", value=math.nan, action="warn")
    assert derived(a_run(diagnostics={"alerts": (told,)})).items, "no line of it is in sight"


def a_nan(metric: str, step: int) -> AlertRow:
    rule = f"not-finite-{metric.replace('/', '-')}"
    said: dict[str, Any] = {"severity": "error", "value": math.nan, "action": "notify"}
    return an_alert(rule, kind="rule", metric=metric, step=step, **said)


@pytest.mark.parametrize("kind", ["track", "imported"])
def test_a_run_that_completed_in_nan_stays_until_somebody_sees_it(kind: str) -> None:
    run = ended(
        "completed", kind=kind, alerts_open=1, diagnostics={"alerts": (a_nan("val/mse", 61),)}
    )
    assert is_candidate(run, NOW)
    (item,) = derived(run).open
    assert item.summary == "completed, but val/mse was NaN from step 61"
    assert (item.kind, item.step, item.metric) == ("non_finite", 61, "val/mse")
    seen = replace(run, diagnostics=replace(run.diagnostics, acked={item.id: "me"}))
    assert not derived(seen).open


def test_nan_of_many_metrics_is_one_entry() -> None:
    told = tuple(a_nan(f"m{n}", 61) for n in range(60))
    (item,) = derived(a_run(diagnostics={"alerts": told})).items
    assert item.summary.startswith("m0 is NaN since step 61, m1 is NaN")
    assert item.summary.endswith(" and 52 more") and len(item.alert_ids) == 60


def test_a_rule_that_fired_stays_after_the_end_of_its_run() -> None:
    fired = (an_alert("loss-high", kind="rule", severity="warning"),)
    run = ended("completed", alerts_open=1, diagnostics={"alerts": fired})
    (item,) = derived(run).items
    assert item.kind == "rule" and is_candidate(run, NOW)


def test_what_still_held_at_the_end_of_a_run_stays_and_what_was_of_its_machine_goes() -> None:
    held = (
        *(an_alert(rule, kind="health") for rule in ("plateau", "slower", "vanishing-wte")),
        *(an_alert("budget-gpu_hours", kind="budget"), an_alert("brick-attn", kind="brick")),
    )
    gone = (
        *(an_alert(rule, kind="machine") for rule in ("disk-full", "memory-full", "gpu0-hot")),
        an_alert("silence", metric="seconds_since_step"),
    )
    diagnostics = {"alerts": (*held, *gone)}
    items = derived(ended("completed", alerts_open=len(held), diagnostics=diagnostics)).items
    assert {one for item in items for one in item.alert_ids} == {alert.id for alert in held}
    assert {item.kind for item in items} == {"health", "budget", "brick"}


def test_the_best_is_told_only_of_runs_that_can_be_compared() -> None:
    def said(*runs: RunView) -> str:
        return attention(
            runs, NOWHERE, AttentionMarks(looked_wall=NOW - 9 * HOUR), now=NOW
        ).since_last_looked.sentence

    a = ended("completed", id="a", name="a", experiment="x", loss=2.0)
    b = replace(a, id="b", name="b", loss=1.0)
    assert said(a, b) == "2 completed (best train/loss: b 1)"
    assert said(a, replace(b, loss=0.0)) == "2 completed (best train/loss: a 2)"
    assert said(replace(a, val_loss=0.0), replace(b, val_loss=0.0)) == "2 completed"
    assert said(a, replace(b, experiment="y")) == "2 completed"
    assert said(a, replace(b, val_loss=0.5)) == "2 completed"
    wer = (MainMetric("wer", 0.4, "min"), MainMetric("acc", 0.4, "max"), MainMetric("zorp", 0.4))
    for metric, best in zip(wer, ("d 0.2", "c 0.4", ""), strict=True):
        c = replace(a, id="c", name="c", loss=None, metrics=(metric,))
        d = replace(c, id="d", name="d", metrics=(metric._replace(last=0.2),))
        assert said(c, d) == "2 completed" + (f" (best {metric.name}: {best})" if best else "")


def test_of_a_run_whose_folder_was_taken_away_its_process_is_told() -> None:
    gone = a_run(detail="its folder is gone, and process 7 goes on without it", trainer_pid=7)
    (item,) = derived(gone).items
    assert "only kill 7 ends it" in item.cause
    assert item.ack == f"albor attention ack {item.id}"
    (item,) = derived(ended("lost", detail="its folder is gone, no end was recorded")).items
    assert item.cause == "its folder was deleted or moved: how it ended was recorded nowhere else"
