"""Which tensors of a model are trained and saved, and which are frozen.

A recipe decides by the names of the state dict (`Recipe.trains`, `Recipe.group`); code that trains,
saves, restores or compares asks here. In every attempt frozen tensors come from `model.path` or
training.seed, as the config says, and a checkpoint stores only their hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from albor_core.checkpoint.folder import BESIDE, FROZEN
from albor_core.model import groups
from albor_core.model.matrices import PackedMatrix
from albor_core.outputs.identity import ALGO, new_hasher
from albor_core.plan.start_weights import start_weights
from albor_core.recipes.own import refuse
from albor_core.recipes.recipe import Recipe
from albor_core.run.errors import ConfigError
from albor_core.run.files.weight_files import BASE, base_record


@dataclass(frozen=True)
class Base:
    """The origin of frozen tensors."""

    folder: Path | None
    """None: they are drawn from training.seed."""
    hash: str
    """Of the files of weights there; of the tensors, where there are no files."""


class Trainable:
    """The tensors of a model: trained, saved, frozen. Tensors are looked up at each call, since the
    model may be sharded later.
    """

    def __init__(self, recipe: Recipe, model: nn.Module) -> None:
        """Freeze the tensors that the recipe does not train. Raises ConfigError if none is left."""
        self.recipe, self.model = recipe, model
        self.frozen = frozenset(name for name in model.state_dict() if not recipe.trains(name))
        """Names of tensors that no checkpoint holds."""
        self.base: Base | None = None
        """Of those, once weights are there; None: there are none."""
        for name, parameter in model.named_parameters():
            if name in self.frozen:
                parameter.requires_grad_(False)
        if not self.trained():
            mode = recipe.config.training.mode
            refuse(f"{mode} has nothing to train", "let `trains` name a parameter")

    def trained(self) -> dict[str, nn.Parameter]:
        """The trained parameters, in the model's order."""
        return groups.trained(self.model)

    def groups(self) -> dict[str, str]:
        """The optimizer's group of each trained tensor."""
        return {name: self.recipe.group(name, tensor) for name, tensor in self.trained().items()}

    def saved(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint holds; live, not copies."""
        found = self.model.state_dict()
        return {name: tensor for name, tensor in found.items() if name not in self.frozen}

    def all(self) -> dict[str, Tensor]:
        """All parameters and buffers, also unsaved ones; live, not copies."""
        return dict((*self.model.named_parameters(), *self.model.named_buffers()))

    def _find_base(self) -> Base | None:
        """The origin of the frozen tensors. Raises ConfigError."""
        if not self.frozen:
            return None
        folder = start_weights(self.recipe.config.model)
        if folder is None:
            found = self.model.state_dict()
            return Base(None, _hash_of({name: found[name] for name in self.frozen}))
        try:
            return Base(folder.absolute(), base_record(folder)["hash"] or "")
        except OSError as error:
            where = error.filename or folder
            raise ConfigError(f"model.path: {where}: cannot be read: {error.strerror}") from error

    def freeze(self, device: torch.device) -> None:
        """After the first weights are complete: hash the frozen tensors, let the recipe pack them,
        and load the models beside it. Raises ConfigError.
        """
        self.base = self._find_base()
        self.recipe.pack(self.model)
        packed = [n for n, part in self.model.named_modules() if isinstance(part, PackedMatrix)]
        self.frozen |= {
            name
            for name in self.model.state_dict()
            if any(name.startswith(f"{module}.") for module in packed)
        }
        found = self.recipe.beside(device)
        self.recipe.others = {n: one.requires_grad_(False).eval() for n, one in found.items()}

    def hashes(self) -> dict[str, str]:
        """Hashes of tensors that no checkpoint holds, for its manifest."""
        found = {} if self.base is None else {FROZEN: self.base.hash}
        return found | ({BESIDE: self._hash_beside} if self.recipe.others else {})

    @cached_property
    def _hash_beside(self) -> str:
        """Hash of the models beside the trained one, which never change."""
        others = self.recipe.others.items()
        return _hash_of(
            {f"{name}.{key}": t for name, one in others for key, t in one.state_dict().items()}
        )

    def companions(self) -> dict[str, bytes]:
        """Files of a checkpoint that name the origin of the rest of the model."""
        if self.base is None:
            return {}
        record = base_record(self.base.folder, self.base.hash)
        record["file"] = self.recipe.weights_file
        return {BASE: json.dumps(record, indent=1).encode()}


def _hash_of(tensors: Mapping[str, Tensor]) -> str:
    hasher = new_hasher(ALGO)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        hasher.update(f"{name} {tensor.dtype} {[*tensor.shape]}".encode())
        hasher.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return f"{ALGO}:{hasher.hexdigest()}"
