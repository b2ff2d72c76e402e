"""What the files of runs and of a home say of trouble: read once, then only what is new."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from albor_core.cli.alerts.attention import _lines
from albor_core.feed.attention.evidence import LINES, evidence
from albor_core.feed.attention.item import AttentionItem
from albor_core.feed.attention.marks import (
    SEEN_S,
    MarksFile,
    acknowledge,
    mute,
    note_look,
)
from albor_core.feed.attention.watch import AttentionFeed, entries_of
from albor_core.feed.run.diagnostic_files import DiagnosticFiles
from albor_core.feed.run.diagnostic_lines import READ_BYTES, DiagnosticLines
from albor_core.feed.view.run_view import RunsView, RunView
from albor_core.run.files.watch_file import Watch, write_watch
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import albor_home
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir
from albor_core.store.index.indexer import index_now
from albor_core.store.query.reader import Reader

ALERT = {"id": "loss@1.3", "rule": "loss", "action": "warn", "message": "loss 12 > 10"}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return create_run(
        tmp_path / "runs", "one", experiment="e", name="One", kind="track", argv=["x"]
    )


def view_of(run: RunDir, **given: object) -> RunView:
    usual = {"kind": "track", "status": "running", "attempt": 1, "is_live": True}
    return RunView(id=run.id, path=str(run.path), **(usual | given))  # type: ignore[arg-type]


def an_item(run: RunDir, kind: str = "died", **given: object) -> AttentionItem:
    place = {"run_id": run.id, "path": str(run.path), "word": kind, "severity": "error"}
    return AttentionItem(id=f"{run.id}/{kind}@1", kind=kind, **(place | given))  # type: ignore[arg-type]


def test_values_that_are_no_numbers_are_counted_as_they_come(run: RunDir) -> None:
    journal = Journal(run.journal, attempt=1)
    lines = DiagnosticLines(run.journal, run.id)
    lines.update()
    assert lines.non_finite == ()
    for step, loss in enumerate((1.0, math.nan, 2.0, math.nan, math.inf), 1):
        journal.metrics(step, {"train/loss": loss, "other": math.inf, "optim/grad_norm": math.inf})
    lines.update()
    (found,) = lines.non_finite
    assert (found.key, found.word, found.count) == ("train/loss", "inf", 3)
    assert (found.first_step, found.last_step) == (2, 5)
    lines.update()
    assert lines.non_finite[0].count == 3, "no line counts twice"


def test_a_new_life_and_a_rewind_forget_the_values_of_before(run: RunDir) -> None:
    journal = Journal(run.journal, attempt=1)
    journal.metrics(7, {"train/loss": math.nan})
    lines = DiagnosticLines(run.journal, run.id)
    lines.update()
    assert lines.non_finite
    journal.append("r", to=5)
    lines.update()
    assert not lines.non_finite
    journal.metrics(6, {"val/loss": math.nan})
    journal.close()
    later = Journal(run.journal, attempt=2)
    later.event("run.start", attempt=2)
    lines.update()
    assert not lines.non_finite


def test_an_alert_that_cleared_is_open_no_more_and_may_fire_again(run: RunDir) -> None:
    journal = Journal(run.journal, attempt=1)
    journal.event("andon.alert", step=3, severity="warning", **ALERT)
    lines = DiagnosticLines(run.journal, run.id)
    lines.update()
    assert [alert.message for alert in lines.alerts] == ["loss 12 > 10"]
    journal.event("andon.clear", step=4, id=ALERT["id"])
    lines.update()
    assert (lines.alerts, lines.cleared) == ((), {ALERT["id"]})
    journal.event("andon.alert", step=5, severity="warning", **ALERT)
    lines.update()
    assert len(lines.alerts) == 1 and not lines.cleared


def test_of_a_file_that_grew_fast_only_the_end_is_read(run: RunDir) -> None:
    run.journal.write_bytes(b"x" * 80 + b"\n")
    lines = DiagnosticLines(run.journal, run.id)
    lines.update()
    with run.journal.open("ab") as file:
        file.write((b"y" * 1023 + b"\n") * (2 * READ_BYTES // 1024))
    journal = Journal(run.journal, attempt=1)
    journal.metrics(1, {"train/loss": math.nan})
    lines.update()
    assert len(lines.non_finite) == 1


def test_a_file_that_was_replaced_is_read_from_its_start(run: RunDir) -> None:
    journal = Journal(run.journal, attempt=1)
    journal.metrics(1, {"train/loss": 1.0})
    lines = DiagnosticLines(run.journal, run.id)
    lines.update()
    journal.close()
    other = run.path / "copy.jsonl"
    Journal(other, attempt=1).metrics(1, {"train/loss": math.nan})
    other.replace(run.journal)
    lines.update()
    assert lines.non_finite[0].count == 1


def test_a_link_or_a_folder_in_place_of_a_journal_says_nothing(run: RunDir) -> None:
    run.journal.mkdir()
    run.system.symlink_to("/dev/zero")
    diagnostics = DiagnosticFiles(run).read(view_of(run))
    assert (diagnostics.non_finite, diagnostics.alerts) == ((), ())


def test_what_watches_counts_only_while_its_process_lives(run: RunDir) -> None:
    write_watch(run, Watch(pid=1, wall=time.time(), rules=2, rule_texts=("a", "b")))
    assert not DiagnosticFiles(run).read(view_of(run)).watched.is_watched, "nobody holds its lock"
    write_json(run.config_resolved, {"monitoring": {"budgets": {"tokens": 10}}})
    train = DiagnosticFiles(run).read(view_of(run, kind="train")).watched
    assert train.words == "watched by 2 rules and 1 budget", "its loop evaluates while it lives"
    over = DiagnosticFiles(run).read(view_of(run, kind="train", status="failed")).watched
    assert (over.is_watched, over.counts) == (False, "2 rules and 1 budget")


def test_last_words_of_an_earlier_life_are_not_those_of_the_newest(run: RunDir) -> None:
    error = {"type": "ValueError", "message": "first", "where": "x.py:1"}
    write_json(run.exit, {"attempt": 1, "code": 1, "reason": "exception", "error": error})
    assert DiagnosticFiles(run).read(view_of(run)).error == "ValueError: first (x.py:1)"
    later = DiagnosticFiles(run).read(view_of(run, attempt=2, detail="killed by SIGKILL"))
    assert (later.error, later.exit_code) == ("killed by SIGKILL", None)


@pytest.mark.parametrize(("sender", "word"), [("andon", "its own rules"), ("alice", "")])
def test_a_rule_that_asked_for_a_stop_needs_a_person_whoever_stopped_it(
    run: RunDir, sender: str, word: str
) -> None:
    asked = {"t": "event", "name": "guard.command", "data": {"cmd": "stop", "sender": sender}}
    ledger = [{"t": "attempt.start", "attempt": 1}, asked]
    run.attempts.write_text("".join(json.dumps(one) + "\n" for one in ledger))
    journal = Journal(run.journal, attempt=1)
    alert = {**ALERT, "action": "stop", "message": "Loss exploded", "value": 20.0, "step": 61}
    journal.append("e", step=61, name="andon.alert", data=alert)
    view = view_of(run, status="stopped", is_live=False, ended_wall=time.time())
    found = entries_of(replace(view, diagnostics=DiagnosticFiles(run).read(view)))
    (item,) = found
    assert item.kind == "rule" and word in item.cause
    assert item.alert_ids == (ALERT["id"],), "to have seen the entry is to have seen the alert"
    assert all("Loss exploded" in item.summary for item in found)


def test_a_training_that_a_rule_stopped_says_which(run: RunDir) -> None:
    said = "loss-lt-3.9: loss < 3.9; went back 3 times in a row"
    write_json(run.exit, {"attempt": 1, "code": 4, "reason": "andon", "message": said})
    end = {"t": "attempt.end", "attempt": 1, "wall": 5.0, "code": 4, "reason": "andon"}
    run.attempts.write_text(json.dumps(end) + "\n")
    view = view_of(run, kind="train", status="stopped", ended_wall=time.time(), detail="andon")
    (item,) = entries_of(replace(view, diagnostics=DiagnosticFiles(run).read(view)))
    assert item.summary == said


def test_seen_and_muted_are_kept_with_the_run_and_indexed(run: RunDir) -> None:
    item = an_item(run)
    acknowledge(item)
    mute(replace(item, id=f"{run.id}/silent@1.3"), until=2e9)
    diagnostics = DiagnosticFiles(run).read(view_of(run))
    assert set(diagnostics.acked) == {item.id}
    assert diagnostics.muted == {f"{run.id}/silent@1.3": 2e9}
    index_now(run)
    with Reader(albor_home() / "experiments.db") as reader:
        names = [event.name for event in reader.events(run.id)]
    assert names == ["attention.ack", "attention.mute"]


def test_seeing_a_rule_acknowledges_its_alerts(run: RunDir) -> None:
    Journal(run.journal, attempt=1).event("andon.alert", step=3, **ALERT)
    files = DiagnosticFiles(run)
    assert len(files.read(view_of(run)).alerts) == 1
    acknowledge(an_item(run, "rule", alert_ids=(ALERT["id"],)))
    diagnostics = files.read(view_of(run))
    assert diagnostics.alerts == () and ALERT["id"] in diagnostics.settled


def test_a_silence_that_was_seen_is_seen_in_its_alert_too_whichever_came_first(
    run: RunDir,
) -> None:
    journal, system = Journal(run.journal, attempt=1), Journal(run.system, attempt=1)
    journal.metrics(3, {"x": 1.0})
    silent = {"is_silent": True, "age_s": 90.0, "step": 3}
    alert = {"id": "silence@1.3", "rule": "silence", "action": "notify", "message": "nothing"}

    def entry() -> AttentionItem:
        view = view_of(run, **silent)
        (found,) = entries_of(replace(view, diagnostics=DiagnosticFiles(run).read(view)))
        return found

    acknowledge(entry())
    assert not entry().is_open
    system.event("andon.alert", step=3, severity="error", **alert)
    assert not entry().is_open
    silent["step"] = 4
    journal.metrics(4, {"x": 1.0})
    system.event("andon.alert", step=4, severity="error", **{**alert, "id": "silence@1.4"})
    assert entry().is_open, "another silence"
    acknowledge(entry())
    assert not entry().is_open
    index_now(run)
    with Reader(albor_home() / "experiments.db") as reader:
        assert reader.alerts(run.id, open_only=True) == ()


def test_marks_of_a_machine_are_kept_in_the_home_and_end() -> None:
    item = AttentionItem("here/gpu_hot:1", "gpu_hot", "gpu 1 hot", "warning", host="here")
    acknowledge(item)
    until = time.time() + 60
    mute(replace(item, id="here/disk"), until)
    home, now = albor_home(), time.time()
    note_look(home, now)
    marks = MarksFile(home).get(now)
    assert set(marks.acked) == {item.id} and set(marks.muted) == {"here/disk"}
    assert marks.looked_wall == pytest.approx(now, abs=0.01)
    later = MarksFile(home).get(now + SEEN_S + 1)
    assert (later.acked, later.muted) == ({}, {})
    assert (home / "attention.json").stat().st_mode & 0o077 == 0


def test_a_damaged_file_of_marks_is_no_marks_and_is_written_anew() -> None:
    home = albor_home()
    home.mkdir(parents=True, exist_ok=True)
    (home / "attention.json").write_text('{"acked": [1], "muted": {"a": 3}, "looked": {"x": "y"}}')
    assert MarksFile(home).get(0.0).acked == {}
    note_look(home, 5.0)
    assert MarksFile(home).get(6.0).looked_wall == 5.0


def test_evidence_is_the_report_and_the_last_lines_in_clean_text(run: RunDir) -> None:
    text = "".join(f"line {n} \x1b[31mred\n" for n in range(100))
    run.log(1).write_text(text)
    log = {"python": {"type": "E", "message": "boom", "where": "x.py:3"}, "hang": None}
    report = {"attempt": 1, "class": "exception", "reason": "E: boom", "evidence": log}
    write_json(run.crash_reports / "20260101T000000-a0001.json", report)
    lines = evidence(an_item(run))
    assert lines[0] == "E: boom (x.py:3)"
    assert lines[1].startswith("report: ")
    assert lines[-LINES:][0].startswith("line 92")
    assert not any("\x1b" in line for line in lines)


def test_evidence_of_a_hang_has_its_stacks(run: RunDir) -> None:
    (run.logs / "a0001.stacks").write_text("Thread 1\n  in all_reduce\n")
    assert "  in all_reduce" in evidence(an_item(run, "hung"))


def test_evidence_of_a_rule_has_the_values_around_its_step(run: RunDir) -> None:
    journal = Journal(run.journal, attempt=1)
    for step in range(1, 100):
        journal.metrics(step, {"train/loss": float(step)})
    index_now(run)
    lines = evidence(an_item(run, "rule", step=50, metric="train/loss"))
    assert lines[0] == "train/loss around step 50:"
    shown = [line.split()[1] for line in lines[1:]]
    assert "50" in shown and "30" not in shown


def test_evidence_of_a_run_that_is_gone_is_none(run: RunDir) -> None:
    gone = an_item(run, path="/nowhere/at/all")
    assert evidence(gone) == ()


def test_runs_whose_files_were_not_read_yet_are_no_all_clear(run: RunDir) -> None:
    clock = iter(float(n) for n in range(0, 10_000, 10))
    feed = AttentionFeed(clock=lambda: next(clock))  # every look at the clock is ten seconds late
    lost = view_of(run, status="lost", last_wall=time.time())
    found = feed.look(RunsView(rows=(lost, replace(lost, id="two")), version=1))
    assert not found.is_complete and not found.is_quiet


def test_a_run_that_ended_a_moment_ago_is_no_all_clear_until_its_index_process_is_through(
    run: RunDir,
) -> None:
    """At the first look, what ended within the minute is looked at once more."""
    Journal(run.journal, attempt=1).metrics(1, {"val/mse": math.nan})
    index_now(run)
    now = time.time()
    ended = view_of(run, status="completed", is_live=False, ended_wall=now)
    old = view_of(run, status="completed", is_live=False, ended_wall=now - 3600.0)
    feed = AttentionFeed(look_s=0.0)
    assert AttentionFeed(look_s=0.0).look(RunsView(version=1, rows=(old,))).being_read == ()
    assert feed.look(RunsView(version=1, rows=(ended,))).being_read == (run.id,)
    lock = take_lock(run.index_lock)
    for _ in range(2):
        found = feed.look(RunsView(version=1, rows=(ended,)))
        assert found.being_read == (run.id,) and not found.is_quiet
        assert next(_lines(found, {}, everything=False)) == "nothing that could be read needs you"
    os.close(lock)
    assert feed.look(RunsView(version=1, rows=(ended,))).being_read == (
        run.id,
    )  # its list is older
    assert feed.look(RunsView(version=1, rows=(ended,))).being_read == ()


def test_an_ended_run_is_read_once_and_then_for_what_people_say(run: RunDir) -> None:
    now = [0.0]
    feed = AttentionFeed(clock=lambda: now[0])
    lost = view_of(run, status="lost", last_wall=time.time())
    view = RunsView(rows=(lost,), version=1)
    assert len(feed.look(view).open) == 1
    acknowledge(feed.look(view).open[0])
    now[0] = 60.0
    assert feed.look(view).open == ()
    assert [item.acked_by for item in feed.look(view).items] != [""]


def test_a_home_that_cannot_be_written_is_no_error_for_who_looks(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    note_look(place, time.time())
    assert place.read_text() == ""
