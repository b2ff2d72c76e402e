"""What a run is made of, built from its config: device, data, model, optimizer, schedule."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from albor_core.data.dataset import Order, PackedShards
from albor_core.data.tokenizer import tokenizer_file
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.run.config import Config
from albor_core.run.errors import ConfigError, DataError
from albor_core.train.optim import LossScale, Optimizer, Schedule
from albor_core.train.placement import Placement, place

Forward = Callable[[Tensor, Tensor], tuple[Tensor | None, Tensor | None]]


@dataclass(frozen=True)
class Parts:
    """Built and on the device; weights are those of step 0."""

    config: Config
    placement: Placement
    train: PackedShards
    val: PackedShards | None
    order: Order
    model: Llama
    forward: Forward
    """The model, compiled where that pays."""
    optimizer: Optimizer
    scale: LossScale | None
    schedule: Schedule
    num_steps: int

    @property
    def tokens_per_step(self) -> int:
        return self.sequences_per_step * self.config.data.seq_len

    @property
    def sequences_per_step(self) -> int:
        return self.config.data.batch_size * self.config.training.gradient_accumulation

    def epoch(self, step: int) -> float:
        """Passes over the data after `step` steps."""
        return step * self.sequences_per_step / self.order.num_sequences

    def batch(self, step: int, micro: int) -> Tensor:
        """(B, T) ids of micro-batch `micro` of step 1, 2, ...; a pure function of the seed."""
        data, training = self.config.data, self.config.training
        chosen = self.order.indices(
            step - 1, micro, data.batch_size, training.gradient_accumulation
        )
        ids = torch.from_numpy(self.train.batch(chosen))
        if self.placement.is_gpu:
            ids = ids.pin_memory()
        return ids.to(self.placement.device, non_blocking=True)

    def companions(self) -> dict[str, bytes]:
        """Files that make a checkpoint loadable elsewhere: config.json and the tokenizer."""
        files = {"config.json": json.dumps(self.model.config.to_hf(), indent=2).encode()}
        if self.config.data.tokenizer is not None:
            source = tokenizer_file(self.config.data.tokenizer)
            try:
                files["tokenizer.json"] = source.read_bytes()
            except OSError as error:
                raise DataError(f"{source}: cannot be read: {error.strerror}") from error
        return files


def build(config: Config) -> Parts:
    """Everything in place, nothing computed.

    Raises ConfigError, DataError or NotFoundError before the device is touched where it can.
    """
    data, training = config.data, config.training
    shape = LlamaConfig(**config.model.architecture.model_dump())
    train = _shards(config, validation=False)
    val = _shards(config, validation=True) if data.val is not None else None
    order = Order(training.seed, len(train))
    num_steps = _num_steps(config, order)
    placement = place(training)
    seed_everything(training.seed)
    model = _model(shape, config, placement)
    optimizer = Optimizer(
        model,
        lr=config.optimizer.lr,
        betas=(config.optimizer.beta1, config.optimizer.beta2),
        eps=config.optimizer.eps,
        weight_decay=config.optimizer.weight_decay,
        fused=placement.is_gpu,
    )
    schedule = Schedule(
        config.optimizer.lr,
        config.optimizer.min_lr,
        training.warmup_steps,
        num_steps,
        training.lr_scheduler,
    )
    return Parts(
        config,
        placement,
        train,
        val,
        order,
        model,
        torch.compile(model, dynamic=False) if placement.compiles else model,
        optimizer,
        LossScale(placement.device) if placement.precision == "fp16" else None,
        schedule,
        num_steps,
    )


def _shards(config: Config, *, validation: bool) -> PackedShards:
    folder = config.data.val if validation else config.data.train
    assert folder is not None
    return PackedShards(
        folder,
        seq_len=config.data.seq_len,
        column=config.data.input_column,
        vocab_size=config.model.architecture.vocab_size,
    )


def _num_steps(config: Config, order: Order) -> int:
    """Optimizer steps of the whole run (C-TRAINCFG-001, checked again where it counts)."""
    training = config.training
    per_epoch = order.steps_per_epoch(config.data.batch_size, training.gradient_accumulation)
    reachable = per_epoch * training.epochs
    if training.max_steps is None:
        return reachable
    if training.max_steps > reachable:
        epochs = -(-training.max_steps // per_epoch)
        raise ConfigError(
            f"training.max_steps: {training.max_steps} cannot be reached, {training.epochs} "
            f"epoch(s) of {per_epoch} steps are {reachable}",
            hint=f"set training.epochs to {epochs}, or training.max_steps to {reachable}",
        )
    return training.max_steps


def _model(shape: LlamaConfig, config: Config, placement: Placement) -> Llama:
    """Memory is taken once, on the device: PyTorch's own initialisation would be thrown away."""
    with torch.device("meta"):
        model = Llama(shape, checkpoint_blocks=config.training.activation_checkpointing)
    model.to_empty(device=placement.device)
    init_weights(model, config.training.seed)
    return model


def seed_everything(seed: int) -> None:
    """Python, NumPy and torch. Nothing in the loop draws today; a dropout would."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def kernels_in_use() -> list[dict[str, Any]]:
    """What dispatch chose for this device, for the journal."""
    from albor_core.kernels.dispatch import choices  # noqa: PLC0415  decided by the first step only

    return [{"op": c.op, "backend": c.backend, "evidence": c.evidence[:200]} for c in choices()]
