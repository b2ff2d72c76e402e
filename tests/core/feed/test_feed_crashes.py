"""Crash reports for people: read once, clean, and never in the way."""

from __future__ import annotations

import json

import pytest

from albor_core.feed.archive.crashes import CrashShelf
from albor_core.run.home.new_run import create_run


@pytest.fixture
def run(tmp_path):
    made = create_run(tmp_path, "r", experiment="e", name="r", kind="guard", argv=["x"])
    made.crash_reports.mkdir(exist_ok=True)
    made.logs.mkdir(exist_ok=True)
    return made


def report(run, name, **fields):
    document = {"schema": "albor.crash/1", "id": name, "attempt": 2, **fields}
    (run.crash_reports / f"{name}.json").write_text(json.dumps(document))


def test_a_report_tells_why_with_the_last_lines_and_the_stacks(run):
    (run.logs / "a0002.stacks").write_text('Thread 0x1\n  File "train.py", line 7 in all_reduce\n')
    python = {"type": "RuntimeError", "message": "out of memory", "where": "train.py:212"}
    evidence = {"python": python, "log_tail": ["a", "\x1b[31mred"], "stacks": "logs/a0002.stacks"}
    report(run, "a0002-b", **{"class": "exception"}, reason="exit code 1", evidence=evidence)
    report(run, "a0001-a", evidence={"hang": "no news for 300 s"})
    newest, oldest = CrashShelf(run).look()
    assert newest.error == "RuntimeError: out of memory (train.py:212)"
    assert (newest.attempt, newest.kind, newest.reason) == (2, "exception", "exit code 1")
    assert newest.log[0] == "a"
    assert "\x1b" not in newest.log[1]
    assert "all_reduce" in newest.stacks[1]
    assert newest.path == str(run.crash_reports / "a0002-b.json")
    assert oldest.hang == "no news for 300 s"


def test_what_is_no_report_or_points_elsewhere_is_passed_over(run, tmp_path):
    (tmp_path / "secret").write_text("secret")
    report(run, "a", evidence={"stacks": "logs/../../secret"})
    report(run, "b", evidence={"stacks": 7, "log_tail": "x", "python": []})
    (run.crash_reports / "c.json").write_text("{torn")
    views = CrashShelf(run).look()
    assert [view.id for view in views] == ["b", "a"]
    assert all(view.stacks == view.log == () for view in views)
