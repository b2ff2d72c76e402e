from __future__ import annotations

import pytest

from albor_core.telemetry.sample import GpuSample
from albor_core.telemetry.visible_gpus import visible_gpus

HOST = tuple(GpuSample(index, uuid=f"GPU-{index}abc") for index in range(4))


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (None, (0, 1, 2, 3)),
        ("2,0", (2, 0)),
        ("GPU-3a, 1", (3, 1)),
        ("", ()),
        ("1,-1,2", (1,)),
        ("1,9,2", (1,)),
        ("1,1", (1,)),
        ("MIG-x", ()),
    ],
)
def test_a_program_sees_what_cuda_shows_it(told, found):
    environment = {} if told is None else {"CUDA_VISIBLE_DEVICES": told}
    assert visible_gpus(HOST, environment) == found


def test_a_run_of_two_ranks_takes_the_first_two():
    assert visible_gpus(HOST, {}, 2) == (0, 1)
    assert visible_gpus(HOST, {"CUDA_VISIBLE_DEVICES": "3,2,1"}, 2) == (3, 2)
