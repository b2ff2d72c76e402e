"""Waiting for runs: real locks, real inotify and pidfds; what happens meanwhile happens while the
waiter is about to sleep, so that no test depends on time.
"""

from __future__ import annotations

import errno
import math
import subprocess
import sys
import time

import pytest

from albor_core.feed.waiting.until import parse_until
from albor_core.feed.waiting.waiter import RunWait, wait_for
from albor_core.run.errors import UsageError
from albor_core.run.files.pulled_file import Pulled, write_pulled
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.program import notified
from albor_core.run.program.notified import Notifier
from albor_core.store.index.annotations import annotate

HOLDER = """
import os, sys
from pathlib import Path
from albor_core.run.liveness import take_lock
locks = [take_lock(Path(place)) for place in sys.argv[1:]]
print("ready", flush=True)
for line in sys.stdin:
    os.close(locks.pop())
    print("let go", flush=True)
"""


class ScriptedNotifier(Notifier):
    """Before each sleep the next of `script` happens; then it sleeps for real."""

    def __init__(self, *script):
        super().__init__()
        self.script, self.limits = list(script), []

    def wait(self, timeout_s):
        self.limits.append(timeout_s)
        if not self.script:
            pytest.fail(f"it sleeps again, after {len(self.limits) - 1} events")
        self.script.pop(0)()
        return super().wait(timeout_s)

    def tells_nothing(self):
        return self._poll.poll(0) == []


@pytest.fixture(autouse=True)
def no_batches(monkeypatch):
    monkeypatch.setattr("albor_core.feed.waiting.waiter.BATCH_S", 0.0)


@pytest.fixture
def made(tmp_path):
    def make(name="r-1"):
        return create_run(tmp_path / "out", name, experiment="e", name=name, kind="track", argv=[])

    return make


@pytest.fixture
def run(made):
    return made()


@pytest.fixture
def hold():
    """Holds locks as a program does, in a process of its own."""
    processes = []

    def start(*paths):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, *map(str, paths)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def log(run, step, attempt=1, **values):
    journal = Journal(run.journal, attempt=attempt)
    journal.metrics(step, {key.replace("_", "/", 1): value for key, value in values.items()})
    journal.close()


def ends(run, reason="completed", code=0):
    write_json(run.exit, {"schema": "albor.exit/1", "attempt": 1, "reason": reason, "code": code})


def kill(process):
    process.kill()
    process.wait()


def wait(runs, text, *script, notifier=None, **options):
    runs = runs if isinstance(runs, list) else [runs]
    with notifier or ScriptedNotifier(*script) as used:
        result = wait_for([RunWait(run, parse_until(text)) for run in runs], used, **options)
        assert used.script == [], "it answered before it happened"
    return result, used


def test_between_two_events_it_never_wakes(run, hold):
    hold(run.run_lock)
    log(run, 1, train_loss=3.0)

    def others_are_busy():
        for number in range(50):
            write_json(run.state, {"seq": number})
            (run.store.parent / "index.tmp").write_text("x")
            (run.logs / "a0001.log").write_text("x" * number)
        annotate(run, "note", "a note")
        assert notifier.tells_nothing()
        log(run, 2, train_loss=0.5)

    notifier = ScriptedNotifier(others_are_busy)
    result, used = wait(run, "train/loss<1", notifier=notifier)
    assert (result.outcome, result.decided.value, result.decided.step) == ("met", 0.5, 2)
    assert used.limits == [None], "it would wake by itself"
    assert (used.wakes, used.timeouts, result.wakeups) == (1, 0, 1)


def test_each_event_wakes_it_once(run, hold):
    hold(run.run_lock)
    log(run, 1, train_loss=3.0)
    steps = [lambda step=step: log(run, step, train_loss=1.0) for step in (2, 3, 4)]
    result, used = wait(run, "step>=4", *steps)
    assert (result.outcome, result.decided.step, used.wakes) == ("met", 4, 3)


def test_the_first_step_of_a_run_is_seen_though_it_had_no_journal_yet(run, hold):
    hold(run.run_lock)
    result, _ = wait(run, "step>=1", lambda: log(run, 1, train_loss=3.0))
    assert (result.outcome, result.decided.step) == ("met", 1)


def test_what_was_met_before_it_was_asked_is_answered_at_once(run, hold):
    hold(run.run_lock)
    for step, loss in ((1, 3.0), (2, 1.5), (3, 2.0)):
        log(run, step, train_loss=loss)
    for text, value, step in (("loss<2", 1.5, 2), ("loss>=3", 3.0, 1), ("step>=3", 3.0, 3)):
        result, _ = wait(run, text)
        assert (result.outcome, result.decided.value, result.decided.step) == ("met", value, step)
        assert result.wakeups == 0


def test_what_a_later_attempt_took_back_was_never_met(run, hold):
    hold(run.run_lock)
    log(run, 1, train_loss=3.0)
    log(run, 5, train_loss=0.5)
    journal = Journal(run.journal, attempt=2)
    journal.rewind(3)
    journal.close()

    def is_taken_back_meanwhile():
        log(run, 4, attempt=2, train_loss=2.0)
        log(run, 6, attempt=2, train_loss=1.9)
        later = Journal(run.journal, attempt=3)
        later.rewind(4)
        later.close()

    def is_met():
        log(run, 5, attempt=3, train_loss=0.9)

    result, _ = wait(run, "loss<1", is_taken_back_meanwhile, is_met)
    assert (result.decided.value, result.decided.step) == (0.9, 5)


def test_windows_forget_what_was_taken_back(run, hold):
    hold(run.run_lock)
    for step, loss in ((1, 3.0), (2, 2.0), (3, 1.0)):
        log(run, step, train_loss=loss)

    def goes_back():
        journal = Journal(run.journal, attempt=2)
        journal.rewind(1)
        journal.close()

    def falls():
        for step, loss in ((2, 2.5), (3, 2.4), (4, 2.3)):
            log(run, step, attempt=2, train_loss=loss)

    result, _ = wait(run, "loss falls 3", goes_back, falls)
    assert (result.decided.step, result.decided.value) == (4, 2.3)


def test_a_killed_program_is_told_by_the_kernel(run, hold):
    process = hold(run.run_lock)
    write_json(run.state, {"schema": "albor.state/1", "attempt": 1, "phase": "training"})
    result, used = wait(run, "ended", lambda: kill(process))
    assert (result.outcome, result.decided.status) == ("met", "lost")
    assert used.limits == [None]


def test_a_run_that_is_closed_while_its_program_lives_has_ended(run, hold):
    process = hold(run.run_lock)

    def closes():
        ends(run)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "let go\n"

    result, _ = wait(run, "ended", closes)
    assert (result.outcome, result.decided.status) == ("met", "completed")
    assert process.poll() is None


def test_a_restart_by_the_guard_is_no_end(run, hold):
    guard, trainer = hold(run.guard_lock), hold(run.run_lock)

    def guard_ends():
        write_json(run.guard_json, {"state": "failed", "attempt": 2, "exit_code": 5})
        kill(guard)

    result, _ = wait(run, "ended", lambda: kill(trainer), guard_ends)
    assert (result.outcome, result.decided.status) == ("met", "failed")


def test_a_run_that_ends_without_it_cannot_meet_it(run, hold):
    process = hold(run.run_lock)

    def ends_with_a_last_line():
        log(run, 7, train_loss=2.0)
        ends(run)
        kill(process)

    result, _ = wait(run, "loss<1", ends_with_a_last_line)
    assert (result.outcome, result.decided.status) == ("ended", "completed")


def test_the_last_line_of_a_run_that_ended_counts(run, hold):
    process = hold(run.run_lock)

    def ends_with_it():
        log(run, 7, train_loss=0.5)
        ends(run)
        kill(process)

    result, _ = wait(run, "loss<1", ends_with_it)
    assert (result.outcome, result.decided.step) == ("met", 7)


def test_a_run_that_a_rule_stopped_is_told_apart(run):
    log(run, 7, train_loss=20.0)
    ends(run, "andon", 4)
    assert wait(run, "loss<1")[0].outcome == "andon"
    result, _ = wait(run, "ended")
    assert (result.outcome, result.decided.status) == ("met", "stopped")


def test_all_runs_have_to_meet_it_or_any(made, hold):
    one, other = made("one-1"), made("two-1")
    hold(one.run_lock), hold(other.run_lock)

    def first():
        log(one, 5, train_loss=1.0)

    def second():
        log(other, 5, train_loss=1.0)

    result, _ = wait([one, other], "step>=5", first, any_one=True)
    assert (result.outcome, result.decided.run) == ("met", "one-1")
    result, _ = wait([one, other], "step>=5", second)
    assert (result.outcome, result.decided.run) == ("met", "two-1")
    assert [standing.outcome for standing in result.standings] == ["met", "met"]


def test_one_that_cannot_meet_it_decides_for_all_but_not_for_any(made, hold):
    one, other = made("one-1"), made("two-1")
    ends(one)
    process = hold(other.run_lock)
    result, _ = wait([one, other], "step>=5")
    assert (result.outcome, result.decided.run) == ("ended", "one-1")

    def ends_too():
        ends(other)
        kill(process)

    result, _ = wait([one, other], "step>=5", ends_too, any_one=True)
    assert result.outcome == "ended"


def test_alternatives_are_told_apart(run, hold):
    process = hold(run.run_lock)

    def completes():
        ends(run)
        kill(process)

    result, _ = wait(run, "loss<1 | ended", completes)
    assert (result.outcome, result.decided.condition) == ("met", "ended")


def test_the_time_is_up(run, hold):
    hold(run.run_lock)
    result, used = wait(run, "ended", lambda: None, timeout_s=0.01)
    assert (result.outcome, result.decided.run) == ("timeout", "r-1")
    assert (used.wakes, used.timeouts) == (0, 1)


def test_a_silence_is_waited_for_by_one_sleep_of_the_right_length(run, hold):
    hold(run.run_lock)
    log(run, 1, train_loss=3.0)
    start = time.time()
    now = [start]

    class Skipping(ScriptedNotifier):
        def wait(self, timeout_s):
            self.limits.append(timeout_s)
            if self.script:
                self.script.pop(0)()
            elif timeout_s is not None:
                now[0] += timeout_s
                return False
            return Notifier.wait(self, timeout_s)

    def logs_once_more():
        now[0] += 200
        journal = Journal(run.journal, attempt=1)
        journal.metrics(2, {"train/loss": 2.0}, wall=now[0])
        journal.close()

    result, used = wait(
        run, "no step for 5m", notifier=Skipping(logs_once_more), wall=lambda: now[0]
    )
    assert (result.outcome, result.decided.condition) == ("met", "no step for 5m")
    assert result.decided.value == pytest.approx(300, abs=0.01)
    assert used.limits[1] == pytest.approx(300, abs=0.01) and len(used.limits) == 2


def test_a_value_that_is_not_a_number_needs_a_person(run, hold):
    hold(run.run_lock)
    log(run, 1, train_loss=3.0)
    result, _ = wait(run, "attention", lambda: log(run, 2, train_loss=math.nan))
    assert (result.outcome, result.decided.step) == ("met", 2)
    assert "NaN" in result.decided.detail


@pytest.mark.parametrize(
    ("function", "number", "words"),
    [
        ("_inotify_init", errno.EMFILE, "instances"),
        ("_inotify_init", errno.ENOSYS, "no inotify"),
        ("_inotify_add", errno.ENOSPC, "max_user_watches"),
    ],
)
def test_where_nothing_is_told_it_says_so_and_looks_now_and_then(
    run, hold, monkeypatch, function, number, words
):
    def refuse(*_):
        raise OSError(number, "refused")

    hold(run.run_lock)
    monkeypatch.setattr(notified, function, refuse)
    monkeypatch.setattr(notified, "INTERVAL_S", 0.01)
    told = []
    result, used = wait(
        run, "step>=2", lambda: None, lambda: log(run, 2, train_loss=1.0), tell_blind=told.append
    )
    assert result.outcome == "met" and words in result.why_blind
    assert told == [result.why_blind], "said once, before the first sleep"
    assert used.timeouts >= 1


def test_a_process_that_is_not_visible_here_is_looked_for_now_and_then(run, monkeypatch):
    seen = [0, 0, None]
    monkeypatch.setattr(notified, "INTERVAL_S", 0.01)
    monkeypatch.setattr(
        "albor_core.run.rundir.liveness",
        lambda *_: notified_liveness(seen.pop(0) if len(seen) > 1 else seen[0]),
    )
    ends(run)
    result, used = wait(run, "ended", lambda: None)
    assert (result.outcome, used.timeouts) == ("met", 1)
    assert "not visible" in result.why_blind


def notified_liveness(trainer):
    from albor_core.run.liveness import Liveness

    return Liveness(trainer, None)


def test_a_run_of_another_host_is_known_by_its_files_alone(run):
    write_json(run.run_json, {**run.metadata(), "host": "elsewhere"})
    state = {"schema": "albor.state/1", "attempt": 1, "phase": "training", "boot_id": "other"}
    write_json(run.state, {**state, "wall": time.time(), "host": "elsewhere"})

    def a_line_comes():
        log(run, 1, train_loss=3.0)

    def its_end_comes():
        ends(run)

    result, used = wait(run, "ended", a_line_comes, its_end_comes)
    assert (result.outcome, result.decided.status) == ("met", "completed")
    assert result.decided.is_elsewhere and used.limits == [None, None]


def test_a_copy_is_waited_for_by_what_the_next_pull_brings(run):
    state = {"schema": "albor.state/1", "attempt": 1, "phase": "training", "boot_id": "other"}
    write_json(run.state, {**state, "wall": 1.0, "host": "gpu1"})
    write_pulled(run, Pulled("gpu1", "/runs/r-1", 1.0))
    log(run, 1, train_loss=3.0)

    def is_pulled_again():
        fresh = run.journal.with_name("fresh")
        fresh.write_bytes(run.journal.read_bytes())
        journal = Journal(fresh, attempt=1)
        journal.metrics(2, {"train/loss": 0.5})
        journal.close()
        fresh.replace(run.journal)

    result, _ = wait(run, "loss<1", is_pulled_again)
    assert (result.outcome, result.decided.step, result.decided.host) == ("met", 2, "gpu1")
    assert result.decided.is_elsewhere and "albor runs pull gpu1" in result.standings[0].detail


def test_a_folder_that_goes_away_ends_the_wait(run, hold):
    hold(run.run_lock)

    def goes():
        run.path.rename(run.path.with_name("elsewhere"))

    assert wait(run, "step>=2", goes)[0].outcome == "gone"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a condition is missing"),
        ("ended |", "a condition is missing"),
        ("loss <", "column 7"),
        ("loss < 1 | val/loss ~ 2", "'~' is not understood"),
        ("gpu.temperature > 80", "of the machine"),
        ("gone", "is not a comparison"),
    ],
)
def test_what_cannot_be_waited_for_is_refused_with_its_place(text, words):
    with pytest.raises(UsageError, match="cannot wait until") as raised:
        parse_until(text)
    assert words in raised.value.message


def test_a_bar_in_quotes_belongs_to_the_name():
    found = parse_until('"a|b" < 1 | ended | no step for 5m')
    assert [one.text for one in found] == ['"a|b" < 1', "ended", "no step for 5m"]
    assert found[2].silence_s == 300.0
