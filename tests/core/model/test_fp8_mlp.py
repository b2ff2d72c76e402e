"""Scales of fp8 and its arithmetic in plain PyTorch; kernels: test_fused_step.py, GPU: below."""

from __future__ import annotations

import json

import pytest
import torch

from albor_core.config.sections.training import TrainingConfig
from albor_core.kernels.ops.mlp import fp8
from albor_core.model.flat import FlatParameters
from albor_core.model.fp8 import HEADROOM, Scales, emulated
from albor_core.model.fused import FusedLlama
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.recipes.batch import Batch
from albor_core.run.errors import ConfigError
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip
from albor_core.train.ranks.placement import place
from albor_core.train.step.fused import GraphedStep
from albor_core.train.step.gate import Seen, fused_gradients, violations

CONFIG = LlamaConfig(128, 2, 4, 2, 256, 512, 64)


def look(model: Llama, ids: torch.Tensor) -> Seen:
    _, loss = model(ids, ids)
    loss.backward()
    with torch.no_grad():
        logits, _ = model(ids)
    assert logits is not None
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return Seen(loss.detach(), logits, found)


def made(device: str = "cpu") -> tuple[Llama, torch.Tensor]:
    model = Llama(CONFIG)
    init_weights(model, 0)
    ids = torch.randint(0, 512, (2, 64), generator=torch.Generator().manual_seed(1))
    return model.to(device), ids.to(device)


def test_a_scale_leaves_headroom_above_the_largest_value_seen():
    scales = Scales(2, torch.device("cpu"))
    scales.seen[0, 5] = 3.0
    scales.advance()
    assert abs(3.0 * float(scales.scale[0]) * HEADROOM - fp8.LARGEST) < 1e-3
    torch.testing.assert_close(scales.scale * scales.unscale, torch.ones(2))
    assert scales.scale[1] == 1.0  # nobody made that tensor
    assert not scales.seen.any()


def test_a_scale_outlives_a_value_that_is_not_finite_and_forgets_a_large_one_slowly():
    scales = Scales(1, torch.device("cpu"))
    for value in (4.0, torch.inf, torch.nan, 0.0):
        scales.seen[0, 0] = value
        scales.advance()
        assert scales.largest[0] == 4.0
    scales.seen[0, 0] = 1.0
    scales.advance()
    assert 3.5 < scales.largest[0] < 4.0
    scales.seen[0, 0] = 100.0
    scales.advance()
    assert scales.largest[0] == 100.0


def test_every_scale_has_sixteen_bytes_of_its_own():
    scales = Scales(3, torch.device("cpu"))
    for tensor in (scales.scale, scales.unscale):
        places = {t.data_ptr() % 16 for t in tensor}
        assert len(places) == 1


def test_emulation_rounds_the_mlps_alone_and_leaves_no_trace():
    model, ids = made()
    before = look(model, ids)
    with emulated(model):
        rounded = look(model, ids)
    after = look(model, ids)
    assert torch.equal(before.logits, after.logits)
    errors = {
        name: float((rounded.gradients[name] - g).norm() / g.norm())
        for name, g in before.gradients.items()
    }
    # a number of e4m3 is within 1/16 of its own: rounding a product's operands costs about 1/32
    assert all(0.005 < error < 0.25 for error in errors.values()), errors


def test_emulation_ends_with_an_error_too():
    model, ids = made()
    logits, _ = model(ids)
    with pytest.raises(ZeroDivisionError), emulated(model):
        _ = 1 / 0
    assert torch.equal(model(ids)[0], logits)


def test_what_is_not_made_of_whole_tiles_cannot_be_cast():
    with pytest.raises(ValueError, match="96 x 64"):
        fp8.cast(torch.zeros(96, 64), torch.ones(()), torch.zeros(fp8.SLOTS))


def test_scales_of_a_checkpoint_go_on_as_they_would_have():
    whole, resumed = Scales(2, torch.device("cpu")), Scales(2, torch.device("cpu"))
    for values in ([0.1, 7.0], [0.3, 2.0]):
        whole.advance()
        whole.seen[:, 3] = torch.tensor(values)
    resumed.seen[1, 5] = 1e6  # a spike that a rollback leaves behind
    resumed.load(json.loads(json.dumps(whole.to_json())))
    for scales in (whole, resumed):
        scales.advance()
    assert torch.equal(whole.scale, resumed.scale)
    assert torch.equal(whole.largest, resumed.largest)
    assert whole.largest.tolist() == pytest.approx([0.3, 0.98 * 7.0])


def test_scales_without_a_checkpoint_go_back_to_how_they_began():
    scales = Scales(1, torch.device("cpu"))
    scales.seen[0, 0] = 3.0
    scales.first = scales.to_json()
    scales.advance()
    scales.seen[0, 0] = 1e6
    scales.advance()
    scales.reset()
    scales.advance()
    assert scales.largest[0] == 3.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.gpu
def test_on_a_gpu_the_step_in_fp8_errs_as_fp8_does_and_learns():
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs Hopper")
    model, ids = made("cuda")
    truth = look(model, ids)
    with emulated(model), torch.autocast("cuda", torch.bfloat16):
        allowed = look(model, ids)
    flat = FlatParameters(model, torch.bfloat16)
    optimizer = FlatAdamW(flat, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    fused = FusedLlama(model, flat, Scales.of(CONFIG, ids.device))
    fused.calibrate(ids)
    assert violations(fused_gradients(fused, optimizer, Batch(ids)), allowed, truth) == []
    step = GraphedStep(fused, optimizer, batch=(2, 64), accumulation=1, clip=Clip(1.0))
    fused.calibrate(ids)
    losses = []
    for _ in range(20):
        losses.append(step.forward(Batch(ids)).item())
        step.backward(0)
        step.update(torch.tensor(losses[-1], device="cuda"))
    assert losses[-1] < losses[0] - 1


def test_a_run_in_fp8_is_refused_on_a_cpu(tmp_path):
    training = TrainingConfig(output_dir=tmp_path, mixed_precision="FP8", device="cpu")
    with pytest.raises(ConfigError, match="fp8 needs a GPU") as caught:
        place(training)
    assert "bf16" in caught.value.hint
