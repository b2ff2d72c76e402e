"""A rank that follows: builds what rank 0 builds, then does as it is told until the end.

It writes nothing but a traceback and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from torch import Tensor

from albor_core.checkpoint.folder import Checkpoint, list_checkpoints
from albor_core.config.config import Config
from albor_core.plan.recipes.own import folder_of
from albor_core.recipes.recipe import Rows
from albor_core.run.checkpoints import name_of
from albor_core.train.build import build
from albor_core.train.evaluate import batches_of, sample_with, scoring, validate_with
from albor_core.train.preparation import prepare
from albor_core.train.process.attempt import Attempt
from albor_core.train.process.faults import Faults
from albor_core.train.ranks.group import RankOrder, Word
from albor_core.train.ranks.sharding import fingerprint, whole
from albor_core.train.resume.train_state import pin_backends, reset_parts, restore_parts
from albor_core.train.step.choose import choose_step, plain_step
from albor_core.train.step.optimizer_step import Stepper, take_step


class RankLoop:
    """The loop of one attempt on a rank above 0."""

    def __init__(self, attempt: Attempt, config: Config, faults: Faults) -> None:
        """Meets the others. Raises AlborError as rank 0 does."""
        self.attempt, self.config, self.faults = attempt, config, faults
        begins = not list_checkpoints(attempt.run.checkpoints)
        self.parts = build(config, begins=begins, folder=folder_of(attempt.run))
        prepare(self.parts, attempt.run.path, begins=begins)
        self.step = 0
        self._stepper: Stepper | None = None
        self._val: list[Rows] | None = None

    def run(self) -> None:
        """Obey until the end."""
        ranks = self.parts.ranks
        while (order := ranks.next_order()).word is not Word.END:
            self._obey(order)
        ranks.leave()

    def _obey(self, order: RankOrder) -> None:
        parts = self.parts
        match order.word:
            case Word.STEP:
                assert self._stepper is not None
                self.step = order.step
                take_step(
                    parts,
                    self._stepper,
                    self.faults,
                    nullcontext,
                    step=order.step,
                    start=order.at,
                    sequences=order.sequences,
                    batch=order.batch,
                )
            case Word.CHOOSE:
                self.parts, self._stepper = choose_step(parts, _ignore_event)
            case Word.PLAIN:
                self._stepper = None
                self.parts, self._stepper = plain_step(parts, "as rank 0")
            case Word.RESTORE:
                checkpoint = Checkpoint(self.attempt.run.checkpoints / name_of(order.step), {})
                trainer = checkpoint.trainer()
                self.parts = parts = restore_parts(parts, checkpoint, trainer)
                if self._stepper is None:  # no rollback: this attempt has chosen nothing yet
                    pin_backends(parts, trainer)
            case Word.START_OVER:
                reset_parts(parts)
            case Word.VALIDATE:
                assert self._stepper is not None
                self._val = self._val or batches_of(parts)
                validate_with(parts, scoring(parts, self._stepper), self._val, order.at)
            case Word.FORWARD:
                assert parts.decoder is not None
                sample_with(parts.decoder, parts.placement, (order.step, order.at))
            case Word.GATHER:
                _gather(parts.trainable.saved())
                _gather(parts.optimizer.tensors())
            case Word.COMPARE:
                parts.ranks.agree(fingerprint(parts.trainable))


def _gather(tensors: Mapping[str, Tensor]) -> None:
    """Rank 0 keeps what comes of it."""
    for tensor in tensors.values():
        whole(tensor.detach())


def _ignore_event(name: str, **data: object) -> None:
    """Rank 0 has said it."""
