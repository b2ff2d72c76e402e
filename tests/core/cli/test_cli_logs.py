"""`albor logs` and `albor guard report`: what a program wrote, and how it died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from cli_user import validate

from albor_core.run.home.new_run import create_run
from albor_core.run.rundir import RunDir

NOISY = r"""
import os, sys, time
print("life", os.environ["ALBOR_ATTEMPT"], flush=True)
sys.stdout.write(" 1%\r 50%\rdone\n\x1b[31mred\n"); sys.stdout.flush()
if os.environ["ALBOR_ATTEMPT"] == "1":
    raise OSError("no route")
print("end", flush=True)
"""


@pytest.mark.slow
def test_logs_are_read_and_followed_over_a_restart_to_the_end(desk):
    script = desk.folder / "noisy.py"
    script.write_text(NOISY)
    done = desk.albor("guard", "run", "--name", "n", "--", sys.executable, str(script))
    assert done.code == 0, done.err
    for words in (("logs", "n"), ("logs", "-f", "n")):
        told = desk.albor(*words)
        assert told.out.splitlines() == ["life 2", "done", "red", "end"]
        assert "attempt 2 of 2; the others (1): albor logs n --attempt N" in told.err
    assert "no route" in desk.albor("logs", "n", "--attempt", "1").out
    both = desk.albor("logs", "n", "--since", "1h").out.splitlines()
    assert both[0] == "life 1" and both[-1] == "end" and "life 2" in both
    assert desk.albor("logs", "n", "--since", "2100-01-01").out == ""
    last = desk.albor("logs", "n", "--tail", "1", "--json")
    assert validate(json.loads(last.out)) == {"schema": "albor.logs/1", "attempt": 2, "line": "end"}
    assert desk.albor("logs", "n", "--attempt", "9").code == 3
    report = desk.albor("guard", "report", "n")
    assert report.out.startswith("n  attempt 1: OSError: no route\n")
    assert f"file     {RunDir(desk.home / 'runs' / 'n').crash_reports}" in report.out
    told = validate(json.loads(desk.albor("guard", "report", "n", "--json").out))
    assert told["schema"] == "albor.crash/1"


def test_a_run_without_a_log_or_a_report_says_so(desk):
    code, out = tracked(desk, "with track.start(console=False) as r: print(r.id)")
    run = out.strip()
    assert code == 0
    said = desk.albor("logs", run)
    assert (said.code, said.out) == (3, "") and "its console was not recorded" in said.err
    assert desk.albor("guard", "report", run).code == 3


def test_the_console_of_a_tracked_program_is_read_and_followed_with_its_bars_folded(desk):
    code, _ = tracked(
        desk,
        """
with track.start(name="t") as run:
    for i in range(3000): sys.stdout.write(f"\\r{i / 30:5.1f} % of something")
    print("\\ndone")
    for i in range(4000): sys.stderr.write(f"epoch {i}" + "." * 50 + "\\r")
    sys.stderr.write("\\n")
    raise OSError("no route")
""",
    )
    assert code == 1
    for words in (("logs", "t"), ("logs", "-f", "t"), ("logs", "t", "--since", "1h")):
        told = desk.albor(*words).out.splitlines()
        assert "100.0 % of something" in told
        assert "done" in told and "epoch 3999" + "." * 50 in told
        assert told[-1] == "OSError: no route"
    assert desk.albor("logs", "t", "--since", "2100-01-01").out == ""


def test_since_shows_what_was_written_since_and_begins_with_a_whole_line(desk):
    run = create_run(
        desk.home / "runs", "old", experiment="e", name="old", kind="track", argv=["x"]
    )
    log, times = run.log(1), run.logs / "a0001.times"
    run.logs.mkdir(exist_ok=True)
    log.write_text("first\nsecond\nthird\n")
    times.write_text("0 1000.0\n8 2000.0\n13 3000.0 3009.0\nbroken")
    os.utime(log, (3009, 3009))
    for since, lines in (
        (900, ["first", "second", "third"]),
        (1500, ["second", "third"]),
        (2500, ["third"]),
        (3005, ["third"]),
        (3010, []),
    ):
        moment = datetime.fromtimestamp(since, UTC).isoformat()
        assert desk.albor("logs", "old", "--since", moment).out.splitlines() == lines
    run.log(2).write_text("fourth\n")
    (run.logs / "a0002.times").write_text("0 5000.0\n")
    both = desk.albor("logs", "old", "--json", "--since", "1970-01-01T00:50")
    found = [validate(json.loads(line)) for line in both.out.splitlines()]
    assert [(one["attempt"], one["line"]) for one in found] == [(1, "third"), (2, "fourth")]
    said = desk.albor("logs", "old", "--since", "yesterday")
    assert said.code == 2 and "'yesterday' is not a time" in said.err


def test_following_loses_nothing_that_comes_meanwhile_nor_words_without_an_end(desk, monkeypatch):
    run = create_run(
        desk.home / "runs", "busy", experiment="e", name="busy", kind="track", argv=["x"]
    )
    run.logs.mkdir(exist_ok=True)
    run.log(1).write_text("one\ntwo\n")
    shown = []

    def show(line):
        if not shown:  # the program goes on while a slow terminal takes the first line
            with run.log(1).open("a") as log:
                log.write("noise\n" * 400_000 + "last words")
        shown.append(line)

    monkeypatch.setattr("albor_core.cli.logs.print_line", show)
    assert desk.quick("logs", "-f", "busy").code == 0
    assert shown == ["one", "two", *["noise"] * 400_000, "last words"]


def tracked(desk, code):
    script = desk.folder / "t.py"
    script.write_text("import sys\nfrom albor_core import track\n" + code)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environ["ALBOR_HOME"] = str(desk.home)
    done = subprocess.run(
        [sys.executable, str(script)], env=environ, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout
