"""`albor runs tail export tag note pin rm gc`: history kept, handed out, taken away on purpose."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import time
import zlib
from pathlib import Path

import pytest
from cli_user import tree_hash, valid

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now
from albor_core.store.upkeep.rebuild import rebuild

ROOT = Path(__file__).resolve().parents[4]


def make(folder, run_id="r1", steps=5, *, end=True):
    """A recorded run: its loss falls to NaN and Inf at the end."""
    run = create_run(folder, run_id, experiment="exp", name=run_id, kind="track", argv=["x"])
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start")
    for step in range(1, steps + 1):
        journal.metrics(step, {"train/loss": 1.0 / step, "acc": step})
    journal.metrics(steps + 1, {"train/loss": math.nan})
    journal.metrics(steps + 2, {"train/loss": math.inf})
    if end:
        journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)
    return run


@pytest.fixture
def run(desk):
    return make(desk.folder / "out")


# -- tag, note, pin ------------------------------------------------------------------------------


def test_what_people_say_is_listed_at_once_and_survives_the_loss_of_both_stores(desk, run):
    assert valid(desk.quick("runs", "tag", "r1", "best", "b [/red]", "--json"))["tags"] == [
        "b [/red]",
        "best",
    ]
    assert valid(desk.quick("runs", "tag", "r1", "best", "--remove", "--json"))["tags"] == [
        "b [/red]"
    ]
    assert valid(desk.quick("runs", "note", "r1", "lr too high", "--json"))["note"]["text"] == (
        "lr too high"
    )
    assert valid(desk.quick("runs", "pin", "r1", "--json"))["pinned"] is True
    listed = desk.quick("runs", "ls", "--json").document
    shown = desk.quick("runs", "show", "r1", "--json").document
    assert (shown["tags"], shown["run"]["pinned"], len(shown["notes"])) == (["b [/red]"], True, 1)
    global_store().unlink()
    run.store.unlink()
    rebuild(None, [run])
    assert desk.quick("runs", "ls", "--json").document == listed
    assert desk.quick("runs", "show", "r1", "--json").document == shown
    assert valid(desk.quick("runs", "pin", "r1", "--off", "--json"))["pinned"] is False


@pytest.mark.parametrize("words", [("tag", "nobody", "x"), ("note", "nobody", "x")], ids=str)
def test_nothing_can_be_said_about_a_run_that_is_not_there(desk, words):
    assert desk.quick("runs", *words, "--json").error["code"] == "not_found"


def test_an_empty_or_endless_text_is_refused(desk, run):
    for words in (("tag", "r1", ""), ("tag", "r1", "x" * 65), ("note", "r1", "x" * 20_000)):
        assert desk.quick("runs", *words).code == 2
    assert not run.annotations.exists()


# -- tail ----------------------------------------------------------------------------------------


def test_tail_shows_the_newest_records_and_neutralises_them(desk, run):
    journal = Journal(run.journal, attempt=1)
    odd = {"text": "\x1b[31m", "names": ["a.weight"], "message": "", "is_new": True}
    journal.event("odd", path=str(run.path / "checkpoints" / "step-1"), **odd)
    journal.close()
    result = desk.quick("runs", "tail", "r1", "-n", "3")
    assert "path=checkpoints/step-1  " in result.out and "message" not in result.out
    lines = result.out.splitlines()
    assert len(lines) == 3
    assert "train/loss inf" in lines[0]
    assert "\x1b" not in result.out
    assert lines[2].endswith('names=["a.weight"]  is_new=true')
    document = valid(desk.quick("runs", "tail", "r1", "-n", "4", "--json"))
    assert [record["t"] for record in document["records"]] == ["m", "m", "e", "e"]
    assert document["records"][0]["v"] == {"train/loss": "nan"}


@pytest.mark.parametrize("wall", [1e300, -1e300, True, "late", None])
def test_tail_shows_a_record_of_no_known_moment(desk, run, wall):
    body = b'{"t":"e","seq":99,"step":5,"name":"forged","wall":%b' % json.dumps(wall).encode()
    with run.journal.open("ab") as file:
        file.write(b'%b,"crc":%d}\n' % (body, zlib.crc32(body)))
    result = desk.quick("runs", "tail", "r1", "-n", "1")
    assert (result.code, "step 5  [None] forged" in result.out) == (0, True), result


@pytest.mark.parametrize("count", ["-5", "x", "1.5"])
def test_a_number_of_records_that_is_none_is_refused(desk, run, count):
    refused = desk.quick("runs", "tail", "r1", "-n", count)
    assert refused.code == 2 and count in refused.err


@pytest.mark.parametrize(
    "words",
    [
        "runs export r1 -o x.csv",
        "runs plot r1 --metric train/loss -o x.svg",
        "report r1 -o x.html",
        "init x.yaml",
    ],
)
def test_a_folder_that_is_not_there_is_code_3_for_everything_that_writes_a_file(desk, run, words):
    missing = desk.folder / "none"
    *asked, name = words.split()
    done = desk.quick(*asked, str(missing / name))
    assert (done.code, missing.exists()) == (3, False)
    assert f"there is no folder '{missing}'" in done.err and f"mkdir -p {missing}" in done.err


def test_tail_follows_until_the_run_ends(desk, hold):
    run = make(desk.folder / "out", "live", end=False)
    holder = hold(run.run_lock)
    tail = desk.start("runs", "tail", "live", "-n", "1", "--follow", "--json")
    first = json.loads(tail.stdout.readline())
    assert [record["step"] for record in first["records"]] == [7]
    journal = Journal(run.journal, attempt=1)
    journal.metrics(8, {"train/loss": 0.5})
    journal.close()
    second = json.loads(tail.stdout.readline())
    assert [record["step"] for record in second["records"]] == [8]
    holder.communicate()
    assert tail.wait(timeout=30) == 0


# -- export --------------------------------------------------------------------------------------


def expected():
    loss = [*(1.0 / step for step in range(1, 6)), math.nan, math.inf]
    return [
        *(("r1", "exp", "acc", step, float(step)) for step in range(1, 6)),
        *(("r1", "exp", "train/loss", step, value) for step, value in enumerate(loss, 1)),
    ]


def same(found):
    rows = [(*row[:3], int(row[3]), float(row[5])) for row in found]
    assert [repr(row) for row in rows] == [repr(row) for row in expected()]
    assert all(0 < time.time() - float(row[4]) < 600 for row in found)


def test_every_format_holds_every_point(desk, run):
    columns = ["run", "experiment", "key", "step", "wall", "value"]
    lines = desk.quick("runs", "export", "r1").out.splitlines()
    same([list(json.loads(line).values()) for line in lines])
    head, *rows = csv.reader(io.StringIO(desk.quick("runs", "export", "r1", "--format", "csv").out))
    assert head == columns
    same(rows)
    pq = pytest.importorskip("pyarrow.parquet")
    document = valid(desk.quick("runs", "export", "r1", "-o", "x.parquet", "--json"))
    assert (document["rows"], document["columns"], document["runs"]) == (12, columns, ["r1"])
    table = pq.read_table(desk.folder / "x.parquet")
    assert table.column_names == columns
    same(list(zip(*table.to_pydict().values(), strict=True)))


def test_pages_of_any_size_give_the_same_rows(run):
    from albor_core.store.query.export import pages

    whole = [row for page in pages(run) for row in page]
    for size in (1, 2, 5, 7, 100):
        assert repr([row for page in pages(run, page=size) for row in page]) == repr(whole)


def test_an_export_that_cannot_be_leaves_no_file(desk, run):
    cases = {
        ("r1", "--key", "nothing", "-o", "x.csv"): 3,
        ("r1", "-o", "x.txt"): 2,
        ("r1", "--format", "parquet"): 2,
        ("r1", "--json"): 2,
        ("r1", "-o", "no/such/folder.csv"): 3,
        ("nobody", "-o", "x.csv"): 3,
    }
    for words, code in cases.items():
        assert desk.quick("runs", "export", *words).code == code, words
    assert sorted(path.name for path in desk.folder.iterdir()) == ["out"]
    (desk.folder / "x.csv").write_text("mine")
    assert desk.quick("runs", "export", "r1", "-o", "x.csv").code == 2
    assert (desk.folder / "x.csv").read_text() == "mine"
    assert desk.quick("runs", "export", "r1", "-o", "x.csv", "--force").code == 0


# -- rm, gc --------------------------------------------------------------------------------------


def test_rm_takes_everything_of_a_run_and_nothing_of_another(desk, run):
    other = make(desk.folder / "out", "r2")
    before = tree_hash(other.path)
    (removed,) = valid(desk.quick("runs", "rm", "r1", "--yes", "--json"))["removed"]
    assert (removed["run"], removed["path"]) == ("r1", str(run.path))
    assert removed["bytes"] > 0
    assert [path.name for path in (desk.folder / "out").iterdir()] == ["r2"]
    assert [row["id"] for row in desk.quick("runs", "ls", "--json").document["runs"]] == ["r2"]
    assert desk.quick("runs", "show", "r1").code == 3
    assert tree_hash(other.path) == before
    assert b"r1" not in b"".join(p.read_bytes() for p in (desk.home / "runs").glob("*.json"))


def test_history_can_outlive_the_folder_and_be_forgotten_later(desk, run):
    (removed,) = valid(desk.quick("runs", "rm", "r1", "--keep-history", "--yes", "--json"))[
        "removed"
    ]
    assert removed["history_kept"] is True
    assert not run.path.exists()
    assert desk.quick("runs", "ls", "--json").document["runs"][0]["id"] == "r1"
    (removed,) = valid(desk.quick("runs", "rm", "r1", "--yes", "--json"))["removed"]
    assert removed["path"] is None
    assert desk.quick("runs", "ls", "--json").document["runs"] == []
    assert desk.quick("runs", "rm", "r1", "--yes").code == 3


def test_rm_asks_and_takes_nothing_without_an_answer(desk, run):
    before = tree_hash(run.path)
    refused = desk.albor("runs", "rm", "r1")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert desk.quick("runs", "rm", "r1", "--json").error["hint"] == "the same with --yes"
    assert tree_hash(run.path) == before


def test_a_run_that_is_alive_is_not_removed(desk, run, hold):
    hold(run.run_lock)
    before = tree_hash(run.path)
    result = desk.quick("runs", "rm", "r1", "--yes", "--json")
    assert (result.code, result.error["code"]) == (8, "in_use")
    assert tree_hash(run.path) == before


def test_no_link_is_followed(desk, run, tmp_path):
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("mine")
    (run.path / "loot").symlink_to(treasure)
    (run.checkpoints / "step-00000001").symlink_to(treasure)
    alias = desk.folder / "alias"
    alias.symlink_to(run.path)
    assert desk.quick("runs", "rm", "r1", "--yes").code == 0
    assert (treasure / "gold").read_text() == "mine"
    assert not run.path.exists()


def test_a_run_folder_that_is_a_link_is_refused_and_what_lies_behind_it_stays(desk, run):
    other = make(desk.folder / "out", "r2")
    behind = desk.folder / "other disk" / "r1"
    behind.parent.mkdir()
    run.path.rename(behind)
    run.path.symlink_to(behind)
    alias = desk.folder / "alias"
    alias.symlink_to(behind)
    before = tree_hash(desk.folder, desk.home)
    for reference in ("r1", run.path, f"{run.path}/", "alias"):
        result = desk.quick("runs", "rm", "r2", reference, "--yes", "--json")
        assert (result.code, result.error["hint"]) == (2, f"albor runs rm '{behind}'"), result
        assert str(behind) in result.error["message"]
    assert tree_hash(desk.folder, desk.home) == before and other.run_json.is_file()
    assert desk.quick("runs", "rm", behind, "--yes").code == 0
    assert run.path.is_symlink() and not behind.exists()


def test_a_pointer_to_somebody_elses_folder_removes_nothing(desk, tmp_path):
    victim = tmp_path / "photos"
    victim.mkdir()
    (victim / "run.json").write_text('{"schema":"albor.run/1","id":"other","created":1}')
    pointers = desk.home / "runs"
    pointers.mkdir(parents=True, exist_ok=True)
    (pointers / "photos.json").write_text(json.dumps({"path": str(victim), "created": 1}))
    (victim / "beach.jpg").write_bytes(b"sun")
    assert desk.quick("runs", "rm", "photos", "--yes").code == 2
    (victim / "run.json").unlink()
    assert desk.quick("runs", "rm", "photos", "--yes").code == 2
    assert [path.name for path in victim.iterdir()] == ["beach.jpg"]


@pytest.mark.parametrize(
    "reference", ["../../etc", "/etc", "a/../../b", ".", "..", "x" * 300, "-rf", "a\nb"], ids=repr
)
def test_a_reference_that_is_no_run_removes_nothing(desk, run, reference):
    before = tree_hash(desk.folder, desk.home / "runs"), desk.quick("runs", "ls", "--json").out
    result = desk.quick("runs", "rm", "--yes", "--", reference)
    assert result.code in (2, 3), result
    after = tree_hash(desk.folder, desk.home / "runs"), desk.quick("runs", "ls", "--json").out
    assert after == before


def test_gc_takes_what_killed_processes_left_and_nothing_else(desk, run, hold):
    old = time.time() - 9 * 86400
    live = make(desk.folder / "out", "live", end=False)
    hold(live.run_lock)
    doomed = run.path.with_name(".gone.removed-0123abcd")
    shutil.copytree(live.path, doomed)
    for found in (run, live):
        half = found.checkpoints / "step-00000007.tmp"
        half.mkdir()
        (half / "model.safetensors").write_bytes(b"x" * 1000)
        torn = found.path / ".exit.json.123.abcd.tmp"
        torn.write_text("{")
        for path in (half, torn):
            os.utime(path, (old, old))
    (run.store.parent / "corrupt-20260101T000000-1").mkdir()
    os.utime(run.store.parent / "corrupt-20260101T000000-1", (old, old))
    (run.checkpoints / "step-00000008.tmp").mkdir()  # young: somebody may be at work
    kept = tree_hash(live.path)
    dry = valid(desk.quick("runs", "gc", "--dry-run", "--json"))
    assert desk.quick("runs", "gc").code == 2  # nobody to ask
    assert doomed.exists()
    done = valid(desk.quick("runs", "gc", "--yes", "--json"))
    assert done["items"] == dry["items"]
    assert sorted(item["why"] for item in done["items"]) == [
        "damaged store, made again since",
        "half-removed run",
        "half-written checkpoint",
        "half-written file",
    ]
    assert done["bytes"] > 1000
    assert tree_hash(live.path) == kept
    assert (run.checkpoints / "step-00000008.tmp").exists()
    assert valid(desk.quick("runs", "gc", "--yes", "--json"))["items"] == []
    assert desk.quick("runs", "show", "r1").code == 0


def test_doctor_reports_what_was_odd(desk):
    run = make(desk.folder / "out", "strange")
    journal = Journal(run.journal, attempt=1)
    odd = {"counts": {"not_a_number": 4}, "examples": {"not_a_number": "loss = low\x1b"}}
    journal.event("track.odd", severity="warning", **odd)
    journal.close()
    index_now(run)
    checks = {check["name"]: check for check in desk.quick("doctor", "--json").document["checks"]}
    assert "odd values in strange: 4 not_a_number (loss = low" in checks["logged"]["detail"]
    assert checks["logged"]["ok"] is None
    assert "\x1b" not in desk.quick("doctor").out
