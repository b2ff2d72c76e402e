"""From a running loop to a snapshot, and from a checkpoint back: one list of what a run is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from albor_core.run.errors import ConfigError, Problem
from albor_core.run.flatten import Difference, diff_configs
from albor_core.run.state import finite
from albor_core.train.checkpoint import Checkpoint, Snapshot
from albor_core.train.cord import Cord
from albor_core.train.parts import Parts
from albor_core.train.reporter import Reporter
from albor_core.train.rng import restore_rng, rng_state
from albor_core.train.tally import Tally

# What may change between two lives without changing where the weights go.
FREE = (
    "monitoring",
    "guard",
    "training.output_dir",
    "training.save_interval",
    "training.checkpoint",
    "training.log_interval",
    "training.eval_interval",
    "training.eval_batches",
    "training.num_threads",
    "training.early_stopping_patience",
    "training.sample_prompts",
    "training.nan_limit",
    "training.device",
    "training.compile",
    "training.deterministic",
    "training.activation_checkpointing",
)


@dataclass
class Progress:
    """Where a run is. The data position follows from the step."""

    step: int = 0
    evaluated_step: int | None = None
    """Step of the last validation; an evaluation that a stop cut short is made up for on resume."""
    best_val: float | None = None
    evals_without_gain: int = 0
    skipped: int = 0
    last_command: str | None = None
    kernels: dict[str, str] = field(default_factory=dict)
    """Backends the race chose: a resumed life keeps to them."""


def binding(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved config that decides where the weights go."""
    return {
        path: value
        for path, _, value in diff_configs({}, resolved)
        if not any(path == free or path.startswith(f"{free}.") for free in FREE)
    }


def config_hash(resolved: Mapping[str, Any]) -> str:
    """SHA-256 over `binding`."""
    text = json.dumps(binding(resolved), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def changed_fields(saved: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Difference, ...]:
    """What of `binding` differs between a checkpoint's config and the run's."""
    return diff_configs(binding(saved), binding(now))


def refuse_change(changes: tuple[Difference, ...], file: str) -> None:
    """Raises ConfigError that lists them, if there are any."""
    if changes:
        listed = "; ".join(f"{path}: {old} -> {new}" for path, old, new in changes)
        raise ConfigError(
            f"{file}: the config is not the one this run's checkpoint was made with ({listed})",
            hint="put it back, or go on with `albor train resume RUN --allow-config-change`",
            problems=tuple(
                Problem(path, f"was {old}, is {new}", "", file) for path, old, new in changes
            ),
        )


def hashes(parts: Parts) -> dict[str, str]:
    """Identity of config and data, for the manifest."""
    return {
        "config_hash": config_hash(parts.config.resolved()),
        "data_hash": parts.train.manifest.data_hash,
    }


class HostCopies:
    """Copies of tensors on the host. From a GPU into pinned buffers, kept and filled again: the
    copies of one call are valid until the next, so one save at a time may use them.
    """

    def __init__(self) -> None:
        self._pinned: dict[str, Tensor] = {}

    def copy(self, tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
        """The same names with values of their own; complete after a device sync."""
        return {name: self._one(f"{kind}/{name}", t.detach()) for name, t in tensors.items()}

    def _one(self, key: str, tensor: Tensor) -> Tensor:
        if not tensor.is_cuda:
            return tensor.clone()
        if key not in self._pinned:
            self._pinned[key] = torch.empty_like(tensor, device="cpu", pin_memory=True)
        return self._pinned[key].copy_(tensor, non_blocking=True)


def take_snapshot(
    parts: Parts,
    progress: Progress,
    reporter: Reporter,
    cord: Cord,
    tally: Tally,
    companions: Mapping[str, bytes],
    copies: HostCopies,
) -> Snapshot:
    """Copy everything to the host. Waits for the device."""
    val_loss = reporter.state.fields["val_loss"]
    trainer = {
        "step": progress.step,
        "tokens": reporter.tokens(progress.step),
        "epoch": parts.epoch(progress.step),
        "order": {"seed": parts.order.seed, "next_step": progress.step + 1},
        "progress": dict(vars(progress)),
        "reporter": reporter.to_json(),
        "andon": cord.to_json(),
        "scaler": None if parts.scale is None else parts.scale.to_json(),
        "rng": rng_state(),
        "config": parts.config.resolved(),
        "world_size": 1,
        "device": parts.placement.device.type,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    journal = reporter.journal
    model = copies.copy(parts.model.state_dict(), "model")
    optimizer = copies.copy(parts.optimizer.tensors(), "optimizer")
    if parts.placement.is_gpu:
        torch.cuda.synchronize(parts.placement.device)
    return Snapshot(
        progress.step,
        model,
        optimizer,
        {**finite(trainer), "tally": tally.to_json()},
        {"offset": journal.offset, "seq": journal.seq},
        companions,
        val_loss if progress.evaluated_step == progress.step else None,
    )


def restore(
    checkpoint: Checkpoint,
    trainer: Mapping[str, Any],
    parts: Parts,
    reporter: Reporter,
    cord: Cord,
    tally: Tally,
) -> Progress:
    """Put a checkpoint back into the parts; `trainer` is its trainer.json.

    Raises ConfigError where its tensors do not fit the model.
    """
    try:
        parts.model.load_state_dict(checkpoint.model(), strict=True)
        parts.optimizer.load(checkpoint.optimizer())
    except (RuntimeError, KeyError) as error:
        raise ConfigError(
            f"{checkpoint.path}: its tensors do not fit model.architecture ({error})"[:1000],
            hint="start a new run with `albor train apply`",
        ) from error
    reporter.load(trainer["reporter"])
    cord.load(trainer["andon"])
    tally.load(trainer["tally"])
    if parts.scale is not None and trainer["scaler"] is not None:
        parts.scale.load(trainer["scaler"])
    restore_rng(trainer["rng"])
    return Progress(**trainer["progress"])
