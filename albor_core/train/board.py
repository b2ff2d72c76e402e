"""All that watches a training: the loop calls it at each event, and it reports what it sees.

Nothing here changes what is computed. What a figure, an alert or a comparison asks of the run is
left in `Due`, and the loop does it between two steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from albor_core.profile.workload import workload_of
from albor_core.run.exit import STOPPED_BY_ANDON
from albor_core.train.alert_actions import Due, raise_alerts
from albor_core.train.build import Parts
from albor_core.train.evaluate import Sampler
from albor_core.train.interval_log import IntervalLog
from albor_core.train.observe.sampler import Machine, TelemetrySampler
from albor_core.train.optim.gradients import Updated
from albor_core.train.parity_watch import ParityWatch
from albor_core.train.process.attempt import Attempt, Outcome
from albor_core.train.process.signals import SignalRequests
from albor_core.train.process.start_times import StartTimes
from albor_core.train.resume.train_state import TrainState
from albor_core.train.step.brick_timer import BrickTimer, StepClock
from albor_core.train.step.brick_trace import BrickTracer
from albor_core.train.step.stability import GradientFlow


class Board:
    """The observers of one attempt; belongs to the loop's thread."""

    def __init__(
        self,
        attempt: Attempt,
        train_state: TrainState,
        due: Due,
        signals: SignalRequests,
        start_times: StartTimes,
        brick_timer: BrickTimer,
        step_clock: StepClock,
        between_steps: Callable[[str], AbstractContextManager[object]],
        *,
        reads_late: bool,
    ) -> None:
        """`between_steps` as in `IntervalLog`. `reads_late`: the figures of a step, while the next
        is computed.
        """
        self.train_state, self.signals = train_state, signals
        self._attempt, self._due = attempt, due
        self._start_times, self._step_clock, self._has_stepped = start_times, step_clock, False
        parts, reporter = train_state.parts, train_state.reporter
        self.brick_tracer = BrickTracer(
            attempt.run,
            reporter.journal,
            brick_timer,
            step_clock,
            enabled=train_state.alert_monitor.traces,
            on_gpu=parts.placement.is_gpu,
            about=workload_of(parts.config, parts.placement.device_name).to_json(),
        )
        self.interval_log = IntervalLog(
            attempt,
            train_state,
            due,
            brick_timer,
            step_clock,
            self.brick_tracer,
            newest_machine=self.newest_machine,
            between_steps=between_steps,
        )
        self.parity_watch = ParityWatch(attempt, train_state, due, step_clock, waits=not reads_late)
        self.gradient_flow, self._sampler = GradientFlow(), _sampler(parts)
        self._telemetry_sampler: TelemetrySampler  # of `on_start`

    def newest_machine(self) -> Machine | None:
        """The newest machine sample, as of `TelemetrySampler.newest`."""
        return self._telemetry_sampler.newest()

    def on_start(self) -> None:
        """The step was chosen, and none is taken yet."""
        self.interval_log.begin()
        self.interval_log.report_kernels()
        self._start_times.mark("kernels")
        self.parity_watch.begin()
        self._start_times.mark("parity")
        run, system = self._attempt.run, self.train_state.parts.config.monitoring.system
        self._telemetry_sampler = TelemetrySampler(
            run.path,
            run.journal,
            interval_s=system.interval / 1000,
            enabled=system.enabled,
            kept=system.metrics,
        )

    def on_launch(
        self, step: int, total: Tensor, updated: Updated, named: tuple[Tensor, ...]
    ) -> None:
        """`step` was launched, with what `take_step` returned."""
        self.train_state.interval_totals.add(total, *updated, *named)
        if self.gradient_flow.is_open:
            self._check_flow(step, float(total))
        if not self._has_stepped:  # then what it took to get there is known
            self._has_stepped = True
            self._step_clock.settle()
            self._start_times.mark("step")
            self.train_state.reporter.first_step(step, self._start_times.seconds())
        if self.brick_tracer.ends_with_next_step:  # its pause does not belong to the unread step
            self.interval_log.read_late()
        self.brick_tracer.after_step(step)
        self.interval_log.read_late()

    def on_step(self) -> None:
        """Tell observers that a step is complete."""
        self.report_step()
        self.parity_watch.on_step()

    def on_eval(self, values: Mapping[str, float]) -> None:
        """Figures of a validation of the weights as they are."""
        state, step = self.train_state, self.train_state.step
        monitor = state.alert_monitor
        state.reporter.validation(step, values)
        reason = state.interval_totals.fault_of(loss := values["val/loss"])
        fault = (loss, reason) if reason else None
        unsound = monitor.check_loss(fault, "val/loss", step)
        alerts = [*monitor.check_values(values, step), *unsound]
        raise_alerts(alerts, self._attempt, state, self._due)
        self._judge_progress(math.nan if fault else loss)
        self._write_samples()
        state.reporter.beat(gap_s=0.25)

    def on_rollback(self) -> None:
        """Training goes on from an earlier step."""
        self.interval_log.begin()
        self.parity_watch.on_rollback()
        self.report_step()

    def on_fallback(self) -> None:
        """The plain model trains from here on."""
        self.parity_watch.begin("plain")
        self.interval_log.report_kernels()

    def on_end(self, *, is_lost: bool) -> None:
        """No step follows; `is_lost`: the run left its path."""
        self.parity_watch.on_end(self.signals, is_lost=is_lost)
        self.brick_tracer.close()

    def close(self) -> None:
        """Let go of what runs beside the loop."""
        self.parity_watch.close()
        self._telemetry_sampler.close()

    def report_step(self) -> None:
        """How far the run is."""
        state, at = self.train_state, self.train_state.progress
        clock = state.parts.clock
        steps, left = clock.left(at)
        state.reporter.at_step(
            at.step,
            last=at.step + steps,
            sequences=at.sequences,
            left=left / clock.unit,
            share=at.sequences / max(1, at.sequences + left),
            epoch=at.cursor / state.parts.order.num_sequences,
        )

    def _check_flow(self, step: int, loss: float) -> None:
        """Every trainable parameter must get a gradient; refuse to go on without."""
        norms, flow = self.train_state.stepper.norms(), self.gradient_flow
        values = torch.stack(list(norms.values())).tolist() if norms else []
        flow.see(dict(zip(norms, values, strict=True)), loss)
        names = sorted(flow.without)
        if names:
            self.train_state.reporter.journal.event(
                "gradient.missing", step=step, severity="error", count=len(names), names=names[:20]
            )
        if flow.is_broken:
            message = f"{len(names)} parameters get no gradient, {names[0]} among them"
            self._due.end = Outcome("gradient_missing", STOPPED_BY_ANDON, step, message)

    def _judge_progress(self, loss: float) -> None:
        """End the run where validation has not improved for as long as the config has patience."""
        progress = self.train_state.progress
        patience = self.train_state.parts.config.training.early_stopping_patience
        if math.isfinite(loss) and (progress.best_val is None or loss < progress.best_val):
            progress.best_val, progress.evals_without_gain = loss, 0
            return
        progress.evals_without_gain += 1
        if patience is not None and progress.evals_without_gain >= patience:
            message = f"validation loss has not improved for {patience} evaluations"
            stopped = Outcome("early_stopped", 0, progress.step, message)
            self._due.end = self._due.end or stopped

    def _write_samples(self) -> None:
        """What the model writes now after each prompt of the config."""
        if self._sampler is None:
            return
        state = self.train_state
        model, reporter = state.parts.decoder, state.reporter
        assert model is not None
        texts = self._sampler.continue_prompts(model, state.parts.placement, reporter.beat)
        for prompt, text in zip(self._sampler.prompts, texts, strict=True):
            reporter.journal.append("s", step=state.step, prompt=prompt[:500], text=text[:1500])
        reporter.beat()


def _sampler(parts: Parts) -> Sampler | None:
    prompts, tokenizer = parts.config.training.sample_prompts, parts.config.data.tokenizer
    ids = None if parts.decoder is None else parts.recipe.special_ids()
    if not prompts or tokenizer is None or ids is None:
        return None
    return Sampler(tokenizer, prompts, ids)
