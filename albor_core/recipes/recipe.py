"""The recipe interface: what the loop asks of whatever it trains."""

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
    """Rows of data, pure in their numbers: a run that is resumed asks for the same ones again."""

    @property
    def data_hash(self) -> str:
        """Of all that `batch` may give: a checkpoint remembers it."""

    def __len__(self) -> int: ...

    def count(self, rows: Rows) -> int:
        """What the loss counts in these rows, from an index: every rank asks it of every rank's
        rows, each step.
        """

    def batch(self, rows: Rows) -> Mapping[str, NDArray[Any]]:
        """`ids`, and where there are such `labels` and `document`, as in `Batch`; the rest is its
        `extra`. Copies, on the host.
        """


@dataclass(frozen=True)
class PrepareRoom:
    """Where a recipe keeps what it computes before step 1, and what part of it is this rank's."""

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
        """Those of so many that this rank computes."""
        return range(self.rank, items, self.world_size)


class Recipe(ABC):
    """Data, model, objective, and what of it is saved. One object a process; it keeps no state that
    a checkpoint would have to hold.
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
        """The loss on a decoder's logits that this objective is, by which the fused step computes
        it; None: `loss` says more than that, and autograd computes it.
        """
        return None

    @property
    def settings(self) -> dict[str, Any]:
        """A copy of the config's section `recipe`, with the defaults of a recipe of Albor."""
        return deepcopy(settings_of(self.config.training.mode, self.config.recipe))

    @abstractmethod
    def sources(self) -> tuple[Source, Source | None]:
        """To train on and to validate on. Raises AlborError."""

    def order(self, source: Source) -> Order:
        """In which the rows of `source`, the first of `sources`, are trained on."""
        return SequenceOrder(self.config.training.seed, len(source))

    @abstractmethod
    def model(self, device: torch.device) -> nn.Module:
        """On `device`, the weights whatever they are."""

    def trains(self, name: str) -> bool:
        """Whether a tensor of the state dict is trained and saved. The others are frozen: as the
        first weights have them, in every attempt; a checkpoint knows them by hash.
        """
        return True

    def pack(self, model: nn.Module) -> None:  # noqa: B027  most have nothing to do
        """Put a `PackedMatrix` in the place of each frozen linear map that is to be one, in place:
        the first weights are there. What is trained stays.
        """

    def beside(self, device: torch.device) -> Mapping[str, nn.Module]:
        """Frozen models beside it, by name (a teacher, a reference), with their weights:
        from here on they are in `others`. No optimizer sees them, a checkpoint knows their hash.
        """
        return {}

    def prepare(self, model: nn.Module, room: PrepareRoom) -> None:  # noqa: B027
        """What is computed once, before step 1, and kept in `room`: in every attempt, on all ranks.
        Where the run begins the weights are those of step 0; later ones are not there yet, and what
        is needed lies in the room. It goes on where a kill left it, from whole files alone.
        """

    @property
    def prepares(self) -> bool:
        return type(self).prepare is not Recipe.prepare

    def group(self, name: str, tensor: Tensor) -> str:
        """The optimizer's group of a trained tensor: vectors, which do not decay; embedding and
        head, which may have a rate of their own; hidden, which Muon moves; matrices.
        """
        return group_of(name, tensor)

    def decoder(self, model: nn.Module) -> Llama | None:
        """Albor's own decoder, if it is one: then it has kernels, a reference and samples."""
        return None

    def special_ids(self) -> SpecialIds | None:
        """Where its texts begin and end; None: it has no texts."""
        return None

    def random_weights(self, model: nn.Module) -> None:
        """In place, from training.seed alone; as `model` makes them, if nothing else is said."""
        with torch.random.fork_rng():
            torch.manual_seed(self.config.training.seed)
            fresh = self.model(next(model.parameters()).device)
        model.load_state_dict(fresh.state_dict())

    def first_weights(self, model: nn.Module) -> None:
        """Those of step 0, in place: what `model.path` names, by the names of the state dict.
        Raises ConfigError where they cannot be had.
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
        """The sum over all that the batch scores, fp32 (), and the sums that `columns` names."""

    def share_of_loss(
        self, model: Forward, batch: Batch, scored: int, whole: float
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """What this micro-batch adds to the mean loss of a step: `loss` over `whole`, which is what
        the step scores over its number of ranks; `scored` of it lies in this batch.
        """
        total, sums = self.loss(model, batch)
        number = whole or math.inf  # of nothing scored, nothing is learned
        return total / number, {name: value / number for name, value in sums.items()}

    def loss_fault(self, loss: float) -> str:
        """Why the loss of a step or of a validation is not sound; "" where it is. If nothing else
        is said it has to be finite, and steps of another are skipped. A recipe that says more is
        asked instead: gradients have to be finite still, and its first fault stops the run.
        """
        return "" if math.isfinite(loss) else "it is not finite"

    @property
    def judges_loss(self) -> bool:
        """Whether it has a `loss_fault` of its own."""
        return type(self).loss_fault is not Recipe.loss_fault

    def allows_loss(self, loss: float) -> bool:
        """Whether it says of such a loss that it is sound."""
        return self.judges_loss and not self.loss_fault(loss)

    def evaluate(
        self, model: Forward, batch: Batch, rows: int, scored: int
    ) -> Mapping[str, tuple[Tensor, float]]:
        """Of the first `rows` rows, by the name of a figure (`val/loss` among them) its sum, fp64
        (), and the weight of that sum; both are added up over batches and ranks, and divided. The
        rows that follow fill up the batch: their labels are IGNORED. `scored`: what the source
        counts in the first ones. If nothing else is said, `loss` over that.
        """
        total, _ = self.loss(model, batch.first(max(1, rows)))
        total = total.double()
        return {"val/loss": (total if rows else torch.zeros_like(total), scored)}

    def figures(self, means: Mapping[str, float], rows: Rows) -> dict[str, float]:
        """What is logged of an evaluation of these rows."""
        return dict(means)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """What is sharded one by one, in the order of the forward."""
        lists = [[*part] for part in model.modules() if isinstance(part, nn.ModuleList)]
        return max(lists, key=len, default=[])

    def trunk(self, model: nn.Module) -> nn.Module | None:
        """The part whose end is where the forward turns into the loss, for timing alone."""
        return None

    def num_parameters(self, model: nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    def flops_per_token(self) -> float | None:
        """Of a step, forward and backward; None: unknown, and so is the utilisation."""
        return None

    def companions(self, resumed: Path | None = None) -> dict[str, bytes]:
        """Files of a checkpoint that let others load it; `resumed`: the checkpoint that a run goes
        on from. Raises DataError or NotFoundError.
        """
        return {}
