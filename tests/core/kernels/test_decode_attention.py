"""Attention of one new token: interpreted beside its plain version, compiled without a GPU."""

from __future__ import annotations

import pytest
import torch
from kernel_children import compiled, interpreted_lines, needs_triton

from albor_core.kernels.decode.attention import MOST_SPLITS, OP, splits_of
from albor_core.kernels.dispatch import rejection


@needs_triton
@pytest.mark.slow
def test_the_interpreted_kernel_is_as_accurate_as_torch_and_stores_what_it_does():
    lines = interpreted_lines("core/kernels/interpreted_decode.py")
    assert len(lines) == 12
    assert [line for line in lines if line["broken"] or not line["stores"]] == []


@needs_triton
@pytest.mark.slow
def test_it_compiles_for_every_architecture_and_dtype_without_a_stack(tmp_path):
    rows = compiled("albor_core.kernels.decode.attention", tmp_path)
    assert len(rows) == 27
    assert [row for row in rows if row[1] != "fp32" and int(row[4]) > 0] == []


def test_few_sequences_share_their_length_among_programs_and_many_do_not():
    assert splits_of(4) == MOST_SPLITS
    assert [splits_of(n) for n in (64, 128, 1024)] == [2, 1, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_it_passes_parity_on_this_gpu(dtype):
    assert rejection(OP, torch.device("cuda"), dtype) == ""
