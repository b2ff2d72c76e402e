"""The comparisons of a run with the CPU, between its steps: asked for, written down, acted on."""

from __future__ import annotations

import time
from typing import Protocol

from albor_core.train.alert_actions import Due, raise_alerts
from albor_core.train.observe.reporter import HEARTBEAT_S
from albor_core.train.process.attempt import Attempt
from albor_core.train.process.signals import SignalRequests
from albor_core.train.resume.train_state import TrainState
from albor_core.train.step.brick_timer import StepClock
from albor_core.train.step.choose import has_own_arithmetic
from albor_core.train.step.cpu_reference import REFUSALS, ModelParity, answer, not_compared
from albor_core.train.step.model_parity import answer_to, pose
from albor_core.train.step.reference_process import ReferenceProcess

PARITY_AFTER = 10  # steps of an attempt, behind which it is compared again
PARITY_LIMIT_S = 60.0  # that the end of a run waits for a comparison
UNFINISHED = "the run ended before it was done"


class Pending(Protocol):
    """A comparison under way; see `ReferenceProcess`."""

    def poll(self, patience_s: float = 0.0) -> ModelParity | None: ...
    def close(self) -> None: ...


class ParityWatch:
    """The comparisons of an attempt, one at a time: when it begins, and PARITY_AFTER steps later,
    or as soon after them as the first is done. Belongs to the loop's thread.
    """

    def __init__(
        self,
        attempt: Attempt,
        train_state: TrainState,
        due: Due,
        step_clock: StepClock,
        *,
        waits: bool,
    ) -> None:
        """`waits`: for each verdict at once, as on a CPU, which would compute it with what it
        trains with.
        """
        self._attempt, self._train_state, self._due = attempt, train_state, due
        self._step_clock, self._waits = step_clock, waits
        self._pending: tuple[int, str, Pending] | None = None
        self._compares = True
        self._began_at = 0
        self._again_at: int | None = None

    def begin(self, at: str = "load") -> None:
        """An attempt, or another way to compute, is about to take its first step."""
        self.close()
        self._began_at = self._train_state.step
        self._again_at = self._began_at + PARITY_AFTER
        self._compare(at)

    def on_step(self) -> None:
        """Judge what was found meanwhile, and compare again where that is due."""
        self._collect()
        if self.is_due(self._train_state.step):
            self._again()

    def on_rollback(self) -> None:
        """What later steps would have shown is of no run."""
        step = self._train_state.step
        if self._pending is not None and self._pending[0] > step:
            self.close()
        self._began_at = step
        self._again_at = step + PARITY_AFTER if self._compares else None

    def on_end(self, signals: SignalRequests, *, is_lost: bool) -> None:
        """Wait for a comparison under way, and make the one that is due: a short run has as many as
        a long one. Who was told to stop does not wait, and weights that went wrong tell nothing.
        """
        deadline = time.monotonic() + (0.0 if is_lost else PARITY_LIMIT_S)
        while self._pending is not None or self.is_due(self._train_state.step):
            if signals.stop is not None or time.monotonic() >= deadline:
                break
            if self._pending is None:
                self._again()
            self._collect(HEARTBEAT_S)
            self._train_state.reporter.beat()
        if self._pending is not None:
            step, at, _ = self._pending
            self.close()
            self._judge(step, at, ModelParity(skipped=UNFINISHED))

    def close(self) -> None:
        """End what is under way."""
        if self._pending is not None:
            self._pending[2].close()
            self._pending = None

    def is_due(self, step: int) -> bool:
        """Whether to compare again behind `step`."""
        return self._pending is None and self._again_at is not None and step >= self._again_at

    def _again(self) -> None:
        """The whole model by the chosen kernels against the CPU in fp32, after some steps."""
        self._again_at = None
        with self._step_clock.held():
            self._compare(f"{self._train_state.step - self._began_at} steps")

    def _compare(self, at: str) -> None:
        assert self._pending is None, "one at a time"
        state = self._train_state
        case = pose(state.parts, state.stepper)
        try:
            if isinstance(case, ModelParity):
                found = case
            elif self._waits:
                found = answer(case)
            else:
                self._pending = state.step, at, ReferenceProcess(case)
                return
        except REFUSALS as error:
            found = not_compared(error)
        self._judge(state.step, at, found)

    def _collect(self, patience_s: float = 0.0) -> None:
        """Judge what has become known; waits for it `patience_s` at most."""
        if self._pending is not None:
            step, at, pending = self._pending
            if (found := pending.poll(patience_s)) is not None:
                self._pending = None
                self._judge(step, at, found)

    def _judge(self, step: int, at: str, found: ModelParity) -> None:
        """Write down what was found of the model as it was after `step`, and act on it. `at`: when
        that was, for people: "load", "10 steps".
        """
        if found.skipped is not None:  # so would be the next
            self._compares, self._again_at = False, None
        self._train_state.reporter.journal.event(
            "kernels.parity",
            step=step,
            severity="warning" if found.is_bad else "info",
            at=at,
            **found.to_json(),
        )
        if found.is_bad:
            self._act_on(step, found)

    def _act_on(self, step: int, found: ModelParity) -> None:
        """Say what training.parity makes of a model that is too far off, and ask for it."""
        state = self._train_state
        then = answer_to(
            found,
            state.parts.config.training.parity,
            is_over=self._due.end is not None or state.step >= state.last_step,
            has_kernels=has_own_arithmetic(state.parts, state.stepper),
        )
        if then.leaves:
            self._due.fallback = step
        alert = found.alert(step, self._attempt.number, stops=then.stops, then=then.words)
        raise_alerts([alert], self._attempt, state, self._due)
