"""What `albor runs show` and `tail` say of a run's media, and what `gc --media` takes away."""

from __future__ import annotations

import json
import os
import re
import time

import pytest
from cli_user import tree_hash, valid

from albor_core.run.files.media_file import kept, media_path, publish
from albor_core.run.files.pulled_file import Pulled, write_pulled
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now

OLD = time.time() - 9 * 86400


def say(journal, step, key, kind, digest, *, form="png", **more):
    meta = {"format": form, **more.pop("meta", {})}
    line = {"hash": digest, "bytes": 5, "name": "", "caption": "", **more}
    journal.append("b", step=step, key=key, kind=kind, **line, meta=meta)


def make(desk, run_id="r1", pictures=5):
    """Pictures `samples` of steps 1 to 5, a histogram in the journal, a version of an artefact."""
    run = create_run(desk.folder / "out", run_id, experiment="e", name=run_id, kind="track",
                     argv=["x"])  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start", attempt=1)
    for step in range(1, pictures + 1):
        digest = publish(run.path, "png", b"picture %d" % step).hash
        say(journal, step, "samples", "image", digest, caption=f"step \x1b[31m{step}")
    data = {"data": {"counts": [1], "edges": [0, 1]}}
    say(journal, 3, "weights", "histogram", "ab" * 32, form="json", meta=data)
    inner = publish(run.path, "bin", b"inner").hash
    rows = {"files": [{"name": "a", "hash": inner, "bytes": 5}]}
    tree = publish(run.path, "tree", json.dumps(rows).encode()).hash
    role = "made" if run_id == "r1" else "used"
    more = {"name": "model", "version": 3, "meta": {"role": role}}
    say(journal, None, "model", "artifact", tree, form="tree", **more)
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    for path, _ in kept(run.path):
        os.utime(path, (OLD, OLD))
    index_now(run)
    return run


def files(run):
    return {path.read_bytes() for path, _ in kept(run.path) if path.suffix == ".png"}


def test_show_has_each_medium_its_file_and_the_lineage_of_versions(desk):
    run, other = make(desk), make(desk, "r2")
    shown = valid(desk.quick("runs", "show", "r1", "--json"))
    pictures = [one for one in shown["media"] if one["kind"] == "image"]
    assert [one["step"] for one in pictures] == [1, 2, 3, 4, 5]
    assert pictures[0]["path"] == str(media_path(run.path, pictures[0]["hash"], "png"))
    (histogram,) = (one for one in shown["media"] if one["kind"] == "histogram")
    assert histogram["path"] is None and histogram["meta"]["data"]["counts"] == [1]
    assert shown["lineage"] == [
        {"name": "model", "version": 3, "role": "made", "made_by": ["r1"], "used_by": ["r2"]}
    ]
    text = desk.quick("runs", "show", "r1").out
    assert re.search(r"samples +image +5 +1-5 .* media/../[0-9a-f]{64}\.png {2}step \u241b", text)
    assert re.search(r"weights +histogram +1 +3 .* in the journal", text)
    assert re.search(r"model:v3 +made +used by r2", text)
    assert re.search(r"model:v3 +used +made by r1", desk.quick("runs", "show", other.id).out)


def test_the_same_number_of_another_home_is_not_the_same_version(desk):
    make(desk), make(desk, "r2")
    far = create_run(desk.folder / "out", "far", experiment="e", name="far", kind="track",
                     argv=["x"])  # fmt: skip
    journal = Journal(far.journal, attempt=1)
    said = {"name": "model", "version": 3, "meta": {"role": "made"}}
    say(journal, None, "model", "artifact", "cd" * 32, form="bin", **said)
    journal.close()
    index_now(far)
    (version,) = valid(desk.quick("runs", "show", "r2", "--json"))["lineage"]
    assert (version["made_by"], version["used_by"]) == (["r1"], ["r2"])
    (version,) = valid(desk.quick("runs", "show", "far", "--json"))["lineage"]
    assert (version["made_by"], version["used_by"]) == (["far"], [])


def test_show_of_a_run_without_media_says_nothing_of_them(desk):
    run = create_run(desk.folder / "out", "bare", experiment="e", name="bare", kind="track",
                     argv=["x"])  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)
    shown = valid(desk.quick("runs", "show", "bare", "--json"))
    assert (shown["media"], shown["lineage"]) == ([], [])
    text = desk.quick("runs", "show", "bare").out
    assert "media" not in text and "version" not in text


def test_tail_has_a_line_for_each_medium(desk):
    make(desk)
    lines = desk.quick("runs", "tail", "r1", "-n", "20").out.splitlines()
    (line,) = (line for line in lines if "  step 5  " in line)
    assert re.search(r"step 5  image  samples  step \u241b\[31m5  [0-9a-f]{64}  5 bytes$", line)
    records = valid(desk.quick("runs", "tail", "r1", "-n", "20", "--json"))["records"]
    assert sum(record["t"] == "b" for record in records) == 7


# -- retention -----------------------------------------------------------------------------------


def test_gc_of_media_takes_files_that_no_record_tells_of_and_no_others(desk):
    run = make(desk)
    lost = media_path(run.path, publish(run.path, "png", b"lost").hash, "png")
    publish(run.path, "png", b"young: its record may be on its way")
    os.utime(lost, (OLD, OLD))
    before = tree_hash(run.path)
    dry = valid(desk.quick("runs", "gc", "--media", "--dry-run", "--json"))
    assert [(one["path"], one["why"]) for one in dry["items"]] == [
        (str(lost), "medium that no record tells of")
    ]
    assert desk.quick("runs", "gc", "--media").code == 2  # nobody to ask
    assert tree_hash(run.path) == before
    assert valid(desk.quick("runs", "gc", "--yes", "--json"))["items"] == []  # only if asked to
    done = valid(desk.quick("runs", "gc", "--media", "--yes", "--json"))
    assert done["items"] == dry["items"] and done["bytes"] == 4
    assert len([*kept(run.path)]) == 8
    assert valid(desk.quick("runs", "gc", "--media", "--yes", "--json"))["items"] == []


def test_gc_takes_half_a_medium_that_a_file_system_without_nameless_files_was_left_with(desk):
    run = make(desk)
    half = run.path / "media" / ".media.123.0123abcd.tmp"
    half.write_bytes(b"half")
    os.utime(half, (OLD, OLD))
    done = valid(desk.quick("runs", "gc", "--yes", "--json"))
    assert [(one["path"], one["why"]) for one in done["items"]] == [
        (str(half), "half-written file")
    ]
    assert len([*kept(run.path)]) == 7


@pytest.mark.parametrize(("keep", "left"), [("2", {4, 5}), ("0", set()), ("9", {1, 2, 3, 4, 5})])
def test_keep_leaves_the_newest_of_each_key_all_records_and_all_versions(desk, keep, left):
    run = make(desk)
    done = valid(desk.quick("runs", "gc", "--media", "--keep", keep, "--yes", "--json"))
    assert len(done["items"]) == 5 - len(left)
    assert files(run) == {b"picture %d" % step for step in left}
    assert {path.suffix for path, _ in kept(run.path)} >= {".tree", ".bin"}
    shown = valid(desk.quick("runs", "show", "r1", "--json"))["media"]
    assert [one["step"] for one in shown if one["path"] and one["kind"] == "image"] == sorted(left)
    assert len(shown) == 7
    if not left:
        assert "its file is not here" in desk.quick("runs", "show", "r1").out


def test_what_a_newer_medium_or_another_key_shows_too_is_kept(desk):
    run = make(desk)
    journal = Journal(run.journal, attempt=1)
    for key in ("samples", "other"):
        say(journal, 9, key, "image", publish(run.path, "png", b"picture 1").hash)
    journal.close()
    assert desk.quick("runs", "gc", "--media", "--keep", "1", "--yes").code == 0
    assert files(run) == {b"picture 1"}


def test_runs_that_live_copies_and_runs_with_a_damaged_journal_are_left_alone(desk, hold):
    live, copy, damaged, clean = (make(desk, name) for name in ("live", "copy", "damaged", "clean"))
    hold(live.run_lock)
    write_pulled(copy, Pulled("far", "/runs", 1.0))
    lines = damaged.journal.read_bytes().splitlines(keepends=True)
    damaged.journal.write_bytes(b"".join([*lines[:2], b"{damaged}\n", *lines[3:]]))
    args = ("--media", "--keep", "1", "--yes", "--json")
    done = valid(desk.quick("runs", "gc", *args))
    assert len(done["items"]) == 4 and all(str(clean.path) in one["path"] for one in done["items"])


def test_a_run_that_went_on_since_it_was_looked_at_keeps_its_files(desk):
    from albor_core.store.upkeep.media_garbage import media_garbage
    from albor_core.store.upkeep.remove import sweep

    run = make(desk)
    found = [*media_garbage([run], keep=1)]
    journal = Journal(run.journal, attempt=2)
    say(journal, 9, "samples", "image", publish(run.path, "png", b"picture 1").hash)
    journal.close()
    assert len(found) == 4 and not any(map(sweep, found))
    assert len(files(run)) == 5


def test_keep_without_media_is_a_mistake_that_is_said(desk):
    make(desk)
    result = desk.quick("runs", "gc", "--keep", "1", "--yes", "--json")
    assert result.code == 2 and result.error["message"] == "--keep goes with --media"
