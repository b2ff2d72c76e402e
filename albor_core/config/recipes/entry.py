"""What is known of a recipe without torch: name, settings, checks, cost, and where its class is.

One object a recipe, `ENTRY` of the file in this folder that is named like it. The other file is the
class itself (albor_core/recipes), which the training process alone imports. A class of the user's
own, in my_model.py, has its `Numbers` in my_model_entry.py: `NUMBERS`, a function of the config for
each class by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from albor_core.config.shape import ModelShape
from albor_core.run.errors import Problem

if TYPE_CHECKING:
    from albor_core.config.config import Config
    from albor_core.config.sections.section import Section


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of a decoder's parameters: trained, frozen, saved."""

    matrices: int
    """Trained, as are `vectors`."""
    vectors: int
    hidden: int
    """Of the matrices, those that Muon would move."""
    frozen_matrices: int = 0
    frozen_vectors: int = 0
    saved: int | None = None
    """In a checkpoint; None: all that is trained."""
    bytes_beside: int = 0
    """Of frozen models beside it, and of frozen matrices that are packed."""

    @classmethod
    def of_all(cls, shape: ModelShape) -> ParameterCounts:
        """Everything is trained."""
        vectors = shape.num_hidden_layers * shape.num_block_vector_parameters + shape.hidden_size
        hidden = shape.num_hidden_layers * shape.num_block_matmul_parameters
        return cls(shape.num_parameters - vectors, vectors, hidden)

    @property
    def trained(self) -> int:
        return self.matrices + self.vectors

    @property
    def unpacked(self) -> int:
        """Trained or frozen, and not packed."""
        return self.trained + self.frozen_matrices + self.frozen_vectors

    @property
    def in_checkpoint(self) -> int:
        return self.trained if self.saved is None else self.saved


@dataclass(frozen=True)
class Numbers:
    """What a step is, as plain numbers; plan/memory.py makes bytes of them."""

    title: str
    """What is trained, in a few words."""
    shape: ModelShape | None
    """Of Albor's decoder; None: the model is another one, whose memory they do not tell."""
    counts: ParameterCounts
    flops_per_token: int | None
    """Of a step, forward and backward."""
    obstacles: tuple[str, ...] = ()
    """What of the objective keeps it from the step of written-out kernels."""


@dataclass(frozen=True)
class RecipeEntry:
    name: str
    """The value of training.mode."""
    recipe: str
    """module:Class of albor_core.recipes.recipe.Recipe."""
    problems: Callable[[Mapping[str, Any]], Iterator[Problem]]
    """What is wrong in the sections of a config; some of them may be away."""
    numbers: Callable[[Config], Numbers]
    required: tuple[str, ...] = ()
    """Fields that a config of this recipe has to have."""
    settings: type[Section] | None = None
    """Of the config's section `recipe`; None: it has none."""
    reads: tuple[str, ...] = ()
    """Of the fields that not every recipe reads (`SOME_READ`), those that this one does."""


_BY_SOURCE = "a class of your own reads its own data"
SOME_READ = {
    "data.document_mask": _BY_SOURCE,
    "data.packing": _BY_SOURCE,
    "data.shuffle": _BY_SOURCE,
    "data.mixture": _BY_SOURCE,
    "data.val_mixture": _BY_SOURCE,
    "data.curriculum": _BY_SOURCE,
    "data.fim": _BY_SOURCE,
    "training.seq_len_ramp": _BY_SOURCE,
    "training.stability.z_loss": "a class of your own says its loss by `head_loss`",
}
"""Fields that change nothing under a recipe which does not read them, and what a class of the
user's own does instead: refused there by name."""
