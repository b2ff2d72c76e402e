"""Source trees to Parquet: what is taken, what is counted, what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from albor_core.data.read.inputs import Asked
from albor_core.data.read.sources import import_sources
from albor_core.run.errors import (
    AlborError,
    ConfigError,
    DataError,
    InUseError,
    NotFoundError,
    UsageError,
)
from albor_core.run.files.publish import publishing, temporary


def rows(path):
    return pq.read_table(path).to_pylist()


def test_text_comes_back_unchanged_and_sorted_by_path(tmp_path):
    texts = {"b.py": "b = 1\r\n", "a/z.py": "\ufeff# e\u0301\n", "a.py": "a", "a/b/c.py": "\tc"}
    for name, text in texts.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_bytes(text.encode())
    report = import_sources([tmp_path / "src"], tmp_path / "c.parquet")
    assert [(r["file"], r["text"]) for r in rows(report.out)] == sorted(texts.items())
    assert {r["source"] for r in rows(report.out)} == {"src"}
    assert report.files == 4
    assert report.bytes == sum(len(t.encode()) for t in texts.values())


def test_the_same_files_give_the_same_bytes(tree, tmp_path):
    first = import_sources([tree], tmp_path / "one.parquet")
    second = import_sources([tree], tmp_path / "two.parquet")
    assert first.out.read_bytes() == second.out.read_bytes()
    assert first.corpus_hash == second.corpus_hash


def test_one_changed_byte_changes_the_corpus_hash(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.py").write_text("a = 1\n")
    before = import_sources([tmp_path / "s"], tmp_path / "c.parquet").corpus_hash
    (tmp_path / "s" / "a.py").write_text("a = 2\n")
    again = import_sources([tmp_path / "s"], tmp_path / "c.parquet", force=True)
    assert again.corpus_hash != before


def test_what_cannot_be_trained_on_is_counted_by_reason(tmp_path):
    root = tmp_path / "s"
    (root / "sub").mkdir(parents=True)
    (root / "good.py").write_text("ok\n")
    (root / "latin.py").write_bytes(b"caf\xe9\n")
    (root / "blob.py").write_bytes(b"a\0b")
    (root / "blank.py").write_text(" \n")
    (root / "zero.py").write_bytes(b"")
    (root / "long.py").write_text("x" * 2001)
    (root / "notes.txt").write_text("not asked for")
    (root / "link.py").symlink_to(root / "good.py")
    (root / "sub" / "up").symlink_to(root)  # a loop
    (root / "self.py").symlink_to("self.py")
    os.mkfifo(root / "pipe.py")
    os.mkfifo(root / "ignored.fifo")
    (root / os.fsdecode(b"n\xff.py")).write_text("text is fine, its name is not\n")
    report = import_sources([root], tmp_path / "c.parquet", Asked(max_bytes=2000))
    assert [r["file"] for r in rows(report.out)] == ["good.py"]
    assert report.skipped == {
        "binary": 1,
        "empty": 2,
        "not_utf8": 2,
        "symlink": 3,
        "too_large": 1,
        "unreadable": 1,
    }


def test_a_link_out_of_the_tree_brings_nothing_in(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.py").write_text("KEY = 'x'\n")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.py").write_text("a\n")
    (tmp_path / "s" / "door").symlink_to(tmp_path / "secret")
    report = import_sources([tmp_path / "s"], tmp_path / "c.parquet")
    assert [r["file"] for r in rows(report.out)] == ["a.py"]


def test_excluded_directories_are_left_out_at_any_depth(tmp_path):
    for name in ("a.py", "test/b.py", "p/test/c.py", "p/testing/d.py"):
        (tmp_path / "s" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "s" / name).write_text("x\n")
    report = import_sources([tmp_path / "s"], tmp_path / "c.parquet", Asked(exclude=("test",)))
    assert [r["file"] for r in rows(report.out)] == ["a.py", "p/testing/d.py"]


@pytest.mark.parametrize("content", [None, b"\x7fELF\0\0"], ids=["empty", "binary"])
def test_a_tree_without_text_is_refused_by_name_and_leaves_nothing(tmp_path, content):
    (tmp_path / "s").mkdir()
    if content:
        (tmp_path / "s" / "a.py").write_bytes(content)
    with pytest.raises(DataError) as caught:
        import_sources([tmp_path / "s"], tmp_path / "c.parquet")
    assert str(tmp_path / "s") in caught.value.message
    assert ("1 binary" in caught.value.message) == bool(content)
    assert "albor data import" in caught.value.hint
    assert caught.value.exit_code == 7
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]


def test_one_empty_tree_among_good_ones_keeps_the_previous_output(tree, tmp_path):
    out = tmp_path / "c.parquet"
    import_sources([tree], out)
    before = out.read_bytes()
    (tmp_path / "hollow").mkdir()
    with pytest.raises(DataError, match="hollow"):
        import_sources([tree, tmp_path / "hollow"], out)
    assert out.read_bytes() == before
    assert not temporary(out).exists()


def test_a_missing_directory_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="nowhere"):
        import_sources([tmp_path / "nowhere"], tmp_path / "c.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_tree_inside_another_would_be_imported_twice_and_is_refused(tree, tmp_path):
    with pytest.raises(ConfigError, match="twice"):
        import_sources([tree, tree / "pkg0"], tmp_path / "c.parquet")


def test_trees_of_one_name_are_told_apart_by_their_parents(tmp_path):
    for parent in ("one", "two"):
        (tmp_path / parent / "src").mkdir(parents=True)
        (tmp_path / parent / "src" / "a.py").write_text("x\n")
    roots = [tmp_path / "one" / "src", tmp_path / "two" / "src"]
    report = import_sources(roots, tmp_path / "c.parquet")
    assert [r["source"] for r in rows(report.out)] == ["one/src", "two/src"]


def test_an_import_that_dies_half_way_leaves_no_file_and_goes_on(tree, tmp_path):
    def die(files, size):
        raise KeyboardInterrupt

    out = tmp_path / "c.parquet"
    with pytest.raises(KeyboardInterrupt):
        import_sources([tree], out, progress=die)
    assert not out.exists()
    assert import_sources([tree], out).resumed_units == 1
    assert [path.name for path in tmp_path.iterdir()] == ["c.parquet"]
    whole = import_sources([tree], tmp_path / "whole.parquet")
    assert out.read_bytes() == whole.out.read_bytes()


def test_many_row_groups_hold_the_same_rows(tree, tmp_path, monkeypatch):
    whole = import_sources([tree], tmp_path / "one.parquet")
    monkeypatch.setattr("albor_core.data.stage.output.ROW_GROUP_BYTES", 2000)
    pieces = import_sources([tree], tmp_path / "many.parquet")
    assert pq.read_metadata(pieces.out).num_row_groups > 5
    assert rows(pieces.out) == rows(whole.out)
    assert pieces.corpus_hash == whole.corpus_hash


def test_the_same_documents_again_leave_the_file_alone(tree, tmp_path):
    first = import_sources([tree], tmp_path / "c.parquet")
    before = first.out.stat()
    again = import_sources([tree], tmp_path / "c.parquet")
    after = first.out.stat()
    assert (first.reused, again.reused) == (False, True)
    assert again.corpus_hash == first.corpus_hash
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize("content", ["corpus", "no corpus"])
def test_a_file_that_holds_something_else_is_replaced_only_by_force(tree, tmp_path, content):
    out = tmp_path / "c.parquet"
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.py").write_text("a = 1\n")
    if content == "corpus":
        import_sources([tmp_path / "s"], out)
    else:
        out.write_text("my notes")
    before = out.read_bytes()
    with pytest.raises(UsageError, match=r"c\.parquet: exists and holds") as caught:
        import_sources([tree], out)
    assert "--force" in caught.value.hint and caught.value.exit_code == 2
    assert out.read_bytes() == before and not temporary(out).exists()
    assert import_sources([tree], out, force=True).files == 60


@pytest.mark.parametrize("out", [".", "..", "s", "nowhere/deep/c.parquet"])
def test_an_output_that_names_no_place_for_a_file_is_refused(tmp_path, monkeypatch, out):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.py").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AlborError, match="folder") as caught:
        import_sources([Path("s")], Path(out))
    assert caught.value.exit_code == (3 if out.startswith("nowhere") else 2)
    assert caught.value.hint.startswith(("--out ", "mkdir -p nowhere/deep"))
    assert [p.name for p in tmp_path.rglob("*")] == ["s", "a.py"]


def test_two_writers_of_one_file_cannot_mix(tmp_path):
    target = tmp_path / "x"
    with publishing(target) as temp:
        temp.write_text("first")
        with pytest.raises(InUseError, match="x: another process"), publishing(target):
            pass
    assert target.read_text() == "first"


def test_an_output_that_cannot_be_written_is_named(tree, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(AlborError, match=r"c\.parquet: cannot be written"):
        import_sources([tree], tmp_path / "file" / "c.parquet")


@pytest.mark.slow
def test_a_disk_that_fills_up_keeps_the_previous_output(tree, tmp_path):
    # a file size limit fails the write the way a full disk does, half way through
    out = tmp_path / "c.parquet"
    out.write_text("previous")
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from albor_core.data.read.sources import import_sources\n"
        "from albor_core.run.errors import AlborError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "try: import_sources([Path(sys.argv[1])], Path(sys.argv[2]), force=True)\n"
        "except AlborError as error: sys.exit(f'{error.code}: {error.message}')\n"
    )
    argv = [sys.executable, "-c", script, tree, out]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"failed: {out}: cannot be written" in done.stderr
    assert out.read_text() == "previous"
    assert [p.name for p in tmp_path.iterdir()] == ["c.parquet"]
