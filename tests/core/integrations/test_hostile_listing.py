"""What a host of `albor runs pull` sends is bounded, and no time of it is believed unseen."""

import io
import tarfile

import pytest

from albor_core.integrations.importers import remote_folder


@pytest.mark.parametrize("said", ["nan", "inf", "-5", "1e300"])
def test_a_time_of_change_that_is_none_is_the_beginning_of_time(said):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("r/run.json")
        member.size, member.pax_headers = 2, {"mtime": said}
        archive.addfile(member, io.BytesIO(b"{}"))
    raw.seek(0)
    ((name, _, size, changed),) = remote_folder._members(raw)
    assert (name, size, changed) == ("r/run.json", 2, 0.0)


def test_a_line_without_end_is_refused_after_a_mebibyte():
    raw = io.BytesIO(b"one\n" + b"x" * (3 << 20))
    found = remote_folder._lines(raw)
    assert next(found) == b"one\n"
    with pytest.raises(EOFError, match="1 MiB"):
        next(found)
    assert raw.tell() < 2 << 20
