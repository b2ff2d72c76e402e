"""The groups that parameters fall into: which an optimizer tells apart, by name and shape."""

from __future__ import annotations

from torch import Tensor, nn

_MODULES = {"embed_tokens": "embedding", "lm_head": "head"}


def group_of(name: str, tensor: Tensor) -> str:
    """vectors; embedding and head; hidden: a matrix that maps activations to activations, which
    Muon may move; matrices: anything else.
    """
    if tensor.ndim < 2:
        return "vectors"
    parts = name.split(".")
    for module, group in _MODULES.items():
        if module in parts:
            return group
    if tensor.ndim > 2 or any(module in name for module in _MODULES):
        return "matrices"
    return "hidden"


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trained parameters of a model, in its own order."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}
