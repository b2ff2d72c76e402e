"""`albor logs` and `albor guard report`: what a program wrote, and how it died."""

from __future__ import annotations

import json
import sys

import pytest
from cli_user import validate

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
        assert told.out.splitlines() == ["life 2", "done", "\u241b[31mred", "end"]
    assert "no route" in desk.albor("logs", "n", "--attempt", "1").out
    last = desk.albor("logs", "n", "--tail", "1", "--json")
    assert validate(json.loads(last.out)) == {"schema": "albor.logs/1", "attempt": 2, "line": "end"}
    assert desk.albor("logs", "n", "--attempt", "9").code == 3
    report = desk.albor("guard", "report", "n")
    assert report.out.startswith("n  attempt 1: OSError: no route\n")
    assert f"file     {RunDir(desk.home / 'runs' / 'n').crash_reports}" in report.out
    told = validate(json.loads(desk.albor("guard", "report", "n", "--json").out))
    assert told["schema"] == "albor.crash/1"


def test_a_run_without_a_log_or_a_report_says_so(desk, tmp_path):
    script = desk.folder / "t.py"
    script.write_text("from albor_core import track\nwith track.start() as r: print(r.id)")
    import os
    import subprocess

    environ = {**os.environ, "ALBOR_HOME": str(desk.home)}
    told = subprocess.run(
        [sys.executable, str(script)], env=environ, capture_output=True, text=True, timeout=60
    )
    run = told.stdout.strip()
    said = desk.albor("logs", run)
    assert (said.code, said.out) == (3, "") and "only a program under a guard" in said.err
    assert desk.albor("guard", "report", run).code == 3


def test_following_a_log_that_nothing_records_is_refused_while_the_run_is_live(desk, monkeypatch):
    from albor_core import track

    monkeypatch.setenv("ALBOR_HOME", str(desk.home))
    with track.start(name="live") as run:
        said = desk.albor("logs", "-f", run.id)
    assert (said.code, said.out) == (3, "") and "only a program under a guard" in said.err
