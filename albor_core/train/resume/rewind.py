"""Back to a checkpoint: when an attempt begins, and when a run has left its path.

Either way the journal says so, on the disk, before the next step: what was said about later steps
does not belong to this history. After a rollback the run trains on other data than the first time
(Chowdhery et al. 2022, arXiv:2204.02311, section 5.1: the same batches give the same spike), so the
batches in between are left behind for good.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from albor_core.checkpoint.folder import (
    RESTORE,
    Checkpoint,
    newest_usable,
    unmark_best,
)
from albor_core.checkpoint.retention import discard_after
from albor_core.config.load import with_defaults
from albor_core.config.resume_changes import changed_fields, never_allowed
from albor_core.kernels.backend_override import unmet_demand
from albor_core.launch.found_gpu import find_gpu
from albor_core.recipes.own import source_of
from albor_core.run.checkpoints import published
from albor_core.run.errors import DataError, NoCheckpointError
from albor_core.run.journal import last_event
from albor_core.run.values.flatten import diff_configs
from albor_core.train.build import Parts
from albor_core.train.observe.reporter import versions
from albor_core.train.process.attempt import Attempt
from albor_core.train.resume.adopted import adopt_start
from albor_core.train.resume.train_state import (
    TrainState,
    hashes,
    pin_backends,
    refuse_change,
    refuse_other_base,
    restore,
    start_over,
)
from albor_core.train.step.stability import Trouble


def begin(state: TrainState, attempt: Attempt, *, allow_config_change: bool) -> Checkpoint | None:
    """Go to the newest good checkpoint and return it; without any, to the beginning.

    Raises NoCheckpointError (also where all that were saved are gone), ConfigError (another
    config) or DataError (other data).
    """
    journal = state.reporter.journal
    adopt_start(state, attempt)
    checkpoint = _newest(state, attempt.run.checkpoints)
    if checkpoint is None:
        if attempt.number > 1:
            journal.rewind(-1)
    else:
        _resume(state, attempt, checkpoint, allow_config_change=allow_config_change)
        journal.rewind(checkpoint.step)
    # in every attempt: one that died before it saved may have said others than this checkpoint has
    state.reporter.params(state.parts.config.resolved())
    journal.barrier()
    _announce(state, attempt, checkpoint)
    return checkpoint


def _newest(state: TrainState, folder: Path) -> Checkpoint | None:
    journal = state.reporter.journal
    try:
        checkpoint, rejected = newest_usable(folder)
        if checkpoint is None:
            _refuse_lost(folder, journal.path)
    except NoCheckpointError as error:
        journal.event("checkpoint.bad", severity="error", reason=error.message[:1500])
        raise
    for bad in rejected:
        path, reason = str(bad.path), bad.reason[:500]
        journal.event("checkpoint.bad", severity="warning", path=path, reason=reason)
    return checkpoint


def _refuse_lost(folder: Path, journal: Path) -> None:
    """Raise NoCheckpointError if one was ever saved: no pruning and no rollback takes the last."""
    if (saved := last_event(journal, "checkpoint.saved")) is not None:
        raise NoCheckpointError(
            f"{folder}: no checkpoint is left; the last one saved was of step {saved['step']}",
            hint=RESTORE,
        )


def _resume(
    state: TrainState, attempt: Attempt, checkpoint: Checkpoint, *, allow_config_change: bool
) -> None:
    parts, trainer = state.parts, checkpoint.trainer()
    before, now = with_defaults(trainer["config"]), parts.config.resolved()
    refuse_other_base(parts, checkpoint.manifest)
    changes = changed_fields(before, now)
    if parts.trainable.base is not None:  # by its hash it is the same, wherever it lies now
        changes = tuple(change for change in changes if change[0] != "model.path")
    replaced = _replaced_data(parts, checkpoint.manifest)
    refuse_change(never_allowed(changes), str(attempt.run.config_resolved), is_final=True)
    if not allow_config_change:
        refuse_change(changes, str(attempt.run.config_resolved))
        for split, _, _ in replaced:
            data, done = parts.config.data, _USE[split]
            mixture = data.mixture if split == "train" else data.val_mixture
            folders = [one.path for one in mixture] or [getattr(data, split)]
            raise DataError(
                f"{', '.join(map(str, folders))}: not the shards this run was {done} so far",
                hint="put them back, or resume with --allow-config-change",
            )
    restore(state, checkpoint, trainer)
    state.progress.kernels = pin_backends(parts, trainer)
    journal, step = state.reporter.journal, state.progress.step
    for path, old, new in diff_configs(before, now):  # also what needs no leave to change
        journal.event("config.changed", step=step, severity="warning", field=path, was=old, now=new)
    if state.parts.order.changed_at is not None:
        cursor, order = state.progress.cursor, state.parts.order
        journal.event(
            "mixture.changed",
            step=step,
            severity="warning",
            sequence=cursor,
            seen=order.seen(cursor),
        )
    for split, old, new in replaced:
        journal.event("data.changed", step=step, severity="warning", split=split, was=old, now=new)
    is_other = any(split == "val" for split, _, _ in replaced)
    if is_other or _evaluated(parts, before) != _evaluated(parts, now):
        _measure_anew(state, attempt.run.checkpoints)


_USE = {"train": "trained on", "val": "evaluated on"}


def _replaced_data(parts: Parts, manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(train or val, hash that was, hash that is) of shards that are others than a checkpoint's;
    older checkpoints know none of val.
    """
    now, found = hashes(parts), []
    for split, key in (("train", "data_hash"), ("val", "val_hash")):
        was, is_now = manifest.get(key), now.get(key)
        if was and is_now and was != is_now:
            found.append((split, was, is_now))
    return found


def _evaluated(parts: Parts, resolved: Mapping[str, Any]) -> int:
    """How many validation sequences a config scores: `val_rows` spreads them by their number."""
    wanted = resolved["data"]["batch_size"] * resolved["training"]["eval_batches"]
    return 0 if parts.val is None else min(len(parts.val), wanted)


def _measure_anew(state: TrainState, checkpoints: Path) -> None:
    """Losses on other sequences are not compared: best and patience begin again."""
    progress = state.progress
    progress.best_val, progress.evals_without_gain, progress.evaluated_step = None, 0, None
    state.reporter.forget_validation()
    unmark_best(checkpoints)
    state.reporter.journal.event("validation.restarted", step=progress.step, severity="warning")


def _announce(state: TrainState, attempt: Attempt, checkpoint: Checkpoint | None) -> None:
    parts, reporter = state.parts, state.reporter
    placement = parts.placement
    reporter.state.fields["device"] = placement.device_name or str(placement.device)
    reporter.journal.event(
        "run.start",
        step=state.progress.step,
        resumed_from=None if checkpoint is None else checkpoint.step,
        attempt=attempt.number,
        device=placement.device_name or str(placement.device),
        precision=placement.precision,
        threads=torch.get_num_threads(),
        world_size=parts.ranks.world_size,
        **(
            {} if parts.ranks.is_alone else {"strategy": parts.config.training.distributed.strategy}
        ),
        versions=versions(torch.__version__),
        num_steps=state.last_step,
        parameters=parts.recipe.num_parameters(parts.model),
    )
    _announce_recipe(state, attempt)
    if unmet := unmet_demand(os.environ, placement.device.type):
        step = state.progress.step
        reporter.journal.event("kernels.unmet", step=step, severity="warning", reason=unmet)
    if not placement.is_gpu and parts.config.training.device == "auto":
        _report_idle_gpu(state)


def _announce_recipe(state: TrainState, attempt: Attempt) -> None:
    """Record the source of a user's class that trains here, and whether it is the one that the run
    began with."""
    if not (source := source_of(state.parts.recipe)):
        return
    journal, step = state.reporter.journal, state.progress.step
    before = (last_event(attempt.run.journal, "recipe.loaded") or {}).get("data") or {}
    read = {key: hash_ for key, hash_ in hashes(state.parts).items() if key != "config_hash"}
    journal.event("recipe.loaded", step=step, **source, **read)
    if before and before.get("sha256") != source["sha256"]:
        was = before.get("sha256")
        journal.event("recipe.changed", step=step, severity="warning", was=was, **source)


def _report_idle_gpu(state: TrainState) -> None:
    """A machine with a GPU is seldom meant to train on its CPU."""
    if (gpu := find_gpu()) is not None:
        why, step = gpu.obstacle or "torch finds no usable GPU", state.progress.step
        state.reporter.journal.event(
            "gpu.idle", step=step, severity="warning", gpu=gpu.name, why=why, remedy=gpu.remedy
        )


def target_of(folder: Path, trouble: Trouble) -> int:
    """The step to go back to: of the newest checkpoint from before the trouble; if all are younger,
    of the oldest (skipped steps leave the weights alone); 0 if there is none.
    """
    steps = list(published(folder).values())
    return max((step for step in steps if step < trouble.step), default=min(steps, default=0))


def leave_good(state: TrainState, folder: Path, trouble: Trouble) -> Checkpoint | None:
    """Remove the checkpoints made since the trouble; return what is the newest then."""
    discard_after(folder, target_of(folder, trouble))
    return _newest(state, folder)


def go_back(
    state: TrainState, folder: Path, trouble: Trouble, *, in_a_row: int
) -> Checkpoint | None:
    """Go back to `target_of`, past the data since; None: that is the beginning.

    Nothing may be in flight. The caller saves: only then is the rollback itself beyond a kill, and
    a kill before that repeats it, to the same bits. Raises NoCheckpointError if all are damaged or
    gone.
    """
    before = state.progress
    checkpoint = leave_good(state, folder, trouble)
    if checkpoint is None:
        start_over(state)
    else:
        restore(state, checkpoint, checkpoint.trainer())
    state.interval_totals.reset_skip_streak()
    here = state.progress
    state.progress = replace(
        here,
        skipped=before.skipped,
        spikes=before.spikes,
        last_command=before.last_command,
        kernels=before.kernels,
        cursor=before.cursor,
        rollbacks=before.rollbacks + 1,
        rollbacks_in_a_row=in_a_row,
        last_trouble=before.step,
    )
    journal = state.reporter.journal
    journal.rewind(-1 if checkpoint is None else here.step)
    journal.barrier()
    journal.event(
        "training.rollback",
        step=here.step,
        severity="warning",
        reason=trouble.reason,
        message=trouble.message,
        at_step=before.step,
        batches_left_behind=before.step - here.step,
        last_step=state.last_step,
        in_a_row=in_a_row,
    )
    return checkpoint
