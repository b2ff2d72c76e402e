"""Weights of a folder, tensor by tensor: at no time is more than one of them beside the model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from albor_core.model.hf.folder import ModelFolder, refuse_misfits
from albor_core.model.llama import Llama, LlamaConfig
from albor_core.run.errors import DataError
from albor_core.run.files.weight_files import WeightFiles


def stream(found: WeightFiles) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor on the CPU, in the dtype it has on disk), file by file."""
    by_file = groupby(found.tensors.items(), key=lambda item: item[1].file)
    for file, held in by_file:
        yield from _of_file(file, [name for name, _ in held])


def _of_file(file: Path, names: list[str]) -> Iterator[tuple[str, Tensor]]:
    with safe_open(str(file), framework="pt") as opened:
        for name in names:
            yield name, opened.get_tensor(name)


def load_model(found: ModelFolder, *, device: torch.device, dtype: torch.dtype) -> Llama:
    """The decoder with its weights, frozen and in eval mode; they are widened or rounded to `dtype`
    on the way to `device`, where memory is taken once.

    Raises DataError where weights or tokenizer do not fit config.json, or are not finite.
    """
    refuse_misfits(found)
    with torch.device("meta"):
        model = Llama(LlamaConfig(**vars(found.shape))).to(dtype)
    model.to_empty(device=device)
    load_into(model, found.weights)
    return model.eval().requires_grad_(False)


@torch.no_grad()
def load_into(model: nn.Module, found: WeightFiles) -> None:
    """Fill every parameter of a model, whose shapes have been checked, in its own dtype.

    Raises DataError where a tensor is not finite there, or one of them is nowhere.
    """
    parameters = dict(model.named_parameters())
    for name, tensor in stream(found):
        parameter = parameters.pop(name)
        parameter.copy_(tensor)
        if not torch.isfinite(parameter).all():
            kind = str(parameter.dtype).removeprefix("torch.").replace("float", "fp")
            what = f"{found.tensors[name].file}: not every value of {name} is finite in {kind}"
            raise DataError(what, hint="name other weights")
    if parameters:
        raise DataError(
            f"{found.folder}: no tensor {next(iter(parameters))}", hint="fetch it again"
        )
