"""What a host of `albor runs pull` sends is bounded, and no time of it is believed unseen."""

import io
import os
import sys
import tarfile
import threading
from contextlib import contextmanager

import pytest

from albor_core.integrations.importers.copies import bounded_pipe
from albor_core.integrations.importers.copies.bounded_pipe import (
    MAX_LINE,
    BeyondBounds,
    BoundedPipe,
    members,
    time_of,
)


@contextmanager
def sent(*pieces, limit=64 << 20, stays=False):
    """A pipe that a host writes `pieces` to, and no more than is taken."""
    (out, into), (errors, complaints) = os.pipe(), os.pipe()

    def write():
        try:
            for piece in pieces:
                left = memoryview(piece)
                while left:
                    left = left[os.write(into, left) :]
        except OSError:
            return
        if not stays:
            os.close(into)
            os.close(complaints)

    host = threading.Thread(target=write)
    host.start()
    try:
        yield BoundedPipe(out, errors, limit)
    finally:
        os.close(out)
        host.join()
        os.close(errors)


def tar(*files, **notes):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(content), notes
            archive.addfile(member, io.BytesIO(content))
    return raw.getvalue()


@pytest.mark.parametrize("said", ["nan", "inf", "-5", "1e300"])
def test_a_time_of_change_that_is_none_is_the_beginning_of_time(said):
    with sent(tar(("r/run.json", b"{}"), mtime=said)) as pipe:
        ((name, member, _),) = members(pipe, 1)
    assert (name, member.size, time_of(member)) == ("r/run.json", 2, 0.0)


def test_lines_come_as_they_are_and_one_without_end_is_refused_after_a_mebibyte():
    with sent(b"one\n\nlast") as pipe:
        assert list(pipe.lines()) == [b"one\n", b"\n", b"last"]
    with sent(b"one\n", *[b"x" * MAX_LINE] * 3) as pipe:
        found = pipe.lines()
        assert next(found) == b"one\n"
        with pytest.raises(BeyondBounds, match="1 MiB"):
            next(found)


def test_no_more_bytes_are_read_than_were_listed():
    with sent(b"x" * 100, b"y" * (1 << 20), limit=1 << 18) as pipe:
        assert pipe.read(50) == b"x" * 50
        with pytest.raises(BeyondBounds, match="more than it listed"):
            pipe.read(1 << 20)


@pytest.mark.parametrize("limit_s", ["_QUIET_S", "_PATIENCE_S"])
def test_a_host_that_says_nothing_is_not_waited_for_without_end(monkeypatch, limit_s):
    monkeypatch.setattr(bounded_pipe, limit_s, -1e9)
    with sent(b"some", stays=True) as pipe, pytest.raises(BeyondBounds, match="nothing"):
        pipe.read(100)


def test_once_its_time_is_over_a_host_is_not_read_on_whatever_it_complains(monkeypatch):
    monkeypatch.setattr(bounded_pipe, "_PATIENCE_S", -1e9)
    (out, into), (errors, complaints) = os.pipe(), os.pipe()
    os.write(complaints, b"no " * 100)
    pipe = BoundedPipe(out, errors, 10)
    with pytest.raises(BeyondBounds, match="too slowly"):
        pipe.read(10)
    assert pipe.errors == b""
    for end in (out, into, errors, complaints):
        os.close(end)


def test_more_files_than_were_listed_and_notes_without_end_are_refused():
    many = [(f"r/{number}", b"") for number in range(40)]
    with sent(tar(*many)) as pipe, pytest.raises(BeyondBounds, match="more files"):
        list(members(pipe, 2))
    notes = tar(("r/a", b""), comment="x" * (2 * MAX_LINE))
    with sent(notes) as pipe, pytest.raises(BeyondBounds, match="notes on a file"):
        list(members(pipe, 2))
    holes = tarfile.TarInfo("r/holes")
    holes.type, holes.size = tarfile.GNUTYPE_SPARSE, 1 << 40
    sparse = holes.tobuf(tarfile.GNU_FORMAT)
    with sent(sparse) as pipe, pytest.raises(BeyondBounds, match="holes"):
        list(members(pipe, 2))


def test_of_what_a_host_complains_the_end_is_kept():
    (out, into), (errors, complaints) = os.pipe(), os.pipe()
    os.write(complaints, b"a" * 60_000 + b"the last")
    os.write(into, b"x")
    os.close(into), os.close(complaints)
    pipe = BoundedPipe(out, errors, 10)
    assert pipe.read(10) == b"x" and pipe.errors.endswith(b"the last")
    assert sys.getsizeof(pipe.errors) < 10_000
    os.close(out), os.close(errors)
