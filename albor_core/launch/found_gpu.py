"""Finds the GPU that a run would get, without loading torch."""

from __future__ import annotations

import os
from pathlib import Path

from albor_core.guard.process.strangers import stranger
from albor_core.plan.facts import GpuFacts, torch_without_cuda
from albor_core.run.rundir import read_json
from albor_core.telemetry.gpu import Gpus
from albor_core.telemetry.sample import GpuSample


def find_gpu() -> GpuFacts | None:
    """The first GPU that CUDA would show to a run, and whether torch could train on it; None if
    NVML finds none.

    The file of ALBOR_FAKE_NVML may say `"torch_cuda": true` beside its GPUs: then torch can.
    """
    gpus = Gpus()
    there = [gpu for gpu in gpus.sample() if gpu.memory_total_bytes]
    if not there:
        return None
    shown = visible(there)
    gpu = (shown or there)[0]
    obstacle = remedy = ""
    if not shown:
        obstacle = f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r} hides it"
        remedy = "unset CUDA_VISIBLE_DEVICES"
    elif (version := torch_without_cuda()) and not _fake_has_cuda():
        obstacle = f"this torch ({version}) has no CUDA"
        remedy = "install a torch with CUDA: https://pytorch.org/get-started/locally"
    return GpuFacts(
        gpu.name or "GPU",
        gpu.memory_total_bytes or 0,
        count=len(shown),
        capability=gpus.capability(gpu.index),
        strangers=tuple(
            f"GPU {one.index} is in use by {stranger(process.pid, process.memory_bytes)}"
            for one in shown
            for process in one.processes
        ),
        obstacle=obstacle,
        remedy=remedy,
        power_limit_w=gpu.power_limit_w,
    )


def visible(there: list[GpuSample]) -> list[GpuSample]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, by index or beginning of a UUID, up to the first
    entry that matches none; as in torch, none if one is named twice. A MIG slice counts as a GPU of
    the first one's size.
    """
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return there
    found: list[GpuSample] = []
    words = [word.strip() for word in wanted.split(",")]
    for word in words:
        named = [gpu for gpu in there if word and (gpu.uuid or "").startswith(word)]
        named += [gpu for gpu in there if str(gpu.index) == word]
        named += there[:1] if word.startswith("MIG-") else []
        if not named:
            break
        if words.count(word) > 1:
            return []
        found.append(named[0])
    return found


def _fake_has_cuda() -> bool:
    fake = read_json(Path(os.environ.get("ALBOR_FAKE_NVML") or os.devnull))
    return bool((fake or {}).get("torch_cuda"))
