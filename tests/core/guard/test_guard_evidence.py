"""Reports, pre-flight, ledger and logs: what is written, and what is left out."""

from __future__ import annotations

import errno
import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from guard_harness import ENDLESS, LIMIT_S, Bench, wait_until

from albor_core.guard import preflight
from albor_core.guard import records as ledger
from albor_core.guard.attempt import GuardedAttempt
from albor_core.guard.deaths import crash_report, evidence
from albor_core.guard.launch import read_launch
from albor_core.guard.policy import TrainerWords
from albor_core.guard.process import log_bounds
from albor_core.guard.records import Ledger
from albor_core.run.files.whole_file import write_json
from albor_core.run.guard_options import parse_options
from albor_core.run.values.redact import redact

# Shapes of secrets, put together here so that no scanner takes this file for a leak.
CANARIES = {
    "value of a secret variable": "plain-words-as-a-secret",
    "Hugging Face token": "hf_" + "QwErTyUiOpAsDfGhJkLzXcVb",
    "AWS key id": "AKIA" + "ABCDEFGHIJKLMNOP",
    "password in a URL": "hunter22",
    "option": "s3cr3t-option",
    "assigned": "s3cr3t-assigned",
    "bearer": "abcdef.ghijkl",
    "random word": "Zx9Kq2Lm8Rt4Vw7Yp3Nb",
}


def say_everything() -> str:
    values = list(CANARIES.values())
    return "\n".join(
        [
            f"loaded {values[0]}",
            f"token {values[1]} and {values[2]}",
            f"cloning https://user:{values[3]}@example.org/x.git",
            f"run --api-key {values[4]} --lr 0.1",
            f"db_password = '{values[5]}'",
            f"Authorization: Bearer {values[6]}",
            f"key={values[7]}",
            "ordinary: num_tokens=500000 tokens_per_second: 18500.5 loss=2.31",
        ]
    )


def test_no_secret_reaches_a_crash_report(box: Bench) -> None:
    box.prepare({"at": 2, "do": "exit", "code": 1, "words": False, "say": say_everything()}, {})
    assert box.start({"MY_SECRET": CANARIES["value of a secret variable"]}).wait(LIMIT_S) == 0
    (path,) = box.run.crash_reports.iterdir()
    text = path.read_text()
    assert [what for what, canary in CANARIES.items() if canary in text] == []
    found = json.loads(text)
    assert found["redactions"] >= len(CANARIES)
    assert "num_tokens=500000 tokens_per_second: 18500.5 loss=2.31" in text
    assert "MY_SECRET" in found["env_names"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    [
        "train.py -v --token hunter2secret",
        "bad key -c --token hunter2secret --lr 3",
        "x --verbose -q --api-key 'hunter2secret' y",
        '{"passphrase": "hunter2secret"}',
        "pw: hunter2secret",
        "cookie=hunter2secret; path=/",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2secret\n-----END RSA PRIVATE KEY-----\nrest",
        "-----BEGIN PRIVATE KEY-----\nhunter2secret",
    ],
)
def test_a_secret_is_found_wherever_it_stands(text: str) -> None:
    safe, count = redact(text, {})
    assert "hunter2secret" not in safe
    assert count >= 1
    assert redact(safe, {})[0] == safe


def test_words_that_only_sound_like_secrets_stay(tmp_path) -> None:
    for text in ("pwm: 0.5abcd", "lr -v --tokens 12345678", "compression -q --level fast9 rest"):
        assert redact(text, {}) == (text, 0)


def test_options_that_somebody_named_are_hidden() -> None:
    environment = {"ALBOR_SECRETS": "-p, license"}
    words = ["mysql", "-p", "hunter2secret", "--license=hunter2secret", "-v", "x"]
    safe, count = redact(words, environment)
    assert safe == ["mysql", "-p", "[redacted]", "--license=[redacted]", "-v", "x"]
    assert count == 2
    assert redact({"license": "hunter2secret"}, environment)[0] == {"license": "[redacted]"}
    assert redact("mysql -p hunter2secret -v x", environment)[0] == "mysql -p [redacted] -v x"


def test_the_working_directory_is_no_secret_though_pwd_may_mean_a_password() -> None:
    words = ["/home/me/code/bin/python", "-c", "import numpy", "--pwd", "hunter2secret"]
    safe, count = redact(words, {"PWD": "/home/me/code", "DB_PWD": "numpy-and-more"})
    assert (safe, count) == ([*words[:-1], "[redacted]"], 1)
    assert redact("as numpy-and-more", {"DB_PWD": "numpy-and-more"}) == ("as [redacted]", 1)


def test_headers_of_a_collector_of_traces_are_secrets() -> None:
    environment = {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=hunter2"}
    assert redact("sent with x-tenant=hunter2", environment) == ("sent with [redacted]", 1)


def test_redaction_leaves_numbers_hashes_and_json_alone() -> None:
    document = {"tokens": 123456789, "hf_token": 12345678, "secret": None, "nonce": "0f" * 16}
    assert redact(document, {}) == (document, 0)


def test_a_secret_name_hides_its_value_however_short() -> None:
    config = {
        "password": "a",
        "api_key": 7,
        "hub": {"token": "xy", "token_dim": 5, "credentials": {"user": "u", "ids": ["v", 1]}},
        "token_embedding": {"init": "normal"},
        "secret": "",
        "use_password": False,
    }
    assert redact(config, {})[0] == {
        "password": "[redacted]",
        "api_key": "[redacted]",
        "hub": {
            "token": "[redacted]",
            "token_dim": 5,
            "credentials": {"user": "[redacted]", "ids": ["[redacted]", "[redacted]"]},
        },
        "token_embedding": {"init": "normal"},
        "secret": "",
        "use_password": False,
    }


def test_a_command_line_hides_secrets_however_short() -> None:
    words = ["--password", "a", "--token=x y", "--api-key", "7", "hub.token=b", "--lr", "1"]
    told = "--password [redacted] --token=[redacted] --api-key [redacted] hub.token=[redacted]"
    assert redact(words, {}) == ([*told.split(" "), "--lr", "1"], 4)
    counts = ["--max-token-length", "512", "--token-budget=9", "--tokenizer", "a", "--seed", "1"]
    assert redact(counts, {}) == (counts, 0)
    assert redact(["sh", "-c", "go --secret b --n 1"], {})[0][2] == "go --secret [redacted] --n 1"


@pytest.mark.parametrize(
    "value",
    [{"token_weights": [1.55, 2.0]}, {"argv": ["--token", [1.55]]}, {"token": {"a": None}}],
    ids=str,
)
def test_numbers_in_lists_stay(value: dict[str, object]) -> None:
    assert redact(value, {}) == (value, 0)


def test_a_random_word_on_a_line_of_its_own_is_hidden() -> None:
    assert redact("a\n" + CANARIES["random word"], {}) == ("a\n[redacted]", 1)


def test_a_report_of_any_size_fits() -> None:
    lines = ["x" * 2000] * 200
    found = {"log_tail": lines, "threads": None, "python": {"traceback_tail": lines}}
    content = crash_report.seal({"id": "a", "evidence": found}, {})
    assert len(content) <= crash_report.MAX_BYTES
    assert json.loads(content)["truncated"] == ["log_tail", "traceback_tail"]


@pytest.mark.parametrize("word", ["x", "-", "token", "a://", "eyJ-", "key=", " :", "--a-key "])
def test_no_log_can_make_redaction_slow(word: str) -> None:
    document = [(word * 2048)[:2048]] * 32  # as much as a report reads of a log
    started = time.process_time()
    redact(document, {})
    assert time.process_time() - started < 3.0  # far below 1 s; backtracking would take minutes


def test_non_finite_numbers_do_not_break_a_report() -> None:
    content = crash_report.seal({"progress": {"loss": float("nan")}, "evidence": {}}, {})
    assert json.loads(content)["progress"]["loss"] is None


def test_a_report_that_cannot_be_written_stops_no_restart(box: Bench) -> None:
    box.run.crash_reports.write_text("in the way")
    assert box.finish({"at": 2, "do": "segv"}, {}) == 0
    assert box.classes() == ["crash", "done"]
    assert "guard.report_failed" in box.events()
    assert '"albor.crash/1"' in box.log()


def test_the_first_reports_and_the_newest_are_kept(
    box: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_report, "KEPT", 10)
    for number in range(30):
        crash_report.write(box.run, {"id": f"r{number:04d}", "evidence": {}}, {})
    kept = sorted(path.stem for path in box.run.crash_reports.iterdir())
    assert kept == [f"r{n:04d}" for n in [*range(5), *range(20, 30)]]


# --- pre-flight ----------------------------------------------------------------------------------


def test_too_little_disk_is_refused_before_anything_starts(box: Bench) -> None:
    assert box.finish({}, min_free_bytes=1 << 60) == 5
    assert box.records("attempt.start") == []
    assert "guard.preflight_refused" in box.events()
    assert "min_free_bytes" in box.now()["reason"]


def test_the_last_checkpoint_says_how_much_room_the_next_one_needs(
    box: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.prepare({})
    folder = box.run.checkpoints / "step-00000010"
    folder.mkdir(parents=True)
    write_json(folder / "manifest.json", {})
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    for free, is_refused in ((2100, True), (2300, False)):
        monkeypatch.setattr(evidence, "disk_free", lambda path, free=free: free)
        flight = preflight.check(box.run, read_launch(box.run), frozenset())
        assert bool(flight.problem) is is_refused


def fake_nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = folder / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


GPU = "GPU-1, H100, 70000, 80000, 99, 60, 500.5, [N/A]"


def test_a_stranger_on_the_gpu_is_named_and_left_alone(
    box: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.prepare({})
    stranger = subprocess.Popen(["sleep", "30"])
    try:
        apps = f"{stranger.pid}, GPU-1, 60000"
        script = f'case "$1" in *compute-apps*) echo "{apps}";; *) echo "{GPU}";; esac'
        fake_nvidia_smi(tmp_path, script, monkeypatch)
        flight = preflight.check(box.run, read_launch(box.run), frozenset({stranger.pid}))
        assert flight.may_pass
        assert f"process {stranger.pid}" in flight.problem
        assert "(sleep 30)" in flight.problem
        assert flight.problem.endswith("with 58.6 GiB")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize(("mask", "memory"), [(None, 6000), ("0", 60000)])
def test_a_stranger_that_leaves_room_is_named_in_a_note(
    box: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: str | None, memory: int
) -> None:
    box.prepare({})
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    us = os.getpid()
    script = f'case "$1" in *compute-apps*) echo "{us}, GPU-1, {memory}";; *) echo "{GPU}";; esac'
    fake_nvidia_smi(tmp_path, script, monkeypatch)
    flight = preflight.check(box.run, read_launch(box.run), frozenset({us}))
    (note,) = flight.notes
    user = pwd.getpwuid(os.getuid()).pw_name
    assert flight.problem == ""
    assert note.startswith(f"GPU GPU-1 is in use by process {us} (")
    assert note.endswith(f") of {user} with {memory / 1024:.1f} GiB")


@pytest.mark.parametrize(
    "script", ["sleep 60", "echo what; exit 3", "echo garbage", "printf '\\377\\n'"]
)
def test_a_sick_nvidia_smi_costs_no_start(
    box: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    box.prepare({})
    monkeypatch.setattr(evidence, "TOOL_LIMIT_S", 0.2)
    fake_nvidia_smi(tmp_path, script, monkeypatch)
    us = os.getpid()
    started = time.monotonic()
    spare = frozenset(int(p) for p in Path(f"/proc/{us}/task/{us}/children").read_text().split())
    assert preflight.check(box.run, read_launch(box.run), spare).problem == ""
    assert time.monotonic() - started < 5.0
    assert evidence.gpu_report()["devices"] == []


def test_a_gpu_report_knows_units_and_says_null_for_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvidia_smi(tmp_path, f'case "$1" in *apps*) ;; *) echo "{GPU}";; esac', monkeypatch)
    (device,) = evidence.gpu_report()["devices"]
    assert device["mem_used"] == 70000 << 20
    assert device["ecc_uncorr"] is None
    assert device["power_w"] == 500.5


# --- what the kernel and the log say -------------------------------------------------------------


def test_kernel_messages_are_read_for_what_they_mean() -> None:
    lines = [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "Out of memory: Killed process 4242 (python3) total-vm:1kB",
        "Memory cgroup out of memory: Killed process 42 (python3)",
    ]
    assert [(xid["code"], xid["pci"]) for xid in evidence.xids(lines)] == [(79, "0000:3b:00")]
    assert evidence.oom_lines(lines, 4242) == [lines[1]]
    assert evidence.oom_lines(lines, 424) == []


def test_the_last_python_error_of_a_log_is_found_with_its_place() -> None:
    log = ["step 1", "Traceback (most recent call last):", '  File "/a/loop.py", line 12, in run']
    log += [
        "    step()",
        '  File "/a/step.py", line 7, in step',
        "    boom",
        "torch.OutOfMemoryError: no",
    ]
    assert evidence.python_error([*log, "bye"]) == ("torch.OutOfMemoryError", "no", "/a/step.py:7")
    assert evidence.python_error(["Error: nothing that Python says"]) is None


TRACE = [
    "Traceback (most recent call last):",
    '  File "/a/typo.py", line 1, in <module>',
    "    import nunpy",
]


@pytest.mark.parametrize(
    ("log", "code", "line"),
    [
        ([*TRACE, "ModuleNotFoundError: No module named 'nunpy'"], 1, None),
        ([*TRACE, "Halt: by its own name", "albor: bye"], 1, "Halt: by its own name"),
        ([*TRACE, "KeyboardInterrupt"], 1, None),
        (['  File "t.py", line 3', "    def f(:", "        ^", "SyntaxError: invalid"], 1, None),
        (
            [*TRACE, "OSError: caught", "usage: t.py [-h]", "t.py: error: bad --lr", ""],
            2,
            "exited with code 2: t.py: error: bad --lr",
        ),
        (["  1%\r 50%\r\x1b[31mgone\r"], 3, "exited with code 3: \\x1b[31mgone"),
        ([], 3, ""),
        ([*TRACE, "ValueError: " + "x" * 600], 1, "ValueError: " + "x" * 485 + "..."),
    ],
)
def test_how_a_program_failed_is_one_line_of_its_own(
    log: list[str], code: int, line: str | None
) -> None:
    wanted = log[-1] if line is None else line
    assert evidence.error_line(None, evidence.python_error(log), log, code) == wanted


def test_what_the_tracker_heard_counts_before_the_log() -> None:
    heard = TrainerWords(1, "exception", error_type="ValueError", error_message="a\nb")
    assert evidence.error_line(heard, None, ["bye"], 1) == "ValueError: a"
    left = TrainerWords(1, "exception", error_type="SystemExit", error_message="2")
    assert evidence.error_line(left, None, ["t.py: error"], 2) == "exited with code 2: t.py: error"


# --- files that fight back -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["absent", "empty", "torn", "huge", "fifo", "link", "folder", "nan"]
)
def test_whatever_the_state_file_is_looking_at_it_is_quick_and_no_news(
    box: Bench, kind: str
) -> None:
    path = box.run.state
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(100 << 20)
    elif kind != "absent":
        texts = {"empty": "", "torn": '{"schema":"albor.state/1","se', "nan": '{"seq": NaN}'}
        path.write_text(texts[kind])
    life = GuardedAttempt(box.run, 1, "n", None, time.monotonic())
    started = time.monotonic()
    life.look(parse_options({}))
    assert time.monotonic() - started < 1.0
    assert not life.watch.has_news


def test_a_torn_ledger_line_costs_only_itself(box: Bench) -> None:
    box.prepare({})
    box.run.attempts.write_bytes(b'{"t":"state","state":"run')
    assert box.start().wait(LIMIT_S) == 0
    torn, *rest = box.run.attempts.read_text().splitlines()
    assert torn == '{"t":"state","state":"run'
    assert [json.loads(line)["t"] for line in rest][-1] == "state"


def test_a_full_disk_delays_the_ledger_and_loses_no_line(
    box: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.run.guard.mkdir()
    book = Ledger(box.run)
    real, is_full = os.write, True

    def write(fd: int, data: Any) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(ledger.os, "write", write)
    book.line("state", state="running")
    book.line("state", state="collecting")
    assert box.run.attempts.read_bytes() == b""
    is_full = False
    book.line("state", state="done")
    book.close()
    assert [record["state"] for record in box.records("state")] == ["running", "collecting", "done"]


def test_a_log_that_grows_too_big_is_moved_while_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "a0001.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(6):
            writer.write(b"%d" % number * 100)
            assert log_bounds.rotate(log, limit=50)
        writer.write(b"now")
    assert log.read_bytes() == b"now"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a0001.log",
        "a0001.log.1",
        "a0001.log.2",
        "a0001.log.3",
    ]
    assert (tmp_path / "a0001.log.1").read_bytes() == b"5" * 100
    assert not log_bounds.rotate(log, limit=50)


def test_a_log_that_has_no_room_for_a_copy_says_what_it_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = tmp_path / "a0001.log"
    log.write_bytes(b"x" * 100)
    monkeypatch.setattr(os, "sendfile", full)
    assert log_bounds.rotate(log, limit=50)
    assert log.read_bytes() == b"[albor: 100 bytes were dropped: no room for a copy]\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a0001.log"]


def test_leftovers_of_an_earlier_attempt_are_cleared_before_a_start(box: Bench) -> None:
    box.prepare({"steps": ENDLESS, "grandchild": False})
    first = box.start()
    trainer = box.until_training()
    nonce = box.records("attempt.start")[0]["nonce"]
    first.kill()
    first.wait()
    os.kill(trainer, 9)
    wait_until(lambda: box.trainer() is None)
    environment = {**os.environ, "ALBOR_RUN_ID": box.run.id, "ALBOR_NONCE": nonce}
    leftover = subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True)
    stranger = subprocess.Popen(["sleep", "60"], env={**environment, "ALBOR_NONCE": "unknown"})
    try:
        box.start()
        assert leftover.wait(LIMIT_S) == -9
        wait_until(lambda: len(box.records("attempt.start")) == 2)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# --- the promise about imports -------------------------------------------------------------------


def test_the_guard_imports_the_standard_library_and_its_floor_only() -> None:
    code = (
        "import sys; before = set(sys.modules);"
        "import albor_core.guard.loop, albor_core.guard.process.stub, albor_core.guard.launch;"
        "import albor_core.guard.__main__ as main;"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    names = done.stdout.split()
    tops = {name.partition(".")[0] for name in names}
    assert tops - sys.stdlib_module_names == {"albor_core"}
    ours = {".".join(name.split(".")[:2]) for name in names if name.startswith("albor_core.")}
    assert ours == {"albor_core.guard", "albor_core.run"}


def test_wrong_options_are_all_named_at_once() -> None:
    from albor_core.run.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        parse_options({"poll_s": 0, "grace": 1, "max_restarts": 1.5, "backoff_s": []})
    assert {problem.field for problem in caught.value.problems} == {
        "guard.poll_s",
        "guard.grace",
        "guard.max_restarts",
        "guard.backoff_s",
    }


def test_what_is_hidden_already_is_left_as_it_is():
    argv = ["--token", "abcdefgh2", "https://u:abcdefgh3@host"]
    once, count = redact({"api_key": "abcdefgh1", "argv": argv}, {})
    assert "abcdefgh" not in json.dumps(once) and count == 3
    assert redact(once, {}) == (once, 0)


def test_when_a_log_was_written_is_noted_and_goes_aside_with_it(tmp_path):
    log = tmp_path / "a0001.log"
    times = log_bounds.LogTimes()
    times.look(log)  # not there yet
    log.write_text("one\n")
    times.look(log)
    times.look(log)
    with log.open("a") as file:
        file.write("two\n")
    times.look(log)
    rows = [line.split() for line in (tmp_path / "a0001.times").read_text().splitlines()]
    assert [row[0] for row in rows] == ["0", "4"]
    assert float(rows[0][1]) <= float(rows[0][2]) <= float(rows[1][1]) <= float(rows[1][2])
    log_bounds.LogTimes().look(log)  # of the next guard
    assert len((tmp_path / "a0001.times").read_text().splitlines()) == 2
    assert log_bounds.rotate(log, limit=5)
    assert not (tmp_path / "a0001.times").exists()
    assert len((tmp_path / "a0001.times.1").read_text().splitlines()) == 2
