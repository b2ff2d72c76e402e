"""`albor guard run -- python train.py` for a script that knows nothing of Albor, and what may never
be written about any run: its secrets.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from albor_core import track
from albor_core.feed.run.status import run_status
from albor_core.guard.launch import read_launch, write_launch
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.errors import ConfigError
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state
from albor_core.store.file.paths import global_store
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader

ROOT = Path(__file__).resolve().parents[3]
ALBOR = [sys.executable, "-P", "-m", "albor_core.cli"]
QUICK = ("--option", "poll_s=0.05", "--option", "backoff_s=[0.05]", "--option", "stable_s=60")
CRASHES_ONCE = """
import os, sys
print("hello from attempt", os.environ["ALBOR_ATTEMPT"], flush=True)
print("to stderr", file=sys.stderr, flush=True)
if os.environ["ALBOR_ATTEMPT"] == "1":
    open(sys.argv[1], "w").close()
    raise RuntimeError("the first life ends here")
"""
CANARIES = {
    "HF_TOKEN": "canary0hf0value",
    "AWS_SECRET_ACCESS_KEY": "canary1/aws+value",
    "--api-key": "canary2-option",
    "--token=": "canary3-assigned",
    "url": "canary4-password",
    "config": "canary5-config",
    "header": "canary6-bearer-value",
}


def guarded(tmp_path, name, script, *arguments, **environ):
    """Run a script under a guard to its end: (exit code, its run)."""
    (tmp_path / "train.py").write_text(script)
    words = ["guard", "run", "--name", name, *QUICK, "--", sys.executable, "train.py", *arguments]
    done = subprocess.run(
        [*ALBOR, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr or "train.py" in done.stderr, done.stderr
    return done, RunDir(Path(os.environ["ALBOR_HOME"]) / "runs" / name)


@pytest.mark.slow
def test_a_script_that_logs_nothing_gets_its_console_a_report_a_restart_and_a_row(tmp_path):
    done, run = guarded(tmp_path, "quiet", CRASHES_ONCE, str(tmp_path / "ran"))
    assert done.returncode == 0, done.stderr
    assert run.log(1).read_text().startswith("hello from attempt 1\nto stderr\n")
    assert "the first life ends here" in run.log(1).read_text()
    assert run.log(2).read_text() == "hello from attempt 2\nto stderr\n"
    (path,) = run.crash_reports.glob("*.json")
    assert "the first life ends here" in path.read_text()
    with Reader(global_store()) as reader:
        row = reader.run("quiet")
        assert (row.ended_status, row.attempts, row.kind) == ("completed", 2, "guard")
        first, second = reader.attempts("quiet")
    assert (first.code, first.action, second.code) == (1, "restart", 0)
    assert "hello from attempt 2" in done.stdout + done.stderr


LEAVES_WITH_0 = """
import signal, sys, time
from albor_core import track
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
most, does_log = int(sys.argv[1]) or None, sys.argv[2] == "log"
if not does_log:
    print("ready", flush=True)
    while not told:
        time.sleep(0.01)
    sys.exit(0)
with track.start(max_steps=most) as run:
    for step in range(1, most or 10**9):
        run.log({"loss": 1.0 / step}, step)
        time.sleep(0.01)
        if told:
            break
    if sys.argv[3] == "end":
        run.log({"loss": 0.0}, most)
"""


def albor(*words, **options):
    """One command to its end: its standard output."""
    done = subprocess.run([*ALBOR, *words], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended_by_a_stop(tmp_path, *arguments):
    """Run LEAVES_WITH_0 under a guard, stop it when it is at work: what the stop said, its run."""
    (tmp_path / "train.py").write_text(LEAVES_WITH_0)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["guard", "run", "--name", "graceful", "--detach", *QUICK, "--"]
    albor(*words, sys.executable, "train.py", *arguments, cwd=tmp_path, env=environ)
    run = RunDir(Path(os.environ["ALBOR_HOME"]) / "runs" / "graceful")
    deadline = time.monotonic() + 60

    def is_at_work():
        if arguments[1] == "log":
            return ((read_state(run.state) or {}).get("global_step") or 0) > 1
        return run.log(1).is_file() and run.log(1).read_text() == "ready\n"

    while not is_at_work():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return albor("guard", "stop", "graceful"), run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("10000000", "log", "stop"), "stopped"),
        (("0", "log", "stop"), "stopped"),  # how many steps there are is not known
        (("0", "silent", "stop"), "stopped"),
        (("10000000", "log", "end"), "completed"),
    ],
    ids=" ".join,
)
def test_a_program_that_handles_sigterm_and_leaves_with_0_is_stopped_unless_it_was_at_its_end(
    tmp_path, arguments, word
):
    said, run = ended_by_a_stop(tmp_path, *arguments)
    assert word in said
    assert (read_json(run.guard / "guard.json") or {})["state"] == (
        "done" if word == "completed" else word
    )
    if arguments[1] == "log":
        assert (read_json(run.exit) or {})["reason"] == word
    with Reader(global_store()) as reader:
        deadline = time.monotonic() + 30
        while reader.run("graceful").ended_status is None:  # its own index process is at it still
            assert time.monotonic() < deadline
            drain_index(run)
            time.sleep(0.05)
        assert reader.run("graceful").ended_status == word
        if arguments[1] == "log":  # its own word for how far it goes is kept with the run
            assert reader.run("graceful").max_steps == (int(arguments[0]) or None)
        assert "completed" not in (reader.run("graceful").ended_reason or "").replace(word, "")
    assert run_status(run).word == word
    (row,) = json.loads(albor("runs", "ls", f"status:{word}", "--json"))["runs"]
    assert (row["id"], row["status"]) == ("graceful", word)


HOLDS_SECRETS = """
import os, sys
from albor_core import track
config = {"api_key": "canary5-config", "lr": 0.1, "url": "https://u:canary4-password@host/x",
          "note": os.environ["HF_TOKEN"], "header": "Bearer canary6-bearer-value"}
with track.start(config=config) as run:
    for step in range(1, 4):
        run.log({"loss": 1.0 / step}, step)
    if os.environ["ALBOR_ATTEMPT"] == "1":
        password = "canary5-config"
        os._exit(3)
    print(len(sys.argv), sys.argv[2] == "canary2-option", "_ALBOR_ARGV" in os.environ)
"""
SECRET_WORDS = (
    "--api-key", "canary2-option", "--token=canary3-assigned", "https://u:canary4-password@host/x",
    "--header", "Bearer canary6-bearer-value",
)  # fmt: skip


def places_of(canaries, folder):
    """Which canary stands in which file below a folder."""
    return [
        (word, path.name)
        for path in folder.rglob("*")
        if path.is_file()
        for word in canaries
        if word.encode() in path.read_bytes()
    ]


@pytest.mark.slow
def test_no_secret_of_a_guarded_program_is_in_any_file(tmp_path, albor_home):
    environ = {name: CANARIES[name] for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY")}
    done, run = guarded(tmp_path, "spy", HOLDS_SECRETS, *SECRET_WORDS, **environ)
    assert done.returncode == 0, done.stderr
    assert run.log(2).read_text() == "7 True False\n"  # the program itself got every word
    assert (read_json(run.launch) or {})["has_secrets"] is True
    assert len(list(run.crash_reports.glob("*.json"))) == 1
    assert places_of(CANARIES.values(), albor_home) == []


def test_no_secret_of_a_tracked_program_is_in_any_file(monkeypatch, albor_home):
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)
    monkeypatch.setattr(sys, "argv", ["train.py", *SECRET_WORDS])
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, CANARIES[name])
    config = {"api_key": "canary5-config", "url": "https://u:canary4-password@host/x"}
    with pytest.raises(RuntimeError), track.start(config=config) as run:
        run.params({"hub": {"note": CANARIES["HF_TOKEN"]}})
        run.log({"loss": 1.0})
        raise RuntimeError(f"401 for https://u:canary4-password@host with {CANARIES['HF_TOKEN']}")
    drain_index(RunDir(Path(run.path)))
    assert places_of(CANARIES.values(), albor_home) == []


def test_a_command_line_that_was_not_kept_is_no_command_to_guess(tmp_path):
    run = RunDir(tmp_path / "run")
    run.guard.mkdir(parents=True)
    launch = write_launch(run, argv=["prog", "--api-key", "canary2"], cwd=tmp_path, kind="guard")
    assert launch.argv == ("prog", "--api-key", "canary2")
    assert json.loads(run.launch.read_text())["argv"] == ["prog", "--api-key", "[redacted]"]
    with pytest.raises(ConfigError, match="held a secret"):
        read_launch(run)
    write_launch(run, argv=["prog", "--lr", "0.1"], cwd=tmp_path, kind="guard")
    assert read_launch(run).argv == ("prog", "--lr", "0.1")
