"""The GPUs of a host that a program can see: CUDA_VISIBLE_DEVICES, in NVML's indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from albor_core.telemetry.sample import GpuSample


def visible_gpus(
    gpus: Sequence[GpuSample], environment: Mapping[str, str], most: int | None = None
) -> tuple[int, ...]:
    """Indexes in the program's order, at most the first `most`: a run of so many ranks uses one
    each. As in CUDA, entries after one that matches no GPU are ignored.
    """
    told = environment.get("CUDA_VISIBLE_DEVICES")
    if told is None:
        return tuple(gpu.index for gpu in gpus)[:most]
    found: list[int] = []
    for word in (part.strip() for part in told.split(",")):
        index = next((gpu.index for gpu in gpus if word and _names(word, gpu)), None)
        if index is None or index in found:
            break
        found.append(index)
    return tuple(found)[:most]


def _names(word: str, gpu: GpuSample) -> bool:
    if word.isdecimal():
        return int(word) == gpu.index
    return gpu.uuid is not None and gpu.uuid.startswith(word)
