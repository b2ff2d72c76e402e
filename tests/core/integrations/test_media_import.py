"""Media that other trackers hold come with their runs: whole, once, from their folders alone."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import tarfile
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.integrations.importers.foreign import ForeignMedium, ForeignRun, Losses
from albor_core.integrations.importers.media import kept as media_kept
from albor_core.integrations.importers.media.summary_value import media_of
from albor_core.integrations.importers.run_import import import_run
from albor_core.run.files.media_file import kept
from albor_core.run.rundir import RunDir
from albor_core.store.query.media import media

PEERS = Path(__file__).parent / "fixtures" / "peers.tar.gz"
AT = (1, 2.0)


def png(width=2, height=2):
    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IEND", b"")


@pytest.fixture
def peers(tmp_path):
    with tarfile.open(PEERS) as archive:
        archive.extractall(tmp_path / "peers", filter="data")
    return tmp_path / "peers"


def bring(*words):
    done = CliRunner().invoke(cli, ["runs", "import", "--json", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return {run["name"]: run for run in json.loads(done.stdout)["runs"]}


def rows(run):
    return {row.key: row for row in media(RunDir(Path(run["path"])))}


# -- each peer -----------------------------------------------------------------------------------


def test_tensorboard_gives_its_pictures_histograms_and_texts(peers):
    run = bring(peers / "tb-x")["train"]
    found = rows(run)
    assert {key.rpartition("/")[2] for key in found} >= {"weights", "picture"}
    picture, weights = found["picture"], found["weights"]
    assert (picture.kind, picture.step, picture.meta["width"]) == ("image", 40, 2)
    assert picture.path.read_bytes().startswith(b"\x89PNG")
    bins = weights.data or json.loads(weights.path.read_bytes())
    assert (weights.kind, sum(bins["counts"])) == ("histogram", 8)
    assert len(bins["edges"]) == len(bins["counts"]) + 1 and bins["edges"][-1] == 7
    assert [row.data for row in found.values() if row.kind == "text"] == ["hello"]
    again = bring(peers / "tb-x")["train"]
    assert again["change"] == "unchanged" and rows(again) == found
    files = {row.path for row in found.values() if row.path is not None}
    assert {path for path, _ in kept(Path(run["path"]))} == files


def test_wandb_gives_histograms_texts_and_tables_whose_files_are_there(peers):
    run = bring(peers / "wandb")["a finished run"]
    found = rows(run)
    histogram = next(row for row in found.values() if row.kind == "histogram")
    assert histogram.data == {"counts": [1, 2], "edges": [0.0, 0.5, 1.0]}
    assert {row.kind for row in found.values()} == {"histogram", "text"}


def test_mlflow_gives_pictures_of_steps_tables_and_texts_of_its_own_folder(peers, tmp_path):
    (meta,) = [m for m in (peers / "mlruns").rglob("meta.yaml")
               if "a finished run" in m.read_text()]  # fmt: skip
    folder = meta.parent / "artifacts"
    (folder / "images").mkdir()
    outside = tmp_path / "secret.png"
    outside.write_bytes(png())
    name = "val#samples%step%7%timestamp%1700000000000%abc"
    (folder / "images" / f"{name}.png").write_bytes(png(4, 3))
    (folder / "images" / f"{name}%compressed.webp").write_bytes(b"thumbnail")
    (folder / "table.json").write_text(json.dumps({"columns": ["a"], "data": [[1], [2]]}))
    (folder / "notes.md").write_text("# told")
    (folder / "link.png").symlink_to(outside)
    run = bring(peers / "mlruns")["a finished run"]
    found = rows(run)
    assert found.keys() == {"val/samples", "table.json", "notes.md"} and run["media"] == 3
    assert (found["val/samples"].step, found["val/samples"].meta["width"]) == (7, 4)
    assert found["table.json"].data == {"columns": ["a"], "data": [[1], [2]]}
    assert found["notes.md"].data == "# told"


def test_a_database_of_mlflow_cannot_name_a_folder_that_is_not_beside_it(peers, tmp_path):
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "secret.png").write_bytes(png())
    database = next((peers / "mlflow").rglob("*.db"))
    with sqlite3.connect(database) as db:
        db.execute("UPDATE runs SET artifact_uri = ?", (f"file://{outside}",))
    run = bring(peers / "mlflow")["a finished run"]
    assert (run["unmapped"], run["media"]) == ({"artifact": 1}, 0)


# -- values as W&B and trackio write them --------------------------------------------------------


def typed(value, folder, key="k"):
    losses = Losses()
    _, found = media_kept.parted({key: value})
    return [*media_kept.typed(AT, found, folder, losses)], losses.unmapped


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "files"
    (made / "media").mkdir(parents=True)
    (made / "media" / "a.png").write_bytes(png(4, 3))
    (made / "media" / "b.wav").write_bytes(b"RIFF\0\0\0\0WAVEfmt ")
    (made / "media" / "t.json").write_text('{"columns": ["a"], "data": [[1]]}')
    return made


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        ({"_type": "image-file", "path": "media/a.png", "caption": "c"}, ["image"]),
        ({"_type": "images/separated", "filenames": ["media/a.png"] * 2, "captions": ["x"]},
         ["image", "image"]),
        ({"_type": "audio-file", "path": "media/b.wav"}, ["audio"]),
        ({"_type": "audio", "audio": [{"path": "media/b.wav"}]}, ["audio"]),
        ({"_type": "table-file", "path": "media/t.json"}, ["table"]),
        ({"_type": "histogram", "values": [1, 2], "packedBins": {"min": 0, "size": 1, "count": 2}},
         ["histogram"]),
        ({"_type": "trackio.image", "file_path": "media/a.png"}, ["image"]),
        ({"_type": "trackio.table", "_value": [{"a": 1}, {"b": 2}]}, ["table"]),
        ({"_type": "trackio.markdown", "_value": "# t"}, ["text"]),
        ("words", ["text"]),
    ],
)  # fmt: skip
def test_a_value_that_is_a_medium_is_kept(folder, value, kinds):
    found, unmapped = typed(value, folder)
    assert [one.kind for one in found] == kinds and not unmapped


@pytest.mark.parametrize(
    "path",
    [
        "../secret.png", "media/../../secret.png", "/etc/hostname", "media/link.png", "deep/a.png",
        "media", "media/pipe", "media/gone", "a\0b", "", 7, None, ["media/a.png"], "x" * 9000,
        "media/huge.png", "media/bomb.png", "ring/a.png",
    ],
)  # fmt: skip
def test_a_path_that_is_no_file_of_the_peer_is_left_out_and_counted(folder, tmp_path, path):
    (tmp_path / "secret.png").write_bytes(png())
    (folder / "media" / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "deep").symlink_to(folder / "media")
    (folder / "ring").symlink_to(folder / "ring")
    (folder / "media" / "bomb.png").write_bytes(png(1 << 20, 1 << 20))
    os.mkfifo(folder / "media" / "pipe")
    with (folder / "media" / "huge.png").open("wb") as file:
        file.write(png())
        file.truncate(4 << 30)
    found, unmapped = typed({"_type": "image-file", "path": path}, folder)
    assert found == [] and unmapped == {"image-file": 1}


@pytest.mark.parametrize(
    "value",
    [
        {"_type": "histogram", "values": [1], "bins": [0]},
        {"_type": "histogram", "values": [1], "bins": [0, float("nan")]},
        {"_type": "histogram", "values": "12", "bins": "123"},
        {
            "_type": "histogram",
            "values": [1],
            "packedBins": {"min": 0, "size": 1, "count": 1 << 60},
        },
        {"_type": "trackio.table", "_value": [[1]]},
        {"_type": "table-file", "path": "media/a.png"},
        {"_type": "images/separated", "filenames": "media/a.png"},
        {"_type": "object3D-file", "path": "media/a.png"},
        {"_type": ["image-file"]},
    ],
)
def test_a_value_that_only_says_that_it_is_a_medium_is_counted(folder, value):
    found, unmapped = typed(value, folder)
    assert found == [] and sum(unmapped.values()) == 1


@pytest.mark.parametrize(
    "value", [{4: b""}, {5: b""}, {6: b"\x22\x03abc"}, {8: b"", 9: b""}, {4: b"\x22\x02xy"}]
)
def test_a_summary_of_tensorboard_with_nothing_in_it_is_left_out(value):
    assert media_of(AT, "k", "images", value) == [None]


# -- the run -------------------------------------------------------------------------------------


def foreign(*media):
    return ForeignRun(
        source="csv", key="k", name="n", experiment="e", where=Path("x"),
        items=lambda losses: iter(media), created=1.0,
    )  # fmt: skip


def test_keys_captions_and_long_texts_of_others_fit_and_touch_no_terminal(albor_home):
    wide = "\u20ac" * 700  # six bytes each in the journal
    run = import_run(
        foreign(
            ForeignMedium(
                1, 2.0, "../k\x1b[2J", "text", "txt", wide.encode(), {}, "\x1b]0;x" * 400
            ),
            ForeignMedium(None, None, "", "image", "png", png(), {}),
        )
    )
    first, second = media(RunDir(Path(run.path)))
    assert first.path.read_text() == wide and first.caption.isprintable()
    assert (first.key, first.step) == ("../k\\x1b[2J", 1) and len(first.caption) <= 512
    assert second.path.read_bytes() == png() and second.step is None
    assert {path.parent.parent for path, _ in kept(Path(run.path))} == {Path(run.path) / "media"}
    assert not list((albor_home / "runs").glob(".import*"))
