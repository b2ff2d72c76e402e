"""The card of a run: one picture of what it is, from whatever is left of it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess

import pytest

from albor_core.feed.archive.archive import RunArchive
from albor_core.feed.archive.card import MOST_CHILDREN
from albor_core.feed.archive.crashes import CrashView, excerpt
from albor_core.feed.archive.patch import FileChange, read_patch
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate, notes_in, read_annotations
from albor_core.store.index.indexer import index_now

PATCH = """\
diff --git a/loop.py b/loop.py
index 1..2 100644
--- a/loop.py
+++ b/loop.py
@@ -1,3 +1,4 @@
 def run():
-    pass
+    diff --git a/fake b/fake
+++ b/not a head, a line that begins with two signs
 end
@@ -9 +10,2 @@ def more():
 x
+y
diff --git a/old.bin b/old.bin
Binary files a/old.bin and b/old.bin differ
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a
--- a sql comment
\\ No newline at end of file
diff --git a/was.py b/now.py
similarity index 100%
rename from was.py
rename to now.py
"""


def made(folder, name="r", *, end="completed", **facts):
    run = create_run(folder, name, experiment="e", name=name, kind="track",
                     argv=["python", "train.py"], seed=7, facts=facts)  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.metrics(5, {"train/loss": 1.0})
    if end:
        journal.event("run.end", status=end, reason=end, code=0)
    journal.close()
    index_now(run)
    return run


def card_of(run):
    archive = RunArchive(run)
    try:
        return archive.card()
    finally:
        archive.close()


# -- patch ---------------------------------------------------------------------------------------


def test_a_patch_is_counted_by_its_hunks_and_not_by_what_its_lines_look_like():
    patch = read_patch(PATCH)
    assert patch.files == (
        FileChange("loop.py", 3, 1),
        FileChange("old.bin", None, None),
        FileChange("gone.py", 0, 2),
        FileChange("now.py", 0, 0),
    )
    assert (patch.added, patch.removed, patch.num_files, patch.is_cut) == (3, 3, 4, False)


def test_the_counts_are_those_of_git(tmp_path):
    def git(*words):
        command = ("git", "-c", "user.email=a@b.c", "-c", "user.name=a", *words)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    git("init", "-q")
    for name in ("a.py", "with space.py", "t\u00e4b\t.py", "gone.py"):
        (tmp_path / name).write_text("".join(f"{name} {i}\n-- {i}\n" for i in range(40)))
    git("add", "-A")
    git("commit", "-qm", "x")
    (tmp_path / "a.py").write_text("++ one\n-- two\ndiff --git a/x b/x\n@@ -1 +1 @@\n")
    (tmp_path / "with space.py").write_text("no end of line")
    (tmp_path / "gone.py").unlink()
    patch = read_patch(git("diff", "HEAD"))
    counted = [line.split("\t")[:2] for line in git("diff", "--numstat", "HEAD").splitlines()]
    assert [[str(one.added), str(one.removed)] for one in patch.files] == counted
    assert [one.name for one in patch.files] == ["a.py", "gone.py", "with space.py"]


def test_a_patch_that_was_cut_says_that_it_is_more():
    text = PATCH[:120] + "\n[cut at 262,144 bytes]\n"
    assert read_patch(text).is_cut
    assert read_patch(text).words.startswith("at least +")


@pytest.mark.parametrize("text", ["", "\0", "diff --git ", "diff --git a b\n@@ -9,9 +9,9 @@", "@@"])
def test_what_is_no_patch_counts_as_nothing(text):
    assert (read_patch(text).added, read_patch(text).removed) == (0, 0)


# -- what people say -----------------------------------------------------------------------------


def test_a_note_keeps_its_number_and_place_when_it_is_edited_and_others_go(tmp_path):
    run = made(tmp_path)
    for words in ("one", "two", "three"):
        annotate(run, "note", words)
    first, second, _ = notes_in(read_annotations(run))
    annotate(run, "note.edit", {"at": first.at, "text": ""})
    annotate(run, "note.edit", {"at": second.at, "text": "two, again"})
    annotate(run, "note.edit", {"at": 12_345, "text": "of nothing"})
    index_now(run)
    card = card_of(run)
    assert [(note.number, note.text) for note in card.notes] == [(2, "two, again"), (3, "three")]
    said = [note.text for note in notes_in(read_annotations(run))]
    run.annotations.rename(tmp_path / "aside")  # what the store remembers is the same
    assert [note.text for note in card_of(run).notes] == said


def test_what_was_said_a_moment_ago_is_on_the_card_before_any_store_has_it(tmp_path):
    run = made(tmp_path)
    long = "a" * 10_000
    annotate(run, "note", long)
    annotate(run, "tag", "x y")
    assert [note.text for note in card_of(run).notes] == [long]
    assert card_of(run).tags == ("x y",)


# -- relatives -----------------------------------------------------------------------------------


def test_parent_and_children_are_told_with_what_they_do(tmp_path):
    base = made(tmp_path, "base")
    child = made(tmp_path, "child", parent="base", end="failed")
    made(tmp_path, "orphan", parent="nobody-knows")
    assert card_of(child).parent.status == "completed"
    assert [(one.id, one.status, one.step) for one in card_of(base).children] == [
        ("child", "failed", 5)
    ]
    lost = card_of(RunDir(tmp_path / "orphan")).parent
    assert (lost.id, lost.status) == ("nobody-knows", "")


def test_of_a_thousand_children_the_newest_are_shown_and_all_are_counted(tmp_path, bulk_children):
    base = made(tmp_path, "base")
    bulk_children("base", 1_000)
    card = card_of(base)
    assert len(card.children) == MOST_CHILDREN
    assert len(card.child_ids) == 1_000
    assert card.children[0].id == "kid-0999"


@pytest.fixture
def bulk_children():
    """Rows of runs whose folders are gone, in the global store."""

    def make(parent, count):
        facts = json.dumps({"parent": parent})
        with sqlite3.connect(global_store()) as store:
            store.executemany(
                "INSERT INTO runs (run, experiment_id, name, kind, created, path, facts,"
                " ended_status, last_step) VALUES (?,1,?,'track',?,?,?,'completed',1)",
                [
                    (f"kid-{i:04d}", f"kid {i}", 2e9 + i, f"/gone/kid-{i:04d}", facts)
                    for i in range(count)
                ],
            )
        store.close()

    return make


# -- code and crash ------------------------------------------------------------------------------


def test_a_run_without_its_folder_tells_what_its_store_kept(tmp_path):
    git = {"commit": "c" * 40, "dirty": True, "patch": PATCH}
    run = made(tmp_path, git=git, script={"path": "/x/train.py", "is_kept": True})
    whole = card_of(run)
    assert whole.code.patch == read_patch(PATCH)
    assert whole.code.patch_path == str(run.run_json)
    assert whole.code.script_copy == ""  # it says that it was kept, and is not there
    shutil.rmtree(run.path)
    archive = RunArchive(run, store=global_store())
    left = archive.card()
    archive.close()
    assert (left.command, left.seed, left.code.commit) == (("python", "train.py"), 7, "c" * 40)
    assert left.code.patch.added == 3
    assert left.code.patch_path == ""


def test_the_excerpt_of_a_crash_is_its_traceback_else_its_stacks_else_its_last_lines():
    trace = ("Traceback (most recent call last):", *(f"  line {i}" for i in range(40)), "E: x")
    log = ("Traceback (most recent call last):", "old", *("noise",) * 90, *trace)
    assert excerpt(CrashView("a", "p", log=log), 5) == (trace[0], *trace[-4:])
    marked = (*trace[:3], "    ~~~^^^^", *trace[3:5])
    assert excerpt(CrashView("a", "p", log=marked)) == trace[:5]
    assert excerpt(CrashView("a", "p", log=("x", "y"), stacks=("s",))) == ("s",)
    assert excerpt(CrashView("a", "p", log=("x", "y"))) == ("x", "y")
    hung = CrashView("a", "p", hang="no news", log=log, stacks=("Thread 1", "  all_reduce"))
    assert excerpt(hung) == hung.stacks


def test_a_program_without_a_guard_tells_its_last_words(tmp_path):
    run = made(tmp_path, end="failed")
    error = {"type": "ValueError", "message": "\x1b[31mno", "where": "a.py:3"}
    run.exit.write_text(
        json.dumps({"reason": "exception", "code": 1, "attempt": 1, "error": error})
    )
    (crash,) = card_of(run).crashes
    assert crash.error == "ValueError: \x1b[31mno (a.py:3)"
    assert crash.path == str(run.exit)


@pytest.mark.parametrize("words", ['{"reason": "completed"}', '{"reason": 7}', "{", "[]"])
def test_an_end_that_is_no_exception_is_no_crash(tmp_path, words):
    run = made(tmp_path)
    run.exit.write_text(words)
    assert card_of(run).crashes == ()


def test_a_damaged_run_json_costs_only_what_it_said(tmp_path):
    run = made(tmp_path, git={"commit": "abc", "patch": 7}, versions=[1], script="x")
    annotate(run, "note", "kept")
    for damaged in (
        '{"git": 3, "argv": {"a": 1}, "seed": "x"}',
        "{torn",
        '{"versions": {"a": []}}',
    ):
        run.run_json.write_text(damaged)
        assert [note.text for note in card_of(run).notes] == ["kept"]
