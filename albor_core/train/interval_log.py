"""The log intervals of a run: their figures fetched, judged, and written down."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from albor_core.andon.bricks.coverage import COVERAGE_KEY, coverage
from albor_core.andon.health.gradients import ZCLIP_KEY
from albor_core.run.headlines import EFFICIENCY_KEY
from albor_core.telemetry.peaks import device_peaks, peak_flops
from albor_core.train.alert_actions import Due, raise_alerts
from albor_core.train.build import Parts, chosen_kernels, rejected_kernels
from albor_core.train.observe.figures import Interval, flops_utilisation
from albor_core.train.observe.reporter import Reporter
from albor_core.train.observe.run_queue import RunQueue
from albor_core.train.observe.sampler import Machine
from albor_core.train.process.attempt import Attempt
from albor_core.train.resume.train_state import Progress, TrainState
from albor_core.train.step.brick_timer import BrickTimer, StepClock
from albor_core.train.step.brick_trace import BrickTracer
from albor_core.train.step.pending_figures import IntervalFigures, PendingFigures
from albor_core.train.step.stability import LAYER_EVERY, find_trouble, group_norms, layer_norms


class IntervalLog:
    """The log intervals of one attempt, used by the loop's thread. At most one interval is
    unread."""

    def __init__(
        self,
        attempt: Attempt,
        train_state: TrainState,
        due: Due,
        brick_timer: BrickTimer,
        step_clock: StepClock,
        brick_tracer: BrickTracer,
        *,
        newest_machine: Callable[[], Machine | None],
        between_steps: Callable[[str], AbstractContextManager[object]],
    ) -> None:
        """`newest_machine`: as `TelemetrySampler.newest`. `between_steps` times work as a brick of
        the interval.
        """
        self.train_state = train_state
        self._attempt, self._due = attempt, due
        self._brick_timer, self._step_clock = brick_timer, step_clock
        self._brick_tracer, self._run_queue = brick_tracer, RunQueue()
        self._newest_machine, self._between_steps = newest_machine, between_steps
        one = peak_flops(self.parts.placement.device_name)
        self._peak = None if one is None else one * self.parts.ranks.world_size  # of all devices
        self._pending: PendingFigures | None = None
        self._number = 0  # of intervals in this attempt
        self._kernels: list[dict[str, Any]] = []  # that were reported
        self._logged_at = self._sequences_logged = 0  # where the interval began

    @property
    def parts(self) -> Parts:
        return self.train_state.parts

    @property
    def reporter(self) -> Reporter:
        return self.train_state.reporter

    @property
    def progress(self) -> Progress:
        return self.train_state.progress

    @property
    def step(self) -> int:
        return self.progress.step

    def begin(self) -> None:
        """An interval begins behind this step, to which the run may have gone back."""
        self._logged_at, self._sequences_logged = self.step, self.progress.sequences
        self._show_guards()

    def end(self) -> None:
        """A log interval ends with this step; its figures are on their way."""
        self._pending = PendingFigures(
            self.train_state.interval_totals,
            self.parts.noise.state,
            self.train_state.stepper.norms(),
            self._brick_timer.drain(),
            self._step_clock.mark(),
        )

    @property
    def is_read(self) -> bool:
        """Whether nothing is unread."""
        return self._pending is None

    def read_late(self) -> None:
        """The figures of the step before, while the device is at the next."""
        if self._pending is not None:
            self._log(self._pending, nullcontext())
            self.reporter.beat()

    def read(self) -> None:
        """The figures that are unread, between two steps."""
        if self._pending is not None:
            self._log(self._pending, self._step_clock.held(disturbs=False))

    def _log(self, pending: PendingFigures, held: AbstractContextManager[None]) -> None:
        """Judge and write down an interval. `held`: the clock, if no step goes on meanwhile."""
        self._pending = None
        found = pending.read()  # here we wait for the device
        steps = max(1, self.step - self._logged_at)
        interval = Interval(steps, self._step_clock.lap(pending.end))
        with held, self._between_steps("log"):
            self._judge_path(found)
            self.reporter.loss_ema.add(found.readings.loss)
            wall = time.time()
            self.reporter.eta.take(self.progress.sequences / self.parts.clock.unit, wall)
            bricks_ms = pending.bricks.ms(steps, interval.step_ms)
            values = self._values(found, interval, bricks_ms)
            machine = self._newest_machine()
            self._note_guards(found)
            self.report_kernels()
            monitor = self.train_state.alert_monitor
            alerts = [
                *monitor.check_values(values, self.step),
                *monitor.budgets.check(
                    self.step,
                    tokens=self.reporter.tokens,
                    wall_hours=self.reporter.elapsed_s / 3600,
                    share=self.reporter.share,
                    gpus=() if machine is None else machine.gpus,
                ),
                *monitor.check_loss(found.readings.fault, "train/loss", self.step),
                *monitor.check_health(self.step, values, wall),
                *monitor.check_bricks(
                    self.step,
                    bricks_ms,
                    steps=steps,
                    step_ms=interval.step_ms,
                    wall=wall,
                    efficiency=values.get(EFFICIENCY_KEY),
                    disturbed=self._step_clock.is_disturbed,
                    crowded=self._run_queue.was_crowded(interval.seconds),
                ),
            ]
            alerts = self._brick_tracer.named(alerts, self.step)
            raise_alerts(alerts, self._attempt, self.train_state, self._due)
            self.reporter.show_budgets(monitor.budgets_ms, monitor.learned_ms)
            self.reporter.interval(
                self.step,
                values,
                bricks_ms=bricks_ms,
                machine=machine,
                health=monitor.health.words(),
                budgets=monitor.budgets.fields(),
            )
            self._step_clock.begin_interval()
        self._logged_at, self._sequences_logged = self.step, self.progress.sequences

    def _judge_path(self, found: IntervalFigures) -> None:
        """Whether the run left its path in the interval, and how far it is known to be sound."""
        self._due.trouble = self._due.trouble or find_trouble(
            found.readings,
            step=self.step,
            sound=self.progress.sound,
            nan_limit=self.parts.config.training.nan_limit,
        )
        if self._due.trouble is None:
            self.progress.sound = max(self.progress.sound, self.step - found.readings.unsure)

    def _values(
        self, found: IntervalFigures, interval: Interval, bricks_ms: Mapping[str, float]
    ) -> dict[str, float]:
        parts, readings = self.parts, found.readings
        each = (self.progress.sequences - self._sequences_logged) / interval.steps
        values = {
            "train/loss": readings.loss,
            "train/loss_ema": self.reporter.loss_ema.value,
            "train/tokens": self.reporter.tokens,
            "optim/lr": parts.lr(self.progress.sequences),
            "optim/grad_norm": readings.grad_norm,
            "optim/noise_scale_tokens": found.noise_scale,
            "perf/step_ms": interval.step_ms,
            "perf/tokens_per_s": interval.per_second(each * parts.config.data.seq_len),
            "perf/samples_per_s": interval.per_second(each),
            COVERAGE_KEY: coverage(bricks_ms, interval.step_ms),
        }
        values |= {f"train/{name}": mean for name, mean in readings.named.items()}
        seen = parts.order.seen(self.progress.cursor)
        values |= {f"data/{name}_sequences": number for name, number in seen.items()}
        for group, norm in group_norms(found.norms).items():
            values[f"optim/grad_norm_{group}"] = norm
        if self._number % LAYER_EVERY == 0:
            values |= layer_norms(found.norms)
        self._number += 1
        rate = values["perf/tokens_per_s"]
        flops = parts.recipe.flops_per_token()
        if parts.clip.zclip is not None:
            values[ZCLIP_KEY] = readings.spikes
        if rate is not None and flops is not None:
            values[EFFICIENCY_KEY] = flops_utilisation(flops, rate, self._peak)
        return {key: value for key, value in values.items() if value is not None}

    def _note_guards(self, found: IntervalFigures) -> None:
        """Say what was skipped and what was scaled down in the interval."""
        readings = found.readings
        event = partial(self.reporter.journal.event, step=self.step, severity="warning")
        if readings.skipped:
            self.progress.skipped += readings.skipped
            broken = [n for n, norm in found.norms.items() if not math.isfinite(norm)]
            event(
                "step.skipped",
                reason="loss or gradient is not finite",
                count=readings.skipped,
                in_a_row=readings.worst_row,
                parameters=len(broken),
                names=broken[:5],
            )
        if readings.spikes:
            self.progress.spikes += readings.spikes
            event("gradient.spike", count=readings.spikes, norm=readings.grad_norm)
        self._show_guards()

    def _show_guards(self) -> None:
        progress = self.progress
        self.reporter.state.fields["guards"] = {
            "nan_skipped": progress.skipped,
            "zclip": None if self.parts.clip.zclip is None else progress.spikes,
            "rollbacks": progress.rollbacks,
        }

    def report_kernels(self) -> None:
        """An event for each op that was decided, and for each backend that failed parity, since the
        last look.
        """
        event, step = self.reporter.journal.event, self.step
        for chosen in chosen_kernels(device_peaks(self.parts.placement.device_name)):
            if chosen not in self._kernels:
                self._kernels.append(chosen)
                event("kernels.chosen", step=step, **chosen)
        for found in rejected_kernels():
            if found not in self._kernels:
                self._kernels.append(found)
                event("kernels.rejected", step=step, severity="warning", **found)
