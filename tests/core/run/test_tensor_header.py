"""The head of a safetensors file: what is refused before anybody reads a tensor."""

from __future__ import annotations

import pytest

from albor_core.run.files.tensor_header import DamagedFileError, read_header

ENTRY = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'


def written(path, header: str, data: bytes = bytes(8)):
    raw = header.encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def test_a_sound_header_is_read(tmp_path):
    assert read_header(written(tmp_path / "m", f'{{"a":{ENTRY}}}'))["a"]["shape"] == [2]


@pytest.mark.parametrize(
    "header",
    [
        f'{{"a":{ENTRY},"a":{ENTRY}}}',
        '{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}',
        '{"a":{"dtype":"F32","shape":[true,2],"data_offsets":[0,8]}}',
        '{"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}}',
        '{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}',
        '{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}',
    ],
    ids=["two tensors", "two shapes", "true", "text", "fraction", "negative"],
)
def test_a_header_that_two_readers_could_understand_differently_is_refused(tmp_path, header):
    with pytest.raises(DamagedFileError):
        read_header(written(tmp_path / "m", header))
