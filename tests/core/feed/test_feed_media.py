"""Media of a run as they are looked at: whole ones, and files that are anything but."""

from __future__ import annotations

import io
import os
import struct
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from albor_core import track
from albor_core.feed.archive.archive import RunArchive
from albor_core.feed.archive.media import MediumWanted
from albor_core.feed.archive.media_content import Bins, over_steps
from albor_core.run.rundir import RunDir
from albor_core.store.index.indexer import index_now

RED_OVER_BLUE = np.array([[[255, 0, 0]] * 3, [[0, 0, 255]] * 3], dtype=np.uint8)


@pytest.fixture
def kept():
    """Records what `record(run)` keeps; gives a function that looks at it."""
    archives = []

    def make(record):
        with track.start("media") as run:
            record(run)
        found = RunDir(run.path)
        index_now(found)
        archives.append(archive := RunArchive(found))

        def look(key, kind, **more):
            for _ in range(100):  # while the run's own index process lets go of the store
                if (view := archive.medium(MediumWanted(key, kind, **more))).is_known:
                    return view
                time.sleep(0.1)
            raise AssertionError(view.problem)

        return look

    yield make
    for archive in archives:
        archive.close()


def test_a_picture_grows_to_its_room_and_each_step_of_a_key_can_be_reached(kept):
    def record(run):
        for step in (0, 10, 30):
            run.image("a", np.full((2, 3, 3), step, dtype=np.uint8), step=step)
            run.image("b", RED_OVER_BLUE, step=step, caption="flag")

    look = kept(record)
    newest = look("b", "image", room=(12, 8))
    assert (newest.step, newest.nth, newest.count, newest.caption) == (30, 2, 3, "flag")
    assert newest.content.source == (3, 2) and (newest.content.width, newest.content.height) == (
        12,
        8,
    )
    assert newest.content.row(0)[:3] == b"\xff\0\0" and newest.content.row(7)[-3:] == b"\0\0\xff"
    assert [look("a", "image", nth=n).content.rgb[0] for n in (0, 1, 2, 9)] == [0, 10, 30, 30]
    assert [look("a", "image", step=step).step for step in (0, 14, 10**9)] == [0, 10, 30]


def test_a_large_photograph_shrinks_and_what_is_clear_shows_the_ground(kept):
    def record(run):
        photo, clear = io.BytesIO(), io.BytesIO()
        Image.new("RGB", (900, 300), (10, 200, 30)).save(photo, "JPEG")
        Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(clear, "PNG")
        run.image("photo", photo.getvalue())
        run.image("clear", clear.getvalue())
        run.image("deep", Image.fromarray(np.array([[0, 40_000]], dtype=np.uint16)))

    look = kept(record)
    photo = look("photo", "image", room=(60, 60)).content
    assert (photo.width, photo.height, photo.source) == (60, 20, (900, 300))
    assert abs(photo.rgb[1] - 200) < 4
    clear = look("clear", "image", room=(4, 4), ground=(1, 2, 3)).content
    assert clear.rgb[:3] == bytes((1, 2, 3))
    deep = look("deep", "image", room=(2, 1)).content
    assert deep.rgb == b"\0\0\0\xff\xff\xff"


def test_histograms_are_brought_to_common_edges_and_lose_nothing(kept):
    values = np.random.default_rng(3)
    look = kept(lambda run: [
        run.histogram("w", values.normal(0, 1 + step, 4000), step=step) for step in range(60)
    ])  # fmt: skip
    found = look("w", "histogram", nth=7)
    assert sum(found.content.counts) == 4000
    assert len(found.others.steps) <= 49 and found.others.steps[found.place] == 7
    assert all(abs(sum(row) - 1) < 1e-9 for row in found.others.shares)
    even = Bins((0.0, 1.0, 4.0), (2.0, 6.0))
    (row,) = over_steps([(0, even)], 4).shares
    assert row == pytest.approx((0.25, 0.25, 0.25, 0.25))


def test_a_table_and_a_text_are_read_as_far_as_they_are_shown(kept):
    rows = [[f"name {n}", n / 7, None if n % 2 else n] for n in range(5_000)]

    def record(run):
        run.table("long", rows, columns=["name", "share", "even"])
        run.table("short", [["\x1b[31m", 1]], columns=["a", "b"])
        run.table("none", [], columns=["a"])
        run.text("said", "\x1b[31mred\x1b[0m\n" + "word " * 90_000)

    look = kept(record)
    long = (found := look("long", "table")).content
    assert long is not None, found.problem
    assert long.is_cut and len(long.rows) == 2000 and long.numeric == (False, True, True)
    assert long.rows[3] == ("name 3", "0.42857", "")
    assert look("short", "table").content.rows == (("\x1b[31m", "1"),)
    assert look("none", "table").content.rows == ()
    said = look("said", "text").content
    assert said.is_cut and said.lines[0] == "red" and sum(map(len, said.lines)) < 200_001


def test_sound_says_what_it_is_and_what_opens_it(kept):
    look = kept(lambda run: run.audio("voice", np.zeros(800, dtype=np.float32), sample_rate=8000))
    found = look("voice", "audio")
    assert found.content is None and found.problem == "sound is not shown in a terminal"
    assert "8,000 Hz" in found.facts and found.opener == f"xdg-open {found.path}"


def bomb() -> bytes:
    """A PNG of 60,000 x 60,000 pixels in some bytes."""

    def chunk(kind, body):
        check = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(10_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def huge(path):
    with path.open("wb") as file:
        file.truncate(200 << 20)  # a hole


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: None, "its file is gone"),
        (lambda path: path.write_bytes(b""), "its file is empty: 0 bytes"),
        (lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 40), "it is damaged"),
        (lambda path: path.write_bytes(b"no picture"), "it is damaged, or not a picture"),
        (lambda path: path.write_bytes(bomb()), "60,000 x 60,000 pixels are more than"),
        (huge, "its file is too large to be shown: 200 MiB"),
        (lambda path: os.mkfifo(path), "its file is a FIFO"),
        (lambda path: path.mkdir(), "its file is a folder"),
        (lambda path: path.symlink_to("/etc/hostname"), "its file is a link"),
    ],
    ids=["gone", "empty", "torn", "other", "bomb", "huge", "fifo", "folder", "link"],
)  # fmt: skip
def test_a_picture_that_cannot_be_shown_says_why_in_a_line(kept, spoil, said):
    look = kept(lambda run: run.image("a", RED_OVER_BLUE))
    path = Path(look("a", "image").path)
    path.unlink()
    spoil(path)
    found = look("a", "image")
    assert found.content is None and said in found.problem and "\n" not in found.problem


@pytest.mark.parametrize("kind", ["table", "histogram", "text"])
@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"{}", b'{"columns":["a"],"data":[[1],'])
def test_other_media_of_any_bytes_break_nothing(kept, kind, content):
    def record(run):
        run.table("a", [["x" * 50] * 2] * 99, columns=["p", "q"])
        run.histogram("a", np.arange(4000), bins=4000)
        run.text("a", "long " * 2000)

    look = kept(record)
    path = Path(look("a", kind).path)
    path.chmod(0o600)
    path.write_bytes(content)
    found = look("a", kind)
    assert found.problem if kind != "text" or not content else found.content.lines


def test_without_a_decoder_it_is_said_what_to_install(kept, monkeypatch):
    look = kept(lambda run: run.image("a", RED_OVER_BLUE))
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "pip install pillow" in look("a", "image").problem


def test_a_key_that_a_rewind_took_back_is_said(kept):
    look = kept(lambda run: run.image("a", RED_OVER_BLUE))
    found = look("b", "image")
    assert found.problem and found.is_known
