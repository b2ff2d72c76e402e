"""Real processes: a guard, a fake trainer, and everything that can befall either."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

import jsonschema
import pytest
from guard_harness import ENDLESS, FAKE, LIMIT_S, OPTIONS, ROOT, Bench, bench, is_alive, wait_until

from albor_core.documents.json_schema import schema_of
from albor_core.feed.run.status import run_status
from albor_core.run import control
from albor_core.run.files.whole_file import write_json
from albor_core.run.journal import read_journal
from albor_core.run.liveness import boot_id, start_ticks, take_lock
from albor_core.run.program.stop_unguarded import signal_program
from albor_core.run.rundir import read_json

DIES = ROOT / "tests" / "core" / "guard" / "guard_dies.py"
LOCKED_OUT = ROOT / "tests" / "core" / "guard" / "guard_locked_out.py"


def create_metadata(box: Bench, *, kind: str) -> None:
    box.run.store.parent.mkdir(exist_ok=True)
    about = {"schema": "albor.run/1", "id": box.run.id, "kind": kind, "name": "x"}
    write_json(box.run.run_json, about)


def test_a_crashed_trainer_is_restarted_and_finishes(box: Bench) -> None:
    assert box.finish({"at": 2, "do": "segv"}, {}) == 0
    assert box.classes() == ["crash", "done"]
    assert box.now()["state"] == "done"
    assert box.now()["exit_code"] == 0
    (report,) = box.reports()
    assert report["exit"]["signal"] == "SIGSEGV"
    assert report["progress"]["step"] == 2
    assert report["id"] == box.records("attempt.end")[0]["report"]


def test_exit_2_with_last_words_is_final_and_without_them_is_an_exception(box: Bench) -> None:
    assert (
        box.finish(
            {"at": 1, "do": "exit", "code": 2, "words": False}, {"at": 1, "do": "exit", "code": 2}
        )
        == 2
    )
    assert box.classes() == ["exception", "config"]


def test_andon_red_is_never_restarted(box: Bench) -> None:
    assert box.finish({"at": 3, "do": "exit", "code": 4}) == 4
    assert box.classes() == ["andon"]
    assert box.now()["state"] == "failed"


def test_t19_a_program_without_memory_is_restarted_and_its_peak_is_told(box: Bench) -> None:
    assert box.finish({"at": 2, "do": "memory"}, {}) == 0
    assert box.classes() == ["oom_host", "done"]
    (report,) = box.reports()
    assert report["evidence"]["python"]["type"] == "MemoryError"
    assert 5 << 20 < report["evidence"]["oom"]["rss_peak"] < 1 << 30  # an interpreter at least
    validator = schema_of("albor.crash")
    jsonschema.Draft202012Validator(validator).validate(report)


def test_t22_a_bus_error_is_final_and_the_report_has_what_shared_memory_had_left(
    box: Bench,
) -> None:
    assert box.finish({"at": 2, "do": "bus"}, {}) == 1
    assert box.classes() == ["fatal_signal"]
    (report,) = box.reports()
    assert (report["exit"]["code"], report["exit"]["signal"]) == (135, "SIGBUS")
    assert report["host"]["shm_free"] is not None and report["host"]["disk_free"] > 0


# A guard whose wall clock jumps a day back, then 116 days ahead, at every second look at it.
JUMPING = """
import sys, time
real, jumps = time.time, [0]
def jumping():
    jumps[0] += 1
    return real() + (-86400, 1e7)[jumps[0] // 2 % 2]
time.time = jumping
from albor_core.guard.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_g13_a_wall_clock_that_jumps_kills_nothing_and_loses_no_wait(box: Bench) -> None:
    box.prepare({"at": 3, "do": "abrt"}, {"steps": 100, "checkpoint_every": 10})
    assert box.start(program=["-c", JUMPING]).wait(LIMIT_S) == 0
    assert box.classes() == ["crash", "done"]
    (end, last) = box.records("attempt.end")
    assert end["delay_s"] == 0.03 and last["delay_s"] is None
    (report,) = box.reports()
    assert abs(report["time"]["mono_ns"] / 1e9 - time.monotonic()) < 60  # what can be trusted
    assert report["time"]["wall"] != "" and report["progress"]["state_age_s"] < 60


def test_a_crash_before_the_first_step_is_followed_by_one_diagnostic_life(box: Bench) -> None:
    assert box.finish({"at": 0, "do": "segv"}, {"at": 2, "do": "abrt"}, {}) == 0
    seen = [
        (read_json(box.run.path / f"env-{n}.json") or {}).get("CUDA_LAUNCH_BLOCKING")
        for n in (1, 2, 3)
    ]
    assert seen == [None, "1", None]
    assert [record["diagnostic"] for record in box.records("attempt.start")] == [False, True, False]


def test_two_crashes_before_the_first_step_end_the_run_with_both_reports(box: Bench) -> None:
    assert box.finish({"at": 0, "do": "segv"}) == 1
    assert box.classes() == ["crash", "crash"]
    first, second = box.reports()
    assert second["linked"] == [first["id"], second["id"]]
    assert first["id"] in box.now()["reason"]


def test_an_exception_that_repeats_at_its_step_is_a_bug_and_not_retried(box: Bench) -> None:
    assert box.finish({"at": 2, "do": "raise"}) == 1
    assert box.classes() == ["exception", "exception"]
    assert box.reports()[0]["evidence"]["python"]["type"] == "RuntimeError"
    assert "raise_here" in "\n".join(box.reports()[0]["evidence"]["log_tail"])


@pytest.mark.slow
def test_three_restarts_without_a_checkpoint_are_enough(box: Bench) -> None:
    assert box.finish({"at": 2, "do": "abrt"}) == 5
    assert box.classes() == ["crash"] * 4
    assert "guard.gave_up" in box.events()


# --- the guard dies ------------------------------------------------------------------------------


def test_a_new_guard_adopts_the_trainer_of_a_killed_one(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    first = box.start()
    trainer = box.until_training()
    first.kill()
    first.wait()
    before = box.step()
    started = time.monotonic()
    second = box.start()
    wait_until(lambda: box.now().get("adopted"))
    assert time.monotonic() - started < 2.0
    assert box.trainer() == trainer
    wait_until(lambda: box.step() > before + 2)
    assert len(box.records("attempt.start")) == 1
    assert "guard.adopted" in box.events()
    second.terminate()
    assert second.wait(LIMIT_S) == 143
    assert not is_alive(trainer)
    assert box.classes() == ["stopped"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("life", "classes"),
    [
        ({"steps": ENDLESS}, ("crash", "unknown_exit")),
        ({"steps": 150}, ("done",)),
    ],
    ids=["segv", "completed"],
)
def test_how_an_adopted_trainer_ended_is_found_out(
    box: Bench, life: dict[str, int], classes: tuple[str, ...]
) -> None:
    box.prepare(life, {})
    first = box.start()
    trainer = box.until_training()
    first.kill()
    first.wait()
    second = box.start()
    wait_until(lambda: box.now().get("adopted"))
    if classes[0] == "crash":
        os.kill(trainer, signal.SIGSEGV)
    assert second.wait(LIMIT_S) == 0
    assert box.classes()[0] in classes


def test_a_trainer_that_died_while_no_guard_watched_is_judged_and_restarted(box: Bench) -> None:
    box.prepare({"steps": ENDLESS}, {})
    first = box.start()
    trainer = box.until_training()
    first.kill()
    first.wait()
    os.kill(trainer, signal.SIGKILL)
    wait_until(lambda: box.trainer() is None)
    assert box.start().wait(LIMIT_S) == 0
    assert box.classes() == ["unknown_exit", "done"]
    assert [record["attempt"] for record in box.records("attempt.start")] == [1, 2]


@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_a_trainer_that_was_stopped_while_nobody_guarded_it_goes_on_and_has_not_crashed(
    box: Bench, name: str
) -> None:
    box.prepare({"steps": ENDLESS}, {})
    guard = box.start()
    box.until_training()
    guard.kill()
    guard.wait()
    assert signal_program(box.run, name, wait_s=LIMIT_S)
    assert box.start().wait(LIMIT_S) == 0
    assert box.classes() == ["stopped", "done"]
    assert [record["action"] for record in box.records("attempt.end")] == ["stop", "stop"]
    assert box.reports() == [] and "guard.backoff" not in box.events()
    assert box.now()["memory"]["restarts"] == 0


@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_a_plain_program_that_was_stopped_while_nobody_guarded_it_has_not_crashed(
    box: Bench, name: str
) -> None:
    once = "import os, time; os.environ['ALBOR_ATTEMPT'] == '1' and time.sleep(600)"
    box.prepare_program(sys.executable, "-c", once)
    guard = box.start()
    wait_until(lambda: box.now().get("state") == "running")
    guard.kill()
    guard.wait()
    assert signal_program(box.run, name, wait_s=LIMIT_S)
    assert run_status(box.run).word == "stopped"
    assert box.start().wait(LIMIT_S) == 0
    assert box.classes() == ["stopped", "done"]
    assert box.reports() == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_guard_killed_at_random_moments_never_runs_two_trainers_or_loses_an_attempt(
    box: Bench, seed: int
) -> None:
    moments = random.Random(seed)
    life = {"at": -1, "do": "abrt", "steps": 12, "checkpoint_every": 3}
    lives = [{**life, "at": 6 * n + 4} for n in range(6)]
    box.prepare(*lives, {"steps": 3, "checkpoint_every": 3}, max_no_progress=50)
    for _ in range(12):
        guard = box.start()
        time.sleep(moments.uniform(0.05, 0.6))
        guard.kill()
        if guard.wait() == 0:
            break
    assert box.start().wait(LIMIT_S) == 0
    lines = [line.record for line in read_journal(box.run.journal)]
    assert None not in lines, "two writers would tear lines"
    attempts = [record["attempt"] for record in lines if record]
    assert attempts == sorted(attempts), "two trainers would mix theirs"
    started = [record["attempt"] for record in box.records("attempt.start")]
    assert started == sorted(set(started))
    assert started == [record["attempt"] for record in box.records("attempt.end")]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_g6_a_guard_killed_before_any_disk_operation_is_followed_by_one_that_finishes(
    tmp_path,
) -> None:
    """Its attempts are all there, each once, its reports whole, and never two trainers."""
    lives = ({"at": 4, "do": "abrt", "checkpoint_every": 2}, {"steps": 3, "checkpoint_every": 2})
    told = tmp_path / "told"

    def dies(nth: int) -> list[str]:
        return [str(DIES), str(nth), str(told)]

    with bench(tmp_path / "whole") as box:
        box.prepare(*lives)
        assert box.start(program=dies(0)).wait(LIMIT_S) == 0
    count = int(told.read_text())
    assert count > 60
    seed = int(os.environ.get("ALBOR_SEED", "20261"))
    for nth in sorted(random.Random(seed).sample(range(1, count), 16)):
        with bench(tmp_path / f"at-{nth}") as box:
            box.prepare(*lives)
            code = box.start(program=dies(nth)).wait(LIMIT_S)
            assert code in (-signal.SIGKILL, 0), nth
            assert box.start().wait(LIMIT_S) == 0, nth
            lines = [line.record for line in read_journal(box.run.journal)]
            assert None not in lines, f"{nth}: two writers would tear lines"
            attempts = [record["attempt"] for record in lines if record]
            assert attempts == sorted(attempts), f"{nth}: two trainers would mix theirs"
            started = [record["attempt"] for record in box.records("attempt.start")]
            ends = [record["attempt"] for record in box.records("attempt.end")]
            assert started == ends == sorted(set(started)), nth
            for report in box.reports():
                assert report["schema"] == "albor.crash/1", nth
            assert not list(box.run.path.glob("**/.*.tmp")), nth


@pytest.mark.parametrize(("how", "first"), [("named", ["unknown_exit"]), ("unnamed", [])])
def test_a_program_that_locked_ours_out_and_ended_is_settled_and_ours_started_again(
    box: Bench, how: str, first: list[str]
) -> None:
    """A guard killed in the middle of a start leaves a program that the next guard cannot see."""
    box.prepare({"steps": ENDLESS} if first else {}, {})
    assert box.start(program=(str(LOCKED_OUT), how)).wait(LIMIT_S) == 0
    assert box.classes() == [*first, "done"]
    started = box.records("attempt.start")
    assert [record["attempt"] for record in started] == list(range(1, len(first) + 2))
    is_other = [record["nonce"] == "f" * 32 for record in started]
    assert is_other == [*map(bool, first), False]
    assert "guard.locked_out" in box.events()


def test_a_second_guard_refuses_and_names_the_first(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    first = box.start()
    trainer = box.until_training()
    assert box.start().wait(LIMIT_S) == 8
    assert f"process {first.pid}" in box.log()
    assert box.trainer() == trainer


def test_a_forged_child_file_gets_nobody_killed(box: Bench) -> None:
    victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        box.prepare({"steps": ENDLESS})
        identity = {"attempt": 7, "nonce": "forged", "boot_id": boot_id()}
        identity |= {"host": socket.gethostname(), "start_ticks": start_ticks(victim.pid)}
        write_json(box.run.guard / "child.json", {**identity, "pid": victim.pid})
        guard = box.start()
        box.until_training()
        guard.terminate()
        assert guard.wait(LIMIT_S) == 143
        assert victim.poll() is None
    finally:
        victim.communicate(b"\n")


def test_a_child_file_of_another_boot_is_history(box: Bench) -> None:
    box.prepare({})
    identity = {"attempt": 3, "nonce": "old", "boot_id": "another", "start_ticks": 1, "pid": 1}
    write_json(box.run.guard / "child.json", {**identity, "host": socket.gethostname()})
    assert box.start().wait(LIMIT_S) == 0
    assert box.records("attempt.start")[-1]["attempt"] == 4


def test_an_unfinished_attempt_on_another_host_is_left_alone(box: Bench) -> None:
    box.prepare({})
    identity = {"attempt": 3, "nonce": "old", "boot_id": "another", "start_ticks": 1, "pid": 1}
    write_json(box.run.guard / "child.json", {**identity, "host": "elsewhere"})
    assert box.start().wait(LIMIT_S) == 8
    assert "elsewhere" in box.log()
    assert not box.run.attempts.exists() or not box.records("state")


@pytest.mark.slow
def test_a_requeued_job_goes_on_where_its_own_earlier_life_was_on_another_host(box: Bench) -> None:
    box.prepare({"steps": ENDLESS}, {})
    guard = box.start({"SLURM_JOB_ID": "11", "SLURM_JOB_NODELIST": "n1"})
    pid = box.until_training()
    guard.kill()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: box.trainer() is None)
    child = read_json(box.run.guard / "child.json")
    assert child is not None and child["job"]["id"] == "11"
    write_json(box.run.guard / "child.json", {**child, "host": "elsewhere", "boot_id": "x"})
    assert box.start().wait(LIMIT_S) == 8
    assert box.start({"SLURM_JOB_ID": "11", "SLURM_RESTART_COUNT": "1"}).wait(LIMIT_S) == 0
    assert [record["job"]["restart"] for record in box.records("attempt.start")] == [0, 1]


def test_a_signal_and_a_command_to_stop_are_one_wish(box: Bench) -> None:
    box.prepare({"steps": ENDLESS, "step_s": 1.0}, grace_s=20.0)
    guard = box.start()
    box.until_training(1)
    command = control.send(box.run, "stop", sender="test")
    wait_until(lambda: box.now().get("state") == "stopping")
    os.kill(guard.pid, signal.SIGTERM)
    assert guard.wait(LIMIT_S) == 143
    found = control.wait_answer(box.run, command, LIMIT_S)
    assert found is not None and found.status == "done"
    assert (read_json(box.run.exit) or {})["reason"] == "stopped"  # it had time to say so


def test_a_stop_that_came_too_late_does_not_stop_the_next_life(box: Bench) -> None:
    assert box.finish({"steps": 2}) == 0
    command = control.send(box.run, "stop", sender="test")
    box.prepare({"steps": 4})
    assert box.start().wait(LIMIT_S) == 0
    found = control.wait_answer(box.run, command, LIMIT_S)
    assert found is not None and found.status == "refused"
    assert box.classes() == ["done", "done"]


@pytest.mark.parametrize(("words", "code"), [((), 5), (("--forget",), 0)])
def test_whoever_asks_for_a_life_can_start_the_count_of_restarts_anew(
    box: Bench, words: tuple[str, ...], code: int
) -> None:
    box.prepare({"at": 2, "do": "kill"}, {"steps": ENDLESS}, {}, restarts=1)
    guard = box.start()
    wait_until(lambda: len(box.records("attempt.start")) == 2)
    guard.kill()
    pid = box.trainer()
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: box.trainer() is None)
    script = "import sys; from albor_core.guard.__main__ import main;"
    script += f"sys.exit(main([sys.argv[1], *{list(words)!r}]))"
    assert box.start(program=["-c", script]).wait(LIMIT_S) == code


def test_a_lock_holder_that_proves_nothing_is_neither_adopted_nor_killed(box: Bench) -> None:
    box.prepare({})
    lock = take_lock(box.run.run_lock)
    try:
        assert box.start().wait(LIMIT_S) == 8
        assert f"process {os.getpid()}" in box.log()
    finally:
        os.close(lock)


# --- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_guard_lets_the_trainer_finish_its_step_and_save(
    box: Bench, number: int, code: int
) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    box.until_training()
    guard.send_signal(number)
    assert guard.wait(LIMIT_S) == code
    words = read_json(box.run.exit) or {}
    assert words["code"] == code
    assert (box.run.checkpoints / f"step-{words['step']:08d}" / "manifest.json").exists()
    assert box.now()["state"] == "stopped"
    assert box.classes() == ["stopped"]
    assert box.reports() == []


def test_nobody_survives_a_stop_not_even_deaf_grandchildren_in_other_sessions(box: Bench) -> None:
    box.prepare({"steps": ENDLESS, "ignore_term": True, "grandchild": True})
    guard = box.start()
    trainer = box.until_training()
    grandchild = int((box.run.path / "grandchild").read_text())
    assert is_alive(grandchild)
    guard.terminate()
    assert guard.wait(LIMIT_S) == 143
    assert not is_alive(trainer)
    assert not is_alive(grandchild)


def test_a_second_signal_does_not_wait_for_the_grace_time(box: Bench) -> None:
    box.prepare({"steps": ENDLESS, "ignore_term": True}, grace_s=60.0)
    guard = box.start()
    box.until_training()
    guard.terminate()
    wait_until(lambda: box.now().get("state") == "stopping")
    guard.terminate()
    assert guard.wait(LIMIT_S) == 143


def test_a_closed_terminal_stops_nothing(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    master, slave = os.openpty()
    code = (
        "import sys; from pathlib import Path; from albor_core.run.rundir import RunDir;"
        "from albor_core.guard.launch import start_guard;"
        "print(start_guard(RunDir(Path(sys.argv[1]))), flush=True); input()"
    )
    shell = subprocess.Popen(
        ["setsid", "-c", sys.executable, "-c", code, str(box.run.path)],
        cwd=ROOT,
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    os.close(slave)
    assert shell.stdout is not None
    guard = int(shell.stdout.readline())
    trainer = box.until_training()
    os.close(master)
    shell.wait(LIMIT_S)
    shell.stdout.close()
    os.kill(guard, signal.SIGHUP)
    before = box.step()
    wait_until(lambda: box.step() > before + 3)
    assert box.trainer() == trainer
    os.kill(guard, signal.SIGTERM)
    wait_until(lambda: not is_alive(guard))
    assert box.now()["exit_code"] == 143


# --- hanging -------------------------------------------------------------------------------------


def test_a_loop_that_stands_still_is_shown_killed_and_restarted(box: Bench) -> None:
    assert box.finish({"at": 2, "do": "deadlock"}, {}) == 0
    assert box.classes() == ["hang", "done"]
    (report,) = box.reports()
    assert "training" in report["evidence"]["hang"]
    assert report["evidence"]["threads"][0]["state"]
    stacks = (box.run.path / report["evidence"]["stacks"]).read_text()
    assert "in act" in stacks


@pytest.mark.slow
def test_a_frozen_trainer_is_a_hang(box: Bench) -> None:
    assert box.finish({"at": 2, "do": "stop", "steps": ENDLESS, "ignore_term": True}, {}) == 0
    assert box.classes() == ["hang", "done"]


@pytest.mark.slow
def test_a_run_whose_folder_is_moved_is_not_taken_for_hung(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    pid = box.until_training()
    elsewhere = box.run.path.with_name("elsewhere")
    box.run.path.rename(elsewhere)
    try:
        attempts = elsewhere / "guard" / "attempts.jsonl"
        # the guard may have last seen it at its start, which may be silent for longer
        limit_s = OPTIONS["start_limit_s"] + LIMIT_S
        wait_until(lambda: '"guard.moved"' in attempts.read_text(), limit_s)
        assert is_alive(pid)
    finally:
        elsewhere.rename(box.run.path)
    step = box.step()
    wait_until(lambda: box.step() > step)
    os.kill(guard.pid, signal.SIGTERM)
    assert guard.wait(LIMIT_S) == 143
    assert box.classes() == ["stopped"]


def test_a_phase_that_announced_its_length_is_not_killed(box: Bench) -> None:
    phase = {"name": "evaluating", "limit_s": 5.0, "sleep_s": 1.0}
    assert box.finish({"at": 2, "do": "phase", "phase": phase, "steps": 3}) == 0
    assert box.classes() == ["done"]


def test_a_guard_that_was_suspended_blames_itself(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    trainer = box.until_training()
    guard.send_signal(signal.SIGSTOP)
    os.kill(trainer, signal.SIGSTOP)
    time.sleep(1.0)  # the suspension: twice the silence that a hang takes here (stale_s)
    guard.send_signal(signal.SIGCONT)
    os.kill(trainer, signal.SIGCONT)
    before = box.step()
    wait_until(lambda: box.step() > before + 3)
    assert box.trainer() == trainer
    assert "guard.hang" not in box.events()


def test_a_guard_is_light(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    box.until_training()
    with open(f"/proc/{guard.pid}/status") as file:  # noqa: PTH123
        (line,) = [line for line in file if line.startswith("VmRSS")]
    assert int(line.split()[1]) * 1024 < 25_000_000


# --- plain programs ------------------------------------------------------------------------------


def test_any_program_can_be_guarded(box: Bench) -> None:
    box.prepare_program("sh", "-c", "echo hello; exit 0")
    assert box.start().wait(LIMIT_S) == 0
    assert box.run.log(1).read_text() == "hello\n"
    assert box.now()["hang_detection"] is False


def test_a_typo_is_tried_again_at_once_and_then_final_with_its_own_words(box: Bench) -> None:
    box.prepare_program(sys.executable, "-c", "import nunpy", backoff_s=[600.0])
    assert box.start().wait(LIMIT_S) == 5
    assert box.classes() == ["exception", "exception"]
    first, second = box.records("attempt.end")
    reason = "ModuleNotFoundError: No module named 'nunpy'"
    assert (first["delay_s"], first["reason"], second["reason"]) == (0.0, reason, reason)
    assert box.now()["reason"] == box.reports()[-1]["reason"] == reason
    assert "guard.gave_up" in box.events()


LOGS_THEN_FAILS = """
from albor_core import track
with track.start() as run:
    run.log({"loss": 1.0}, step=1)
    raise OSError("no route")
"""


def test_an_exception_after_a_logged_step_waits_by_the_table(box: Bench) -> None:
    create_metadata(box, kind="guard")
    box.prepare_program(
        sys.executable, "-c", LOGS_THEN_FAILS, restarts=1, env={"PYTHONPATH": str(ROOT)}
    )
    assert box.start().wait(LIMIT_S) == 5
    first, second = box.records("attempt.end")
    assert (first["delay_s"], first["reason"]) == (0.03, "OSError: no route")
    assert second["reason"] == "OSError: no route, after 1 restart"


def test_no_secret_reaches_the_reason_of_an_end(box: Bench) -> None:
    script = box.run.path / "script.py"
    script.write_text("raise OSError('https://u:hunter22@h/x')")
    box.prepare_program(sys.executable, str(script))
    assert box.start().wait(LIMIT_S) == 5
    assert "hunter22" not in box.run.attempts.read_text() + str(box.now())


def test_a_command_that_cannot_be_executed_is_named_and_not_retried(box: Bench) -> None:
    box.prepare_program("no-such-program-anywhere")
    assert box.start().wait(LIMIT_S) == 2
    assert box.classes() == ["config"]
    assert "no-such-program-anywhere" in box.run.log(1).read_text()


@pytest.mark.slow
def test_a_plain_program_is_never_called_hung(box: Bench) -> None:
    box.prepare_program("sleep", "1", stale_s=0.1)
    assert box.start().wait(LIMIT_S) == 0
    assert box.classes() == ["done"]


def test_the_trainers_identity_is_in_its_environment(box: Bench) -> None:
    assert box.finish({}) == 0
    environment = read_json(box.run.path / "env-1.json") or {}
    child = read_json(box.run.guard / "child.json") or {}
    assert environment["ALBOR_RUN_ID"] == box.run.id
    assert environment["ALBOR_RUN_DIR"] == str(box.run.path)
    assert environment["ALBOR_ATTEMPT"] == "1"
    assert environment["ALBOR_NONCE"] == child["nonce"]
    assert environment["PYTHONFAULTHANDLER"] == "1"
    assert int(environment["ALBOR_RUN_LOCK_FD"]) > 2
    assert json.loads(box.run.launch.read_text())["argv"][1] == str(FAKE)
