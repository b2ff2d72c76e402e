"""Attention within documents: interpreted beside its plain version, compiled without a GPU."""

from __future__ import annotations

import pytest
import torch
from kernel_children import compiled, interpreted_lines, needs_triton

from albor_core.kernels.documents.attention import (
    OP,
    document_attention_reference,
    stretches,
)
from albor_core.kernels.ops.attention.attention import attention_reference
from albor_core.kernels.ops.attention.rope import tables


@needs_triton
@pytest.mark.slow
def test_the_interpreted_kernels_are_as_accurate_as_torch():
    lines = interpreted_lines("core/kernels/interpreted_documents.py")
    assert len(lines) == 17  # the last five are whole steps
    assert [line for line in lines if line["broken"]] == []


@needs_triton
@pytest.mark.slow
def test_they_compile_for_every_architecture_and_half_dtype(tmp_path):
    rows = compiled("albor_core.kernels.documents.attention", tmp_path)
    assert {row[0] for row in rows} == {"mix", "queries", "keys"}
    assert len(rows) == 3 * 2 * 3 * 2  # heads of 64 and of 128


def test_a_stretch_is_from_the_beginning_of_a_document_to_behind_its_end():
    document = torch.tensor([[0, 0, 1, 1, 1, 2], [7, 7, 7, 7, 7, 7]])
    first, last = stretches(document)
    assert first.tolist() == [[0, 0, 2, 2, 2, 5], [0] * 6]
    assert last.tolist() == [[2, 2, 5, 5, 5, 6], [6] * 6]


@pytest.mark.slow
def test_the_reference_of_one_document_is_causal_attention():
    qkv, angles = torch.randn(2, 64, 8 * 64), tables(64, 64)
    found = document_attention_reference(qkv, *angles, *stretches(torch.zeros(2, 64)))
    torch.testing.assert_close(found, attention_reference(qkv, *angles), rtol=1e-5, atol=1e-5)


def exact_tables(T, E):
    """In fp64: fp32 would round the same distance otherwise elsewhere in a row."""
    rate = 10000.0 ** -(torch.arange(0, E, 2, dtype=torch.float64) / E)
    angle = torch.outer(torch.arange(T, dtype=torch.float64), rate).repeat(1, 2)
    return angle.cos(), angle.sin()


def test_permuting_documents_permutes_what_they_give():
    qkv, angles = torch.randn(1, 64, 8 * 64, dtype=torch.float64), exact_tables(64, 64)
    sizes, order = [10, 20, 34], [2, 0, 1]
    pieces = qkv.split(sizes, 1)
    number = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))[None]
    plain = OP.reference(qkv, *angles, *stretches(number)).split(sizes)
    moved = torch.cat([pieces[i] for i in order], 1)
    lengths = [sizes[i] for i in order]
    number = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))[None]
    found = OP.reference(moved, *angles, *stretches(number)).split(lengths)
    for place, i in enumerate(order):
        torch.testing.assert_close(found[place], plain[i], rtol=1e-12, atol=1e-12)
