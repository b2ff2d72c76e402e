"""Likelihoods by the fused kernels are the plain model's, and a result says whose it has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from eval_models import make_model, subject_of
from kernel_children import interpreted_lines, needs_triton

from albor_core.kernels import dispatch
from albor_core.model.flat import FlatParameters
from albor_core.model.llama import Llama, LlamaConfig
from albor_core.model.token_scores import obstacle
from albor_core.plan.memory import shape_obstacles

TINY = LlamaConfig(64, 1, 4, 2, 128, 96, 64)
MODELS = ("llama, tied", "llama, untied", "qwen3, tied", "qwen3, untied")
CLAIMS = [
    *(f"nats: {name}" for name in MODELS),
    *(f"ten rows of logits at most: {name}" for name in MODELS),
    *(f"the weights stay: {name}" for name in MODELS),
    "fp16: llama, tied",
    "fp16: qwen3, untied",
    "gate: other weights in torch.float16",
    "gate: other weights in torch.float32",
    "gate: the plain one scores instead",
    "generated after it",
    "totals of texts: llama, tied",
    "totals of texts: qwen3, untied",
]


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, object]]:
    lines = interpreted_lines("core/eval/interpreted_scores.py", ALBOR_KERNELS="triton")
    return {line["name"]: line for line in lines}


@needs_triton
@pytest.mark.sweep
@pytest.mark.parametrize("name", CLAIMS)
def test_interpreted_scores_keep_their_claim(claims, name):
    assert claims[name]["holds"], claims[name]["detail"]


@needs_triton
@pytest.mark.sweep
def test_every_claim_about_scores_is_listed(claims):
    assert sorted(claims) == sorted(CLAIMS)


def test_on_a_cpu_the_result_says_plain_and_why(tmp_path):
    subject = subject_of(make_model(tmp_path / "m"))
    subject.logprobs([([1, 2], [3])])
    facts = subject.facts()
    assert facts["path"] == "plain"
    assert facts["path_reason"] == f"not fused: {obstacle(subject.model)}"
    assert "GPU" in facts["path_reason"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_on_a_gpu_the_kernels_score_and_the_result_says_so(tmp_path, dtype):
    folder = make_model(tmp_path / "m")
    subject = subject_of(folder, device="cuda", dtype=dtype)
    with dispatch.deciding_anew():
        found = subject.logprobs([([1, 2], [3, 4])])
    assert subject.facts()["path"] == "fused", subject.facts()["path_reason"]
    plain = subject_of(folder).logprobs([([1, 2], [3, 4])])
    assert found[0].sum == pytest.approx(plain[0].sum, rel=2e-2)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ()),
        ({"model_type": "qwen3", "head_dim": 12}, ("head_dim 12 is not a multiple of 8",)),
        ({"model_type": "qwen2"}, ()),
        (
            {"model_type": "mistral", "sliding_window": 63},
            ("sliding_window 63 is below max_position_embeddings 64",),
        ),
        ({"model_type": "mistral", "sliding_window": 64}, ()),
    ],
)
def test_a_shape_that_has_no_fused_form_says_why(more, why):
    assert shape_obstacles(replace(TINY, **more), 64, "max_position_embeddings") == why


def test_frozen_weights_take_no_memory_beside_themselves():
    model = Llama(TINY).bfloat16().requires_grad_(False)
    flat = FlatParameters.of_frozen(model)
    assert flat.matrices.master is flat.matrices.shadow
    assert flat.matrices.gradient.is_meta and flat.vectors.gradient.is_meta
    weight = model.model.layers[0].mlp.down_proj.weight
    assert weight.untyped_storage().data_ptr() == flat.matrices.shadow.data_ptr()
    assert model.model.norm.weight.dtype is torch.bfloat16  # what generates reads it as it was


def test_weights_that_are_trained_are_not_moved_behind_their_optimizer():
    with pytest.raises(ValueError, match="is trained"):
        FlatParameters.of_frozen(Llama(TINY))
