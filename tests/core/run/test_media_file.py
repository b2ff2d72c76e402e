"""Files by their contents: once, whole or not at all, and nowhere else."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from albor_core.run.files import media_file
from albor_core.run.files.media_file import (
    TooLargeError,
    hash_of,
    kept,
    media_path,
    publish,
    publish_copy,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(params=["nameless", "hidden"])
def way(request, monkeypatch):
    """Both ways to write a file: file systems differ in what they know."""
    if request.param == "hidden":
        monkeypatch.setattr(media_file, "NAMELESS", 0)
    return request.param


def files(run):
    return sorted(path for path in (run / "media").rglob("*") if path.is_file())


def test_equal_contents_are_one_file_whoever_brings_them(tmp_path, way):
    first = publish(tmp_path, "txt", b"hello")
    again = publish(tmp_path, "txt", b"hello")
    copied = publish_copy(tmp_path, "txt", io.BytesIO(b"hello"), 5)
    assert (first.is_new, again.is_new, copied.is_new) == (True, False, False)
    assert first.hash == again.hash == copied.hash == hash_of(b"hello")
    path = media_path(tmp_path, first.hash, "txt")
    assert path is not None and files(tmp_path) == [path] and path.read_bytes() == b"hello"
    assert [(found, status.st_size) for found, status in kept(tmp_path)] == [(path, 5)]


def test_threads_that_publish_the_same_contents_leave_one_file(tmp_path, way):
    contents = [str(number % 5).encode() * 1000 for number in range(40)]
    threads = [
        threading.Thread(target=publish, args=(tmp_path, "bin", content)) for content in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(files(tmp_path)) == 5


def test_what_is_too_large_or_cannot_be_read_leaves_nothing(tmp_path, way):
    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(TooLargeError):
        publish_copy(tmp_path, "bin", io.BytesIO(b"x" * 100), 99)
    with pytest.raises(OSError, match="Input/output"):
        publish_copy(tmp_path, "bin", Broken(), 99)
    assert files(tmp_path) == []


def test_half_a_file_that_a_power_cut_left_is_replaced(tmp_path, way):
    path = media_path(tmp_path, publish(tmp_path, "bin", b"whole").hash, "bin")
    path.unlink()
    path.write_bytes(b"wh")
    assert publish(tmp_path, "bin", b"whole").is_new
    assert path.read_bytes() == b"whole" and files(tmp_path) == [path]


def test_links_in_the_place_of_folders_are_not_followed(tmp_path):
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    run.mkdir()
    (run / "media").symlink_to(outside)
    with pytest.raises(OSError):
        publish(run, "txt", b"hello")
    (run / "media").unlink()
    (run / "media").mkdir()
    (run / "media" / hash_of(b"hello")[:2]).symlink_to(outside)
    with pytest.raises(OSError):
        publish(run, "txt", b"hello")
    assert list(outside.iterdir()) == [] and list(kept(run)) == []


@pytest.mark.parametrize(
    ("digest", "form"),
    [("../../etc/passwd", "txt"), ("a" * 64, "../x"), ("A" * 64, "txt"), ("", ""), ("a" * 63, "c")],
)
def test_what_is_no_hash_names_no_file(tmp_path, digest, form):
    assert media_path(tmp_path, digest, form) is None


DYING = """
import os, sys
from pathlib import Path
from albor_core.run.files import media_file

if sys.argv[2] == "hidden":
    media_file.NAMELESS = 0
print("ready", flush=True)
number = 0
while True:
    number += 1
    media_file.publish(Path(sys.argv[1]), "bin", bytes([number % 251]) * (1 << 20))
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_leaves_whole_files_only(tmp_path, way):
    writer = subprocess.Popen(
        [sys.executable, "-c", DYING, tmp_path, way], stdout=subprocess.PIPE, cwd=ROOT
    )
    for _ in range(4):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    found = [path for path, _ in kept(tmp_path)]
    assert len(found) >= 3
    assert all(hash_of(path.read_bytes()) == path.stem for path in found)
    others = set(files(tmp_path)) - set(found)
    assert all(path.name.startswith(".") for path in others)  # as `clear_halves` knows them
    assert way == "hidden" or not others
