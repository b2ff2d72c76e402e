"""albor_core.history: the media of a run, with where each lies."""

from __future__ import annotations

import shutil

import pytest

from albor_core import history
from albor_core.run.errors import NotFoundError
from albor_core.run.files.media_file import publish
from albor_core.store.index.indexer import index_now

ODD = '=cmd()\x1b[31m\u202e,"q"\n'


@pytest.fixture
def run(maker):
    made, journal = maker.start("r")
    file = publish(made.path, "png", b"png")
    head = {"bytes": 3, "name": "", "caption": ODD}
    meta: dict[str, object] = {"format": "png"}
    journal.append("b", step=1, key="seen", kind="image", hash=file.hash, meta=meta, **head)
    meta = {"format": "json", "data": {"counts": [1, 2]}}
    journal.append("b", step=2, key="weights", kind="histogram", hash="ab" * 32, meta=meta, **head)
    journal.close()
    index_now(made)
    return made


def test_media_are_rows_that_say_where_each_lies(run):
    picture, weights = history.run("r").media
    assert picture.path.read_bytes() == b"png" and picture.caption == ODD
    assert (weights.data, weights.path) == ({"counts": [1, 2]}, None)
    rows = history.run("r").media.to_list()
    assert [row["path"] for row in rows] == [str(picture.path), None]
    assert [row["key"] for row in rows] == ["seen", "weights"]


def test_media_become_tables(run):
    pytest.importorskip("pyarrow")
    table = history.run("r").media.to_arrow()
    assert table["step"].to_pylist() == [1, 2] and table["version"].null_count == 2


def test_a_run_without_media_has_none(maker):
    maker.make("plain")
    assert list(history.run("plain").media) == []


def test_media_of_a_run_whose_folder_is_gone_are_gone(run):
    shutil.rmtree(run.path)
    with pytest.raises(NotFoundError, match="the run directory is gone"):
        list(history.run("r").media)
