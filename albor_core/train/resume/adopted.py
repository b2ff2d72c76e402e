"""A run that goes on from another one's checkpoint: `training.continue_from`.

The checkpoint becomes one of this run's, as if it had come so far by itself; from there on it is
resumed, gone back to and pruned like any other, and the other run may go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albor_core.checkpoint.folder import adopt, list_checkpoints, verify
from albor_core.config.clock import place_in
from albor_core.plan.continued import FIELD, run_of_checkpoint, unfit
from albor_core.run.errors import ConfigError
from albor_core.run.files.tensor_header import DamagedFileError
from albor_core.run.journal import last_event
from albor_core.train.build import Parts
from albor_core.train.observe.reporter import NOT_VALIDATED
from albor_core.train.process.attempt import Attempt
from albor_core.train.resume.train_state import TrainState, hashes, refuse_other_base

_ANEW: Mapping[str, Any] = {
    "evaluated_step": None,
    "best_val": None,
    "evals_without_gain": 0,
    "skipped": 0,
    "spikes": 0,
    "last_command": None,
    "rollbacks": 0,
    "rollbacks_in_a_row": 0,
    "last_trouble": None,
}
"""What of a run's progress is its own story."""


def adopt_start(state: TrainState, attempt: Attempt) -> None:
    """For a run that never had a checkpoint, adopt that of `training.continue_from`, if it names
    one. Raises ConfigError if the run cannot continue from it.
    """
    parts, journal, folder = state.parts, state.reporter.journal, attempt.run.checkpoints
    wanted = parts.config.training.continue_from
    if wanted is None or list_checkpoints(folder) or last_event(journal.path, "checkpoint.saved"):
        return
    try:
        source = verify(wanted)
        trainer = source.trainer()
    except (DamagedFileError, OSError) as error:
        raise ConfigError(
            f"{FIELD}: {wanted}: {error}", hint="name another checkpoint: albor checkpoints ls RUN"
        ) from error
    if wrong := unfit(trainer["config"], parts.config):
        raise ConfigError(f"{FIELD}: {wanted}: {wrong}", hint="put it back as it was there")
    refuse_other_base(parts, source.manifest)
    is_same_data = source.manifest.get("data_hash") == parts.source.data_hash
    adopt(
        folder,
        source,
        _own(trainer, parts, keeps_place=is_same_data),
        {"offset": journal.offset, "seq": journal.seq},
        run_id=attempt.run.id,
        hashes=hashes(parts),
    )
    journal.event(
        "run.continued",
        step=source.step,
        checkpoint=str(wanted),
        run=run_of_checkpoint(wanted),
        data="the same" if is_same_data else "others, from their beginning",
    )


def _own(trainer: Mapping[str, Any], parts: Parts, *, keeps_place: bool) -> dict[str, Any]:
    """trainer.json as this run would have written it."""
    length, number = parts.config.data.seq_len, parts.order.num_sequences
    place = place_in(trainer, seq_len=length, num_sequences=number)
    if not keeps_place:
        place.cursor = 0
    order = parts.order.to_json(0)
    if keeps_place:
        order = {**(trainer.get("order") or {}), "seed": parts.order.seed}
    progress = {**trainer["progress"], **vars(place), **_ANEW}
    progress.pop("data_offset", None)
    return {
        **{key: value for key, value in trainer.items() if key != "schema"},
        "epoch": place.cursor / number,
        "order": order,
        "progress": progress,
        "reporter": {**trainer["reporter"], **NOT_VALIDATED, "elapsed_s": 0.0},
        "config": parts.config.resolved(),
    }
