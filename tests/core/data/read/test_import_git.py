"""Git repositories as sources: which files, which commit, which licence; nothing of theirs runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from albor_core.data.read.inputs import Asked
from albor_core.data.read.licence import identify, licence_of
from albor_core.data.read.sources import import_sources
from albor_core.data.stage.record import read_record
from albor_core.run.errors import AlborError

LICENCE = Path(__file__).resolve().parents[4] / "LICENSE"


def git(folder, *words):
    name = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def work(tmp_path):
    """A work tree with two commits' worth of files, one of them ignored."""
    folder = tmp_path / "proj"
    (folder / "pkg").mkdir(parents=True)
    (folder / "a.py").write_text("a = 1\n")
    (folder / "pkg" / "b.py").write_text("b = '\xe9'\n")
    (folder / "pkg-c.py").write_text("c = 1\n")  # sorts before pkg/, as bytes do
    (folder / ".gitignore").write_text("build/\n")
    (folder / "build").mkdir()
    (folder / "build" / "made.py").write_text("made = 1\n")
    (folder / "link.py").symlink_to("a.py")
    (folder / "LICENSE").write_bytes(LICENCE.read_bytes())
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    git(folder, "remote", "add", "origin", "https://me:secret@example.org/proj.git")
    return folder


def files(report):
    return pq.read_table(report.out).column("file").to_pylist()


def test_a_work_tree_gives_what_git_does_not_ignore_with_its_commit_and_licence(work, tmp_path):
    report = import_sources([work], tmp_path / "c.parquet")
    assert files(report) == ["a.py", "pkg-c.py", "pkg/b.py"]
    assert report.skipped == {"symlink": 1}
    commit = git(work, "rev-parse", "HEAD")
    table = pq.read_table(report.out)
    assert set(table.column("commit").to_pylist()) == {commit}
    assert set(table.column("licence").to_pylist()) == {"Apache-2.0"}
    said = read_record(report.out).settings["sources"][0]
    assert (said["kind"], said["commit"], said["dirty"]) == ("git", commit, False)
    assert said["url"] == "https://example.org/proj.git", "no password"
    plain = import_sources([work], tmp_path / "d.parquet", Asked(git=False))
    assert files(plain) == ["a.py", "build/made.py", "pkg-c.py", "pkg/b.py"]
    assert pq.read_table(plain.out).column("commit").null_count == 4


def test_a_bare_repository_gives_the_same_documents_as_its_clean_work_tree(work, tmp_path):
    git(tmp_path, "clone", "-q", "--bare", str(work), "proj.git")
    bare = import_sources([tmp_path / "proj.git"], tmp_path / "bare")
    tree = import_sources([work], tmp_path / "tree.parquet")
    assert bare.corpus_hash == tree.corpus_hash and bare.skipped == tree.skipped
    assert bare.sources[0].licence == "Apache-2.0" and bare.sources[0].kind == "bare"
    excluded = import_sources([tmp_path / "proj.git"], tmp_path / "less", Asked(exclude=("pkg",)))
    assert excluded.files == 2


def test_changes_that_are_not_committed_are_read_and_said(work, tmp_path):
    (work / "notes.txt").write_text("what is not read does not count")
    clean = import_sources([work], work / "corpus.parquet", Asked(("", ".py"), ("notes",)))
    assert clean.sources[0].dirty, "notes.txt is read here"
    (work / "corpus.parquet").unlink()
    assert not import_sources([work], work / "corpus.parquet").sources[0].dirty
    assert import_sources([work], work / "corpus.parquet").reused, (
        "the output alone does not make it dirty"
    )
    (work / "new.py").write_text("new = 1\n")
    report = import_sources([work], tmp_path / "c.parquet")
    assert "new.py" in files(report) and report.sources[0].dirty
    commit = git(work, "rev-parse", "HEAD")
    assert set(pq.read_table(report.out).column("commit").to_pylist()) == {f"{commit}-dirty"}


def test_a_folder_of_a_repository_has_its_commit_and_one_that_git_ignores_is_plain(work, tmp_path):
    part = import_sources([work / "pkg"], tmp_path / "c.parquet")
    assert files(part) == ["b.py"] and part.sources[0].licence == "Apache-2.0"
    assert part.sources[0].commit == git(work, "rev-parse", "HEAD")
    ignored = import_sources([work / "build"], tmp_path / "d.parquet")
    assert (ignored.sources[0].kind, ignored.sources[0].commit) == ("folder", None)


def test_a_repository_in_a_repository_and_a_folder_that_became_a_link_bring_nothing_in(
    work, tmp_path
):
    inner = work / "inner"
    inner.mkdir()
    (inner / "i.py").write_text("i = 1\n")
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "inner")
    git(work, "add", "inner")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "b.py").write_text("KEY = 1\n")
    (work / "pkg" / "b.py").unlink()
    (work / "pkg").rmdir()
    (work / "pkg").symlink_to(tmp_path / "secret")
    report = import_sources([work], tmp_path / "c.parquet")
    assert files(report) == ["a.py", "pkg-c.py"]
    assert report.skipped == {"submodule": 1, "symlink": 1}


def test_nothing_that_a_repository_names_is_run(work, tmp_path):
    mark = tmp_path / "ran"
    git(work, "config", "core.fsmonitor", f"touch {mark}; false")
    git(work, "config", "filter.evil.clean", f"touch {mark}; cat")
    (work / ".gitattributes").write_text("*.py filter=evil\n")
    (work / "a.py").write_text("a = 2\n")
    import_sources([work], tmp_path / "c.parquet")
    assert not mark.exists()


def test_a_repository_without_a_commit_is_read_and_a_damaged_one_refused(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.py").write_text("a = 1\n")
    git(tmp_path / "new", "init", "-q")
    report = import_sources([tmp_path / "new"], tmp_path / "c.parquet")
    assert (report.sources[0].kind, report.sources[0].commit) == ("git", None)
    (tmp_path / "new" / ".git" / "HEAD").write_text("junk")
    with pytest.raises(AlborError, match="git rev-parse") as caught:
        import_sources([tmp_path / "new"], tmp_path / "d.parquet")
    assert "--no-git" in caught.value.hint
    assert import_sources([tmp_path / "new"], tmp_path / "d.parquet", Asked(git=False)).files == 1


def test_a_licence_is_known_by_its_words_alone():
    apache = LICENCE.read_bytes()
    isc = (
        b"ISC License\n\nCopyright X\n\nPermission to use, copy, modify, and/or distribute this "
        b"software for any purpose with or without fee is hereby granted, provided that the above "
        b"copyright notice and this permission notice appear in all copies.\n"
    )
    assert identify(apache) == "Apache-2.0"
    assert identify(isc) == "ISC"
    assert identify(isc.split(b"provided")[0]) == "0BSD"
    assert identify(apache.replace(b"Grant of Patent License", b"Grant of Nothing")) is None
    assert identify(b"All rights reserved.") is None
    assert identify(isc + apache) == "Apache-2.0 AND ISC"
    assert licence_of([isc, apache, isc]) == "Apache-2.0 AND ISC"
    assert licence_of([isc, b"See the other file."]) is None and licence_of([]) is None
