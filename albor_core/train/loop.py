"""The training loop, to be read top to bottom: begin, steps, what is due after each, end.

One thread does everything that changes the run: it alone steps, writes the journal and says what
the state file shows. Threads beside it copy nothing and decide nothing: one writes checkpoints from
host memory, one puts the state file on the disk, one samples the machine; a process beside it
compares the model with the CPU's. The device is waited for once per log interval, and on a GPU
where nothing else is due with the next step already launched, so that it has work meanwhile.

A step is an optimizer step. Step N's figures are those after N steps; step 0 is the model as it
begins. Everything due after a step happens in one order (log, go back if the run left its path,
evaluate, save), and requests from outside are looked at only then, so a checkpoint of step N always
means "all of N, nothing of N+1".
"""

from __future__ import annotations

import gc
import math
import signal
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from albor_core.andon.alert import Alert
from albor_core.andon.bricks.budgets import overrule_command
from albor_core.andon.bricks.coverage import COVERAGE_KEY, coverage
from albor_core.andon.bricks.names import OTHER, brick_name
from albor_core.andon.health.gradients import ZCLIP_KEY
from albor_core.checkpoint.folder import Checkpoint, list_checkpoints
from albor_core.checkpoint.retention import Retention, clear_doomed
from albor_core.checkpoint.saver import Saver
from albor_core.config.config import Config
from albor_core.kernels import dispatch
from albor_core.plan.recipes.own import folder_of
from albor_core.profile.workload import workload_of
from albor_core.run.errors import AlborError
from albor_core.run.exit import STOPPED_BY_ANDON, end_word
from albor_core.run.headlines import EFFICIENCY_KEY
from albor_core.run.journal import last_event
from albor_core.run.state import StateWriter
from albor_core.run.values.quantity import counted
from albor_core.telemetry.peaks import device_peaks, peak_flops
from albor_core.train.alert_actions import RESPONSES, go_on
from albor_core.train.build import Parts, build, chosen_kernels, rejected_kernels
from albor_core.train.evaluate import Sampler, batches_of, scoring, validation
from albor_core.train.expectations import health_facts
from albor_core.train.observe.alert_monitor import AlertMonitor
from albor_core.train.observe.figures import Interval, flops_utilisation
from albor_core.train.observe.reporter import HEARTBEAT_S, Reporter
from albor_core.train.observe.run_queue import RunQueue
from albor_core.train.observe.sampler import TelemetrySampler
from albor_core.train.optim.registry import check_optimizer
from albor_core.train.preparation import prepare
from albor_core.train.process.attempt import Attempt, Outcome
from albor_core.train.process.faults import Faults
from albor_core.train.process.signals import SignalRequests
from albor_core.train.process.start_times import StartTimes
from albor_core.train.ranks.group import Ranks, Word
from albor_core.train.ranks.sharding import fingerprint
from albor_core.train.requests import Requests, answer
from albor_core.train.resume.rewind import begin, go_back, leave_good, target_of
from albor_core.train.resume.saving import CheckpointSaving
from albor_core.train.resume.train_state import (
    HostCopies,
    Progress,
    TrainState,
    hashes,
    take_snapshot,
)
from albor_core.train.step.brick_timer import BrickTimer, StepClock
from albor_core.train.step.brick_trace import BrickTracer, TraceOrder
from albor_core.train.step.choose import (
    choose_step,
    has_own_arithmetic,
    plain_step,
)
from albor_core.train.step.interval_totals import IntervalTotals
from albor_core.train.step.model_parity import ParityChecks, ParityFinding, answer_to, pose
from albor_core.train.step.optimizer_step import Stepper, take_step
from albor_core.train.step.pending_figures import IntervalFigures, PendingFigures
from albor_core.train.step.spikes import SpikeWatch
from albor_core.train.step.stability import (
    LAYER_EVERY,
    GradientFlow,
    Trouble,
    find_trouble,
    group_norms,
    layer_norms,
    may_go_back,
    times_in_a_row,
)

ABANDON_S = 60.0
PARITY_LIMIT_S = 60.0  # that the end of a run waits for a comparison
_LEFT_ITS_PATH = ("nan_limit", "loss_spike")
_EXIT_BY_SIGNAL = {signal.SIGTERM: 143, signal.SIGINT: 130}


class Training:
    """One attempt of a run, from its config to an Outcome."""

    def __init__(
        self,
        life: Attempt,
        config: Config,
        signals: SignalRequests,
        faults: Faults,
        state: StateWriter,
        *,
        allow_config_change: bool = False,
        times: StartTimes | None = None,
    ) -> None:
        """Build and resume. Raises AlborError for everything a user can correct. `times`: of the
        process, which has begun already.
        """
        self._times, self._has_stepped = times or StartTimes(), False
        mark = self._times.mark
        self.life, self.config, self.signals, self.faults = life, config, signals, faults
        saved = list_checkpoints(life.run.checkpoints)
        parts = build(config, begins=not saved, folder=folder_of(life.run), mark=mark)
        kept = parts.recipe.companions(saved[0] if saved else None) | parts.trainable.companions()
        self.companions, self.copies = kept, HostCopies()
        self.reporter = Reporter(life, config, state, num_steps=parts.clock.planned)
        self.cord = AlertMonitor(
            config.resolved()["monitoring"],
            warmup_steps=config.training.warmup_steps,
            attempt=life.attempt,
            facts=health_facts(life, config, parts),
        )
        if parts.clock.ramp:  # then steps are not those that the config counts
            tokens = parts.clock.unit * config.data.seq_len
            self.cord.on_clock(num_steps=parts.clock.planned, tokens_per_planned_step=tokens)
        overruled = last_event(life.run.journal, "jidoka.overruled") or {}
        self.cord.recall(overruled.get("data") or {})
        self.reporter.show_budgets(self.cord.budgets_ms)
        num_gpus = parts.ranks.world_size if parts.placement.is_gpu else 0
        self.cord.budgets.begin(state.fields.get("budgets"), num_gpus=num_gpus)
        recipe, highest = parts.recipe, config.training.stability.loss_spike
        spikes = SpikeWatch(None if recipe.allows_loss(-1.0) else highest)  # by its logarithm
        self._fault_of = recipe.loss_fault if recipe.judges_loss else lambda loss: ""
        device = parts.placement.device
        self.tally = IntervalTotals(device, spikes, recipe.columns, self._fault_of)
        self.course = TrainState(parts, self.reporter, self.cord, self.tally)
        self.timer, self.clock = BrickTimer(device), StepClock(device)
        self.queue = RunQueue()
        self.tracer = BrickTracer(
            life.run,
            self.reporter.journal,
            self.timer,
            self.clock,
            enabled=self.cord.traces,
            on_gpu=parts.placement.is_gpu,
            about=workload_of(config, parts.placement.device_name).to_json(),
        )
        self.sampler = self._sampler(parts)
        self.flow = GradientFlow()
        self._unread: PendingFigures | None = None
        self.pause_for: Alert | None = None
        self.trouble: Trouble | None = None
        self.end: Outcome | None = None
        self._peak = self._peak_flops(parts)
        mark("reports")
        prepare(parts, life.run.path, begins=not saved, reporter=self.reporter)
        source = begin(self.course, life, allow_config_change=allow_config_change)
        mark("checkpoint")
        self.stepper: Stepper
        self._falls_back: ParityFinding | None = None
        self._choose_step()
        check_optimizer(
            self.parts.optimizer,
            self.parts.trainable,
            config.optimizer,
            self.reporter.journal.event,
            is_new=self.step == 0,
        )
        self._logged_at = self._began_at = self.step
        self._sequences_logged = self.progress.sequences
        self._is_warm = False
        self._logs = 0  # intervals of this attempt
        self._told: list[dict[str, Any]] = []
        self._report_kernels()
        mark("kernels")
        self.parity = ParityChecks(waits=not self.reads_late)
        self.parity.begin(pose(self.parts, self.stepper), self.step)
        self._tell_parity()
        mark("parity")
        self.keeper = CheckpointSaving(
            self._saver(source), self.reporter, partial(answer, life.run, self.reporter.journal)
        )
        if source is not None:
            self.keeper.resumed_from(source, self.progress.evaluated_step)
        self._show_guards()
        system = config.monitoring.system
        self.watch = TelemetrySampler(
            life.run.path,
            life.run.journal,
            interval_s=system.interval / 1000,
            enabled=system.enabled,
            kept=system.metrics,
        )
        self.requests = Requests(
            life.run,
            signals,
            self.course,
            self.keeper,
            self.watch,
            self.clock,
            save_if_wanted=self._save_if_wanted,
        )

    # -- begin ---------------------------------------------------------------------------------

    def _sampler(self, parts: Parts) -> Sampler | None:
        prompts, tokenizer = self.config.training.sample_prompts, self.config.data.tokenizer
        ids = None if parts.decoder is None else parts.recipe.special_ids()
        if not prompts or tokenizer is None or ids is None:
            return None
        return Sampler(tokenizer, prompts, ids)

    @staticmethod
    def _peak_flops(parts: Parts) -> float | None:
        """Of all devices."""
        one = peak_flops(parts.placement.device_name)
        return None if one is None else one * parts.ranks.world_size

    def _saver(self, source: Checkpoint | None) -> Saver:
        run, policy = self.life.run, self.config.training.checkpoint
        return Saver(
            run.checkpoints,
            run.journal,
            run_id=run.id,
            hashes=hashes(self.parts),
            retention=Retention(
                policy.keep, policy.keep_every, None if source is None else source.step
            ),
            verify=policy.verify_after_write,
            parent=None if source is None else (source.step, source.manifest["id"]),
            after_publish=lambda step: self.faults.at("ckpt", step),
        )

    @property
    def parts(self) -> Parts:
        return self.course.parts

    @property
    def ranks(self) -> Ranks:
        return self.parts.ranks

    @property
    def progress(self) -> Progress:
        return self.course.progress

    @property
    def step(self) -> int:
        return self.progress.step

    @property
    def last_step(self) -> int:
        return self.course.last_step

    def _choose_step(self) -> None:
        """By what passes here, or plainly where an earlier attempt on such a device fell back."""
        event, device = self.reporter.journal.event, self.parts.placement.device_name
        said = (last_event(self.life.run.journal, "step.chosen") or {}).get("data") or {}
        goes_back = self.config.training.parity == "plain" and "fell_back_on" in said
        if goes_back and said["fell_back_on"] == device:
            self._train_plainly("an attempt before fell back to it on such a device")
            return
        self.ranks.send_order(Word.CHOOSE)
        self.course.parts, self.stepper = choose_step(self.course.parts, event)

    def _train_plainly(self, because: str) -> None:
        """From here on by the plain model without kernels, and so in later attempts."""
        self.ranks.send_order(Word.PLAIN)
        self.course.parts, self.stepper = plain_step(self.parts, because)
        if self.parts.placement.is_gpu:
            gc.collect()
            torch.cuda.empty_cache()
        self.reporter.journal.event(
            "step.chosen",
            step=self.step,
            severity="warning",
            backend="plain",
            reason=because,
            fell_back_on=self.parts.placement.device_name,
        )

    # -- steps ---------------------------------------------------------------------------------

    def run(self, *, stop_after: int | None = None, trace: TraceOrder | None = None) -> Outcome:
        """Train to the end, or until something says stop; returns how it ended, all of it saved.
        `trace`: a profiler trace to write.
        """
        self.tracer.order = trace
        self._report_step()
        self.faults.at("step", self.step)
        self._fall_back_if_due()
        if self._evaluation_is_due() and self._stopped() is None:
            self._evaluate()
            self._times.mark("validation")
        self.clock.restart()
        while self.end is None:
            is_done = self.step >= self.last_step and not self._evaluation_is_due()
            stopped = None if is_done else self._stopped(stop_after)
            if stopped is not None or is_done:
                self._catch_up()
                self.end = self.end or stopped
                break
            self._fall_back_if_due()
            self._enter_steps()
            self._freeze_startup_objects()
            self.tracer.before_step(self.step + 1)
            self._train_step(self.step + 1)
            self._report_start()
            if self.tracer.ends_with_next_step:  # its pause does not belong to the unread step
                self._read_late()
            self.tracer.after_step(self.step + 1)
            self._read_late()
            self.parts.clock.advance(self.progress)
            self._report_step()
            self._tell_parity()
            if self.parity.is_due(self.step):
                self._compare_again()
            self._after_step()
            self.faults.at("step", self.step)
        return self._finish(self.end or Outcome("completed", 0, self.step))

    def _report_start(self) -> None:
        """After the first step of the attempt: what it took to get there."""
        if self._has_stepped:
            return
        self._has_stepped = True
        self.clock.settle()
        self._times.mark("step")
        self.reporter.first_step(self.step + 1, self._times.seconds())

    def _report_step(self) -> None:
        at = self.progress
        steps, left = self.parts.clock.left(at)
        self.reporter.at_step(
            self.step,
            last=self.step + steps,
            sequences=at.sequences,
            left=left / self.parts.clock.unit,
            share=at.sequences / max(1, at.sequences + left),
            epoch=at.cursor / self.parts.order.num_sequences,
        )

    def _enter_steps(self) -> None:
        guard = self.config.guard
        if not self._is_warm and self.parts.placement.is_gpu:
            self.reporter.phase("compiling", limit_s=guard.compile_limit_s)
        else:
            self.reporter.phase("training", limit_s=guard.stale_s)
        self._is_warm = True

    def _freeze_startup_objects(self) -> None:
        """What is there after the first step stays to the end. Python's collector need not look at
        it again and again: 340,000 objects and more take it 0.1 to 0.2 s each time.
        """
        if self.step == self._began_at + 1:
            with self.clock.held():  # no step took that long
                gc.collect()
                gc.freeze()

    def _train_step(self, step: int) -> None:
        """One optimizer step. Nothing here waits for the device, but the first two."""
        clock, at = self.parts.clock, self.progress
        batch = clock.batch_at(at.sequences)
        start, sequences = clock.start(at.cursor, batch), at.sequences + batch
        self.ranks.send_order(Word.STEP, step, start, sequences, batch)
        self.faults.at(OTHER, step)
        total, updated, named = take_step(
            self.parts,
            self.stepper,
            self.faults,
            self.timer.brick,
            step=step,
            start=start,
            sequences=sequences,
            batch=batch,
        )
        self.tally.add(total, *updated, *named)
        if self.flow.is_open:
            self._check_flow(step, float(total))

    def _check_flow(self, step: int, loss: float) -> None:
        """Every trainable parameter must get a gradient; refuse to go on without."""
        norms = self.stepper.norms()
        values = torch.stack(list(norms.values())).tolist() if norms else []
        self.flow.see(dict(zip(norms, values, strict=True)), loss)
        names = sorted(self.flow.without)
        if names:
            self.reporter.journal.event(
                "gradient.missing", step=step, severity="error", count=len(names), names=names[:20]
            )
        if self.flow.is_broken:
            message = f"{len(names)} parameters get no gradient, {names[0]} among them"
            self.end = Outcome("gradient_missing", STOPPED_BY_ANDON, step, message)

    # -- what is due after a step --------------------------------------------------------------

    def _after_step(self) -> None:
        training, step, last = self.config.training, self.step, self.last_step
        if self.progress.passed(training.log_interval) or step == last:
            self._unread = PendingFigures(
                self.tally,
                self.parts.noise.state,
                self.stepper.norms(),
                self.timer.drain(),
                self.clock.mark(),
            )
        if not self._may_wait():
            self._catch_up()
        if self._unread is None:
            self.reporter.beat()  # a step is never shown with the loss of the one before
        self.keeper.collect()
        if self.end is not None:
            return
        if self._evaluation_is_due():
            self._evaluate()
        is_due = self.progress.passed(training.checkpoint.save_every)
        if self.step == step and is_due and step < last:
            self.keeper.wanted = True
            self._make_way()
        self._save_if_wanted()
        if self.signals.command:
            self._catch_up()
            if self.requests.obey() == "rollback" and self.end is None:
                message = "a rollback was asked for"
                self._go_back(Trouble("andon", max(1, self.requests.bad_step), message))
        alert, self.pause_for = self.pause_for, None
        if alert is not None and self.end is None:
            self.requests.pause(alert.message)

    @property
    def reads_late(self) -> bool:
        """Whether a step's figures are read while the next is computed."""
        return self.parts.placement.is_gpu  # a CPU computes nothing meanwhile

    def _may_wait(self) -> bool:
        """Whether this step's figures can be read after the next one was launched: whatever is due
        now would need them, save them, or end with them.
        """
        step, signals = self.step, self.signals
        is_quiet = not (self.flow.is_open or self.trouble or self.end or self.pause_for)
        is_asked = signals.stop is not None or signals.command or self.keeper.wanted
        is_due = self._evaluation_is_due() or step == self.last_step
        is_due |= self.progress.passed(self.config.training.checkpoint.save_every)
        return self.reads_late and is_quiet and not is_asked and not is_due

    def _read_late(self) -> None:
        """The figures of the step before, while the device is at the next."""
        if self._unread is not None:
            self._log(nullcontext())
            self.reporter.beat()

    def _catch_up(self) -> None:
        """Read what is unread, and leave the path that it says was lost."""
        if self._unread is not None:
            self._log(self.clock.held(disturbs=False))
        if self.trouble is not None and self.end is None:
            self._go_back(self.trouble)

    def _between_steps(self, brick: str) -> AbstractContextManager[object]:
        """Time work between steps, as a brick of the log interval."""
        return self.faults.slowed(self.timer.brick, self.step)(brick)

    def _log(self, held: AbstractContextManager[None]) -> None:
        """Judge and write down what is unread. `held`: the clock, if no step goes on meanwhile."""
        readout, self._unread = self._unread, None
        assert readout is not None
        found = readout.read()  # here we wait for the device
        readings, steps = found.readings, self._steps_since_log()
        seconds = self.clock.lap(readout.end)
        with held, self._between_steps("log"):
            interval = Interval(steps, seconds)
            self.trouble = self.trouble or find_trouble(
                readings,
                step=self.step,
                sound=self.progress.sound,
                nan_limit=self.config.training.nan_limit,
            )
            if self.trouble is None:
                self.progress.sound = max(self.progress.sound, self.step - readings.unsure)
            self.reporter.loss_ema.add(readings.loss)
            wall = time.time()
            self.reporter.eta.take(self.progress.sequences / self.parts.clock.unit, wall)
            bricks_ms = readout.bricks.ms(steps, interval.step_ms)
            values = self._values(found, interval, bricks_ms)
            machine = self.watch.newest()
            self._note_guards(found)
            self._report_kernels()
            alerts = [
                *self.cord.check_values(values, self.step),
                *self.cord.budgets.check(
                    self.step,
                    tokens=self.reporter.tokens,
                    wall_hours=self.reporter.elapsed_s / 3600,
                    share=self.reporter.share,
                    gpus=() if machine is None else machine.gpus,
                ),
                *self.cord.check_loss(readings.fault, "train/loss", self.step),
                *self.cord.check_health(self.step, values, wall),
                *self.cord.check_bricks(
                    self.step,
                    bricks_ms,
                    steps=steps,
                    step_ms=interval.step_ms,
                    wall=wall,
                    efficiency=values.get(EFFICIENCY_KEY),
                    disturbed=self.clock.is_disturbed,
                    crowded=self.queue.was_crowded(seconds),
                ),
            ]
            self._raise(self.tracer.named(alerts, self.step))
            self.reporter.show_budgets(self.cord.budgets_ms, self.cord.learned_ms)
            self.reporter.interval(
                self.step,
                values,
                bricks_ms=bricks_ms,
                machine=machine,
                health=self.cord.health.words(),
                budgets=self.cord.budgets.fields(),
            )
            self.clock.begin_interval()

    def _report_kernels(self) -> None:
        """An event for each op that was decided, and for each backend that failed parity, since the
        last look.
        """
        for chosen in chosen_kernels(device_peaks(self.parts.placement.device_name)):
            if chosen not in self._told:
                self._told.append(chosen)
                self.reporter.journal.event("kernels.chosen", step=self.step, **chosen)
        for found in rejected_kernels():
            if found not in self._told:
                self._told.append(found)
                self.reporter.journal.event(
                    "kernels.rejected", step=self.step, severity="warning", **found
                )

    def _compare_again(self) -> None:
        """The whole model by the chosen kernels against the CPU in fp32, after some steps."""
        with self.clock.held():
            self.parity.again(pose(self.parts, self.stepper), self.step)
        self._tell_parity()

    def _tell_parity(self, patience_s: float = 0.0) -> None:
        """Write down and judge what the comparisons found meanwhile, each by its own step."""
        self._judge_parity(self.parity.collect(patience_s))

    def _judge_parity(self, findings: list[ParityFinding]) -> None:
        for finding in findings:
            found = finding.found
            self.reporter.journal.event(
                "kernels.parity",
                step=finding.step,
                severity="warning" if found.is_bad else "info",
                at=finding.at,
                **found.to_json(),
            )
            if found.is_bad:
                self._answer_parity(finding)

    def _answer_parity(self, finding: ParityFinding) -> None:
        """Say what training.parity makes of a model that is too far off, and ask for it."""
        then = answer_to(
            finding.found,
            self.config.training.parity,
            is_over=self.end is not None or self.step >= self.last_step,
            has_kernels=has_own_arithmetic(self.parts, self.stepper),
        )
        if then.leaves:
            self._falls_back = finding
        alert = finding.found.alert(
            finding.step, self.life.attempt, stops=then.stops, then=then.words
        )
        self._raise([alert])

    def _fall_back_if_due(self) -> None:
        """Leave the kernels between two steps, and compare what trains in their place."""
        finding, self._falls_back = self._falls_back, None
        if finding is None:
            return
        self._catch_up()
        steps = self.step - self._began_at
        because = f"parity failed at step {finding.step}; {counted(steps, 'step')} were by kernels"
        with self.clock.held():
            del self.stepper  # its graphs and buffers, before the plain one needs room
            self._train_plainly(because)
            self.parity.begin(pose(self.parts, self.stepper), self.step, "plain")
        self._tell_parity()
        self._report_kernels()
        self.clock.restart()

    def _end_parity(self, outcome: Outcome) -> None:
        """Wait for a comparison under way, and make the one that is due: a short run has as many as
        a long one. Who was told to stop does not wait, and weights that went wrong tell nothing.
        """
        is_lost = outcome.reason in _LEFT_ITS_PATH
        deadline = time.monotonic() + (0.0 if is_lost else PARITY_LIMIT_S)
        while self.parity.is_busy or self.parity.is_due(self.step):
            if self.signals.stop is not None or time.monotonic() >= deadline:
                break
            if not self.parity.is_busy:
                self._compare_again()
            self._tell_parity(HEARTBEAT_S)
            self.reporter.beat()
        self._judge_parity(self.parity.abandon())

    def _steps_since_log(self) -> int:
        """Steps of this attempt in the interval that ends now."""
        steps = self.step - self._logged_at
        self._logged_at = self.step
        return max(1, steps)

    def _sequences_since_log(self) -> int:
        before, self._sequences_logged = self._sequences_logged, self.progress.sequences
        return self._sequences_logged - before

    def _values(
        self, found: IntervalFigures, interval: Interval, bricks_ms: Mapping[str, float]
    ) -> dict[str, float]:
        parts, readings = self.parts, found.readings
        each = self._sequences_since_log() / interval.steps
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
        if self._logs % LAYER_EVERY == 0:
            values |= layer_norms(found.norms)
        self._logs += 1
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

    def _go_back(self, trouble: Trouble) -> None:
        """To the last good checkpoint, or stop where that has been tried often enough."""
        self.keeper.wait()
        stability, folder = self.config.training.stability, self.life.run.checkpoints
        before = self.progress
        times = times_in_a_row(
            before.rollbacks_in_a_row, before.last_trouble, target_of(folder, trouble)
        )
        if not may_go_back(times, stability):
            message = f"{trouble.message}; went back {times - 1} times in a row"
            self.end = Outcome(trouble.reason, STOPPED_BY_ANDON, self.step, message)
            self.keeper.went_back(leave_good(self.course, folder, trouble))
            return
        with self.clock.held():
            source = go_back(self.course, folder, trouble, in_a_row=times)
            self.keeper.went_back(source)
            self._logged_at = self._began_at = self.step
            self.parity.go_back(self.step)
            self._sequences_logged = self.progress.sequences
            self._show_guards()
            self._report_step()
        self.keeper.wanted = True
        self.trouble = None
        self.clock.restart()

    def _raise(self, alerts: list[Alert]) -> None:
        """Say each alert, and ask for what its action is."""
        for alert in alerts:
            self.reporter.alert(alert)
            if alert.state == "cleared":
                continue
            if alert.kind == "brick" and alert.action == "pause":
                brick = brick_name(alert.metric)
                self.reporter.journal.event(
                    "jidoka.pause",
                    step=self.step,
                    severity=alert.severity,
                    brick=brick,
                    value_ms=alert.value,
                    budget_ms=self.cord.budgets_ms[brick],
                    overrule=overrule_command(self.life.run.id, brick),
                )
            RESPONSES.get(alert.action, go_on)(self, alert)  # what it does not know halts nothing

    # -- evaluate ------------------------------------------------------------------------------

    def _evaluation_is_due(self) -> bool:
        step, every = self.step, self.config.training.eval_interval
        is_planned = self.progress.passed(every) or step == self.last_step
        return self.parts.val is not None and is_planned and self.progress.evaluated_step != step

    def _evaluate(self) -> None:
        """Validation loss of the weights as they are; a stop meanwhile leaves it due."""
        with self.clock.held(), self._between_steps("eval"):
            self.reporter.phase("evaluating", limit_s=self.config.guard.eval_limit_s)
            forward = scoring(self.parts, self.stepper)
            means = validation(self.parts, forward, go_on=self._goes_on)
            if means is None:
                return
            rows = np.concatenate(batches_of(self.parts))
            values = self.parts.recipe.figures(means, rows)
            self.progress.evaluated_step = self.step
            self.reporter.validation(self.step, values)
            reason = self._fault_of(loss := values["val/loss"])
            fault = (loss, reason) if reason else None
            alerts = self.cord.check_loss(fault, "val/loss", self.step)
            self._raise([*self.cord.check_values(values, self.step), *alerts])
            self._judge_progress(math.nan if fault else loss)
            self._sample()
            self.reporter.beat(gap_s=0.25)

    def _goes_on(self) -> bool:
        self.reporter.beat()
        return self.signals.stop is None

    def _judge_progress(self, loss: float) -> None:
        progress, patience = self.progress, self.config.training.early_stopping_patience
        if math.isfinite(loss) and (progress.best_val is None or loss < progress.best_val):
            progress.best_val, progress.evals_without_gain = loss, 0
            return
        progress.evals_without_gain += 1
        if patience is not None and progress.evals_without_gain >= patience and self.end is None:
            message = f"validation loss has not improved for {patience} evaluations"
            self.end = Outcome("early_stopped", 0, self.step, message)

    def _sample(self) -> None:
        if self.sampler is None:
            return
        model, placement = self.parts.decoder, self.parts.placement
        assert model is not None
        texts = self.sampler.continue_prompts(model, placement, self.reporter.beat)
        for prompt, text in zip(self.sampler.prompts, texts, strict=True):
            self.reporter.journal.append("s", step=self.step, prompt=prompt[:500], text=text[:1500])
        self.reporter.beat()

    # -- save ----------------------------------------------------------------------------------

    def _save(self) -> None:
        """Copy to the host; the saver writes, the keeper collects what became of it."""
        self._catch_up()
        with self.clock.held(), self._between_steps("checkpoint"):
            self.reporter.phase("checkpointing", limit_s=self.config.guard.checkpoint_limit_s)
            self._compare_ranks()
            self.progress.kernels |= dispatch.taken(self.parts.placement.device)
            take = partial(take_snapshot, self.course, self.companions, self.copies)
            self.keeper.save(take, self.step, self.progress.evaluated_step)

    def _compare_ranks(self) -> None:
        """Check that all copies of the model are equal: diverged copies must not become a
        checkpoint."""
        if self.ranks.is_alone or self.ranks.is_sharded:
            return
        self.ranks.send_order(Word.COMPARE)
        if not self.ranks.agree(fingerprint(self.parts.trainable)):
            raise AlborError(
                f"the weights of the {self.ranks.world_size} ranks differ at step {self.step}",
                hint="albor gpu and albor kernels check: one of the devices may be faulty",
            )

    def _make_way(self) -> None:
        """Where a run may go back to must not hang on how quick a disk is, if it is to be repeated
        bit by bit: then a planned save waits for the one in flight and not for a later step.
        """
        if self.parts.placement.is_gpu and not self.config.training.deterministic:
            return
        with self.clock.held(), self._between_steps("checkpoint"):
            while self.keeper.is_busy:
                self.keeper.wait(HEARTBEAT_S)
                self.reporter.beat()

    def _save_if_wanted(self) -> None:
        """One save at a time: a wish that comes meanwhile waits for the next step."""
        if self.keeper.wanted and not self.keeper.is_busy:
            self._save()

    # -- end -----------------------------------------------------------------------------------

    def _stopped(self, stop_after: int | None = None) -> Outcome | None:
        if self.signals.stop is not None:
            number = self.signals.stop
            return Outcome("stopped", _EXIT_BY_SIGNAL[number], self.step, number.name)
        if stop_after is not None and self.step >= stop_after and self.step < self.last_step:
            return Outcome("stopped", 0, self.step, f"--stop-after {stop_after}")
        return None

    def _finish(self, outcome: Outcome) -> Outcome:
        """Save what is not saved, say how it ended, let go."""
        self.reporter.phase("checkpointing", limit_s=self.config.guard.checkpoint_limit_s)
        self.keeper.wait()
        is_lost = outcome.reason in _LEFT_ITS_PATH  # the last good checkpoint is the better one
        if not is_lost and not self.keeper.has(self.step, self.progress.evaluated_step):
            self._save()
            self.keeper.wait()
        self._end_parity(outcome)
        self.tracer.close()
        self.keeper.turn_down(f"the run has ended: {outcome.reason}")
        self.watch.close()
        if outcome.code == 0 and not self.keeper.has(self.step, self.progress.evaluated_step):
            raise AlborError(
                f"the final checkpoint of step {self.step} could not be written",
                hint="free some disk, then `albor train resume RUN`",
            )
        outcome = Outcome(outcome.reason, outcome.code, self.step, outcome.message)
        status = end_word(outcome.reason, outcome.code)
        self.reporter.journal.event(
            "run.end",
            step=self.step,
            severity="error" if outcome.code == STOPPED_BY_ANDON else "info",
            status=status,
            reason=outcome.reason,
            code=outcome.code,
            message=outcome.message[:500],
        )
        self.reporter.phase(status)
        self.reporter.journal.wait()
        with suppress(OSError):  # the disk may have refused it a moment ago; `albor runs gc` can
            clear_doomed(self.life.run.checkpoints)
        self.reporter.journal.close()
        self.ranks.send_order(Word.END)
        self.ranks.leave()
        gc.unfreeze()
        return outcome

    def abandon(self) -> None:
        """After an exception: let a save in flight finish, it holds nothing of what went wrong."""
        gc.unfreeze()
        self.parity.close()
        self.keeper.wait(ABANDON_S)
        self.reporter.journal.wait()
        self.watch.close()
