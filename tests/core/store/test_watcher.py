"""The watcher of one run: what it tells, once, and whom it asks to act. With a clock of its own."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass, field, replace

import pytest

from albor_core.andon.alert import Alert
from albor_core.run.control import take_commands
from albor_core.run.files.watch_file import read_watch
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal, read_journal
from albor_core.run.liveness import Liveness, boot_id
from albor_core.store.watch import watch_memory
from albor_core.store.watch import watcher as watcher_module
from albor_core.store.watch.live_rules import LiveRules, live_rules
from albor_core.store.watch.not_finite import HELD_S
from albor_core.store.watch.system_file import SystemFile
from albor_core.store.watch.watcher import Watcher, is_watchable
from albor_core.telemetry.machine_ring import MachineSample
from albor_core.telemetry.program_processes import ProgramSample
from albor_core.telemetry.sample import GpuSample, HostSample

GUARDED, ALONE, OVER = Liveness(None, 7), Liveness(0, None), Liveness(None, None)


@dataclass(frozen=True)
class Limit:
    """A rule of the test: `key` above `limit` does `action`."""

    key: str
    limit: float
    action: str
    argv: tuple[str, ...] = ()
    source: str = "config"

    @property
    def id(self):
        return f"{self.key}-{self.action}".replace("/", "-")

    @property
    def condition(self):
        return f"{self.key} > {self.limit:g}"


@dataclass
class Limits:
    """Fires once above the limit and clears below it; the fold that rules are."""

    rules: tuple[Limit, ...]
    attempt: int
    firing: list[str] = field(default_factory=list)

    def _take(self, values, step):
        for rule in self.rules:
            value = values.get(rule.key)
            if value is None or (value > rule.limit) == (rule.id in self.firing):
                continue
            if value > rule.limit:
                self.firing.append(rule.id)
                yield alert_of(rule, value, step, self.attempt)
            else:
                self.firing.remove(rule.id)
                yield replace(alert_of(rule, value, step, self.attempt), state="cleared")

    def take_step(self, step, values, wall):
        return tuple(self._take(values, step))

    def take_clock(self, wall, figures):
        return tuple(self._take(figures, 0))

    def to_json(self):
        return {"firing": self.firing}

    def load(self, saved):
        self.firing = list(saved["firing"])


def alert_of(rule, value, step, attempt):
    return Alert(
        id=f"{rule.id}@{attempt}.{step}", rule=rule.id, kind="rule", severity="error",
        action=rule.action, metric=rule.key, value=value, threshold=rule.limit,
        message="too high", step=step,
    )  # fmt: skip


class Rules(LiveRules):
    def engine(self, attempt):
        return Limits(self.rules, attempt)


class Bench:
    """A run with a journal, its watcher, and a clock that moves when it is told."""

    def __init__(self, root, kind="guard", rules=(), **facts):
        self.run = create_run(
            root, "r", experiment="e", name="r", kind=kind, argv=[], facts=facts, created=1000.0
        )
        self.rules = Rules(tuple(rules))
        self.journal = Journal(self.run.journal, attempt=1)
        self.mono, self.wall = 5000.0, 1000.0
        self.watcher = self.fresh()

    def fresh(self):
        """As a new index process would make it, after the last one was killed."""
        self.watcher = Watcher(self.run, rules=self.rules)
        return self.watcher

    def log(self, step, **values):
        names = {key.replace("__", "/"): value for key, value in values.items()}
        self.journal.metrics(step, names, wall=self.wall)

    def look(self, seconds=1.0, living=GUARDED):
        self.mono += seconds
        self.wall += seconds
        return self.watcher.look(living, mono=self.mono, wall=self.wall)

    def said(self, *names):
        try:
            lines = [line.record for line in read_journal(self.run.system)]
        except OSError:
            return []
        return [r["data"] for r in lines if r["t"] == "e" and (not names or r["name"] in names)]

    def ids(self, name="andon.alert"):
        return [data["id"] for data in self.said(name)]

    def orders(self):
        return [command.cmd for command in take_commands(self.run, time.time())]


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine whose samples the test sets; nothing of the real one."""
    held = {"samples": [], "program": None}

    def held_sample(*, after):
        return next((one for one in held["samples"] if one.wall > after), None)

    monkeypatch.setattr(watcher_module, "MACHINE_S", 1.0)  # each look is one of the clock too
    monkeypatch.setattr(watcher_module, "newest_sample", held_sample)
    monkeypatch.setattr(watcher_module.ProgramProcesses, "sample", lambda *_: held["program"])
    monkeypatch.setattr(
        watcher_module, "sample_host",
        lambda _: HostSample(memory_available_bytes=8 << 30, memory_total_bytes=16 << 30),
    )  # fmt: skip
    monkeypatch.setattr(watcher_module, "disk_free", lambda _: held.get("disk", 100 << 30))
    return held


def sample(wall, *gpus, **host):
    return MachineSample(wall, wall, "h", boot_id(), gpus, HostSample(**host))


STOP = Limit("train/loss", 10.0, "stop")


def test_a_rule_over_steps_tells_and_asks_the_guard_to_stop(tmp_path):
    bench = Bench(tmp_path, rules=[STOP])
    bench.log(1, train__loss=2.0)
    bench.look()
    assert bench.said() == []
    bench.log(2, train__loss=11.0)
    bench.look()
    assert bench.ids() == ["train-loss-stop@1.2"]
    assert bench.orders() == ["stop"]
    (act,) = bench.said("andon.act")
    assert (act["action"], act["done"]) == ("stop", True)
    bench.look()
    assert bench.orders() == []


@pytest.mark.parametrize(
    ("action", "kind", "order"),
    [
        ("pause", "guard", "pause"),
        ("checkpoint", "train", "checkpoint"),
        ("rollback", "train", "rollback"),
        ("checkpoint", "guard", None),
        ("rollback", "guard", None),
        ("notify", "guard", None),
    ],
)
def test_what_a_program_cannot_do_is_not_asked_of_it(tmp_path, action, kind, order):
    bench = Bench(tmp_path, kind=kind, rules=[Limit("disk_free", 1.0, action)])
    bench.look()
    assert bench.orders() == ([] if order is None else [order])
    acts = [(act["done"], act["detail"]) for act in bench.said("andon.act")]
    if action == "notify":
        assert acts == []
    elif order is None:
        assert acts == [(False, f"tells only: the program has no {action} to be asked for")]


def test_without_a_guard_it_tells_only_and_says_so(tmp_path):
    bench = Bench(tmp_path, kind="track", rules=[STOP])
    bench.log(1, train__loss=11.0)
    bench.look(living=ALONE)
    (act,) = bench.said("andon.act")
    assert (act["done"], act["detail"]) == (False, "tells only: no guard")
    assert bench.orders() == []
    watch = read_watch(bench.run)
    assert (watch.acts, watch.why_tells_only, watch.rules) == (False, "no guard", 1)


def test_what_is_over_again_is_told_and_not_acted_upon(tmp_path):
    bench = Bench(tmp_path, rules=[STOP])
    bench.log(1, train__loss=11.0)
    bench.log(2, train__loss=2.0)
    bench.look()
    assert bench.ids() == ["train-loss-stop@1.1"] == bench.ids("andon.clear")
    assert bench.orders() == []


def test_health_of_the_trainers_steps_is_told_by_its_loop_alone(tmp_path):
    bench = Bench(tmp_path, kind="train")
    bench.log(1, train__loss=math.nan)
    bench.look()
    assert bench.said() == []
    assert read_watch(bench.run).by == "loop"


def test_validation_of_a_training_that_is_no_number_is_told(tmp_path):
    bench = Bench(tmp_path, kind="train")
    bench.log(1, train__loss=1.0, val__loss=2.0)
    bench.log(2, train__loss=math.nan, val__loss=math.nan)
    bench.look()
    assert bench.ids() == ["not-finite-val-loss@1.2"]


def test_a_side_figure_that_stays_nan_is_told_by_time(tmp_path):
    bench = Bench(tmp_path)
    for step, value in enumerate([1.0, 1.0, math.nan], 1):
        bench.log(step, train__loss=1.0, a=1.0, side=value)
    bench.look()
    assert bench.ids() == []
    bench.look(HELD_S)
    assert bench.ids() == ["not-finite-side@1.3"]


# -- killed and started again ----------------------------------------------------------------------


@pytest.mark.parametrize("death", ["before it looked", "before it kept", "after it kept"])
def test_an_index_process_that_is_killed_neither_repeats_nor_misses(tmp_path, monkeypatch, death):
    bench = Bench(tmp_path, rules=[STOP])
    bench.log(1, train__loss=2.0)
    bench.look()
    bench.log(2, train__loss=11.0)
    if death == "before it kept":
        monkeypatch.setattr(watch_memory, "write_json", lambda *_, **__: None)
    if death != "before it looked":
        bench.look()
    monkeypatch.undo()
    monkeypatch.setattr(watcher_module, "newest_sample", lambda *, after: None)
    bench.fresh()
    bench.look()
    bench.log(3, train__loss=12.0)
    bench.look()
    assert bench.ids() == ["train-loss-stop@1.2"]
    assert bench.orders() == ["stop"]
    bench.log(4, train__loss=1.0)
    bench.look()
    bench.log(5, train__loss=11.0)
    bench.look()
    assert bench.ids() == ["train-loss-stop@1.2", "train-loss-stop@1.5"]


def test_what_was_told_and_not_yet_acted_upon_is_acted_upon_by_the_next_one(tmp_path):
    bench = Bench(tmp_path, rules=[STOP])
    bench.log(1, train__loss=11.0)
    bench.watcher._telling.act = lambda **_: (_ for _ in ()).throw(KeyboardInterrupt)  # its end
    with pytest.raises(KeyboardInterrupt):
        bench.look()
    assert bench.orders() == []
    bench.fresh()
    bench.look()
    assert (bench.ids(), bench.orders()) == (["train-loss-stop@1.1"], ["stop"])


def test_rules_over_the_clock_keep_the_alert_that_an_earlier_process_told(tmp_path):
    bench = Bench(tmp_path, rules=[Limit("seconds_since_step", 120.0, "notify")])
    bench.log(1, train__loss=2.0)
    bench.look()
    bench.look(200.0)
    bench.fresh()
    bench.look(1.0)
    bench.look(1.0)
    assert len([i for i in bench.ids() if i.startswith("seconds")]) == 1


def test_a_journal_that_is_another_one_is_judged_from_its_start(tmp_path):
    bench = Bench(tmp_path, rules=[STOP])
    for step in range(1, 50):
        bench.log(step, train__loss=2.0)
    bench.look()
    bench.run.journal.unlink()
    bench.journal = Journal(bench.run.journal, attempt=1)
    bench.log(1, train__loss=11.0)
    bench.fresh()
    bench.look()
    assert bench.ids() == ["train-loss-stop@1.1"]


@pytest.mark.parametrize("memory", ["", "[]", "{}", '{"journal": {"offset": "x"}}', "\x00" * 50])
def test_a_damaged_memory_costs_nothing_but_reading_again(tmp_path, memory):
    bench = Bench(tmp_path, rules=[STOP])
    bench.log(1, train__loss=11.0)
    bench.look()
    bench.run.watch.with_name("watch-memory.json").write_text(memory)
    bench.fresh()
    bench.look()
    assert bench.ids() == ["train-loss-stop@1.1"]
    assert bench.orders() == ["stop"]


# -- what is wrong with any run --------------------------------------------------------------------


def test_a_loss_that_is_not_finite_is_told_whatever_the_rules_say(tmp_path):
    bench = Bench(tmp_path)
    bench.log(1, train__loss=math.nan, other=math.nan)
    bench.log(2, train__loss=math.nan, val__loss=math.inf)
    bench.look()
    assert bench.ids() == ["not-finite-train-loss@1.1", "not-finite-val-loss@1.2"]
    for step in range(3, 13):
        bench.log(step, train__loss=2.0)
    bench.look()
    assert bench.ids("andon.clear") == ["not-finite-train-loss@1.1"]


def logged(bench, count, gap_s):
    for step in range(1, count + 1):
        bench.log(step, train__loss=2.0)
        bench.wall += gap_s
        bench.mono += gap_s
    bench.look(1.0)


def silences(bench):
    return [i for i in bench.ids() if i.startswith("silence")]


def test_silence_much_longer_than_its_own_steps_is_told_and_ends_with_a_line(tmp_path):
    bench = Bench(tmp_path)
    logged(bench, 10, 5.0)
    bench.look(50.0)
    assert silences(bench) == []
    bench.look(20.0)
    assert silences(bench) == ["silence@1.10"]
    bench.log(11, train__loss=2.0)
    bench.look()
    assert bench.ids("andon.clear") == ["silence@1.10"]


def test_a_run_that_was_stopped_while_silent_is_silent_no_more(tmp_path):
    bench = Bench(tmp_path)
    logged(bench, 10, 5.0)
    bench.look(70.0)
    assert silences(bench) == ["silence@1.10"]
    bench.watcher.finish()
    assert bench.ids("andon.clear") == ["silence@1.10"]


def test_a_program_of_slow_steps_may_be_silent_longer(tmp_path):
    bench = Bench(tmp_path)
    logged(bench, 10, 60.0)
    bench.look(500.0)
    assert silences(bench) == []


def test_a_pause_is_no_silence(tmp_path):
    bench = Bench(tmp_path)
    logged(bench, 10, 5.0)
    bench.run.guard_json.write_text('{"state": "paused"}')
    bench.look(5000.0)
    bench.run.guard_json.write_text('{"state": "running"}')
    bench.look(30.0)
    assert silences(bench) == []


def test_a_disk_or_a_memory_that_is_nearly_full_is_told_once(tmp_path, machine):
    bench = Bench(tmp_path)
    machine["disk"] = 1 << 30
    machine["samples"] = [
        sample(1001.0, memory_available_bytes=1 << 28, memory_total_bytes=64 << 30)
    ]
    bench.look()
    bench.look()
    assert {data["metric"] for data in bench.said("andon.alert")} == {"disk_free", "memory_free"}
    assert len(bench.ids()) == 2
    machine["disk"] = 100 << 30
    bench.look()
    assert len(bench.ids("andon.clear")) == 1


def test_what_was_wrong_with_the_machine_ends_with_the_run(tmp_path, machine):
    bench = Bench(tmp_path)
    machine["disk"] = 1 << 30
    bench.log(1, loss=1.0)
    bench.look()
    assert len(bench.ids()) == 1
    bench.watcher.finish()
    assert bench.ids("andon.clear") == bench.ids()


@pytest.mark.parametrize(("kind", "told"), [("track", ["loss-is-zero@1.12"]), ("train", [])])
def test_zeros_in_which_a_program_ended_are_told_and_by_its_loop_of_a_training(
    tmp_path, kind, told
):
    bench = Bench(tmp_path, kind=kind)
    for step in range(1, 13):
        bench.log(step, train__loss=0.0)
    bench.look()
    assert bench.ids() == []
    bench.watcher.finish()
    assert bench.ids() == told


def test_only_gpus_that_its_processes_use_are_its_own(tmp_path, machine):
    rules = [Limit("gpu0.temperature", 85.0, "notify"), Limit("gpu1.temperature", 85.0, "notify")]
    bench = Bench(tmp_path, rules=rules)
    machine["program"] = ProgramSample(100.0, 1 << 30, 4, 1, gpus=(1,))
    hot = [GpuSample(index, temperature_c=90.0) for index in (0, 1)]
    machine["samples"] = [sample(1001.0, *hot)]
    bench.look(living=Liveness(5, 7))
    assert bench.ids() == ["gpu1.temperature-notify@1.0"]


def test_a_new_attempt_ends_what_was_wrong_with_the_last(tmp_path):
    bench = Bench(tmp_path)
    bench.log(5, train__loss=math.nan)
    bench.look()
    bench.journal.attempt = 2
    bench.log(6, train__loss=math.nan)
    bench.look()
    assert bench.ids() == ["not-finite-train-loss@1.5", "not-finite-train-loss@2.6"]
    assert bench.ids("andon.clear") == ["not-finite-train-loss@1.5"]


# -- figures, the file, watch.json -----------------------------------------------------------------


def figures(bench):
    lines = [line.record for line in read_journal(bench.run.system)]
    return [(r["step"], r["v"]) for r in lines if r["t"] == "m"]


def test_figures_are_kept_each_ten_seconds_over_seconds_of_the_run(tmp_path, machine):
    bench = Bench(tmp_path)
    machine["program"] = ProgramSample(250.0, 1 << 30, 4, 2, gpus=())
    machine["samples"] = [sample(1001.0, GpuSample(0, util_percent=97.0), cpu_percent=12.0)]
    for _ in range(30):
        bench.look(living=Liveness(5, 7))
        machine["samples"] = [replace(machine["samples"][0], wall=bench.wall)]
    found = figures(bench)
    assert [second for second, _ in found] == [1, 11, 21]
    assert found[-1][1]["gpu0/util_percent"] == 97.0
    assert found[-1][1]["program/rss_bytes"] == 1 << 30
    assert found[-1][1]["host/cpu_percent"] == 12.0


def test_the_trainers_file_has_its_processes_alone(tmp_path, machine):
    bench = Bench(tmp_path, kind="train")
    machine["program"] = ProgramSample(250.0, 1 << 30, 4, 2, gpus=())
    machine["samples"] = [sample(1001.0, GpuSample(0, util_percent=97.0), cpu_percent=12.0)]
    bench.look(living=Liveness(5, 7))
    ((_, values),) = figures(bench)
    assert set(values) == {"program/cpu_percent", "program/rss_bytes", "program/threads"}


def test_a_long_file_has_figures_less_often_then_none_and_alerts_to_the_end(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    file = SystemFile(bench.run, created=0.0)
    size = {"now": 0}
    monkeypatch.setattr(SystemFile, "_size", lambda _: size["now"])
    assert file.interval_s == 10.0
    size["now"] = 17 << 20
    assert file.interval_s == 40.0
    size["now"] = 64 << 20
    assert not file.wants_figures(1e9)
    file.event("andon.alert", {"id": "a"}, wall=1.0)
    assert file.lost == 0
    size["now"] = 65 << 20
    file.event("andon.alert", {"id": "b"}, wall=1.0)
    assert file.lost == 1
    assert bench.ids() == ["a"]


def test_a_full_disk_costs_figures_and_delays_alerts(tmp_path, monkeypatch):
    bench = Bench(tmp_path, rules=[STOP])
    bench.look()
    journal = bench.watcher._file._journal
    put = journal._put

    def full(_line):
        journal.error = "No space left on device"
        return False

    monkeypatch.setattr(journal, "_put", full)
    bench.log(1, train__loss=11.0)
    for _ in range(25):
        bench.look()
    assert bench.orders() == ["stop"]
    watch = read_watch(bench.run)
    assert watch.lines_lost == 2
    assert "No space left" in " ".join(watch.problems)
    monkeypatch.setattr(journal, "_put", put)
    bench.look()
    assert bench.ids() == ["train-loss-stop@1.1"]


def test_an_error_inside_is_said_once_and_the_watch_goes_on(tmp_path, capsys, monkeypatch):
    bench = Bench(tmp_path, rules=[STOP])

    def broken(*_):
        raise ZeroDivisionError("a rule")

    engine = bench.watcher._engine
    bench.watcher._engine = type("Broken", (), {"take_step": broken, "take_clock": broken,
                                                "to_json": lambda _: {"firing": []}})()  # fmt: skip
    bench.log(1, train__loss=1.0)
    for _ in range(3):
        bench.look()
    assert capsys.readouterr().err.count("ZeroDivisionError: a rule") == 1
    bench.watcher._engine = engine
    bench.log(2, train__loss=11.0)
    bench.look()
    assert bench.ids() == ["train-loss-stop@1.2"]
    assert any("a rule" in problem for problem in read_watch(bench.run).problems)


def test_watch_json_is_written_anew_each_ten_seconds(tmp_path):
    bench = Bench(tmp_path, rules=[STOP])
    bench.look()
    first = read_watch(bench.run)
    assert first.rule_texts == ("train/loss > 10 -> stop",)
    bench.look()
    assert read_watch(bench.run).wall == first.wall
    bench.look(10.0)
    assert read_watch(bench.run).wall > first.wall


def test_the_last_lines_of_a_run_are_told_and_nobody_is_asked(tmp_path):
    bench = Bench(tmp_path, rules=[STOP])
    bench.look()
    bench.log(1, train__loss=11.0)
    bench.watcher.finish()
    assert bench.ids() == ["train-loss-stop@1.1"]
    assert bench.orders() == []


def test_what_was_read_in_is_not_watched(tmp_path):
    assert not is_watchable(Bench(tmp_path, kind="imported").run)


def test_a_bad_rule_of_a_config_costs_itself_and_is_told(tmp_path):
    resolved = {"monitoring": {"alerts": [{"condition": "loss >> 1"}, {"condition": "loss > 10"}]}}
    bench = Bench(tmp_path)
    bench.run.config_resolved.write_text(json.dumps(resolved))
    found = live_rules(bench.run, "track")
    assert found.texts == ("loss > 10 -> notify",)
    assert "monitoring.alerts.0" in found.problems[0]


@pytest.fixture
def rules_file(tmp_path, monkeypatch):
    """Writes rules.yaml of the user, each time with another stamp."""
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path))
    path = tmp_path / "rules.yaml"

    def write(text):
        write.wall += 1
        path.write_text(text)
        os.utime(path, (write.wall, write.wall))

    write.wall = 1000
    return write


def test_a_bad_rule_of_the_user_costs_itself_and_the_others_watch(tmp_path, rules_file):
    rules_file("rules:\n  - loss >> 1\n  - loss > 10\n  - [1]\nbel: true\n")
    found = live_rules(Bench(tmp_path).run, "track")
    assert found.texts == ("loss > 10 -> notify",)
    assert len(found.problems) == 3
    assert "line 2, column 5" in found.problems[0]


def test_rules_that_are_edited_hold_for_the_runs_at_work(tmp_path, rules_file):
    rules_file("rules: [loss > 10]")
    bench = Bench(tmp_path)
    bench.rules = None
    bench.fresh()
    bench.log(1, train__loss=1.0)
    bench.log(2, train__loss=11.0)
    bench.look()
    assert bench.ids() == ["loss-gt-10@1.2"]
    rules_file("rules: [loss > 10, 'custom > 5']")
    bench.log(3, train__loss=12.0, custom=1.0)
    bench.look()
    bench.log(200, custom=9.0)
    bench.look()
    assert bench.ids() == ["loss-gt-10@1.2", "custom-gt-5@1.200"]
    rules_file("rules: ['custom > 5']")
    bench.look()
    assert bench.ids("andon.clear") == ["loss-gt-10@1.2"], "its rule is no more"


def test_a_file_that_breaks_while_it_is_edited_takes_no_rule_away(tmp_path, rules_file):
    rules_file("rules: [loss > 10]")
    bench = Bench(tmp_path)
    bench.rules = None
    bench.fresh()
    rules_file("rules: [loss > 10")
    bench.look()
    told = read_watch(bench.run)
    assert told.rule_texts == ("loss > 10 -> notify",)
    assert "rules.yaml: line 1" in told.problems[0]
    rules_file("rules: [loss > 10]")
    bench.look()
    assert read_watch(bench.run).problems == ()


def test_a_config_that_was_not_given_here_runs_nothing_and_goes_back_nowhere(tmp_path):
    alerts = [
        {"condition": "loss > 10", "action": "command", "argv": ["true"]},
        {"condition": "loss > 20", "action": "rollback"},
        {"condition": "loss > 30", "action": "stop"},
    ]
    bench = Bench(tmp_path)
    bench.run.config_resolved.write_text(json.dumps({"monitoring": {"alerts": alerts}}))
    assert len(live_rules(bench.run, "train").texts) == 3
    foreign = live_rules(bench.run, "train", launched_here=False)
    assert foreign.texts == ("loss > 30 -> stop",)
    assert len(foreign.problems) == 2


# -- commands --------------------------------------------------------------------------------------


def ended(bench):
    deadline = time.monotonic() + 20
    while not bench.watcher._telling._commands.is_idle and time.monotonic() < deadline:
        time.sleep(0.01)
    bench.look()
    return bench.said("andon.command")


def command(script, source="config"):
    return Limit("train/loss", 10.0, "command", ("/bin/sh", "-c", script), source)


def host():
    return os.uname().nodename


def test_a_command_runs_once_without_a_shell_and_knows_its_alert(tmp_path):
    rule = command('echo "$ALBOR_RUN_ID $ALBOR_ALERT_ID $ALBOR_ALERT_VALUE" >> ran; echo done')
    bench = Bench(tmp_path, kind="track", rules=[rule], host=host())
    bench.log(1, train__loss=11.0)
    bench.look(living=ALONE)
    (found,) = ended(bench)
    assert (found["code"], found["output"]) == (0, "done\n")
    bench.fresh()
    bench.look(living=ALONE)
    assert (bench.run.path / "ran").read_text() == "r train-loss-command@1.1 11.0\n"


def test_a_command_of_a_rule_that_the_trainers_loop_evaluates_is_run_once(tmp_path):
    bench = Bench(tmp_path, kind="train", host=host())
    rule = {"condition": "loss > 10", "action": "command", "argv": ["/bin/sh", "-c", "echo >> ran"]}
    bench.run.config_resolved.write_text(json.dumps({"monitoring": {"alerts": [rule]}}))
    bench.rules = None
    bench.fresh()
    alert = {"id": "loss-gt-10@1.3", "rule": "loss-gt-10", "action": "command", "step": 3}
    for name in ("andon.alert", "andon.alert", "andon.clear"):
        bench.journal.append("e", step=3, name=name, severity="warning", data=alert)
    bench.look(living=ALONE)
    (found,) = ended(bench)
    assert found["code"] == 0
    bench.run.watch.with_name("watch-memory.json").unlink()
    bench.fresh()
    bench.look(living=ALONE)
    ended(bench)
    assert (bench.run.path / "ran").read_text() == "\n"


def test_a_command_is_run_for_the_last_line_of_a_program_that_has_ended(tmp_path):
    bench = Bench(tmp_path, kind="track", rules=[command("echo >> ran")], host=host())
    bench.look(living=ALONE)
    bench.log(1, train__loss=11.0)
    bench.watcher.finish()
    assert (bench.run.path / "ran").read_text() == "\n"


@pytest.mark.parametrize(("source", "runs"), [("config", 0), ("user", 1), ("experiment", 1)])
def test_a_run_that_came_from_elsewhere_starts_no_command_of_its_config(tmp_path, source, runs):
    bench = Bench(tmp_path, rules=[command("true", source)], host="another")
    bench.log(1, train__loss=11.0)
    bench.look()
    assert len(ended(bench)) == runs
    (act,) = bench.said("andon.act")
    assert act["done"] == bool(runs)


def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr("albor_core.store.watch.act.TIMEOUT_S", 0.3)
    bench = Bench(tmp_path, rules=[command("sleep 600 & sleep 600")], host=host())
    bench.log(1, train__loss=11.0)
    bench.look()
    (found,) = ended(bench)
    assert found["problem"] == "killed after 0.3 s"


def test_the_output_of_a_command_is_bounded(tmp_path):
    bench = Bench(tmp_path, rules=[command("head -c 3000000 /dev/zero | tr '\\0' x")], host=host())
    bench.log(1, train__loss=11.0)
    bench.look()
    (found,) = ended(bench)
    assert (found["code"], len(found["output"])) == (0, 1000)


def test_a_command_that_cannot_start_is_told(tmp_path):
    rule = Limit("train/loss", 10.0, "command", ("/nowhere/program",))
    bench = Bench(tmp_path, rules=[rule], host=host())
    bench.log(1, train__loss=11.0)
    bench.look()
    (found,) = ended(bench)
    assert found["problem"].startswith("cannot start")


BUDGETS = {"budgets": {"gpu_hours": 1.0, "action": "stop"}, "alerts": []}


def hour(bench, machine, minutes, *, begin=0):
    """Minutes of a program that holds GPU 1 of two, at 600 W each, one step a minute of 120."""
    machine["program"] = ProgramSample(1.0, 1 << 30, 4, 1, gpus=(1,))
    for minute in range(begin + 1, begin + minutes + 1):
        cards = (GpuSample(0, power_w=600.0), GpuSample(1, power_w=600.0, util_percent=98.0))
        machine["samples"] = [sample(bench.wall + 60.0, *cards)]
        bench.log(minute, train__loss=2.0, train__tokens=1000.0 * minute)
        bench.look(60.0, living=Liveness(5, 7))


def test_the_budgets_of_a_program_are_counted_over_its_attempts_and_acted_on(tmp_path, machine):
    bench = Bench(tmp_path)
    config = {"monitoring": BUDGETS, "training": {"max_steps": 120}}
    write_json(bench.run.config_resolved, config)
    bench.fresh()
    hour(bench, machine, 40)
    (told,) = [one for one in read_watch(bench.run).budgets if one["amount"] == "gpu_hours"]
    assert told["used"] == pytest.approx(39 / 60, abs=1e-6)
    assert told["at_completion"] == pytest.approx(119 / 60, rel=0.02)
    assert told["exhausted_wall"] == pytest.approx(1000.0 + 61 * 60, abs=70)
    finish = read_watch(bench.run).finish
    assert finish["wall"] == pytest.approx(1000.0 + 120 * 60, abs=120)
    assert bench.ids() == []
    bench.watcher.close()
    bench.fresh()  # as after a crash of the index process
    bench.journal.close()
    bench.journal = Journal(bench.run.journal, attempt=2)
    hour(bench, machine, 30, begin=40)
    assert bench.ids() == ["budget-gpu_hours-90@2.56", "budget-gpu_hours@2.62"]
    assert bench.orders() == ["stop"]
    energy = [one for one in read_watch(bench.run).budgets if one["amount"] == "energy_kwh"]
    assert energy[0]["used"] == pytest.approx(0.6 * 68 / 60, rel=0.03)


@pytest.mark.parametrize(
    "told", ["none", {"tokens": "many", "action": "fly"}, {"soft": -1}, [1], {"money": True}]
)
def test_budgets_of_a_config_that_nobody_checked_break_nothing(tmp_path, told):
    bench = Bench(tmp_path, kind="track")
    write_json(bench.run.config_resolved, {"monitoring": {"budgets": told}})
    bench.fresh()
    bench.log(1, train__loss=2.0, train__tokens=10.0)
    bench.look(living=ALONE)
    bench.look(living=ALONE)
    assert bench.said() == [] and read_watch(bench.run).problems == ()


def test_nan_of_the_metric_that_a_person_chose_for_the_experiment_is_told_at_once(
    tmp_path, monkeypatch
):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("ALBOR_HOME", str(home))
    bench = Bench(tmp_path)
    for step in (1, 2):
        bench.log(step, train__loss=1.0, side=1.0, other=1.0)
    bench.look()
    (home / "views.yaml").write_text("metrics: {e: side, another: other}\n")
    bench.log(3, train__loss=1.0, side=math.nan, other=math.nan)
    bench.look(HELD_S / 2)
    assert bench.ids() == ["not-finite-side@1.3"], "the other one waits until it is sure"
    (home / "views.yaml").write_text("metrics: [damaged\n")
    bench.log(4, train__loss=1.0, side=math.nan, other=1.0)
    bench.look()
    assert bench.ids() == ["not-finite-side@1.3"]
