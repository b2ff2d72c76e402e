"""The fused ops against their plain versions: accuracy, and what they promise about buffers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fused_cases import HALF_ONLY, RESULTS, SHAPES, WIDE, inputs, pair
from interpreted_ops import PROMISES
from kernel_children import interpreted_lines, needs_triton
from oracle import assert_as_accurate, deviations
from stream_cases import (
    gradient_is_as_good_as_fp32,
    stream_is_as_good_as_fp32,
    stream_is_what_plain_pytorch_keeps,
)

from albor_core.kernels import dispatch
from albor_core.kernels.ops.attention import attention
from albor_core.kernels.ops.attention.rope import rope, rope_reference, rope_triton, tables
from albor_core.kernels.ops.cross_entropy import (
    IGNORED,
    cross_entropy,
    cross_entropy_reference,
    cross_entropy_triton,
)
from albor_core.kernels.ops.mlp.swiglu import swiglu, swiglu_reference, swiglu_triton
from albor_core.kernels.ops.norms.add_rms_norm import add_rms_norm, add_rms_norm_reference
from albor_core.kernels.parity import _upstream
from albor_core.model.rotary import rotate

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
CASES = [(op, shape) for op, shapes in SHAPES.items() for shape in shapes]
INTERPRETED = [(op, shape, dtype) for op, shape in CASES for dtype in ("float32", "float16")]
# not in bf16: the interpreter's cast truncates
ON_GPU = [
    (op, shape, dtype)
    for op, shape in CASES + [(op, shape) for op, shapes in WIDE.items() for shape in shapes]
    for dtype in (torch.float32, torch.float16, torch.bfloat16)
    if op not in HALF_ONLY or dtype is not torch.float32
]


@pytest.fixture(scope="module")
def interpreted() -> list[dict[str, Any]]:
    """Every case in one child: importing torch and Triton costs more than most cases do."""
    return interpreted_lines("core/kernels/interpreted_ops.py", ALBOR_KERNELS="triton")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("op, shape, dtype", INTERPRETED, ids=str)
def test_interpreted_kernels_are_as_accurate_as_torch(interpreted, op, shape, dtype):
    lines = [line for line in interpreted if line.get("op", "").split(",")[0] == op]
    mine = [c for c in lines if c["shape"] == list(shape) and c["dtype"] == dtype]
    assert len(mine) == (2 if op == "cross_entropy" else 1)  # on chip and looped
    for case in mine:
        assert case["results"] == RESULTS[op]
        assert case["broken"] == [], case["op"]


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("where", ["on chip", "looped"])
@pytest.mark.parametrize("name", PROMISES)
def test_cross_entropy_keeps_its_promise(interpreted, name, where):
    (line,) = (c for c in interpreted if c.get("promise") == name and c["where"] == where)
    assert line["holds"]


def test_plain_cross_entropy_is_torchs_mean_over_counted_labels():
    x, y = inputs("cross_entropy", (2, 3, 640), torch.float64)
    want = F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=IGNORED)
    torch.testing.assert_close(cross_entropy_reference(x, y), want)
    z = x.logsumexp(-1)[y != IGNORED].square().mean()
    torch.testing.assert_close(cross_entropy_reference(x, y, 0.5), want + 0.5 * z)


def test_a_batch_in_which_nothing_counts_has_no_loss_and_no_gradient():
    x = torch.randn(3, 5, requires_grad=True)
    loss = cross_entropy(x, torch.full((3,), IGNORED), 1e-4)
    loss.backward()
    assert loss.item() == 0
    assert not torch.count_nonzero(x.grad)


def test_plain_rope_is_the_models_rotation():
    q, k, cos, sin = inputs("rope", (2, 4, 2, 16, 64), torch.float32)
    for got, x in zip(rope_reference(q, k, cos, sin), (q, k), strict=True):
        assert torch.equal(got, rotate(x, cos, sin))


def test_turning_there_and_back_is_standing_still():
    q, k, cos, sin = inputs("rope", (2, 4, 2, 16, 64), torch.float64)
    back = rope_reference(*rope_reference(q, k, cos, sin), cos, -sin)
    for got, x in zip(back, (q, k), strict=True):
        torch.testing.assert_close(got, x, rtol=0, atol=1e-6)  # the tables are fp32


def test_plain_add_rms_norm_returns_the_sum_and_its_norm():
    x, residual, w = inputs("add_rms_norm", (5, 3, 123), torch.float64)
    y, total = add_rms_norm_reference(x, residual, w.double())
    assert torch.equal(total, x + residual)
    torch.testing.assert_close(y, F.rms_norm(total, (123,), w.double(), 1e-5))


def test_off_the_gpu_every_op_is_its_plain_version_to_the_bit():
    for op, fn in (("add_rms_norm", add_rms_norm), ("rope", rope)):
        args = inputs(op, SHAPES[op][1], torch.float32)
        assert all(torch.equal(a, b) for a, b in zip(fn(*args), pair(op)[1](*args), strict=True))
    (x,) = inputs("swiglu", (5, 3, 246), torch.float32)
    assert torch.equal(swiglu(x), swiglu_reference(x))
    x, y = inputs("cross_entropy", (5, 123), torch.float32)
    assert torch.equal(cross_entropy(x, y, 0.1), cross_entropy_reference(x, y, 0.1))


@pytest.mark.parametrize(
    ("E", "T", "wins", "taken"),
    [
        (128, 1024, True, True),
        (128, 1024, False, False),
        (128, 2048, True, False),  # the race is one of rows of 1,024
        (64, 4096, True, True),
    ],
)
def test_long_rows_of_wide_heads_are_left_to_sdpa(monkeypatch, E, T, wins, taken):
    monkeypatch.setattr(attention, "misfit", lambda *_: "")
    monkeypatch.setattr(attention, "use_triton", lambda *_: wins)
    assert attention.takes_kernels(torch.empty(1, T, 8 * E), 4, 2) == taken


def test_an_odd_gate_up_buffer_is_refused():
    with pytest.raises(ValueError, match="halves"):
        swiglu(torch.ones(2, 3))


def test_an_op_that_loses_a_gradient_is_caught():
    def detached(x, residual, w):
        return add_rms_norm_reference(x, residual.detach(), w)

    with pytest.raises(ValueError, match="gradient 1"):
        deviations(
            detached, add_rms_norm_reference, *inputs("add_rms_norm", (1, 4, 8), torch.float32)
        )


def test_a_second_output_that_is_wrong_is_caught():
    def wrong(x, residual, w):
        y, total = add_rms_norm_reference(x, residual, w)
        return y, total * 1.01

    args = inputs("add_rms_norm", (2, 4, 8), torch.float32)
    with pytest.raises(AssertionError, match="output 1"):
        assert_as_accurate(wrong, add_rms_norm_reference, *args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_parity_asks_every_dtype_with_the_same_upstream_gradient(dtype):
    want = _upstream(torch.empty(4, 500, dtype=torch.float64))
    assert torch.equal(_upstream(torch.empty(4, 500, dtype=dtype)).double(), want)
    assert want.abs().max() > 0.99 and want.unique().numel() > 300


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(3, 64), (5, 123), (300, 1024)], ids=str)
def test_a_stream_on_the_gpu_with_its_rest_is_as_good_as_fp32(shape, dtype):
    like = torch.empty(shape, dtype=dtype, device="cuda")
    assert stream_is_what_plain_pytorch_keeps(like)
    assert stream_is_as_good_as_fp32(like)
    assert gradient_is_as_good_as_fp32(like)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("op, shape, dtype", ON_GPU, ids=str)
def test_kernels_on_the_gpu_are_as_accurate_as_torch(op, shape, dtype):
    assert_as_accurate(*pair(op), *inputs(op, shape, dtype, "cuda"))


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("op", WIDE)
def test_gradients_on_the_gpu_are_the_same_bits_every_time(op):
    def gradients():
        leaves = inputs(op, WIDE[op][0], torch.bfloat16, "cuda")
        wanted = [leaf for leaf in leaves[:2] if leaf.dtype is torch.bfloat16]
        for leaf in wanted:
            leaf.requires_grad_()
        out = pair(op)[0](*leaves)
        outs = out if isinstance(out, tuple) else (out,)
        return torch.autograd.grad(sum(o.float().sum() for o in outs), wanted)

    runs = [gradients() for _ in range(3)]
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))


@needs_gpu
@pytest.mark.gpu
def test_slices_of_a_fused_projection_are_turned_without_a_copy():
    B, T, H, K, E = 2, 64, 4, 2, 64
    qkv = torch.randn(B, T, (H + 2 * K) * E, device="cuda", dtype=torch.bfloat16)
    q, k, _ = qkv.split((H * E, K * E, K * E), dim=-1)
    q, k = (t.unflatten(-1, (-1, E)).transpose(1, 2) for t in (q, k))
    cos, sin = (t.cuda() for t in tables(T, E))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    got = rope_triton(q, k, cos, sin)
    assert torch.cuda.max_memory_allocated() - before == B * T * (H + K) * E * 2  # the results
    for a, b in zip(got, rope_reference(q, k, cos, sin), strict=True):
        torch.testing.assert_close(a, b, rtol=2**-7, atol=1e-6)


@needs_gpu
@pytest.mark.gpu
def test_gradients_on_the_gpu_are_written_over_what_they_belong_to():
    x, y = inputs("cross_entropy", (600, 32768), torch.bfloat16, "cuda")
    (gate_up,) = inputs("swiglu", (4096, 2048), torch.bfloat16, "cuda")
    x.requires_grad_(), gate_up.requires_grad_()
    (grad,) = torch.autograd.grad(cross_entropy_triton(x, y), x)
    assert grad.data_ptr() == x.data_ptr()
    (grad,) = torch.autograd.grad(swiglu_triton(gate_up).sum(), gate_up)
    assert grad.data_ptr() == gate_up.data_ptr()


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("op", WIDE)
def test_on_the_gpu_dispatch_finds_no_fault_in_them(op):
    with dispatch.deciding_anew():
        choice = dispatch.choose(op, "cuda", torch.bfloat16)
    assert choice.rejected == ()
    assert "passes parity" in choice.evidence  # at small sizes the faster one is a toss-up
