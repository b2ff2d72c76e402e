"""What of a model is trained, what a checkpoint holds of it, and what stands as it was.

A recipe says it by the names of the state dict (`Recipe.trains`, `Recipe.group`); everybody else
asks here and walks no model. What stands comes from where the config says in every attempt, from
`model.path` or training.seed, and a checkpoint remembers it by hash alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from albor_core.model.standing import StandingMatrix
from albor_core.outputs.identity import ALGO, new_hasher
from albor_core.plan.start_weights import start_weights
from albor_core.recipes.recipe import Recipe
from albor_core.run.errors import ConfigError
from albor_core.run.files.weight_files import BASE, base_record

FROZEN, BESIDE = "frozen_hash", "beside_hash"
"""Keys of a checkpoint's manifest."""


@dataclass(frozen=True)
class Base:
    """Where the tensors that stand come from."""

    folder: Path | None
    """None: they are drawn from training.seed."""
    hash: str
    """Of the files of weights there; of the tensors, where there are no files."""

    def to_json(self) -> dict[str, str | None]:
        """Of base.json in a checkpoint, by which it is read together with its base."""
        return base_record(self.folder, self.hash)


class Trainable:
    """The tensors of one model, by what becomes of them. The model may be sharded later: tensors
    are looked up when they are asked for.
    """

    def __init__(self, recipe: Recipe, model: nn.Module) -> None:
        """Freezes what the recipe does not train. Raises ConfigError where nothing is left."""
        self.recipe, self.model = recipe, model
        self.frozen = frozenset(name for name in model.state_dict() if not recipe.trains(name))
        """Names of tensors that stand and that no checkpoint holds."""
        self.base: Base | None = None
        """Of those, once weights are there; None: there are none."""
        self._others_hash: str | None = None
        for name, parameter in model.named_parameters():
            if name in self.frozen:
                parameter.requires_grad_(False)
        if not self.trained():
            what = f"training.mode: {recipe.config.training.mode} has nothing to train"
            raise ConfigError(what, hint="let `trains` name a parameter")

    def trained(self) -> dict[str, nn.Parameter]:
        """In the model's order."""
        named = self.model.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}

    def groups(self) -> dict[str, str]:
        """The optimizer's group of each trained tensor."""
        return {name: self.recipe.group(name, tensor) for name, tensor in self.trained().items()}

    def saved(self) -> dict[str, Tensor]:
        """What a checkpoint holds; live."""
        found = self.model.state_dict()
        return {name: tensor for name, tensor in found.items() if name not in self.frozen}

    def all(self) -> dict[str, Tensor]:
        """Parameters and buffers, also those that nobody saves; live."""
        return dict((*self.model.named_parameters(), *self.model.named_buffers()))

    def find_base(self) -> None:
        """Look up and hash what the tensors that stand came from; the weights are there, whole.
        Raises ConfigError.
        """
        if not self.frozen:
            return
        folder = start_weights(self.recipe.config.model)
        if folder is None:
            self.base = Base(None, _hash_of({n: self.model.state_dict()[n] for n in self.frozen}))
            return
        try:
            self.base = Base(folder.absolute(), base_record(folder)["hash"] or "")
        except OSError as error:
            where = error.filename or folder
            raise ConfigError(f"model.path: {where}: cannot be read: {error.strerror}") from error

    def settle(self, device: torch.device) -> None:
        """Let what stands take its form, and what stands beside it its place: the weights are
        there, whole.
        """
        self.find_base()
        self.recipe.settle(self.model)
        packed = [n for n, part in self.model.named_modules() if isinstance(part, StandingMatrix)]
        self.frozen |= {
            name
            for name in self.model.state_dict()
            if any(name.startswith(f"{module}.") for module in packed)
        }
        found = self.recipe.beside(device)
        self.recipe.others = {n: one.requires_grad_(False).eval() for n, one in found.items()}

    def hashes(self) -> dict[str, str]:
        """Of what no checkpoint holds, for its manifest."""
        found = {} if self.base is None else {FROZEN: self.base.hash}
        others = {
            f"{name}.{key}": tensor
            for name, model in self.recipe.others.items()
            for key, tensor in model.state_dict().items()
        }
        return found | ({BESIDE: self._hash_others(others)} if others else {})

    def _hash_others(self, tensors: Mapping[str, Tensor]) -> str:
        if self._others_hash is None:  # nothing moves them
            self._others_hash = _hash_of(tensors)
        return self._others_hash

    def companions(self) -> dict[str, bytes]:
        """Files of a checkpoint that tell where the rest of the model is."""
        if self.base is None:
            return {}
        said = {**self.base.to_json(), "file": self.recipe.weights_file}
        return {BASE: json.dumps(said, indent=1).encode()}


def _hash_of(tensors: Mapping[str, Tensor]) -> str:
    hasher = new_hasher(ALGO)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        hasher.update(f"{name} {tensor.dtype} {[*tensor.shape]}".encode())
        hasher.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return f"{ALGO}:{hasher.hexdigest()}"
