"""Commands are files: what is sent is taken once, in order, and bad ones carry their reason."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from albor_core.run import control
from albor_core.run.control import (
    BY_SIGNAL,
    LIFETIME_S,
    answer,
    send,
    take_commands,
    wait_answer,
)
from albor_core.run.errors import TryAgainError, UsageError
from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import RunDir

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "run")
    (made.guard / "inbox").mkdir(parents=True)
    (made.guard / "outbox").mkdir()
    return made


def plant(run, name, content):
    path = run.guard / "inbox" / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def body(command_id, **changes):
    good = {"schema": "albor.command/1", "id": command_id, "cmd": "stop", "from": "me",
            "argument": "", "not_after_wall": time.time() + 30}  # fmt: skip
    return {**good, **changes}


def test_commands_are_taken_once_and_in_the_order_they_were_sent(run):
    for number, word in enumerate(("pause", "checkpoint", "resume")):
        sent = send(run, word, sender="test", argument=f"alert-{number}")
        os.utime(run.guard / "inbox" / f"{sent}.json", ns=(number, number))
    taken = take_commands(run, time.time())
    assert [(c.cmd, c.sender, c.argument, c.problem) for c in taken] == [
        ("pause", "test", "alert-0", ""),
        ("checkpoint", "test", "alert-1", ""),
        ("resume", "test", "alert-2", ""),
    ]
    assert take_commands(run, time.time()) == []


def test_a_word_that_is_no_command_is_refused_before_it_is_sent(run):
    with pytest.raises(UsageError, match="'rm -rf' is not a command"):
        send(run, "rm -rf", sender="test")


def test_without_a_mailbox_it_says_try_again(tmp_path):
    with pytest.raises(TryAgainError, match="No such file"):
        send(RunDir(tmp_path / "nothing"), "stop", sender="test")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not a whole"),
        ("[]", "not a whole"),
        ("{" * 1000, "not a whole"),
        (body("other"), "not a whole"),
        (body("aa", schema="albor.command/9"), "not a whole"),
        (body("aa", cmd="../../etc/passwd"), "unknown command"),
        (body("aa", cmd=["stop"]), "unknown command"),
        (lambda: body("aa", not_after_wall=time.time() - 1), "expired"),
        (lambda: body("aa", not_after_wall=time.time() + 10 * LIFETIME_S), "expired"),
        (body("aa", not_after_wall="soon"), "expired"),
        (body("aa", argument="x" * 8000), "not a whole"),
    ],
)
def test_a_command_that_is_wrong_is_taken_with_its_reason(run, content, problem):
    plant(run, "aa.json", content() if callable(content) else content)
    (taken,) = take_commands(run, time.time())
    assert problem in taken.problem
    assert take_commands(run, time.time()) == []


def test_a_planted_link_fifo_or_folder_neither_blocks_nor_harms(run, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(body("ln")))
    (run.guard / "inbox" / "ln.json").symlink_to(secret)
    os.mkfifo(run.guard / "inbox" / "ff.json")
    (run.guard / "inbox" / "dd.json").mkdir()
    (run.guard / "inbox" / ".half.json").write_text("{")
    good = send(run, "stop", sender="test")
    taken = {command.id: command.problem for command in take_commands(run, time.time())}
    assert taken == {"ln": "not a file of this user", "ff": "not a file of this user", good: ""}
    assert secret.exists()


def test_x29_a_command_of_another_user_is_refused(run, monkeypatch):
    sent = send(run, "stop", sender="test")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    (taken,) = take_commands(run, time.time())
    assert (taken.id, taken.problem) == (sent, "not a file of this user")


def test_the_answer_reaches_who_waits_for_it(run):
    sent = send(run, "checkpoint", sender="test")
    answer(run, sent, "accepted")
    assert wait_answer(run, sent, 0.0).status == "accepted"

    def finish():
        answer(run, sent, "done", "step 7")

    thread = threading.Timer(0.1, finish)
    thread.start()
    found = wait_answer(run, sent, 30.0)
    thread.join(timeout=10)
    assert (found.status, found.detail) == ("done", "step 7")


def test_nobody_answering_is_none_after_the_time_is_up(run):
    assert wait_answer(run, "feed", 0.0) is None


def test_a_hundred_answers_are_kept(run):
    for number in range(105):
        answer(run, f"{number:04d}", "done")
        os.utime(run.guard / "outbox" / f"{number:04d}.json", ns=(number, number))
    left = sorted(path.stem for path in (run.guard / "outbox").glob("*.json"))
    assert len(left) == 100
    assert left[-1] == "0104"


# -- a disk that takes no file ---------------------------------------------------------------------

HEARS = """
import signal, sys
from pathlib import Path
from albor_core.run.liveness import take_lock
waited = (signal.SIGTERM, signal.SIGINT)
signal.pthread_sigmask(signal.SIG_BLOCK, waited)
take_lock(Path(sys.argv[1]))
print("held", flush=True)
heard = [signal.Signals(signal.sigwait(waited)).name for _ in range(int(sys.argv[2]))]
print(*sorted(heard))
"""


@contextmanager
def guard_of(run, *argv, signals=1):
    """A process that holds the guard's lock, ends after `signals` and says which they were."""
    words = [sys.executable, "-c", HEARS, run.guard_lock, signals, *argv]
    with subprocess.Popen(
        list(map(str, words)), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def full(monkeypatch):
    """No file can be written any more."""

    def refuse(path, document, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(control, "write_json", refuse)


@pytest.mark.parametrize(
    ("cmd", "signals"), [("stop", ["SIGTERM"]), ("stop_now", ["SIGINT", "SIGTERM"])]
)
def test_a_stop_that_no_disk_takes_reaches_the_guard_as_a_signal(run, full, cmd, signals):
    with guard_of(run, "-m", "albor_core.guard", run.path, signals=len(signals)) as guard:
        sent = send(run, cmd, sender="test")
        assert sent == BY_SIGNAL
        assert wait_answer(run, sent, 30.0).status == "done"
        assert guard.stdout.read().split() == signals


def test_a_second_stop_by_signal_does_not_hurry_a_guard_that_is_stopping(run, full):
    write_json(run.guard / "guard.json", {"state": "stopping"})
    with guard_of(run, "-m", "albor_core.guard", run.path) as guard:
        assert send(run, "stop", sender="test") == BY_SIGNAL
        assert wait_answer(run, BY_SIGNAL, 0.2).status == "accepted"
        assert guard.poll() is None


@pytest.mark.parametrize(
    "argv", [(), ("-m", "albor_core.guard", "/another/run")], ids=["", "other"]
)
def test_whoever_holds_the_lock_and_is_not_this_runs_guard_gets_no_signal(run, full, argv):
    with guard_of(run, *argv) as stranger:
        with pytest.raises(TryAgainError) as caught:
            send(run, "stop", sender="test")
        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.3)  # it would end at the first signal
    assert "No space left" in caught.value.message
    assert "free some space" in caught.value.hint


def test_what_is_no_stop_says_how_to_make_room_and_that_a_stop_works(run, full):
    with guard_of(run, "-m", "albor_core.guard", run.path) as guard:
        with pytest.raises(TryAgainError) as caught:
            send(run, "pause", sender="test")
        assert guard.poll() is None
    assert str(run.guard / "inbox") in caught.value.message
    assert "free some space" in caught.value.hint
    assert f"albor guard stop {run.id} works" in caught.value.hint
