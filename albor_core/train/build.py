"""What a run is made of, built from its config: device, data, model, optimizer, schedule."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from albor_core.andon.bricks.names import Brick
from albor_core.config.clock import Clock
from albor_core.config.config import Config
from albor_core.config.microbatches import RankShare, share_of
from albor_core.config.recipes.own import own_class
from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.data.load.order import Order
from albor_core.kernels import dispatch
from albor_core.kernels.documents import attention as documents
from albor_core.kernels.toolchain import takes_hoppers
from albor_core.model.flat import FlatParameters, misfit
from albor_core.model.fp8 import Scales, trained_mlps
from albor_core.model.fused import OPS, QK_NORM_OPS
from albor_core.model.head import HeadScore
from albor_core.model.llama import Llama
from albor_core.plan.memory import fusion_obstacles
from albor_core.recipes.batch import Batch
from albor_core.recipes.own import check_model, check_objective, sources_of
from albor_core.recipes.recipe import Forward, Recipe, Rows, Source
from albor_core.recipes.registry import recipe_of
from albor_core.recipes.trainable import Trainable
from albor_core.run.errors import ConfigError
from albor_core.run.home.folders import albor_home
from albor_core.run.values.quantity import counted
from albor_core.telemetry.peaks import DevicePeaks
from albor_core.train.kernel_choices import KeptChoices
from albor_core.train.optim.adamw import FlatAdamW, Optimizer, kind_of
from albor_core.train.optim.clipping import Clip, NoiseScale, clip_from
from albor_core.train.optim.gradients import LossScale
from albor_core.train.optim.registry import OPTIMIZERS
from albor_core.train.optim.schedules import Schedule
from albor_core.train.ranks.group import Ranks
from albor_core.train.ranks.placement import Placement, place
from albor_core.train.ranks.sharding import reshard, shard


class BatchWeight(NamedTuple):
    """What a micro-batch counts for in its step."""

    scored: int
    """Of it."""
    whole: float
    """What the step scores, over the number of ranks: they are averaged."""

    @property
    def divisor(self) -> float:
        """The divisor of the batch's mean loss: `accumulation` if all micro-batches score the same
        number, infinite for one that scores nothing.
        """
        return self.whole / self.scored if self.scored else math.inf


class RampStage(NamedTuple):
    """What a ramp makes of a step (config/clock.py)."""

    accumulation: int
    pieces: int
    """That each of its sequences is cut into."""


@dataclass(frozen=True)
class Parts:
    """Built and on the device; weights are those of step 0, see `build`."""

    config: Config
    placement: Placement
    recipe: Recipe
    source: Source
    val: Source | None
    order: Order
    trainable: Trainable
    """Of the model."""
    forward: Forward
    """The model, compiled where that pays and the fused step is not a candidate."""
    optimizer: Optimizer | FlatAdamW
    """FlatAdamW where the fused step is a candidate."""
    scales: Scales | None
    """Of fp8."""
    scale: LossScale | None
    clip: Clip
    noise: NoiseScale
    schedule: Schedule
    clock: Clock
    obstacle: str
    """Why the fused step is not a candidate; "" if it is."""
    stage: RampStage | None = None
    """Of a step in a ramp; see `at`."""

    @property
    def model(self) -> nn.Module:
        return self.trainable.model

    @property
    def decoder(self) -> Llama | None:
        """The model, if it is Albor's own."""
        return self.recipe.decoder(self.model)

    def score(self, batch: Batch) -> HeadScore:
        """How the recipe scores the head's output for `batch`; only for a recipe with a `head`."""
        assert self.recipe.head is not None, "neither compiled nor fused"
        return self.recipe.head.bind(batch)

    @property
    def ranks(self) -> Ranks:
        return self.placement.ranks

    @property
    def share(self) -> RankShare:
        """What this rank does of a step."""
        if self.stage is None:
            return self.config.share()
        found = share_of(
            self.config.data.batch_size, self.stage.accumulation, self.ranks.world_size
        )
        assert found is not None, "refused by Config.problems"
        return found

    @property
    def tokens_per_step(self) -> int:
        return self.share.sequences_per_step * self.config.data.seq_len

    def at(self, sequences: int) -> Parts:
        """For the step that begins after so many."""
        clock = self.clock
        if not (clock.ramp or clock.cuts):
            return self
        accumulation = clock.batch_at(sequences) // self.config.data.batch_size
        return replace(self, stage=RampStage(accumulation, clock.pieces_at(sequences)))

    def lr(self, sequences: int) -> float:
        """The rate of the step with which so many have been trained on."""
        return self.schedule.lr_at(sequences / self.clock.unit)

    def batch(self, start: int, micro: int, brick: Brick = nullcontext) -> Batch:
        """This rank's micro-batch `micro` of the global batch that begins with sequence number
        `start` of the data (config/clock.py); a pure function of the seed.
        """
        with brick("data"):
            batch = self.host_batch(self.source, self.rows(start, micro, self.ranks.rank))
            if self._pieces > 1:
                batch = batch.cut(self._pieces)
        with brick("h2d"):
            return batch.to(self.placement.device)

    def host_batch(self, source: Source, rows: Rows) -> Batch:
        """Rows of a source, where a device can fetch them from."""
        found = {name: torch.from_numpy(values) for name, values in source.batch(rows).items()}
        labels, document = found.pop("labels", None), found.pop("document", None)
        batch = Batch(found.pop("ids"), labels, document, found)
        return batch.each(Tensor.pin_memory) if self.placement.is_gpu else batch

    def rows(self, start: int, micro: int, rank: int) -> Rows:
        """The sequences of a micro-batch of any rank."""
        share = self.share
        return self.order.part(
            start, micro, share.batch_size, rank=rank, world=self.ranks.world_size
        )

    def scored(self, start: int, micro: int, rank: int) -> int:
        """What the loss counts in a micro-batch of any rank; an index says it, not that rank."""
        rows = self.rows(start, micro, rank)
        return self.source.count(rows) - len(rows) * (self._pieces - 1)

    @property
    def _pieces(self) -> int:
        return 1 if self.stage is None else self.stage.pieces

    def weights(self, start: int) -> list[BatchWeight]:
        """The weights of this rank's micro-batch losses, such that the step's loss is the mean over
        everything scored on all ranks.
        """
        world, micros = self.ranks.world_size, range(self.share.accumulation)
        total = sum(self.scored(start, m, rank) for rank in range(world) for m in micros)
        mine = [self.scored(start, micro, self.ranks.rank) for micro in micros]
        return [BatchWeight(number, total / world) for number in mine]

    def measure_noise(self, small: Tensor, whole: Tensor) -> None:
        """Gradient norms of this rank's first micro-batch (of half of every rank's if there is but
        one) and of the whole step.
        """
        share = self.share
        parts = share.accumulation * share.world_size if share.accumulation > 1 else 2
        size = self.tokens_per_step // parts
        self.noise.add(small, size, whole, self.tokens_per_step)


def build(
    config: Config,
    *,
    begins: bool = True,
    folder: Path | None = None,
    placement: Placement | None = None,
    mark: Callable[[str], None] = lambda name: None,
) -> Parts:
    """Everything in place, nothing computed. Without `begins` a checkpoint will replace weights,
    and what `model.path` names may be gone by now: they are whatever lies in memory (to draw 398M
    of them takes a CPU 3 s), or random in a recipe of one's own; and kernels are what earlier
    attempts found them to be here. `folder` as in `recipe_of`; `placement` in the place of what the
    config asks for; `mark` is called with what is done, as of `StartTimes`.

    Raises ConfigError, DataError or NotFoundError before the device is touched where it can.
    """
    data, training, recipe = config.data, config.training, recipe_of(config, folder)
    source, val = sources_of(recipe)
    order = recipe.order(source)
    order.steps_per_epoch(data.batch_size, training.gradient_accumulation)
    clock = Clock.of(config, len(source))
    if begins:
        refuse_unreachable(clock)
    mark("data")
    placement = placement or place(training)
    mark("device")
    seed_everything(training.seed)
    if not recipe.compiles:
        placement = replace(placement, compiles=False)
    trainable = _model(recipe, placement, begins=begins)
    dispatch.remember(KeptChoices(albor_home() / "cache" / "kernels", reads=not begins))
    refuse_absent_rates(config.optimizer, trainable)
    mark("model")
    obstacle = placement.ranks.first(obstacle_to_fusion(recipe, placement, trainable))
    mark("kernels")
    if obstacle and placement.precision == "fp8":
        raise fp8_refused(obstacle)
    optimizer = (
        plain_optimizer(config, trainable) if obstacle else flat_optimizer(config, trainable)
    )
    model = trainable.model
    parts = Parts(
        config,
        placement,
        recipe,
        source,
        val,
        order,
        trainable,
        compiled(model, placement) if obstacle else model,
        optimizer,
        _scales(recipe.decoder(model), placement),
        LossScale(placement.device) if placement.precision == "fp16" else None,
        clip_from(training, placement.device),
        NoiseScale(placement.device),
        schedule_of(config, clock),
        clock,
        obstacle,
    )
    if not recipe.prepares:  # else it may need what is prepared
        try_objective(parts)
    mark("model")
    return parts


def _scales(model: Llama | None, placement: Placement) -> Scales | None:
    if placement.precision != "fp8":
        return None
    assert model is not None, "fp8 is fused"
    return Scales.of(model.config, placement.device)


def fp8_refused(reason: str) -> ConfigError:
    """fp8 is asked for by name: a run that cannot have it does not begin in something else."""
    return ConfigError(
        f"training.mixed_precision: fp8 cannot be used here: {reason}", hint="use bf16"
    )


def refuse_absent_rates(wanted: OptimizerConfig, trainable: Trainable) -> None:
    """Refuse a rate for what the model has not, or does not train. Raises ConfigError."""
    kinds = {kind_of(group, wanted.own_lr) for group in trainable.groups().values()}
    for kind in wanted.own_lr:
        if kind not in kinds:
            what = f"optimizer.{kind}_lr: the model has no {kind} that is trained"
            raise ConfigError(what, hint="leave it out")
    if wanted.name == "muon" and "hidden" not in trainable.groups().values():
        what = "optimizer.name: muon moves matrices, and the model has none to train"
        raise ConfigError(what, hint="use adamw")


def plain_optimizer(config: Config, trainable: Trainable) -> Optimizer:
    """What optimizer.name says, over the trained parameters as they are."""
    entry, groups = OPTIMIZERS[config.optimizer.name], trainable.groups()
    on_gpu = next(iter(trainable.trained().values())).is_cuda
    settings = entry.settings(config.optimizer)
    return entry.plain(trainable.model, **settings, fused=on_gpu, groups=groups)


def flat_optimizer(config: Config, trainable: Trainable) -> FlatAdamW:
    """Moves the parameters into flat buffers, with bf16 shadows."""
    entry, accumulates = OPTIMIZERS[config.optimizer.name], config.share().accumulation > 1
    assert entry.flat is not None, "an obstacle to fusion"
    flat = FlatParameters(trainable.model, torch.bfloat16, trainable.groups())
    return entry.flat(flat, **entry.settings(config.optimizer), accumulates=accumulates)


def obstacle_to_fusion(recipe: Recipe, placement: Placement, trainable: Trainable) -> str:
    """Why the step of written-out kernels is not a candidate here, or "". On a GPU it checks each
    of its kernels against fp64 first: seconds.
    """
    config, is_fp8 = recipe.config, placement.precision == "fp8"
    decoder = recipe.decoder(trainable.model)
    if recipe.head is None or decoder is None:
        return f"{config.training.mode} has no form of it"
    if obstacles := fusion_obstacles(config, placement.device.type):
        return obstacles[0]
    if found := misfit(trainable.model) or _odd_groups(trainable):
        return found
    if is_fp8 and not trained_mlps(decoder):
        return "all MLPs are frozen, and nothing else is in fp8"
    update = OPTIMIZERS[config.optimizer.name].kernels
    normed = QK_NORM_OPS if config.model.architecture.shape().qk_norm else ()
    for op in (*OPS, *normed, *update, *(("fp8",) if is_fp8 else ())):
        if reason := dispatch.obstacle(op, placement.device, torch.bfloat16):
            return f"{op}: {reason}"
    return _mask_obstacle(config, placement)


def _odd_groups(trainable: Trainable) -> str:
    """What lies between the matrices that Muon moves and is in another group, if anything."""
    trained = trainable.trained()
    groups = [(name, g) for name, g in trainable.groups().items() if trained[name].ndim > 1]
    hidden = [at for at, (_, group) in enumerate(groups) if group == "hidden"]
    between = groups[hidden[0] : hidden[-1]] if hidden else []
    odd = next((name for name, group in between if group != "hidden"), None)
    return "" if odd is None else f"{odd} lies among matrices of another group of the optimizer"


def _mask_obstacle(config: Config, placement: Placement) -> str:
    """The obstacle of attention that does not see all earlier tokens."""
    window = config.model.architecture.shape().window(config.data.seq_len)
    if not config.data.document_mask and window is None:
        return ""
    if not takes_hoppers(placement.device):
        asks = "sliding_window" if window is not None else "data.document_mask"
        return f"{asks} needs a Hopper GPU or a later one"
    if reason := dispatch.rejection(documents.OP, placement.device, torch.bfloat16):
        return f"{documents.OP.name}: {reason}"
    return ""


def schedule_of(config: Config, clock: Clock) -> Schedule:
    training, wanted = config.training, config.optimizer
    return Schedule(
        wanted.lr,
        wanted.min_lr,
        training.warmup_steps,
        clock.planned,
        training.lr_scheduler,
        training.decay_steps,
    )


def on_clock(parts: Parts, unit: int) -> Parts:
    """For a run whose config counts steps of `unit` sequences. ConfigError as `build`."""
    clock = Clock.of(parts.config, parts.order.num_sequences, unit)
    refuse_unreachable(clock)
    return replace(parts, clock=clock, schedule=schedule_of(parts.config, clock))


def refuse_unreachable(clock: Clock) -> None:
    """Refuse more steps than the data holds, as the plan did, by the data read now.

    Raises ConfigError.
    """
    if clock.planned > clock.reachable:
        per_epoch, epochs = max(1, clock.per_epoch), clock.epochs * clock.passes
        raise ConfigError(
            f"training.max_steps: {clock.planned} cannot be reached, "
            f"{counted(epochs, 'epoch')} of {per_epoch} steps make {clock.reachable}",
            hint=f"set training.epochs to {-(-clock.planned // per_epoch)}, or "
            f"training.max_steps to {clock.reachable}",
        )


def _model(recipe: Recipe, placement: Placement, *, begins: bool) -> Trainable:
    ranks, is_own = placement.ranks, own_class(recipe.config.training.mode) is not None
    here = torch.device("cpu") if ranks.is_sharded else placement.device  # it may not fit whole
    model = recipe.model(here)
    if is_own:
        check_model(recipe, model)
    trainable = Trainable(recipe, model)
    if begins or trainable.frozen:  # no checkpoint holds what is frozen
        recipe.first_weights(model)
    elif is_own:
        recipe.random_weights(model)  # its objective is tried before a checkpoint replaces them
    trainable.freeze(placement.device)
    if ranks.is_sharded:
        shard(
            model,
            recipe.blocks(model),
            placement.device,
            ranks.world_size,
            half=placement.half,
            compiles=placement.compiles,
        )
    return trainable


def try_objective(parts: Parts) -> None:
    """Try the objective of a user's class on a batch. Raises ConfigError."""
    if own_class(parts.config.training.mode) is None:
        return
    batch = parts.host_batch(parts.source, parts.rows(0, 0, parts.ranks.rank))
    with parts.placement.autocast():
        on_device = batch.to(parts.placement.device)
        check_objective(parts.recipe, parts.model, parts.forward, on_device)
    reshard(parts.model)


def compiled(model: nn.Module, placement: Placement) -> Forward:
    """The model as PlainStep calls it. Not for the fused step: torch.compile loads a compiler, and
    that takes a second or two.
    """
    if placement.ranks.is_sharded or not placement.compiles:  # sharded: each block is compiled
        return model
    forward: Forward = torch.compile(model, dynamic=False)
    return forward


def seed_everything(seed: int) -> None:
    """Python, NumPy and torch. Nothing in the loop draws today; a dropout would."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def chosen_kernels(peaks: DevicePeaks | None) -> list[dict[str, Any]]:
    """What each op took here, for the journal; `peaks` of the device that trains."""
    return [_told(choice, peaks) for choice in dispatch.choices()]


def _told(choice: dispatch.Choice, peaks: DevicePeaks | None) -> dict[str, Any]:
    floor_us = None if choice.cost is None else _floor_us(choice, peaks)
    return {
        "op": choice.op,
        "dtype": choice.dtype,
        "device": choice.device,
        "backend": choice.backend,
        "evidence": choice.evidence[:200],
        "candidates": [
            {**{k: _finite(v) for k, v in asdict(one).items()},
             "floor_share": round(floor_us / one.us, 4) if floor_us and one.us else None}
            for one in choice.candidates
        ],
    }  # fmt: skip


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _floor_us(choice: dispatch.Choice, peaks: DevicePeaks | None) -> float | None:
    """Bytes over bandwidth or operations over peak, whichever is longer; None if not known."""
    if choice.cost is None or peaks is None or peaks.bandwidth is None:
        return None
    peak = peaks.fp32 if choice.dtype == "float32" else peaks.half
    if choice.cost.flops and peak is None:
        return None
    work = choice.cost.flops / peak if peak else 0.0
    return 1e6 * max(choice.cost.bytes_moved / peaks.bandwidth, work)


def rejected_kernels() -> list[dict[str, str]]:
    """Each backend that failed parity here, and by how much, for the journal."""
    return [
        {
            "op": choice.op,
            "device": choice.device,
            "dtype": choice.dtype,
            "backend": why.split(":")[0],
            "reason": why[:1000],
        }
        for choice in dispatch.choices()
        for why in choice.rejected
    ]
