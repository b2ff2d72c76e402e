"""Artefacts: hashed or copied, versions that are never given twice, and who made and used them."""

from __future__ import annotations

import json
import os
import threading

import pytest

from albor_core import track
from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.files.media_file import kept, publish
from albor_core.run.home.folders import albor_home
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now
from albor_core.store.query.media import media as media_rows
from albor_core.store.query.media import versions_of
from albor_core.store.query.reader import Reader
from albor_core.store.query.table import RunList
from albor_core.store.upkeep.move import move_run
from albor_core.track import artifact_versions
from albor_core.track.artifact_versions import Version, find, take, versions


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr("albor_core.guard.process.index_process.IndexProcess.tend", lambda self: 0)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"weights " * 1000)
    return path


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "data" / "deep"
    inside.mkdir(parents=True)
    (tmp_path / "data" / "a.txt").write_text("a")
    (inside / "b.txt").write_text("b")
    (inside / "same.txt").write_text("a")
    return tmp_path / "data"


def artifacts(run):
    index_now(run.dir)
    return [row for row in media_rows(run.dir) if row.kind == "artifact"]


@pytest.mark.slow
def test_a_copy_stays_when_the_program_changes_or_removes_its_file(model):
    with track.start("a") as run:
        digest = run.artifact(model, name="model", kind="checkpoint", copy=True, step=7)
        assert digest == fingerprint(model)[1]
        model.write_bytes(b"other")
        model.unlink()
        (row,) = artifacts(run)
        assert (row.name, row.version, row.step, row.meta["role"]) == ("model", 1, 7, "made")
        assert row.path.read_bytes() == b"weights " * 1000
        with Reader(run.dir.store) as reader:  # as those that are not copied
            assert [(a.name, a.kind, a.hash) for a in reader.artifacts(run.id)] == [
                ("model", "checkpoint", digest)
            ]


def test_the_same_contents_are_one_version_and_one_file_and_others_the_next(model):
    with track.start("a") as run:
        for content in (b"one", b"one", b"two", b"one"):
            model.write_bytes(content)
            run.artifact(model, name="m", copy=True)
        assert [row.version for row in artifacts(run)] == [1, 1, 2, 1]
        assert len([*kept(run.path)]) == 2
    with track.start("b") as other:
        model.write_bytes(b"two")
        other.artifact(model, name="m", copy=True)
        model.write_bytes(b"three")
        other.artifact(model, name="m", copy=True)
        assert [row.version for row in artifacts(other)] == [2, 3]


def test_a_file_that_stays_in_its_place_has_a_version_and_no_copy(model):
    with track.start("a") as run:
        run.artifact(model)
        (row,) = artifacts(run)
        assert (row.name, row.version, row.path) == ("model.bin", 1, None)
        assert [*kept(run.path)] == []
        assert run.use_artifact("model.bin:v1") == model
        model.write_bytes(b"other")
        with pytest.raises(DataError, match="has changed since it became model"):
            run.use_artifact("model.bin:v1")
        model.unlink()
        with pytest.raises(NotFoundError, match="its file is gone"):
            run.use_artifact("model.bin")


def test_a_run_that_uses_an_artefact_is_known_to_have(model):
    with track.start("maker") as maker:
        maker.artifact(model, name="m", copy=True)
    with track.start("user") as user:
        path = user.use_artifact("m:v1")
        assert path.read_bytes() == model.read_bytes()
        assert user.use_artifact("m") == user.use_artifact("m:latest") == path
        (row, *_) = artifacts(user)
        assert (row.name, row.version, row.meta["role"]) == ("m", 1, "used")
        assert row.meta["run"] == maker.id
    for run in (maker, user):
        index_now(run.dir)
    with RunList(global_store()) as table:
        for run, role in ((maker, "made"), (user, "used")):
            (found,) = versions_of(table, run.id)
            assert (found.reference, found.role) == ("m:v1", role)
            assert (found.made_by, found.used_by) == ((maker.id,), (user.id,))


def test_an_artefact_of_a_run_that_was_moved_is_found_where_the_run_lies_now(model, tmp_path):
    with track.start("maker", dir=tmp_path / "old") as maker:
        maker.artifact(model, name="m", copy=True)
    index_now(maker.dir)
    (tmp_path / "new").mkdir()
    move_run(maker.dir, tmp_path / "new")
    with track.start("user") as user:
        path = user.use_artifact("m:v1")
    assert path.is_relative_to(tmp_path / "new") and path.read_bytes() == model.read_bytes()


def test_a_folder_comes_back_as_it_was_without_its_links(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / "link").symlink_to(secret)
    (folder / "deep" / "up").symlink_to(tmp_path)
    with track.start("a") as run:
        assert run.artifact(folder, name="data", copy=True).startswith("blake3:")
        (row,) = artifacts(run)
        assert (row.meta["files"], row.bytes, row.format) == (3, 3, "tree")
        assert len([*kept(run.path)]) == 3  # "a" lies there once, and the list
        assert run.odd.counts == {"artifact_link": 2}
        place = run.use_artifact("data:v1", to=tmp_path / "back")
        assert place == tmp_path / "back"
        found = {str(p.relative_to(place)): p.read_text() for p in place.rglob("*") if p.is_file()}
        assert found == {"a.txt": "a", "deep/b.txt": "b", "deep/same.txt": "a"}
        assert run.use_artifact("data").is_relative_to(run.path / "used")


def test_a_list_of_files_that_leads_elsewhere_is_refused(tmp_path):
    with track.start("a") as run:
        inner = publish(run.path, "bin", b"inner")
        for number, name in enumerate(("../../out", "/etc/out", "a/../../out", "")):
            rows = {"files": [{"name": name, "hash": inner.hash, "bytes": 5}]}
            tree = publish(run.path, "tree", json.dumps(rows).encode())
            take(Version(f"t{number}", 0, tree.hash, 5, "tree", run.id, str(run.path), "", 0.0))
            with pytest.raises(DataError, match="not a list of files that Albor wrote"):
                run.use_artifact(f"t{number}", to=tmp_path / "deep" / "to")
    assert not (tmp_path / "out").exists() and not (tmp_path / "deep" / "out").exists()


def test_what_is_too_large_or_cannot_be_read_is_refused_by_name(tmp_path, model, capsys):
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(4 << 30)
    os.mkfifo(tmp_path / "pipe")
    with track.start("a") as run:
        assert run.artifact(huge, copy=True) is None
        assert run.artifact(tmp_path / "pipe", copy=True) is None
        assert run.artifact(tmp_path / "gone", copy=True) is None
        assert run.artifact(model, copy=True, max_bytes=10) is None
        assert run.artifact(model, copy=True) is not None
        assert run.odd.counts["media_too_large"] == 2
        assert run.odd.counts["artifact_unreadable"] == 2
        (row,) = artifacts(run)
        assert row.name == "model.bin"
        with Reader(run.dir.store) as reader:
            assert len(reader.events(run.id, names=("artifact.failed",))) == 4
    err = capsys.readouterr().err
    assert "4.00 GiB, and 2.00 GiB are allowed" in err


class Raises:
    def __fspath__(self):
        raise RuntimeError("somebody else's object")

    __str__ = __fspath__


@pytest.mark.parametrize("copy", [True, False])
def test_what_is_no_file_is_refused_and_the_program_goes_on(tmp_path, model, copy):
    ring, pipe = tmp_path / "ring", tmp_path / "pipe"
    ring.symlink_to(ring)
    os.mkfifo(pipe)
    odd = (ring, pipe, "/dev/zero", "a\0b", "", Raises(), None, 7, b"\xff")
    with track.start("a") as run:
        for number, path in enumerate(odd):
            assert run.artifact(path, copy=copy) is None, number
            run.log({"loss": 1.0}, step=number)
        assert run.odd.total == 9
        assert run.artifact(model, copy=copy) is not None
        assert [row.name for row in artifacts(run)] == ["model.bin"]


def test_a_folder_with_a_pipe_in_it_comes_without_it(folder):
    os.mkfifo(folder / "pipe")
    with track.start("a") as run:
        assert run.artifact(folder, name="data", copy=True) is not None
        (row,) = artifacts(run)
        assert row.meta["files"] == 3 and run.odd.counts == {"artifact_link": 1}


def test_a_link_to_a_file_is_kept_as_what_it_leads_to(model, tmp_path):
    link = tmp_path / "best"
    link.symlink_to(model)
    with track.start("a") as run:
        run.artifact(link, copy=True)
        (row,) = artifacts(run)
        assert row.name == "best" and row.path.read_bytes() == model.read_bytes()


def test_names_with_escapes_and_paths_are_names(model):
    with track.start("a") as run:
        run.artifact(model, name="../../x\x1b[2J:v9", copy=True)
        (row,) = artifacts(run)
        assert row.name == "../../x\\x1b[2J_v9" and row.version == 1
        assert run.use_artifact(f"{row.name}:v1") == row.path
    lists = {path.parent for path in (albor_home() / "artifacts").rglob("*.jsonl")}
    assert lists == {albor_home() / "artifacts"}


@pytest.mark.parametrize("reference", ["absent", "m:v2", "m:v", "m:v99999999999", ":v1", ""])
def test_what_no_version_is_called_is_said_with_the_ones_there_are(model, reference):
    with track.start("a") as run:
        run.artifact(model, name="m")
        with pytest.raises(NotFoundError, match="no artefact") as told:
            run.use_artifact(reference)
    assert ("v1" in (told.value.hint or "")) == (reference == "m:v2")


def test_programs_at_the_same_time_get_different_numbers():
    def number(place):
        found = Version("m", 0, f"{place:064x}", 1, "", "r", "", "", 0.0)
        got.append(take(found).version)

    got: list[int] = []
    threads = [threading.Thread(target=number, args=(place,)) for place in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(1, 21))
    assert [one.version for one in versions("m")] == list(range(1, 21))


def test_a_torn_or_strange_line_in_the_list_costs_no_other_version(model):
    with track.start("a") as run:
        run.artifact(model, name="m")
        (path,) = (albor_home() / "artifacts").glob("*.jsonl")
        with path.open("ab") as file:
            file.write(b'{"name": "m"}\n[]\n{"name": "m", "versi')  # its writer was killed
        model.write_bytes(b"next")
        run.artifact(model, name="m")
        assert [one.version for one in versions("m")] == [1, 2]
        assert find("m").version == 2


def test_a_list_that_somebody_holds_costs_the_number_alone(model, monkeypatch):
    monkeypatch.setattr(artifact_versions, "_WAIT_S", 0.0)
    (albor_home() / "artifacts").mkdir(parents=True)
    with track.start("a") as run:
        with artifact_versions._held(albor_home() / "artifacts"):
            assert run.artifact(model, copy=True) is not None
        (row,) = artifacts(run)
        assert row.version is None and row.path.is_file()
        assert run.odd.counts == {"artifact_unversioned": 1}
