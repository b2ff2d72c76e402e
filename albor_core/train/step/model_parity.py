"""The whole model as it trains here, against the plain one on the CPU in fp32.

One short batch of the run's own data, logits and loss, forward alone and without gradients: nothing
is drawn at random and no state changes, so training has the same bits with and without it. What the
device gives is taken between two steps, together with a copy of the weights; the CPU's part is done
in another process, while training goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import psutil
import torch
from torch import Tensor

from albor_core.kernels import dispatch
from albor_core.kernels.toolchain import IS_INTERPRETED
from albor_core.train.build import Parts
from albor_core.train.step.cpu_reference import REFUSALS, ModelParity, ParityCase, not_compared
from albor_core.train.step.fused import GraphedStep
from albor_core.train.step.optimizer_step import Stepper

HOST_SHARE = 0.5  # of the free host memory that weights in fp32 may take
ROWS, LENGTH = 2, 64

Look = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Logits (B, T, V) and loss () of ids (B, T)."""


class ParityAnswer(NamedTuple):
    """What follows a comparison: the run `stops`, or `leaves` its kernels, or goes on as it is; in
    words for people.
    """

    stops: bool
    leaves: bool
    words: str


def answer_to(found: ModelParity, asked: str, *, is_over: bool, has_kernels: bool) -> ParityAnswer:
    """What `training.parity` (`asked`) says of a model that is too far off. `is_over`: no step
    follows; `has_kernels`: another arithmetic than the plain model's trains.
    """
    next_one = "next: ALBOR_KERNELS=reference"
    if is_over:
        words = f"all its steps were by what was compared; {next_one}"
        return ParityAnswer(False, False, words)
    if asked == "stop":
        return ParityAnswer(True, False, "the run stops, as training.parity says")
    if asked == "tell" or found.rounded_cosine is None:
        return ParityAnswer(False, False, next_one)
    if has_kernels:
        return ParityAnswer(False, True, "the run goes on by the plain model on the same device")
    words = "next: albor gpu: the plain model is as far off on this device"
    return ParityAnswer(False, False, words)


def pose(parts: Parts, step: Stepper, look: Look | None = None) -> ParityCase | ModelParity:
    """What `step` trains with, on a few rows of the run's data; or why it is not compared. `look`
    in its place, for a backend under test. Waits for the device.
    """
    if why := _obstacle(parts, step, is_injected=look is not None):
        return ModelParity(skipped=why)
    model = parts.decoder
    assert model is not None
    ids = parts.host_batch(parts.source, parts.rows(0, 0, 0)).ids[:ROWS, :LENGTH].contiguous()
    try:
        there = ids.to(parts.placement.device)
        logits, loss = (look or _looker(parts, step))(there)
        return ParityCase(
            "fused" if isinstance(step, GraphedStep) else "plain",
            model.config,
            ids.cpu(),
            logits.detach().cpu(),
            # of today's weights, so now or never; it is looked at where the logits are far off
            _rounded(parts, there)[0].cpu(),
            float(loss),
            parts.trainable.all(),
        )
    except REFUSALS as error:
        return not_compared(error)


def _obstacle(parts: Parts, step: Stepper, *, is_injected: bool) -> str:
    model = parts.decoder
    if model is None:
        return "only Albor's decoder has a plain version to compare with"
    if parts.ranks.is_sharded:
        return "no rank has the whole model"
    if not (parts.placement.is_gpu or is_injected or _takes_kernels()):
        return "trained on the CPU by plain PyTorch: both are the same"
    if isinstance(step, GraphedStep) and step.model.scales is not None:
        return "a forward would move the scales of fp8"
    need = 4 * sum(p.numel() for p in model.parameters())
    if need > HOST_SHARE * (free := psutil.virtual_memory().available):
        return f"{need >> 20} MiB of weights in fp32, and {free >> 20} MiB of host memory free"
    return ""


def _takes_kernels() -> bool:
    return dispatch.FORCED == "triton" and IS_INTERPRETED


def _looker(parts: Parts, step: Stepper) -> Look:
    if isinstance(step, GraphedStep):
        fused = step.model
        return lambda ids: (fused.logits(ids), fused.score(ids, ids))

    if parts.placement.compiles:  # its graph takes whole batches alone, and passed parity on one
        return lambda ids: _rounded(parts, ids)
    return lambda ids: _plain(parts, ids)


def _rounded(parts: Parts, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The plain model without any kernel, in the precision of the training."""
    with dispatch.deciding_anew(pinned=dict.fromkeys(dispatch.OPS, "reference")):
        return _plain(parts, ids)


def _plain(parts: Parts, ids: Tensor) -> tuple[Tensor, Tensor]:
    model, was = parts.model, parts.model.training
    model.eval()
    try:
        # without its cache: there may be no room for all weights in half, which are read once here
        with parts.placement.autocast(keeps_casts=False), torch.no_grad():
            return model(ids)[0], model(ids, ids)[1]
    finally:
        model.train(was)
