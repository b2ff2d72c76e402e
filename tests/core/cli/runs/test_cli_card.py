"""What `albor runs show` says of a run's notes, code, relatives and death, and how notes change."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest
from cli_user import ALBOR, strict, validate

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now
from albor_core.store.upkeep.rebuild import rebuild

PATCH = "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1 +1,2 @@\n-a\n+b\n+\x1b[31mc\n"
HOSTILE = "\x1b]0;owned\x07\u202egnp\r\nforged  completed"


def make(desk, run_id="r1", *, end="completed", **facts):
    run = create_run(desk.folder / "out", run_id, experiment="e", name=run_id, kind="track",
                     argv=["python", "a b.py"], seed=7, facts=facts)  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.metrics(5, {"train/loss": 1.0})
    journal.event("run.end", status=end, reason=end, code=0)
    journal.close()
    index_now(run)
    return run


def valid(result):
    document = strict(result.out)
    validate(document)
    return document


def notes(desk):
    return [(note["number"], note["text"]) for note in shown(desk)["notes"]]


def shown(desk, run="r1"):
    return valid(desk.quick("runs", "show", run, "--json"))


# -- notes ---------------------------------------------------------------------------------------


def test_a_note_is_replaced_and_taken_back_by_its_number(desk):
    run = make(desk)
    for words in ("one", "two", "three"):
        desk.quick("runs", "note", "r1", words)
    replaced = valid(desk.quick("runs", "note", "r1", "2nd", "--replace", "2", "--json"))
    assert (replaced["note"]["number"], replaced["note"]["text"]) == (2, "2nd")
    assert valid(desk.quick("runs", "note", "r1", "--remove", "1", "--json"))["note"] is None
    assert notes(desk) == [(2, "2nd"), (3, "three")]
    for word, found in (("2nd", 1), ("one", 0), ("two", 0)):
        assert len(desk.quick("runs", "ls", word, "--json").document["runs"]) == found
    before = shown(desk)
    global_store().unlink()
    run.store.unlink()
    rebuild(None, [run])
    assert shown(desk) == before


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--replace", "2", "x"), 3, "no note 2 of r1: its notes are 1"),
        (("--remove", "7"), 3, "no note 7 of r1: its notes are 1"),
        (("--replace", "1"), 2, "cannot tell what to write"),
        (("x", "--remove", "1"), 2, "cannot tell what to write"),
        ((), 2, "cannot tell what to write"),
        (("x", "--replace", "0"), 2, "less than 1"),
        (("", "--replace", "1"), 2, "needs a text of 1 to 16384 characters"),
        (("x" * 20_000, "--replace", "1"), 2, "needs a text of 1 to 16384 characters"),
    ],
)
def test_what_cannot_be_done_to_a_note_is_said_and_nothing_is_written(desk, words, code, says):
    run = make(desk)
    desk.quick("runs", "note", "r1", "kept")
    before = run.annotations.read_bytes()
    result = desk.quick("runs", "note", "r1", *words)
    assert result.code == code
    assert says in result.err
    assert run.annotations.read_bytes() == before


def test_a_long_note_and_one_of_control_characters_are_shown_whole_and_harmless(desk):
    make(desk)
    long = " ".join(f"word{i}" for i in range(1_500))[:10_000]
    desk.quick("runs", "note", "r1", long)
    desk.quick(
        "runs", "note", "r1", "zwei Zeilen\n\u00fcber Gr\u00f6\u00dfe " + "\u00e4 " * 60 + "ende"
    )
    desk.quick("runs", "note", "r1", HOSTILE)
    told = desk.quick("runs", "show", "r1", COLUMNS="80").out
    assert "".join(long.split()) in "".join(told.split())
    assert "  note 2      zwei Zeilen\n              \u00fcber Gr\u00f6\u00dfe" in told
    assert "ende (" in " ".join(told.split())
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert max(map(len, told.splitlines())) <= 80
    assert shown(desk)["notes"][2]["text"] == HOSTILE


# -- code ----------------------------------------------------------------------------------------


def test_the_patch_is_counted_and_printed_whole(desk):
    run = make(desk, git={"commit": "c" * 40, "dirty": True, "patch": PATCH},
               script={"path": "/w/a b.py", "sha256": "0" * 64, "is_kept": True})  # fmt: skip
    run.script.write_text("x")
    told = desk.quick("runs", "show", "r1").out
    assert "  code        cccccccccccc with uncommitted changes\n" in told
    assert "  patch       +2 -1 in 1 file: m.py +2 -1\n" in told
    assert f"albor runs show r1 --patch prints it, from {run.run_json}" in told
    assert f"as it was: {run.script}" in told
    assert "  command     python 'a b.py'\n" in told
    assert desk.quick("runs", "show", "r1", "--patch").out == PATCH
    code = shown(desk)["code"]
    assert (code["patch"]["added"], code["patch"]["files"][0]["name"]) == (2, "m.py")
    assert (code["script"], code["script_copy"]) == ("/w/a b.py", str(run.script))


def test_a_patch_that_is_not_there_is_said(desk):
    run = make(desk, "plain")
    result = desk.quick("runs", "show", "plain", "--patch")
    assert (result.code, result.out) == (3, "")
    assert "plain has not kept a patch" in result.err
    changed = make(desk, "changed", git={"commit": "c", "dirty": True, "patch": PATCH})
    for path in (run.run_json, changed.run_json):
        path.unlink()
    assert (
        "changed has not kept all of its patch"
        in desk.quick("runs", "show", "changed", "--patch").err
    )


def test_a_terminal_is_given_a_patch_that_it_cannot_obey(desk):
    make(desk, git={"commit": "c", "patch": PATCH})
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "wb", 0) as terminal:
        command = [*ALBOR, "runs", "show", "r1", "--patch"]
        done = subprocess.run(
            command, env=desk.environment(), cwd=desk.folder, stdout=terminal, timeout=60
        )
        told = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "+b" in told
    assert "\x1b[31m" not in told


# -- relatives -----------------------------------------------------------------------------------


def test_parent_and_children_are_told_with_what_they_do(desk):
    make(desk, "base")
    make(desk, "kid", parent="base", end="failed")
    told = desk.quick("runs", "show", "base").out
    assert "  children    1 run began from a checkpoint of it\n" in told
    assert "kid          failed     5" in told
    assert (
        "began from a checkpoint of base, completed at step 5"
        in desk.quick("runs", "show", "kid").out
    )
    assert shown(desk, "base")["relatives"]["children"][0]["status"] == "failed"
    assert shown(desk, "base")["children"] == ["kid"]
    assert shown(desk, "kid")["relatives"]["parent"]["step"] == 5


# -- crash ---------------------------------------------------------------------------------------


def test_a_death_is_told_with_the_lines_that_say_most(desk):
    run = make(desk, end="failed")
    log = ["step 1", "Traceback (most recent call last):", '  File "a.py", line 3', "KeyError: 'x'"]
    report = {
        "schema": "albor.crash/1", "id": "20260101T000000Z-a0001", "attempt": 1,
        "class": "exception", "reason": "exit code 1", "evidence": {"log_tail": log,
        "python": {"type": "KeyError", "message": "'x'\x1b[2J", "where": "a.py:3"}},
    }  # fmt: skip
    path = run.crash_reports / f"{report['id']}.json"
    path.write_text(json.dumps(report))
    told = desk.quick("runs", "show", "r1").out
    assert "crash of attempt 1: KeyError: 'x'\u241b[2J (a.py:3)\n  exit code 1\n" in told
    assert '    Traceback (most recent call last):\n      File "a.py", line 3\n' in told
    assert f"crash report: {path}\nto read the newest: albor guard report r1" in told
    (crash,) = shown(desk)["crashes"]
    assert crash["excerpt"] == log[1:]
