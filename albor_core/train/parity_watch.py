"""The comparisons of a run with the CPU, between its steps: posed, written down, acted on."""

from __future__ import annotations

import time

from albor_core.train.alert_actions import Due, raise_alerts
from albor_core.train.observe.reporter import HEARTBEAT_S
from albor_core.train.process.attempt import Attempt
from albor_core.train.process.signals import SignalRequests
from albor_core.train.resume.train_state import TrainState
from albor_core.train.step.brick_timer import StepClock
from albor_core.train.step.choose import has_own_arithmetic
from albor_core.train.step.model_parity import ParityChecks, ParityFinding, answer_to, pose

PARITY_LIMIT_S = 60.0  # that the end of a run waits for a comparison


class ParityWatch:
    """Of one attempt; belongs to the loop's thread."""

    def __init__(
        self,
        attempt: Attempt,
        train_state: TrainState,
        due: Due,
        step_clock: StepClock,
        *,
        waits: bool,
    ) -> None:
        """`waits` as in `ParityChecks`."""
        self._attempt, self._train_state, self._due = attempt, train_state, due
        self._step_clock, self._checks = step_clock, ParityChecks(waits=waits)

    def begin(self, at: str = "load") -> None:
        """A step was chosen and none is taken by it yet."""
        state = self._train_state
        self._checks.begin(pose(state.parts, state.stepper), state.step, at)
        self._collect()

    def on_step(self) -> None:
        """Write down what was found meanwhile, and compare again where that is due."""
        self._collect()
        if self._checks.is_due(self._train_state.step):
            self._compare_again()

    def on_rollback(self) -> None:
        self._checks.go_back(self._train_state.step)

    def on_end(self, signals: SignalRequests, *, is_lost: bool) -> None:
        """Wait for a comparison under way, and make the one that is due: a short run has as many as
        a long one. Who was told to stop does not wait, and weights that went wrong tell nothing.
        """
        checks, state = self._checks, self._train_state
        deadline = time.monotonic() + (0.0 if is_lost else PARITY_LIMIT_S)
        while checks.is_busy or checks.is_due(state.step):
            if signals.stop is not None or time.monotonic() >= deadline:
                break
            if not checks.is_busy:
                self._compare_again()
            self._collect(HEARTBEAT_S)
            state.reporter.beat()
        self._judge(checks.abandon())

    def close(self) -> None:
        """End what is under way."""
        self._checks.close()

    def _compare_again(self) -> None:
        """The whole model by the chosen kernels against the CPU in fp32, after some steps."""
        state = self._train_state
        with self._step_clock.held():
            self._checks.again(pose(state.parts, state.stepper), state.step)
        self._collect()

    def _collect(self, patience_s: float = 0.0) -> None:
        """Write down and judge what the comparisons found meanwhile, each by its own step."""
        self._judge(self._checks.collect(patience_s))

    def _judge(self, findings: list[ParityFinding]) -> None:
        for finding in findings:
            found = finding.found
            self._train_state.reporter.journal.event(
                "kernels.parity",
                step=finding.step,
                severity="warning" if found.is_bad else "info",
                at=finding.at,
                **found.to_json(),
            )
            if found.is_bad:
                self._act_on(finding)

    def _act_on(self, finding: ParityFinding) -> None:
        """Say what training.parity makes of a model that is too far off, and ask for it."""
        state = self._train_state
        then = answer_to(
            finding.found,
            state.parts.config.training.parity,
            is_over=self._due.end is not None or state.step >= state.last_step,
            has_kernels=has_own_arithmetic(state.parts, state.stepper),
        )
        if then.leaves:
            self._due.fallback = finding
        alert = finding.found.alert(
            finding.step, self._attempt.number, stops=then.stops, then=then.words
        )
        raise_alerts([alert], self._attempt, state, self._due)
