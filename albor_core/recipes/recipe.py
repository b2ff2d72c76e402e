"""The recipe interface: what the loop needs of a training method."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from albor_core.checkpoint.folder import MODEL
from albor_core.config.config import Config
from albor_core.config.recipes.registry import settings_of
from albor_core.data.load.order import Order, SequenceOrder
from albor_core.data.pack.special_tokens import SpecialIds
from albor_core.model.groups import group_of
from albor_core.model.hf.tensors import stream
from albor_core.model.llama import Llama
from albor_core.plan.start_weights import start_weights
from albor_core.recipes.batch import Batch
from albor_core.recipes.head_loss import HeadLoss
from albor_core.run.errors import ConfigError, DataError
from albor_core.run.files.weight_files import open_weights

Forward = Callable[..., Any]
"""A recipe's model, or what stands for it: compiled, spread over ranks, or written out."""
Rows = NDArray[np.int64]


class Source(Protocol):
    """Rows of data, a pure function of their numbers: a resumed run asks for the same ones
    again."""

    @property
    def data_hash(self) -> str:
        """Hash of everything that `batch` may return, recorded in checkpoints."""

    def __len__(self) -> int: ...

    def count(self, rows: Rows) -> int:
        """The count of scored items in these rows, computed from an index: each step every rank
        asks it for the rows of all ranks.
        """

    def batch(self, rows: Rows) -> Mapping[str, NDArray[Any]]:
        """The rows as `ids` and, if there are such, `labels` and `document`, as in `Batch`; other
        entries become its `extra`. Copies, on the host.
        """


@dataclass(frozen=True)
class PrepareRoom:
    """The folder in which a recipe stores what it computes before step 1, and this rank's share of
    the work."""

    folder: Path
    """Of the run, there already."""
    begins: bool
    """Whether the model has the weights of step 0."""
    rank: int = 0
    world_size: int = 1
    report: Callable[[float], None] = lambda share: None
    """Called with the share that is done, 0 to 1: a run that is silent longer than
    guard.start_limit_s is taken for hung."""

    def mine(self, items: int) -> range:
        """The part of so many items that this rank computes."""
        return range(self.rank, items, self.world_size)


class Recipe(ABC):
    """A training method: data, model, objective, and what is saved of the model. One object per
    process, without state that a checkpoint would have to hold.
    """

    compiles: ClassVar[bool] = False
    """Whether torch.compile is tried on the model."""
    weights_file: ClassVar[str] = MODEL
    """Of a checkpoint: where what is trained lies."""
    columns: tuple[str, ...] = ()
    """Names of the sums that `loss` gives beside the loss, logged as train/NAME."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.others: Mapping[str, nn.Module] = {}
        """What `beside` gave, frozen and in eval mode."""

    @property
    def head(self) -> HeadLoss | None:
        """The objective as a loss on a decoder's logits, which the fused step can compute; None if
        `loss` is more than that and autograd computes it.
        """
        return None

    @property
    def settings(self) -> dict[str, Any]:
        """A copy of the config's section `recipe`, with the defaults of a recipe of Albor."""
        return deepcopy(settings_of(self.config.training.mode, self.config.recipe))

    @abstractmethod
    def sources(self) -> tuple[Source, Source | None]:
        """The data sources for training and for validation. Raises AlborError."""

    def order(self, source: Source) -> Order:
        """The order in which the rows of `source`, the first of `sources`, are trained on."""
        return SequenceOrder(self.config.training.seed, len(source))

    @abstractmethod
    def model(self, device: torch.device) -> nn.Module:
        """The model on `device`, with any weights."""

    def trains(self, name: str) -> bool:
        """Whether a tensor of the state dict is trained and saved. Others are frozen: every attempt
        has them as the first weights do, and a checkpoint stores only their hash.
        """
        return True

    def pack(self, model: nn.Module) -> None:  # noqa: B027  most have nothing to do
        """Replace each frozen linear map that is to be packed by a `PackedMatrix`, in place, after
        the first weights were loaded. Trained tensors stay.
        """

    def beside(self, device: torch.device) -> Mapping[str, nn.Module]:
        """Frozen models used beside the trained one, by name (a teacher, a reference), with their
        weights; afterwards they are in `others`. No optimizer moves them, and a checkpoint stores
        their hash.
        """
        return {}

    def prepare(self, model: nn.Module, room: PrepareRoom) -> None:  # noqa: B027
        """Compute what is needed once before step 1 and store it in `room`: called in every
        attempt, on all ranks. In a new run the weights are those of step 0; in a resumed one later
        weights are not loaded yet, and all results are in the room. Continues after a kill, from
        complete files only.
        """

    @property
    def prepares(self) -> bool:
        return type(self).prepare is not Recipe.prepare

    def group(self, name: str, tensor: Tensor) -> str:
        """The optimizer group of a trained tensor: vectors, which do not decay; embedding and head,
        which may have a rate of their own; hidden, which Muon moves; matrices.
        """
        return group_of(name, tensor)

    def decoder(self, model: nn.Module) -> Llama | None:
        """The model if it is Albor's own decoder, which has kernels, a reference and samples; else
        None."""
        return None

    def special_ids(self) -> SpecialIds | None:
        """The special tokens at the begin and end of texts; None if the data has no texts."""
        return None

    def random_weights(self, model: nn.Module) -> None:
        """Draw the weights in place, from training.seed alone; by default as `model` makes them."""
        with torch.random.fork_rng():
            torch.manual_seed(self.config.training.seed)
            fresh = self.model(next(model.parameters()).device)
        model.load_state_dict(fresh.state_dict())

    def first_weights(self, model: nn.Module) -> None:
        """Load the weights of step 0 in place: those of `model.path`, by the names of the state
        dict. Raises ConfigError if they cannot be loaded.
        """
        folder = start_weights(self.config.model)
        if folder is None:
            self.random_weights(model)
            return
        try:
            model.load_state_dict(dict(stream(open_weights(folder))))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:500]
            what = f"model.path: {folder} does not fit the model: {reason}"
            raise ConfigError(what, hint="name weights that this class saved") from error
        except DataError as error:
            raise ConfigError(f"model.path: {error.message}", hint=error.hint) from error

    @abstractmethod
    def loss(self, model: Forward, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The sum over everything that the batch scores, fp32 (), and the sums that `columns`
        names."""

    def share_of_loss(
        self, model: Forward, batch: Batch, scored: int, whole: float
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The part of this micro-batch in the mean loss of a step: `loss` over `whole`, the step's
        count over its number of ranks; `scored` is the count in this batch.
        """
        total, sums = self.loss(model, batch)
        number = whole or math.inf  # of nothing scored, nothing is learned
        return total / number, {name: value / number for name, value in sums.items()}

    def loss_fault(self, loss: float) -> str:
        """The reason why the loss of a step or of a validation is not sound; "" if it is. By
        default it has to be finite, and other steps are skipped. A recipe that overrides this is
        asked instead: gradients still have to be finite, and its first fault stops the run.
        """
        return "" if math.isfinite(loss) else "it is not finite"

    @property
    def judges_loss(self) -> bool:
        """Whether the recipe overrides `loss_fault`."""
        return type(self).loss_fault is not Recipe.loss_fault

    def allows_loss(self, loss: float) -> bool:
        """Whether the recipe accepts this loss as sound."""
        return self.judges_loss and not self.loss_fault(loss)

    def evaluate(
        self, model: Forward, batch: Batch, rows: int, scored: int
    ) -> Mapping[str, tuple[Tensor, float]]:
        """Evaluate the first `rows` rows: by the name of a figure (`val/loss` among them) its sum,
        fp64 (), and the weight of that sum; both are summed over batches and ranks, and divided.
        Further rows only fill the batch: their labels are IGNORED. `scored`: the source's count in
        the first rows. By default `loss` over that.
        """
        total, _ = self.loss(model, batch.first(max(1, rows)))
        total = total.double()
        return {"val/loss": (total if rows else torch.zeros_like(total), scored)}

    def figures(self, means: Mapping[str, float], rows: Rows) -> dict[str, float]:
        """The logged figures of an evaluation of these rows."""
        return dict(means)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """The modules that are sharded one by one, in the order of the forward pass."""
        lists = [[*part] for part in model.modules() if isinstance(part, nn.ModuleList)]
        return max(lists, key=len, default=[])

    def trunk(self, model: nn.Module) -> nn.Module | None:
        """The submodule after whose end the loss begins; used only for timing."""
        return None

    def num_parameters(self, model: nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    def flops_per_token(self) -> float | None:
        """FLOPs per token of a step, forward and backward; None if unknown, and then the
        utilisation is too."""
        return None

    def companions(self, resumed: Path | None = None) -> dict[str, bytes]:
        """Files of a checkpoint that let other programs load it; `resumed`: the checkpoint that a
        run continues from. Raises DataError or NotFoundError.
        """
        return {}
