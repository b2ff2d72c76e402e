"""Which device a run computes on, and in which precision; accelerate owns the devices."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

import torch

from albor_core.run.errors import ConfigError
from albor_core.run.sections import TrainingConfig

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Placement:
    """One process on one device."""

    device: torch.device
    device_name: str | None
    precision: str
    compiles: bool

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Half-precision arithmetic over fp32 weights, or nothing for fp32."""
        dtype = _AUTOCAST.get(self.precision)
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=dtype)


def place(training: TrainingConfig) -> Placement:
    """Choose the device and set the process up for it: threads, determinism.

    Raises ConfigError for a device that is not there and for more than one process, which the
    loop does not do yet.
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
    device = _device(use_cpu=training.device == "cpu" or not torch.cuda.is_available())
    if device.type == "cpu" and training.mixed_precision == "fp16":
        raise ConfigError(
            "training.mixed_precision: fp16 needs a GPU", hint="use bf16 or fp32 on a CPU"
        )
    is_gpu = device.type == "cuda"
    return Placement(
        device,
        torch.cuda.get_device_name(device) if is_gpu else None,
        training.mixed_precision,
        compiles=is_gpu and training.compile in ("auto", True),
    )


def _device(*, use_cpu: bool) -> torch.device:
    from accelerate import PartialState  # noqa: PLC0415  0.15 s, and only here

    state = PartialState(cpu=use_cpu)
    if state.num_processes > 1:
        raise ConfigError(
            f"{state.num_processes} processes were started, and training runs in one",
            hint="start it with `albor train apply`, without torchrun or accelerate launch",
        )
    device: torch.device = state.device
    return device
