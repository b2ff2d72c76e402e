"""The judge of `cpu_reference.py` as a process of its own: training goes on while it computes.

A thread would not do: the number of threads that torch computes with is one for the whole process,
so a judge beside a loop would take the loop's cores, or on a CPU change its sums. This process has
few threads of its own and gives way to everybody (nice); it never sees the GPU, and dies with the
trainer. It is started by exec, never forked from a process that holds a CUDA context.

Memory  the weights in fp32, 4 bytes a parameter (1.6 GB for 398M), once: both processes map them,
        and they are gone when it ends. torch itself takes it some 300 MB more.
Cost    the trainer is held up for the copy from the device alone; the process takes some seconds of
        one core to load torch.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from albor_core.config.shape import RopeScaling
from albor_core.guard.launch import CODE_ROOT, python_module
from albor_core.model.llama import LlamaConfig
from albor_core.run.program.parent_death import die_with_parent
from albor_core.train.step.cpu_reference import (
    REFUSALS,
    ModelParity,
    ParityCase,
    answer,
    not_compared,
)

MODULE = "albor_core.train.step.reference_process"
MOST_THREADS = 4
NICE = 10
_ALIGNED = 64  # bytes
_WEIGHT = "weight "  # before its name
_SENT = ("ids", "logits", "rounded")  # besides the weights


class ReferenceProcess:
    """A running comparison in another process. Its creator closes it."""

    def __init__(self, case: ParityCase) -> None:
        """Copy the weights as they are now, waiting for the device, and start. Raises OSError."""
        named = {name: getattr(case, name) for name in _SENT}
        named |= {f"{_WEIGHT}{name}": t for name, t in case.weights.items()}
        places, size = _places(named)
        about = {
            "parent": os.getpid(),
            "config": asdict(case.config),
            "how": case.how,
            "loss": repr(case.loss),  # JSON has no NaN
            "tensors": places,
        }
        told, held = os.memfd_create("albor-parity"), os.memfd_create("albor-parity-weights")
        try:
            os.write(told, json.dumps(about).encode())
            os.ftruncate(held, size)
            for name, there in _tensors(held, places):
                there.copy_(named[name].detach())
            self._process = subprocess.Popen(
                python_module(MODULE, str(told), str(held)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=_environment(),
                cwd=CODE_ROOT,
                pass_fds=(told, held),
            )
        finally:
            os.close(told)
            os.close(held)

    def poll(self, patience_s: float = 0.0) -> ModelParity | None:
        """What it found; None while it computes. Waits `patience_s` at most."""
        try:
            code = self._process.wait(patience_s) if patience_s else self._process.poll()
        except subprocess.TimeoutExpired:
            return None
        if code is None:
            return None
        assert self._process.stdout is not None
        said = self._process.stdout.read()
        self.close()
        try:
            return ModelParity(**json.loads(said))
        except (TypeError, ValueError):
            return ModelParity(skipped=f"the process of the reference ended with {code}")

    def close(self) -> None:
        """End it, if it still runs: what it would have found is lost."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def num_threads() -> int:
    """The number of threads of the reference: a quarter of the cores, since the others feed the
    GPU."""
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) // 4))


def _environment() -> dict[str, str]:
    threads = str(num_threads())
    mine = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": ""}
    found = {**os.environ, **mine, "ALBOR_KERNELS": "reference"}
    found.pop("TRITON_INTERPRET", None)
    return found


def _places(named: Mapping[str, Tensor]) -> tuple[dict[str, Any], int]:
    """The layout of the tensors: {name: [dtype, shape, first byte]}, and the total bytes."""
    places, size = {}, 0
    for name, tensor in named.items():
        dtype = torch.float32 if name.startswith(_WEIGHT) else tensor.dtype
        places[name] = [str(dtype).removeprefix("torch."), list(tensor.shape), size]
        size += -(-tensor.numel() * dtype.itemsize // _ALIGNED) * _ALIGNED
    return places, size


def _tensors(held: int, places: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Views of a mapped file, which stays mapped as long as one of them lives."""
    whole = torch.frombuffer(mmap.mmap(held, 0), dtype=torch.uint8)
    for name, (kind, shape, begin) in places.items():
        dtype = getattr(torch, kind)
        end = begin + dtype.itemsize * torch.Size(shape).numel()
        yield name, whole[begin:end].view(dtype).view(shape)


def main(told: int, held: int) -> None:
    """Judge the case that lies in two files, as one line of JSON."""
    os.nice(NICE)
    with closing(mmap.mmap(told, 0, prot=mmap.PROT_READ)) as file:
        about = json.loads(file[:])
    die_with_parent(about["parent"])
    try:
        found = answer(_case(about, dict(_tensors(held, about["tensors"]))))
    except REFUSALS as error:
        found = not_compared(error)
    sys.stdout.write(json.dumps(found.to_json()))


def _case(about: Mapping[str, Any], named: dict[str, Tensor]) -> ParityCase:
    shape = dict(about["config"])
    scaling = shape.pop("rope_scaling")
    config = LlamaConfig(**shape, rope_scaling=None if scaling is None else RopeScaling(**scaling))
    given = {name: named.pop(name) for name in _SENT}
    weights = {name.removeprefix(_WEIGHT): t for name, t in named.items()}
    return ParityCase(about["how"], config, loss=float(about["loss"]), weights=weights, **given)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
