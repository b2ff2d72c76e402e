"""The written-out step against autograd and torch's AdamW, and the gate that lets it in."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernel_children import interpreted_lines, needs_triton

from albor_core.kernels import dispatch
from albor_core.kernels.ops.attention import attention
from albor_core.kernels.ops.mlp import products
from albor_core.model.flat import ALIGNED, FlatParameters, misfit
from albor_core.model.fused import FusedLlama
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip
from albor_core.train.step.fused import GraphedStep
from albor_core.train.step.gate import compared, uneven

TINY = LlamaConfig(64, 2, 4, 2, 128, 96, 64)
CLAIMS = [
    "autograd: tied True",
    "autograd: tied False",
    "autograd: z-loss",
    "autograd: heads wider than D / H",
    "autograd: heads narrower than D / H",
    "autograd: rope as in Llama 3.1",
    "autograd: yarn, whose rotation is longer than 1",
    "autograd: a window that holds the row",
    "autograd: attention by kernels",
    "autograd: biases of q, k and v",
    "computed again in 2 segments, fp32",
    "computed again in 3 segments, fp32",
    "computed again in 2 segments, fp16, with bits beside it",
    "computed again in 3 segments, fp16, with bits beside it",
    "computed again in 2 segments, fp8",
    "computed again in 3 segments, fp8",
    "computed again in 2 segments, qk-norm",
    "computed again in 3 segments, qk-norm",
    "qk-norm: tied",
    "qk-norm: wide",
    "qk-norm: resumed, it goes on to the same bits",
    "qk-norm: three clipped, accumulated steps",
    "qk-norm: the norm before clipping",
    "qk-norm: state under the same names",
    "scored without gradients",
    "a loss on pairs",
    "its figure",
    "norms alone: gradients",
    "norms alone: moves",
    "attention and some norms: gradients",
    "attention and some norms: moves",
    "norms beside int8: gradients",
    "norms beside int8: moves",
    "three clipped, accumulated steps",
    "the norm before clipping",
    "state under the same names",
    "a step of NaN moves nothing",
    "a loss of 0 moves weights",
    "torch's state goes into flat buffers",
    "the shadow is the master rounded",
    "rows cut shorter, and whole ones again",
    "muon: three clipped steps",
    "muon: state under the same names",
    "muon: hyper-parameters",
    "muon: state goes out and comes back",
    "normuon: three clipped steps",
    "normuon: state under the same names",
    "normuon: hyper-parameters",
    "normuon: state goes out and comes back",
    "muon: kernels in torch.float32",
    "muon: kernels in torch.float16",
    "muon: kernels skip",
    "muon: the shadow is the master rounded",
    "norms of parameters",
    "zclip sees the spike",
    "zclip remembers what it allowed",
    "the loss of a broken gradient",
    "the norm of half a batch",
    "the norm of a first micro-batch",
    "fp8: kernels in torch.float32",
    "fp8: kernels in torch.float16",
    "fp8: rounds as torch does",
    "fp8: sees the largest",
    "fp8: errs as its arithmetic does",
    "fp8: is in use",
    "fp8: frozen MLPs stay as they are",
    "fp8: resumed, it rounds as it would have",
    "gate: fp8 without scales",
    "a fused step that is left goes on plainly",
    "gate: swapped strides",
    "gate: missing rope",
    "gate: overflow",
    "gate: nan backward",
    "gate: zeroed output",
]


@pytest.fixture
def hopper(monkeypatch) -> pytest.MonkeyPatch:
    """Kernels believe that they are on one, until it is undone."""
    monkeypatch.setattr(products, "is_hopper", lambda device: True)
    monkeypatch.setattr(attention, "takes_hoppers", lambda device: True)
    return monkeypatch


def small_fused() -> FusedLlama:
    model = Llama(LlamaConfig(128, 1, 2, 2, 256, 96, 128))
    init_weights(model, 0)
    return FusedLlama(model, FlatParameters(model, torch.bfloat16))


@needs_triton
def test_a_step_says_which_kernels_do_not_take_its_batches(hopper):
    fused = small_fused()
    assert fused.left_out(2, 128) == {}
    assert fused.left_out(3, 128) == {"swiglu_down": "384 x 256 x 128 do not fill its tiles"}
    assert set(fused.left_out(2, 100)) == {"attention", "swiglu_up", "swiglu_down"}
    assert set(fused.left_out(128, 100)) == {"attention"}
    hopper.undo()
    assert "no Hopper GPU" in fused.left_out(2, 128)["swiglu_up"]


@needs_triton
@pytest.mark.parametrize(
    ("batch", "looked_at"),
    [
        ((8, 128), [(2, 128)]),
        ((1, 128), [(1, 128)]),
        ((3, 100), [(2, 100)]),  # no product fits the batch either
        ((128, 100), [(2, 100), (4, 64)]),  # 12,800 tokens fill tiles of 256, 200 do not
        ((32, 1000), [(2, 1000), (2, 896)]),
        ((8, 32), [(2, 32), (8, 32)]),
    ],
)
def test_the_gate_sees_every_kernel_that_takes_the_batch(hopper, batch, looked_at):
    seen = list(compared(small_fused(), torch.zeros(batch, dtype=torch.int64)))
    assert [tuple(ids.shape) for ids in seen] == looked_at


@needs_triton
def test_where_no_kernel_fits_the_gate_looks_at_two_sequences():
    seen = list(compared(small_fused(), torch.zeros((128, 100), dtype=torch.int64)))
    assert [tuple(ids.shape) for ids in seen] == [(2, 100)]


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, object]]:
    lines = interpreted_lines("core/kernels/interpreted_step.py", ALBOR_KERNELS="triton")
    return {line["name"]: line for line in lines}


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_the_interpreted_step_keeps_its_claim(claims, name):
    assert claims[name]["holds"], claims[name]["detail"]


@needs_triton
@pytest.mark.slow
def test_every_claim_is_listed(claims):
    assert sorted(claims) == sorted(CLAIMS)


@needs_triton
@pytest.mark.slow
def test_two_ranks_take_the_written_out_steps_of_one():
    ranks = interpreted_lines("core/kernels/interpreted_ranks.py", ALBOR_KERNELS="triton")
    assert len(ranks) == 6
    assert all(rank["said"] < 2e-6 and rank["weights"] < 1e-6 for rank in ranks), ranks
    copied = [rank for rank in ranks if rank["course"] == "copied in parts"]
    assert len(copied) == 2
    assert all(rank["bits of one message"] for rank in copied), copied


def test_flat_parameters_change_neither_values_nor_names():
    model = Llama(TINY)
    init_weights(model, 3)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    FlatParameters(model, torch.bfloat16)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], t) for name, t in before.items())


def test_projections_that_are_fused_lie_in_a_row_and_views_start_aligned():
    model = Llama(TINY)
    init_weights(model, 3)
    flat = FlatParameters(model, torch.bfloat16)
    names = [f"model.layers.1.self_attn.{p}_proj.weight" for p in "qkv"]
    fused = flat.matrices.view(flat.matrices.shadow, names[0], names[2])
    weights = torch.cat([model.get_parameter(name) for name in names])
    assert torch.equal(fused, weights.detach().bfloat16())
    starts = {name: place[0] for name, place in flat.matrices.places.items()}
    assert all(at % ALIGNED == 0 for name, at in starts.items() if "o_proj" in name)


def test_gradients_of_norms_of_heads_lie_where_their_weights_do():
    """Behind the others, which are longer, though the model has them between."""
    model = Llama(replace(TINY, model_type="qwen3", head_dim=16))
    flat = FlatParameters(model, torch.bfloat16)
    fused = FusedLlama(model, flat)
    assert fused.norm_gradients.shape == (5, 64)
    assert fused.head_norm_gradients.shape == (4, 16)
    fused.norm_gradients.copy_(torch.arange(5.0)[:, None].expand(5, 64))
    fused.head_norm_gradients.copy_(torch.arange(5.0, 9.0)[:, None].expand(4, 16))
    found = {name: set(g.tolist()) for name, g in flat.gradients().items() if g.ndim == 1}
    blocks = [f"model.layers.{i}" for i in range(2)]
    wide = [f"{b}.{n}_layernorm.weight" for b in blocks for n in ("input", "post_attention")]
    narrow = [f"{b}.self_attn.{n}_norm.weight" for b in blocks for n in "qk"]
    order = [*wide, "model.norm.weight", *narrow]
    assert found == {name: {float(number)} for number, name in enumerate(order)}
    assert [norm.number for layer in fused.layers for norm in layer.head_norms] == [0, 1, 2, 3]


def test_loading_a_checkpoint_reaches_the_shadows():
    model, other = Llama(TINY), Llama(TINY)
    init_weights(model, 0), init_weights(other, 1)
    flat = FlatParameters(model, torch.bfloat16)
    model.load_state_dict(other.state_dict())
    flat.refresh()
    name = "model.embed_tokens.weight"
    wanted = other.get_parameter(name).detach().bfloat16()
    assert torch.equal(flat.matrices.view(flat.matrices.shadow, name), wanted)


def test_a_start_that_cancels_is_made_uneven_to_be_compared_and_given_back_bit_by_bit():
    model = Llama(replace(TINY, residual_scale=1.0))
    init_weights(model, 3)
    flat = FlatParameters(model, torch.bfloat16)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    shadow = flat.matrices.shadow.clone()
    ids = torch.randint(0, 96, (2, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), uneven(model, flat):
        assert model(ids)[0].std() > 0.01
        assert not torch.equal(flat.matrices.shadow, shadow)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert torch.equal(flat.matrices.shadow, shadow)
    with torch.no_grad():
        assert model(ids)[0].std() < 0.005


def test_weights_that_do_not_cancel_are_compared_as_they_are():
    model = Llama(TINY)
    init_weights(model, 3)
    flat = FlatParameters(model, torch.bfloat16)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    with uneven(model, flat):
        assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_frozen_matrices_lie_apart_in_half_precision_and_have_no_gradient():
    model = Llama(TINY)
    init_weights(model, 3)
    frozen = {n for n, _ in model.named_parameters() if "mlp" in n or n == "model.norm.weight"}
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    flat = FlatParameters(model, torch.bfloat16)
    assert flat.frozen == frozen
    assert {*flat.frozen_matrices.places} == {name for name in frozen if "mlp" in name}
    assert flat.frozen_matrices.master.dtype is torch.bfloat16
    assert flat.frozen_matrices.master is flat.frozen_matrices.shadow
    assert {*flat.gradients()} == before.keys() - frozen
    for name, value in model.state_dict().items():
        kind = torch.bfloat16 if name in flat.frozen_matrices.places else torch.float32
        assert torch.equal(value, before[name].to(kind))
    optimizer = FlatAdamW(flat, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    assert {name.partition(".")[2] for name in optimizer.tensors()} == before.keys() - frozen


def test_projections_that_are_one_matrix_are_trained_together_or_the_step_is_not_fused():
    model = Llama(TINY)
    assert misfit(model) == ""
    model.get_parameter("model.layers.1.self_attn.k_proj.weight").requires_grad_(False)
    assert "model.layers.1.self_attn.q_proj" in misfit(model)
    flat = FlatParameters(model, torch.bfloat16)
    with pytest.raises(ValueError, match=r"train all of them or none"):
        FusedLlama(model, flat)


def test_micro_batches_are_refused_with_an_optimizer_that_adds_up_none():
    model = Llama(TINY)
    flat = FlatParameters(model, torch.float32)
    optimizer = FlatAdamW(flat, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    with pytest.raises(ValueError, match="2 micro-batches"):
        GraphedStep(
            FusedLlama(model, flat), optimizer, batch=(2, 8), accumulation=2, clip=Clip(1.0)
        )


def test_without_a_gpu_there_is_an_obstacle():
    assert "CUDA" in dispatch.obstacle("swiglu", "cpu", torch.bfloat16)
