"""Media in the store: what the journal says of them, also of an old store and after a rebuild."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from albor_core.run.files.media_file import publish
from albor_core.store.file.connect import open_writer
from albor_core.store.file.paths import global_store
from albor_core.store.file.schema import SCHEMA_SQL, missing
from albor_core.store.query.media import media
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.rebuild import rebuild

HASH = "ab" * 32


def said(journal, step, key="samples", kind="image", **more):
    line = {"hash": HASH, "bytes": 3, "name": "", "caption": "", "meta": {"format": "png"}, **more}
    journal.append("b", step=step, key=key, kind=kind, **line)


def test_media_come_back_as_they_were_said_and_a_rebuild_gives_the_same(bench, snapshot_of):
    run = bench.run()
    file = publish(run.path, "png", b"png")
    journal = bench.journal(run)
    said(journal, 1, hash=file.hash, caption="first\x1b[31m")
    said(journal, 2, "weights", "histogram", meta={"format": "json", "data": {"counts": [1, 2]}})
    said(journal, None, "model", "artifact", name="model", version=3)
    bench.index(run)
    picture, weights, model = media(run)
    assert (picture.key, picture.step, picture.kind) == ("samples", 1, "image")
    assert picture.caption == "first\x1b[31m" and picture.path.read_bytes() == b"png"
    assert weights.data == {"counts": [1, 2]} and weights.path is None
    assert (model.name, model.version, model.step) == ("model", 3, None)
    with sqlite3.connect(global_store()) as db:
        assert db.execute("SELECT key, version FROM media").fetchall() == [("model", 3)]
    before = snapshot_of(run.store), snapshot_of(global_store())
    assert rebuild(None, [run]).problems == []
    assert (snapshot_of(run.store), snapshot_of(global_store())) == before
    assert media(run) == [picture, weights, model]


def test_what_a_rewind_takes_back_is_gone_but_for_versions_of_artefacts(bench):
    run = bench.run()
    journal = bench.journal(run)
    for step in (1, 5, 9):
        said(journal, step)
    said(journal, 9, "model", "artifact", name="model", version=1)
    journal.rewind(4)
    said(journal, 5, caption="again")
    bench.index(run)
    found = [(row.key, row.step, row.caption) for row in media(run)]
    assert found == [("samples", 1, ""), ("model", 9, ""), ("samples", 5, "again")]


def test_what_an_attempt_keeps_before_its_first_numbers_outlives_the_rewind_by_them(bench):
    run = bench.run()
    for attempt in (1, 2):
        journal = bench.journal(run, attempt=attempt)
        journal.event("run.start", attempt=attempt)
        said(journal, 5, caption=f"attempt {attempt}")
        if attempt == 2:
            journal.rewind(4)
        journal.metrics(5, {"train/loss": 1.0})
    bench.index(run)
    assert [row.caption for row in media(run)] == ["attempt 2"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"hash": "../../etc/passwd"},
        {"hash": None},
        {"kind": "virus"},
        {"kind": ["image"]},
        {"key": ""},
        {"key": 7},
    ],
)
def test_a_record_that_tells_of_no_medium_is_counted_and_left_out(bench, wrong):
    run = bench.run()
    journal = bench.journal(run)
    said(journal, 1)
    said(journal, 2, **wrong)
    bench.index(run)
    assert [row.step for row in media(run)] == [1]
    with Reader(run.store) as reader:
        assert {p.file: p.ignored for p in reader.positions(run.id)}["journal"] == 1


def test_a_format_that_leaves_the_folder_and_a_link_are_no_file(bench, tmp_path):
    run = bench.run()
    (tmp_path / "secret").write_bytes(b"secret")
    folder = run.path / "media" / HASH[:2]
    folder.mkdir(parents=True)
    (folder / f"{HASH}.png").symlink_to(tmp_path / "secret")
    journal = bench.journal(run)
    said(journal, 1, meta={"format": "png/../../../../secret"})
    said(journal, 2)
    said(journal, 3, meta=[1])
    bench.index(run)
    assert [row.path for row in media(run)] == [None, None, None]


def test_a_store_of_the_fifth_version_gets_its_table_of_media(tmp_path, bench):
    run = bench.run()
    bench.journal(run).metrics(1, {"train/loss": 1.0})
    bench.index(run)
    with closing(sqlite3.connect(run.store, isolation_level=None)) as db:
        db.execute("DROP TABLE media")
        db.execute("PRAGMA user_version = 5")
        assert missing(db) == []
    assert media(run) == []  # it can be read as it is
    open_writer(run.store).close()
    with closing(sqlite3.connect(run.store)) as db:
        (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'media'").fetchone()
        assert sql in SCHEMA_SQL
    said(bench.journal(run), 2)
    bench.index(run)
    assert [row.step for row in media(run)] == [2]
