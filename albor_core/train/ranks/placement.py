"""Which device a process computes on, in which precision and with whom; accelerate owns the
devices.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

import torch

from albor_core.config.sections.training import TrainingConfig
from albor_core.run.errors import ConfigError
from albor_core.run.program.launched_rank import LaunchedRank, handed_rank
from albor_core.run.values.quantity import counted
from albor_core.train.ranks.group import ALONE, Ranks, join

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
"""What is not a product of the fused step's MLPs is bf16 in fp8, too."""


@dataclass(frozen=True)
class Placement:
    """The placement of one process on one device."""

    device: torch.device
    device_name: str | None
    precision: str
    compiles: bool
    ranks: Ranks = ALONE

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    def autocast(self, *, keeps_casts: bool = True) -> contextlib.AbstractContextManager[Any]:
        """Half-precision arithmetic over fp32 weights, or nothing for fp32. `keeps_casts`: the
        weights in half until the end, for a backward or to read them again.
        """
        if self.half is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.half, cache_enabled=keeps_casts)

    @property
    def half(self) -> torch.dtype | None:
        """What matrices are multiplied in; None for fp32."""
        return _AUTOCAST.get(self.precision)


def place(training: TrainingConfig) -> Placement:
    """Choose the device and set the process up for it: threads, determinism, the other ranks.

    Raises ConfigError for a device that is not there.
    """
    if training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    if training.num_threads is not None:
        torch.set_num_threads(training.num_threads)
    if training.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "training.device: cuda, but torch finds no usable GPU",
            hint="set training.device to cpu or auto; albor doctor says why",
        )
    use_cpu = training.device == "cpu" or not torch.cuda.is_available()
    ranks = _ranks(training, use_cpu=use_cpu)
    device = _device(ranks, use_cpu=use_cpu)
    if device.type == "cpu" and training.mixed_precision in ("fp16", "fp8"):
        raise ConfigError(
            f"training.mixed_precision: {training.mixed_precision} needs a GPU",
            hint="use bf16 or fp32 on a CPU",
        )
    is_gpu = device.type == "cuda"
    return Placement(
        device,
        torch.cuda.get_device_name(device) if is_gpu else None,
        training.mixed_precision,
        compiles=is_gpu and training.compile in ("auto", True),
        ranks=ranks,
    )


def _ranks(training: TrainingConfig, *, use_cpu: bool) -> Ranks:
    wanted = training.distributed
    if wanted.world_size == 1:
        return ALONE
    if (launched := handed_rank(os.environ)) is not None:
        os.environ["LOCAL_RANK"] = str(0 if use_cpu else _own_gpu(launched))
    elif not use_cpu and torch.cuda.device_count() < wanted.world_size:
        raise ConfigError(
            f"training.distributed.world_size: {wanted.world_size} ranks, but torch sees "
            f"{counted(torch.cuda.device_count(), 'GPU')}",
            hint="albor train resume RUN --world-size N, with as many as `albor gpu` shows",
        )
    return join(use_cpu=use_cpu, is_sharded=wanted.strategy == "fsdp")


def _own_gpu(launched: LaunchedRank) -> int:
    """The only one that this rank was given, or the one of its number on this host."""
    seen = torch.cuda.device_count()
    if seen > 1 and launched.local_rank >= seen:
        raise ConfigError(
            f"{launched} is number {launched.local_rank} of its host, where torch sees"
            f" {counted(seen, 'GPU')}",
            hint="start as many ranks a host as it has GPUs",
        )
    return 0 if seen == 1 else launched.local_rank


def _device(ranks: Ranks, *, use_cpu: bool) -> torch.device:
    from accelerate import PartialState  # noqa: PLC0415  0.15 s, and only here

    state = PartialState(cpu=use_cpu)
    if state.num_processes != ranks.world_size:
        raise ConfigError(
            f"{state.num_processes} processes were started, and "
            f"training.distributed.world_size is {ranks.world_size}",
            hint="start it with `albor train apply`, alone or under torchrun or srun",
        )
    device: torch.device = state.device
    return torch.device("cpu") if use_cpu else device  # a CPU has no number
