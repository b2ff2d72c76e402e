"""Rows C1 to C5: what the command line owes its readers, its terminal and the dead."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_user import ALBOR, strict, validate, wait_until

from albor_core.cli.common import lookup
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.liveness import boot_id
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.index.indexer import Indexer, index_now

ROOT = Path(__file__).resolve().parents[4]
HOSTILE = (
    "\x1b[2J\x1b[1;1H\x9b31m"  # clear the screen, colour what follows
    "\x1b]52;c;cm0gLXJmIC8=\x07\x1b]0;title\x07\x1b]8;;http://e/\x07"  # clipboard, title, link
    "ok\r\nforged  completed\t[/red]\ud800\u202e\u0000\x7f"
)
FORBIDDEN = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e"} - {"\n"}


def record(desk, run_id, *, text="plain", offset=0.0, end=True):
    """A run whose every text is `text`, and some of whose numbers are none."""
    facts = {
        "git": {"commit": text, "dirty": True, "patch": text},
        "versions": {text: text},
        "data": {"train": {"data_hash": text, "tokens": 1}},
    }
    run = create_run(desk.folder / "out", run_id, experiment=text, name=text, kind="track",
                     argv=[text], seed=1, facts=facts)  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start", attempt=1, device=text, versions={"python": text})
    journal.append("p", key=text, value=text)
    journal.append("p", key="training.lr", value=1e-3 + offset)
    for step in range(1, 41):
        loss = 2 + math.exp(-step / 8) + offset
        journal.metrics(step, {"train/loss": loss, "train/tokens": step * 1000, "odd": math.nan})
    journal.metrics(41, {"odd": math.inf, "val/loss": math.nan})
    journal.event(text, step=41, severity="warning", said=text)
    journal.event("andon.alert", step=41, severity="error", id=f"{run_id}-1", rule=text,
                  action="warn", metric=text, value="nan", threshold=1, message=text)  # fmt: skip
    journal.append("a", name=text, path=text, kind=text, bytes=1, hash=text, step=41)
    journal.append("s", step=41, prompt=text, text=text)
    if end:
        journal.event("run.end", status="failed", reason=text, code=1)
    journal.close()
    index_now(run)
    return run


def shell(desk, script):
    """`script` in a shell where `$ALBOR` is the program."""
    return subprocess.run(
        ["bash", "-c", script],
        cwd=desk.folder,
        env=desk.environment(ALBOR=" ".join(ALBOR)),
        capture_output=True,
        text=True,
        timeout=120,
    )


# -- C1: the reader goes away --------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["runs ls", "runs show a --json", "runs diff a b", "runs export a b", "runs tail a -n 40"],
)
def test_c1_a_reader_that_goes_away_leaves_no_traceback(desk, words):
    for name in ("a", "b"):
        record(desk, name)
    done = shell(desk, f"$ALBOR {words} | head -1; echo ${{PIPESTATUS[0]}} >&2")
    assert done.stderr.strip() in ("0", "141"), done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "otherwise"),
    [
        ("monitor a --json --once", "0"),
        ("runs show nobody --json", "3"),
        ("runs nonsense --json", "2"),
        ("--help", "0"),
    ],
)
def test_c1_a_reader_that_never_was_is_a_closed_pipe(desk, words, otherwise):
    record(desk, "a")
    done = shell(desk, f"$ALBOR {words} | true; echo ${{PIPESTATUS[0]}} >&2")
    assert done.stderr.strip() in (otherwise, "141"), done.stderr


# -- C2: hostile texts and numbers that JSON has none for -----------------------------------------

SHOWN = (
    ("runs", "ls"),
    ("runs", "ls", "--columns", "id,name,experiment,odd,tags,commit"),
    ("runs", "ls", "--group"),
    ("runs", "show", "a"),
    ("runs", "diff", "a", "b"),
    ("runs", "diff", "a", "b", "--metric", "odd"),
    ("runs", "tail", "a", "-n", "50"),
    ("monitor", "a", "--once"),
    ("guard", "status", "a"),
    ("alerts", "ls"),
    ("alerts", "rules", "a"),
    ("alerts", "test", "a", "loss > 1"),
    ("runs", "gc", "--dry-run"),
    ("doctor",),
)


@pytest.fixture
def hostile(desk):
    for name, offset in (("a", 0.0), ("b", 0.5)):
        run = record(desk, name, text=HOSTILE, offset=offset)
        annotate(run, "note", HOSTILE)
        annotate(run, "name", HOSTILE[:64])
        index_now(run)
    return desk


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_c2_every_document_is_strict_json_alone_on_stdout(hostile, words):
    result = hostile.albor(*words, "--json")
    assert result.out.count("\n") == 1 and result.out.endswith("\n")
    assert result.out.isascii() and not FORBIDDEN & set(result.out)
    document = strict(result.out)
    validate(document)
    assert not document["schema"].startswith("albor.error"), document


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_x3_x4_x7_no_byte_of_data_commands_the_terminal_or_forges_a_row(hostile, words):
    result = hostile.albor(*words)
    assert not FORBIDDEN & set(result.out + result.err), result
    assert not any(line.startswith("forged") for line in result.out.splitlines())


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_c2_an_export_of_hostile_texts_is_whole_and_valid(hostile, form):
    result = hostile.albor("runs", "export", "a", "--format", form)
    assert result.code == 0
    if form == "jsonl":
        rows = [strict(line) for line in result.out.splitlines()]
        assert {row["value"] for row in rows if row["key"] == "odd"} == {"nan", "inf"}
    else:
        import csv
        import io

        rows = list(csv.DictReader(io.StringIO(result.out)))
    assert len(rows) == 40 * 3 + 2
    assert {row["run"] for row in rows} == {"a"}


def test_c2_an_error_about_a_hostile_reference_is_one_document(desk):
    for reference in (HOSTILE.replace("\0", "").replace("\ud800", ""), "\udcff", "\x1b[2J"):
        for verb in ("show", "diff", "tail", "export"):
            more = ("a",) if verb == "diff" else ()
            result = desk.quick("runs", verb, "--json", "--", reference, *more)
            assert result.code in (2, 3)
            assert result.error["message"]
            assert not FORBIDDEN & set(result.out)


# -- C3: a stdout that takes nothing --------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["runs ls", "runs show a", "runs diff a b", "runs tail a", "monitor a --once",
     "guard status a", "alerts ls", "doctor"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["", " --json"])
def test_c3_a_full_stdout_is_a_message_and_a_failure(desk, words, form):
    for name in ("a", "b"):
        record(desk, name)
    done = shell(desk, f"$ALBOR {words}{form} > /dev/full")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3


def test_c3_an_export_to_a_full_stdout_fails_too(desk):
    record(desk, "a")
    for form in ("jsonl", "csv"):
        done = shell(desk, f"$ALBOR runs export a --format {form} > /dev/full")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr and "Traceback" not in done.stderr


# -- a run that has just ended -----------------------------------------------------------------


def half_indexed(desk, name, steps=3000):
    """An ended run of which the store has the first batch."""
    run = create_run(desk.folder / "out", name, experiment="e", name=name, kind="track", argv=[])
    journal = Journal(run.journal, attempt=1)
    for step in range(1, steps + 1):
        journal.metrics(step, {f"m{n}": float(step) for n in range(20)})
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    with Indexer(run, global_store()) as indexer:
        indexer.step()
        indexer.publish(whole=True)
    return run


def test_a_run_that_has_just_ended_is_shown_and_compared_with_all_that_it_wrote(desk):
    half_indexed(desk, "a")
    shown = validate(desk.quick("runs", "show", "a", "--json", "--points", "all").document)
    assert (shown["summary"]["m0"]["count"], shown["summary"]["m0"]["last"]) == (3000, 3000.0)
    assert len(shown["points"]["m19"]) == 3000
    half_indexed(desk, "b")
    compared = validate(desk.quick("runs", "diff", "a", "b", "--json").document)
    assert [stat["count"] for stat in compared["metrics"]["m0"]] == [3000, 3000]
    assert [run["last_step"] for run in compared["runs"]] == [3000, 3000]


def test_a_long_series_is_shown_in_few_points_unless_all_are_asked_for(desk):
    half_indexed(desk, "a", steps=2500)
    few = validate(desk.quick("runs", "show", "a", "--json").document)
    assert few["thinned"] == {f"m{n}": 2500 for n in range(20)}
    steps = [step for step, value, _ in few["points"]["m7"] if value == step]
    assert 1000 < len(steps) == len(few["points"]["m7"]) <= 2000
    assert (steps[0], steps[-1]) == (1, 2500)
    whole = validate(desk.quick("runs", "show", "a", "--json", "--points", "all").document)
    assert (whole["thinned"], len(whole["points"]["m7"])) == ({}, 2500)
    asked = validate(desk.quick("runs", "show", "a", "--json", "--points", "9").document)
    assert (asked["thinned"]["m7"], 2 <= len(asked["points"]["m7"]) <= 9) == (2500, True)
    refused = desk.quick("runs", "show", "a", "--json", "--points", "-1")
    assert (refused.code, refused.document["error"]["code"]) == (2, "usage")


def test_where_a_store_cannot_catch_up_with_an_ended_run_it_is_told(desk, hold, monkeypatch):
    monkeypatch.setattr(lookup, "CATCH_UP_S", 0.2)
    run = half_indexed(desk, "a")
    before = run.store.read_bytes()
    hold(run.index_lock)
    for words in (("runs", "show", "a", "--json"), ("runs", "diff", "a", "a", "--json")):
        told = desk.quick(*words)
        assert told.code == 0 and "a has ended, and what is shown may be a part" in told.err
        assert f"next: the same again in a moment, or albor db rebuild {run.path}" in told.err
        validate(told.document)
    assert run.store.read_bytes() == before


def test_a_look_at_a_run_with_all_its_rows_or_without_its_journal_changes_nothing(desk):
    run = record(desk, "a")
    before = run.store.stat().st_mtime_ns, run.store.read_bytes()
    assert desk.quick("runs", "show", "a").code == 0
    assert (run.store.stat().st_mtime_ns, run.store.read_bytes()) == before
    run.journal.unlink()  # somebody needed the space: the store is what is left
    assert (
        desk.quick("runs", "show", "a", "--json").document["summary"]["train/loss"]["count"] == 40
    )


# -- C4: what diff may be given --------------------------------------------------------------------


def test_c4_diff_of_a_missing_run_is_3_of_one_run_with_itself_and_of_a_running_one_0(desk, hold):
    run = record(desk, "a", end=False)
    record(desk, "b", offset=-0.5)
    hold(run.run_lock)
    shown = desk.quick("runs", "show", "a", "--json").document["status"]
    assert shown in ("running", "unguarded", "stalled")
    results = {
        words: desk.quick("runs", "diff", *words, "--json")
        for words in (("a", "b"), ("b", "a"), ("a", "a"), ("a", "nobody"), ("nobody", "nobody"))
    }
    assert [result.code for result in results.values()] == [0, 0, 0, 3, 3]
    for result in results.values():
        validate(result.document)
    same = results["a", "a"].document
    assert same["verdict"]["outcome"] == "indistinguishable"
    assert (same["config"], same["code"], same["data"], same["environment"]) == ([], [], [], [])
    assert results["a", "nobody"].error["code"] == "not_found"
    for words, code in ((("a", "a"), 0), (("a", "nobody"), 3), (("a",), 2), (("a",) * 11, 0)):
        assert desk.quick("runs", "diff", *words).code == code


def test_a_diff_of_runs_at_work_says_nothing_of_their_ends(desk, hold):
    run = record(desk, "a", end=False)
    record(desk, "b", offset=-0.5)
    words = ("runs", "diff", "a", "b", "--metric", "train/loss")
    ended = desk.quick(*words)
    assert re.search(r"^A to the end of B, \S+ +never$", ended.out, re.M)
    assert "still active" not in ended.out and "so far" not in ended.out
    holder = hold(run.run_lock)
    told = desk.quick(*words)
    assert re.search(r"^still active: A \(\w+, step \d+\)$", told.out, re.M)
    assert re.search(r"^A to the end of B, \S+ +not yet$", told.out, re.M)
    assert re.search(r"^B to where A is now, \S+ +\d+ ", told.out, re.M)
    assert re.search(r"^verdict: B .* A so far$", told.out, re.M)
    a, b = desk.quick(*words, "--json").document["runs"]
    assert (a["is_at_work"], b["is_at_work"], b["status"]) == (True, False, "failed")
    assert a["status"] in ("running", "unguarded", "stalled")
    holder.kill()
    holder.wait()
    assert desk.quick(*words).out == ended.out


def test_a_run_alone_is_compared_with_the_pinned_one(desk):
    record(desk, "a")
    record(desk, "b", offset=-0.5)
    refused = desk.quick("runs", "diff", "b", "--json")
    assert refused.code == 2 and "runs pin" in refused.error["hint"]
    assert desk.quick("runs", "pin", "a").code == 0
    document = desk.quick("runs", "diff", "b", "--json").document
    validate(document)
    assert [run["id"] for run in document["runs"]] == ["a", "b"]
    assert desk.quick("runs", "diff", "a").code == 2  # the only pinned one: nothing to compare with
    assert desk.quick("runs", "diff", "nobody").code == 3


# -- C5: the dead --------------------------------------------------------------------------------

LOGS_FOREVER = """
import time
from albor_core import track
run = track.start(experiment="e")
for step in range(100000):
    run.log({"loss": 1.0}, step=step)
    time.sleep(0.05)
"""


def test_c5_a_run_whose_trainer_and_guard_were_killed_is_lost_and_never_running(desk):
    words = ("guard", "run", "--name", "dead", "--detach", "--", sys.executable, "-c", LOGS_FOREVER)
    assert desk.albor(*words, PYTHONPATH=str(ROOT)).code == 0
    run = RunDir(desk.home / "runs" / "dead")

    def listed(*terms):
        found = desk.quick("runs", "ls", *terms, "--json")
        assert found.code == 0, found
        rows = found.document["runs"]
        return [row["status"] for row in rows]

    wait_until(lambda: listed() == ["running"] and run.state.exists())
    alive = run.liveness()
    os.kill(alive.guard, signal.SIGKILL)
    os.kill(alive.trainer, signal.SIGKILL)
    wait_until(lambda: not run.liveness().is_alive)
    assert json.loads(run.state.read_text())["phase"] != "failed"  # its last word is of a live run
    assert listed() == ["lost"]
    assert listed("status:running") == [] and listed("status:active") == []
    assert desk.quick("runs", "show", "dead", "--json").document["status"] == "lost"
    for words in (("monitor", "dead", "--once"), ("guard", "status", "dead")):
        status = desk.quick(*words, "--json").document["status"]
        assert status["word"] == "lost", words
    told = desk.quick("monitor", "dead", "--once").out
    assert "running" not in told and "training" not in told


def write_guard(run, **told):
    """The file that a guard leaves, as it last wrote it."""
    memory = {"restarts_s": [], "backoff_index": 0, "no_progress": 0, "checkpoint": None}
    write_json(
        run.guard / "guard.json",
        {
            "schema": "albor.guard/1", "run_id": run.id, "boot_id": boot_id(), "seq": 9,
            "guard": {"pid": 2, "start_ticks": 1}, "mono_ns": 1, "wall": time.time() - 3600,
            "state": "running", "since_mono_ns": 1, "attempt": 3, "adopted": False,
            "diagnostic": False, "child": None, "class_last": "crash", "reason": "",
            "backoff": None, "no_progress": 0, "last_ckpt": None, "hang_detection": True,
            "exit_code": None,
            "memory": {**memory, "fault": None, "is_diagnostic": False}, **told,
        },
    )  # fmt: skip


def guard_status(desk, name):
    document = desk.quick("guard", "status", name, "--json").document
    validate(document)
    return desk.quick("guard", "status", name).out, document["standing"]


def test_the_last_file_of_a_guard_that_is_gone_is_told_as_of_then(desk, hold):
    run = record(desk, "a")
    assert guard_status(desk, "a")[1] is None
    write_guard(run)
    wall = read_json(run.guard / "guard.json")["wall"]
    told, standing = guard_status(desk, "a")
    assert standing == {"word": "gone", "heard": wall}
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(wall))
    assert f"  its guard is gone since {since} UTC, 1h 00m ago\n" in told
    assert "  last reported: running, attempt 3, last exit crash\n" in told
    held = hold(run.guard / "guard.lock")
    told, standing = guard_status(desk, "a")
    assert standing["word"] == "watching"
    assert "  attempt 3  last exit crash\n" in told and "gone" not in told
    held.communicate(b"")
    write_guard(run, state="stopped")
    told, standing = guard_status(desk, "a")
    assert standing["word"] == "ended" and "gone" not in told


def test_a_guard_of_another_machine_is_not_called_gone(desk):
    run = record(desk, "a")
    write_json(run.run_json, {**read_json(run.run_json), "host": "elsewhere"})
    write_guard(run, boot_id="another")
    told, standing = guard_status(desk, "a")
    assert standing["word"] == "unseen"
    assert "the guard is on another machine, unseen since" in told and "gone" not in told
