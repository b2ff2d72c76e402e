"""Commands are files: what is sent is taken once, in order, and bad ones carry their reason."""

import json
import os
import threading
import time

import pytest

from albor_core.run.control import LIFETIME_S, answer, send, take_commands, wait_answer
from albor_core.run.errors import TryAgainError, UsageError
from albor_core.run.rundir import RunDir


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
        (body("aa", not_after_wall=time.time() - 1), "expired"),
        (body("aa", not_after_wall=time.time() + 10 * LIFETIME_S), "expired"),
        (body("aa", not_after_wall="soon"), "expired"),
        (body("aa", argument="x" * 8000), "not a whole"),
    ],
)
def test_a_command_that_is_wrong_is_taken_with_its_reason(run, content, problem):
    plant(run, "aa.json", content)
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
