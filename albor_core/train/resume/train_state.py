"""From a running loop to a snapshot, and from a checkpoint back: one list of what a run is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from albor_core.checkpoint.folder import BESIDE, FROZEN, TRAINER, Checkpoint, Snapshot
from albor_core.config.clock import Place, place_in
from albor_core.config.resume_changes import binding, change_refused
from albor_core.kernels import dispatch
from albor_core.model.fused import OPS, QK_NORM_OPS
from albor_core.recipes.trainable import Trainable
from albor_core.run.errors import AlborError, ConfigError, NoCheckpointError
from albor_core.run.values.flatten import Difference
from albor_core.run.values.lenient import strict_json
from albor_core.train.build import Parts, on_clock, seed_everything
from albor_core.train.observe.alert_monitor import AlertMonitor
from albor_core.train.observe.reporter import Reporter
from albor_core.train.optim.adamw import Optimizer
from albor_core.train.optim.clipping import INITIAL_STATS
from albor_core.train.ranks.group import Word
from albor_core.train.ranks.sharding import fingerprint, load_weights, whole
from albor_core.train.resume.rng import restore_rng, rng_state
from albor_core.train.step.interval_totals import IntervalTotals
from albor_core.train.step.optimizer_step import Stepper

ALLOW = ", or use `albor train resume RUN --allow-config-change`"


@dataclass
class Progress(Place):
    """The progress of a run: its position, and counts of what happened."""

    evaluated_step: int | None = None
    """Step of the last validation; an evaluation that a stop cut short is made up for on resume."""
    best_val: float | None = None
    evals_without_gain: int = 0
    skipped: int = 0
    last_command: str | None = None
    kernels: dict[str, str] = field(default_factory=dict)
    """Backends the race chose: a resumed attempt keeps to them."""
    spikes: int = 0
    """Steps whose gradient ZClip scaled down."""
    rollbacks: int = 0
    rollbacks_in_a_row: int = 0
    last_trouble: int | None = None
    """Step at which the last rollback began."""
    sound: int = 0
    """Step of the newest figures that were read and showed no trouble."""


@dataclass
class TrainState:
    """All that a checkpoint holds, alive."""

    parts: Parts
    reporter: Reporter
    alert_monitor: AlertMonitor
    interval_totals: IntervalTotals
    progress: Progress = field(init=False)
    stepper: Stepper = field(init=False)
    """What takes its steps, once that is chosen; no part of a checkpoint."""

    def __post_init__(self) -> None:
        self.progress = Progress(unit=self.parts.clock.unit)

    @property
    def step(self) -> int:
        """The step that is complete."""
        return self.progress.step

    @property
    def last_step(self) -> int:
        """The last step of the run, by its current data position."""
        return self.parts.clock.last_step(self.progress)


def config_hash(resolved: Mapping[str, Any]) -> str:
    """SHA-256 over `binding`."""
    text = json.dumps(binding(resolved), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_change(changes: tuple[Difference, ...], file: str, *, is_final: bool = False) -> None:
    """Raise ConfigError that lists them, if there are any. `is_final`: nothing allows them."""
    if changes:
        what = "the config is not the one this run's checkpoint was made with"
        hint = f"put it back{'' if is_final else ALLOW}"
        raise change_refused(what, changes, file=file, hint=hint)


def hashes(parts: Parts) -> dict[str, str]:
    """Identity of config, data and frozen weights, for the manifest."""
    return {
        "config_hash": config_hash(parts.config.resolved()),
        "data_hash": parts.source.data_hash,
        **({} if parts.val is None else {"val_hash": parts.val.data_hash}),
        **parts.trainable.hashes(),
    }


def refuse_other_base(parts: Parts, manifest: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that was trained with other frozen weights than today's. Raises
    ConfigError.
    """
    now, base = parts.trainable.hashes(), parts.trainable.base
    if manifest.get(FROZEN) != now.get(FROZEN):
        if base is None or FROZEN not in manifest:
            what = "the tensors that are trained are others than those of its checkpoint"
            hint = "put the recipe back, or begin a new run"
            raise ConfigError(f"training.mode: {what}", hint=hint)
        what = f"model.path: the weights of {base.folder}"
        hint = "put them back, or name where they are now: model.path"
        if base.folder is None:
            what = "training.seed: the frozen weights that it draws"
            hint = "put it back, or begin a new run"
        what = f"{what} are not those that its checkpoint was trained on"
        raise ConfigError(f"{what}: {base.hash}, not {manifest[FROZEN]}", hint=hint)
    if manifest.get(BESIDE) != now.get(BESIDE):
        names = ", ".join(parts.recipe.others) or "a model that is not there now"
        what = f"{names}: the weights beside which its checkpoint was trained were others"
        hint = "put them back, or begin a new run"
        raise ConfigError(f"training.mode: {what}", hint=hint)


class HostCopies:
    """Copies of tensors on the host. From a GPU into pinned buffers, kept and filled again: the
    copies of one call are valid until the next, so one save at a time may use them.
    """

    def __init__(self) -> None:
        self._pinned: dict[str, Tensor] = {}

    def copy(self, tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
        """The same names with whole values of their own; complete after a device sync."""
        return {name: self._one(f"{kind}/{name}", whole(t.detach())) for name, t in tensors.items()}

    def _one(self, key: str, tensor: Tensor) -> Tensor:
        if not tensor.is_cuda:
            return tensor.clone()
        if key not in self._pinned:
            self._pinned[key] = torch.empty_like(tensor, device="cpu", pin_memory=True)
        return self._pinned[key].copy_(tensor, non_blocking=True)


def refuse_unequal_ranks(state: TrainState) -> None:
    """Check that all copies of the model are equal: diverged copies must not become a checkpoint.
    Raises AlborError if they differ."""
    parts, ranks = state.parts, state.parts.ranks
    if ranks.is_alone or ranks.is_sharded:
        return
    ranks.send_order(Word.COMPARE)
    if not ranks.agree(fingerprint(parts.trainable)):
        raise AlborError(
            f"the weights of the {ranks.world_size} ranks differ at step {state.step}",
            hint="albor gpu and albor kernels check: one of the devices may be faulty",
        )


def take_snapshot(
    state: TrainState, companions: Mapping[str, bytes], copies: HostCopies
) -> Snapshot:
    """Copy everything to the host, of all ranks. Waits for the device."""
    parts, progress, reporter = state.parts, state.progress, state.reporter
    val_loss = reporter.state.fields["val_loss"]
    zclip = parts.clip.zclip
    trainer = {
        "step": progress.step,
        "tokens": reporter.tokens,
        "epoch": progress.cursor / parts.order.num_sequences,
        "order": parts.order.to_json(progress.cursor),
        "progress": dict(vars(progress)),
        "reporter": reporter.to_json(),
        "andon": state.alert_monitor.to_json(),
        "scaler": None if parts.scale is None else parts.scale.to_json(),
        "fp8": None if parts.scales is None else parts.scales.to_json(),
        "zclip": None if zclip is None else zclip.to_json(),
        "noise": parts.noise.to_json(),
        "rng": rng_state(),
        "config": parts.config.resolved(),
        "world_size": parts.ranks.world_size,
        "device": parts.placement.device.type,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    journal = reporter.journal
    if parts.ranks.is_sharded:
        parts.ranks.send_order(Word.GATHER)
    model = copies.copy(parts.trainable.saved(), "model")
    optimizer = copies.copy(parts.optimizer.tensors(), "optimizer")
    if parts.placement.is_gpu:
        torch.cuda.synchronize(parts.placement.device)
    return Snapshot(
        progress.step,
        model,
        optimizer,
        # in this order: it is by adding up that the spikes' watch is told of the last steps
        {
            **strict_json(trainer),
            "tally": state.interval_totals.to_json(),
            "spikes": state.interval_totals.spikes.to_json(),
        },
        {"offset": journal.offset, "seq": journal.seq},
        companions,
        val_loss if progress.evaluated_step == progress.step else None,
        progress.sound,
        parts.recipe.weights_file,
    )


def restore(state: TrainState, checkpoint: Checkpoint, trainer: Mapping[str, Any]) -> None:
    """Put a checkpoint back, on every rank; `trainer` is its trainer.json.

    Raises ConfigError where its tensors do not fit the model, NoCheckpointError for a trainer.json
    that this version does not understand.
    """
    state.parts.ranks.send_order(Word.RESTORE, checkpoint.step)
    try:
        state.parts = restore_parts(state.parts, checkpoint, trainer)
        place = _place_in(state.parts, trainer)
        state.reporter.load(
            trainer["reporter"], sequences=place.sequences, tokens=trainer["tokens"]
        )
        clock, seq_len = state.parts.clock, state.parts.config.data.seq_len
        state.alert_monitor.on_clock(
            num_steps=clock.planned, tokens_per_planned_step=clock.unit * seq_len
        )
        state.alert_monitor.load(trainer["andon"])
        state.interval_totals.load(trainer["tally"])
        state.interval_totals.spikes.load(trainer.get("spikes"))
        saved = {"sound": trainer["step"]} | trainer["progress"]
        saved.pop("data_offset", None)  # `place_in` reads it
        state.progress = Progress(**saved | vars(place))
        state.progress.kernels = dict(state.progress.kernels)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:500]
        raise NoCheckpointError(
            f"{checkpoint.path / TRAINER}: this version of Albor does not understand it ({reason})",
            hint="resume with the version that made it, or begin a run with its weights: "
            f"albor train apply --set model.path={checkpoint.path}",
        ) from error


def _place_in(parts: Parts, trainer: Mapping[str, Any]) -> Place:
    return place_in(
        trainer, seq_len=parts.config.data.seq_len, num_sequences=parts.order.num_sequences
    )


def restore_parts(parts: Parts, checkpoint: Checkpoint, trainer: Mapping[str, Any]) -> Parts:
    """What of a checkpoint belongs to every rank; parts on the run's clock. Raises as `restore`."""
    try:
        load_weights(parts.trainable, checkpoint.model())
        parts.optimizer.load(checkpoint.optimizer())
    except (RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:1000]
        raise ConfigError(
            f"{checkpoint.path}: its tensors do not fit the config ({reason})",
            hint="start a new run with `albor train apply`",
        ) from error
    if parts.scale is not None and trainer["scaler"] is not None:
        parts.scale.load(trainer["scaler"])
    if parts.scales is not None and trainer.get("fp8") is not None:
        parts.scales.load(trainer["fp8"])
    if parts.clip.zclip is not None:
        parts.clip.zclip.load(trainer.get("zclip") or INITIAL_STATS)
    parts.noise.load(trainer.get("noise") or INITIAL_STATS)
    restore_rng(trainer["rng"])
    place = _place_in(parts, trainer)
    parts.order.resume(trainer.get("order") or {}, place.cursor)
    return on_clock(parts, place.unit)


def pin_backends(parts: Parts, trainer: Mapping[str, Any]) -> dict[str, str]:
    """Keep to the backends that the checkpoint's run used, on every rank: a resumed run must not
    change bits. Returns them; none where it was trained on another kind of device.
    """
    if trainer["device"] != parts.placement.device.type:
        return {}
    chosen = trainer["progress"].get("kernels", {}).items()  # old ones have "inductor", too
    known = {op: backend for op, backend in chosen if backend in ("triton", "reference")}
    is_plain = isinstance(parts.optimizer, Optimizer)
    fixed = () if is_plain else (*OPS, *QK_NORM_OPS)  # a fused step has no choice of these
    dispatch.pin({op: known[op] for op in known if op.split()[0] not in fixed})
    return known


def start_over(state: TrainState) -> None:
    """As `build` left it, on every rank: the weights of step 0, and no memory of any step."""
    state.parts.ranks.send_order(Word.START_OVER)
    reset_parts(state.parts)
    state.reporter.forget()
    state.alert_monitor.load({})
    state.interval_totals.reset()
    state.progress = Progress(unit=state.parts.clock.unit)


def reset_parts(parts: Parts) -> None:
    """What of it belongs to every rank."""
    seed = parts.config.training.seed
    seed_everything(seed)
    is_sharded = parts.ranks.is_sharded
    # drawn where they were first: other devices draw others
    if is_sharded or parts.trainable.frozen:
        fresh = parts.recipe.model(torch.device("cpu") if is_sharded else parts.placement.device)
        parts.recipe.first_weights(fresh)
        load_weights(parts.trainable, Trainable(parts.recipe, fresh).saved())
    else:
        parts.recipe.first_weights(parts.model)
    parts.optimizer.reset()
    if parts.scale is not None:
        parts.scale.reset()
    if parts.scales is not None:
        parts.scales.reset()
    if parts.clip.zclip is not None:
        parts.clip.zclip.load(INITIAL_STATS)
    parts.noise.load(INITIAL_STATS)
