"""Data as it is shown: which sets are known, what became of their folders, what a run read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from albor_core.data.clean.contamination import Hit
from albor_core.feed.archive.archive import RunArchive
from albor_core.feed.data.batch import batch_of
from albor_core.feed.data.folder import look_into
from albor_core.feed.data.known import DataShelf, known_data_sets
from albor_core.feed.data.sheet import sheet_of
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def shards(folder: Path, split: str, seal: str, **more: Any) -> None:
    document = {"schema": "albor.shards/1", "split": split, "data_hash": seal, "shards": []}
    write(folder / "manifest.json", {**document, "documents": 3, "tokens": 40, **more})


def data_set(folder: Path, seals: dict[str, str]) -> Path:
    for split, seal in seals.items():
        shards(folder / split, split, seal, sequences=10)
    write(folder / "manifest.json", {"schema": "albor.dataset/1", "splits": seals})
    return folder


def register(home: Path, name: str, **entry: Any) -> None:
    write(home / "datasets" / f"{name}.json", entry)


def trained(folder: Path, name: str, path: str, seal: str, *, cwd: Path | None = None) -> RunDir:
    data = {"train": {"path": path, "data_hash": seal, "sequences": 10, "row_len": 4}, "val": None}
    run = create_run(
        folder, name, experiment="e", name=name, kind="train", argv=["x"],
        resolved={"training": {"mode": "causal_lm"}, "data": {"seq_len": 4, "batch_size": 2}},
        facts={"data": data}, created=1_000.0 + len(name),
    )  # fmt: skip
    if cwd is not None:
        write(run.launch, {"cwd": str(cwd)})
    journal = Journal(run.journal, attempt=1)
    journal.metrics(5, {"train/loss": 1.0, "data/a/b_sequences": 12.0})
    journal.close()
    index_now(run)
    return run


def shelf() -> DataShelf:
    return known_data_sets(global_store())


# -- which are known -------------------------------------------------------------------------------


def test_without_a_home_nothing_is_known_and_nothing_is_wrong():
    assert shelf() == DataShelf()


def test_registered_sets_and_those_that_runs_read_are_one_list(tmp_path, home):
    whole = data_set(tmp_path / "code", {"train": "t1", "val": "v1"})
    register(home, "code-v3", path=str(whole), made=500.0, kind="dataset")
    trained(tmp_path / "out", "one", "code/train", "t1", cwd=tmp_path)
    trained(tmp_path / "out", "second", str(whole / "train"), "older", cwd=tmp_path)
    shards(tmp_path / "alone", "train", "a1")
    trained(tmp_path / "out", "third-run", "alone", "a1", cwd=tmp_path)
    sets = {view.path: view for view in shelf().sets}
    assert list(sets) == [str(tmp_path / "alone"), str(whole)]  # the newest first
    code = sets[str(whole)]
    assert (code.name, code.kind, code.is_registered, code.made) == (
        "code-v3",
        "dataset",
        True,
        500,
    )
    assert [(user.name, user.is_same) for user in code.users] == [("second", False), ("one", True)]
    assert code.changed == 1 and code.num_users == 2
    assert (code.folder.documents, code.folder.tokens, code.folder.sequences) == (6, 80, 20)
    assert not sets[str(tmp_path / "alone")].is_registered


def test_what_lies_there_no_more_is_said_to_be_gone(tmp_path, home):
    whole = data_set(tmp_path / "code", {"train": "t1"})
    register(home, "code", path=str(whole), made="2026-01-02T03:04:05+00:00", kind="dataset")
    run = trained(tmp_path / "out", "one", "lost/train", "t2", cwd=tmp_path)
    shutil.rmtree(whole)
    states = {view.path: (view.folder.state, view.kind) for view in shelf().sets}
    assert states[str(whole)] == ("gone", "dataset")
    assert states[str(tmp_path / "lost" / "train")] == ("gone", "")
    assert next(view.made for view in shelf().sets if view.is_registered) == 1_767_323_045.0
    shutil.rmtree(run.path)  # and with it what its path was relative to
    (lost,) = (view for view in shelf().sets if not view.is_registered)
    assert (lost.path, lost.folder.state) == ("lost/train", "gone")
    assert "is not known" in lost.folder.why


@pytest.mark.parametrize(
    ("content", "state", "why"),
    [
        ("{", "damaged", "not complete JSON"),
        ("", "damaged", "empty"),
        ('{"schema": "other/1"}', "unknown", "another program"),
        ("[]", "damaged", "manifest.json"),
    ],
)
def test_a_manifest_that_says_nothing_is_never_shown_as_fine(tmp_path, content, state, why):
    (tmp_path / "manifest.json").write_text(content)
    found = look_into(tmp_path)
    assert found.state == state and why in found.why


def test_a_whole_set_without_one_of_its_splits_is_damaged(tmp_path):
    whole = data_set(tmp_path / "code", {"train": "t", "val": "v"})
    shutil.rmtree(whole / "val")
    assert look_into(whole).state == "damaged"


def test_entries_that_cannot_be_understood_are_named_and_hide_no_others(tmp_path, home):
    whole = data_set(tmp_path / "code", {"train": "t"})
    register(home, "good", path=str(whole))
    register(home, "relative", path="code")
    (home / "datasets" / "torn.json").write_text('{"path": "/x')
    found = shelf()
    assert [view.name for view in found.sets] == ["good"]
    assert "relative.json" in found.problem and "torn.json" in found.problem


def test_a_store_that_cannot_be_read_is_a_problem_and_not_an_empty_list(tmp_path, home):
    whole = data_set(tmp_path / "code", {"train": "t"})
    register(home, "good", path=str(whole))
    (home / "experiments.db").write_bytes(b"not a database, but long enough for its header" * 40)
    found = shelf()
    assert [view.name for view in found.sets] == ["good"]
    assert "data of runs is not known" in found.problem


# -- what a run read -------------------------------------------------------------------------------


def data_of(run: RunDir):
    archive = RunArchive(run)
    try:
        return archive.data()
    finally:
        archive.close()


def test_the_data_of_a_run_is_what_it_recorded_and_whether_that_is_still_there(tmp_path):
    whole = data_set(tmp_path / "code", {"train": "t1", "val": "v1"})
    run = trained(tmp_path / "out", "one", "code/train", "t1", cwd=tmp_path)
    data = data_of(run)
    assert data.why_none == "" and data.data_set == str(whole)
    (train,) = data.splits
    assert (train.path, train.is_same, train.sequences) == (str(whole / "train"), True, 10)
    assert data.seen == {"a/b": 12} and (data.seq_len, data.batch_size) == (4, 2)
    shards(whole / "train", "train", "t2", sequences=11)
    assert data_of(run).splits[0].is_same is False
    shutil.rmtree(whole)
    assert data_of(run).splits[0].folder.state == "gone"
    assert data_of(run).splits[0].is_same is None
    shutil.rmtree(run.path)  # the store remembers
    assert data_of(run).splits[0].data_hash == "t1"


def test_a_run_that_mixes_folders_reads_each_of_them(tmp_path):
    code = data_set(tmp_path / "code", {"train": "c"})
    prose = data_set(tmp_path / "prose", {"train": "p"})
    mixture = [
        {"path": "code/train", "weight": 3.0, "name": None},
        {"path": str(prose / "train"), "weight": 1.0, "name": "books"},
    ]
    run = create_run(
        tmp_path / "out", "mixed", experiment="e", name="mixed", kind="train", argv=["x"],
        resolved={"training": {"mode": "causal_lm"}, "data": {"mixture": mixture}},
        facts={"data": {"train": {"path": "code/train", "sources": [
            {"source": "code", "path": "code/train", "data_hash": "c"},
            {"source": "books", "path": str(prose / "train"), "data_hash": "old"},
        ]}, "val": None}},
    )  # fmt: skip
    write(run.launch, {"cwd": str(tmp_path)})
    index_now(run)
    data = data_of(run)
    assert [(one.name, one.weight, one.folder.state, one.is_same) for one in data.mixture] == [
        ("code", 0.75, "here", True), ("books", 0.25, "here", False),
    ]  # fmt: skip
    assert data.splits == () and data.why_none == ""
    assert {view.path: view.num_users for view in shelf().sets} == {str(code): 1, str(prose): 1}


@pytest.mark.parametrize(
    ("kind", "mode", "words"),
    [
        ("track", "", "its own trainer only"),
        ("train", "mine.loop:Task", "mine.loop:Task"),
        ("train", "causal_lm", "recorded no data"),
    ],
)
def test_a_run_whose_data_are_not_known_says_why(tmp_path, kind, mode, words):
    run = create_run(
        tmp_path, "r", experiment="e", name="r", kind=kind, argv=[],
        resolved={"training": {"mode": mode}}, facts={"data": {"train": None}},
    )  # fmt: skip
    assert words in data_of(run).why_none


# -- documents -------------------------------------------------------------------------------------


def test_shares_are_of_the_measure_that_every_source_has():
    sources = [
        {"source": "a", "documents": 1, "bytes": 30, "tokens": None, "documents_in": 4},
        {"source": "b", "documents": 3, "bytes": 10, "tokens": 5, "dropped": {"short": 1}},
    ]
    sheet = sheet_of({"sources": sources})
    assert sheet.measure == "bytes"
    assert [(one.name, one.share) for one in sheet.sources] == [("a", 0.75), ("b", 0.25)]
    assert [(one.lost, one.lost_share) for one in sheet.sources] == [(3, 0.75), (1, 0.25)]


def test_what_a_document_does_not_say_is_unknown_and_never_nothing():
    odd = {"sources": [{"source": 7, "tokens": "x"}, 3], "steps": {}, "licences": {"MIT": "a"},
           "histogram": {"edges": [1, 2], "counts": [1, 2]}, "documents": None}  # fmt: skip
    sheet = sheet_of(odd)
    assert sheet.documents is None and sheet.contamination is None
    assert all(one.share is None and one.lost is None for one in sheet.sources)
    assert sheet.lengths.counts == () and sheet.licences == ()
    assert sheet_of({"contamination": {"hits": []}}).contamination is not None


def test_a_document_of_another_split_is_not_lost_and_settings_are_told_flat():
    step = {
        "step": "pretokenize", "documents_in": 10, "documents": 7, "splits": ["train"],
        "dropped": {"other_part": 2, "short": 1},
        "settings": {"seed": 0, "on": True, "off": False, "none": None, "of": {"deep": 0.5},
                     "sha": "ab" * 32, "suffixes": [".py", ".pyi"], "sources": [{}, {}]},
    }  # fmt: skip
    (found,) = sheet_of({"steps": [step]}).steps
    assert (found.lost, found.elsewhere, found.splits) == (1, 2, ("train",))
    assert found.settings == (
        ("seed", "0"), ("on", "yes"), ("deep", "0.5"), ("sha", "abababababab"),
        ("suffixes", ".py,.pyi"), ("sources", "2"),
    )  # fmt: skip


def test_hits_are_told_from_the_worst_on_as_the_step_records_them():
    hits = [
        Hit("a", "t/1", 0.5, 0.2, 1, "a b"),
        Hit("b", "t/1", 0.1, 0.9, 4, "c d"),
        Hit("b", "t/2", 0.1, 0.1, 2, "c d"),
    ]
    said = {"against": ["x"], "hits": [*(hit.to_json() for hit in hits), {"document": "c"}]}
    found = sheet_of({"contamination": said}).contamination
    assert [(hit.document, hit.share) for hit in found.hits] == [
        ("b", 0.9), ("a", 0.2), ("b", 0.1), ("c", None),
    ]  # fmt: skip
    assert found.documents == 3


def test_a_batch_is_read_row_by_row():
    rows = [{"row": 5, "source": None, "tokens": 4, "documents": [0, 2], "text": "x", "fim": True}]
    batch = batch_of({"step": 3, "rows": [*rows, None]})
    assert batch.step == 3 and batch.rows[0].is_fim and batch.rows[0].documents == (0, 2)
    assert batch.rows[1].text is None and batch.rows[1].row is None
