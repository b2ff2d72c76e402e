"""RMSNorm: the plain version against its definition, the fused one against the plain one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_children import interpreted_lines, needs_triton
from oracle import assert_as_accurate, deviations

from albor_core.kernels.ops.norms.rms_norm import rms_norm, rms_norm_reference, rms_norm_triton

SHAPES = [(2, 16, 512), (5, 3, 123), (1, 1, 1), (300, 64)]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def inputs(shape, dtype=torch.float32, device="cpu"):
    source = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=source)
    w = 1 + 0.1 * torch.randn(shape[-1], generator=source)
    return x.to(device, dtype), w.to(device)


@pytest.fixture(scope="module")
def interpreted() -> list[dict[str, Any]]:
    """Every case in one child: importing torch and Triton costs more than the cases do."""
    return interpreted_lines("core/kernels/interpreted_rms_norm.py", ALBOR_KERNELS="triton")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])  # the interpreter's bf16 cast truncates
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_interpreted_kernels_are_as_accurate_as_torch(interpreted, shape, dtype):
    mine = [c for c in interpreted if c["shape"] == list(shape) and c["dtype"] == dtype]
    assert mine, "the child said nothing about this case"
    for case in mine:
        assert case["results"] == 3  # output, dx, dw
        assert case["broken"] == []


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_plain_version_is_the_definition(shape):
    x, w = (t.double() for t in inputs(shape))
    expected = w * x / (x.pow(2).sum(-1, keepdim=True) / shape[-1] + 1e-5) ** 0.5
    # fp64 throughout; both sum D squares, so they may differ by about D roundings
    torch.testing.assert_close(rms_norm_reference(x, w), expected, rtol=shape[-1] * 2e-16, atol=0)


def test_the_output_keeps_the_dtype_of_the_input_under_fp32_weights():
    x, w = inputs((4, 8), torch.bfloat16)
    assert rms_norm(x, w).dtype is torch.bfloat16


def test_off_the_gpu_it_is_the_plain_version_to_the_bit():
    x, w = inputs((5, 3, 123))
    assert torch.equal(rms_norm(x, w, 1e-6), rms_norm_reference(x, w, 1e-6))


def test_a_kernel_with_one_wrong_column_in_a_thousand_is_caught():
    def wrong(x, w):
        y = rms_norm_reference(x, w)
        return torch.cat((y[:, :-1], y[:, -1:] * 1.01), dim=1)

    x, w = inputs((64, 1024))
    with pytest.raises(AssertionError, match="output"):
        assert_as_accurate(wrong, rms_norm_reference, x, w)


def test_a_kernel_with_a_wrong_gradient_is_caught():
    def detached_rstd(x, w):  # forgets that rstd depends on x
        return w * x * (x.detach().square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    x, w = inputs((16, 32))
    found = {d.result: d.is_accurate() for d in deviations(detached_rstd, rms_norm_reference, x, w)}
    assert found == {"output": True, "gradient 0": False, "gradient 1": True}


def test_a_kernel_that_returns_nan_is_caught():
    def poisoned(x, w):
        return rms_norm_reference(x, w) * float("nan")

    with pytest.raises(AssertionError, match="nan"):
        assert_as_accurate(poisoned, rms_norm_reference, *inputs((16, 32)))


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (20000, 1024), (3, 65536)], ids=str)
def test_kernels_on_the_gpu_are_as_accurate_as_torch(shape, dtype):
    x, w = inputs(shape, dtype, "cuda")
    assert_as_accurate(rms_norm_triton, rms_norm_reference, x, w)
    assert_as_accurate(rms_norm_triton, rms_norm_reference, x, w.to(dtype))


@needs_gpu
@pytest.mark.gpu
def test_gradients_on_the_gpu_are_the_same_bits_every_time():
    x, w = inputs((20000, 1024), torch.bfloat16, "cuda")
    x.requires_grad_()
    w.requires_grad_()
    runs = [torch.autograd.grad(rms_norm_triton(x, w).float().sum(), (x, w)) for _ in range(3)]
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))


@needs_gpu
@pytest.mark.gpu
def test_torch_compile_takes_the_kernels_without_a_graph_break():
    x, w = inputs((300, 64), torch.bfloat16, "cuda")
    compiled = torch.compile(rms_norm_triton, fullgraph=True)
    assert_as_accurate(compiled, rms_norm_reference, x, w)


@needs_gpu
@pytest.mark.gpu
def test_rows_that_do_not_lie_together_are_normalised_too():
    x, w = inputs((16, 64, 32), torch.float32, "cuda")
    turned = x.transpose(0, 1)
    assert torch.equal(rms_norm_triton(turned, w), rms_norm_triton(turned.contiguous(), w))
