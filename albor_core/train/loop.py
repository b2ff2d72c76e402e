"""The training loop, to be read top to bottom: begin, steps, what is due after each, end.

One thread does everything that changes the run: it alone steps, writes the journal and says what
the state file shows. Threads beside it copy nothing and decide nothing: one writes checkpoints from
host memory, one puts the state file on the disk, one samples the machine. The device is waited for
once per log interval, and on a GPU where nothing else is due with the next step already launched,
so that it has work meanwhile.

A step is an optimizer step. Step N's figures are those after N steps; step 0 is the model as it
begins. Everything due after a step happens in one order (log, go back if the run left its path,
evaluate, save), and requests from outside are looked at only then, so a checkpoint of step N always
means "all of N, nothing of N+1".
"""

from __future__ import annotations

import gc
import math
import signal
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from albor_core.andon.alert import Alert
from albor_core.andon.bricks import brick_name, overrule_command
from albor_core.checkpoint.folder import Checkpoint, list_checkpoints
from albor_core.checkpoint.retention import Retention
from albor_core.checkpoint.saver import Saver
from albor_core.config.load import Config
from albor_core.kernels import dispatch
from albor_core.run.errors import AlborError
from albor_core.run.exit import STOPPED_BY_ANDON, end_word
from albor_core.run.journal import last_event
from albor_core.run.state import StateWriter
from albor_core.telemetry.peaks import peak_flops
from albor_core.train.build import Parts, build, kernels_in_use, rejected_kernels
from albor_core.train.companions import companions, ids_of
from albor_core.train.evaluate import Sampler, perplexity, scoring, validation_loss
from albor_core.train.observe.alert_monitor import AlertMonitor
from albor_core.train.observe.figures import Interval, mfu
from albor_core.train.observe.reporter import HEARTBEAT_S, Reporter
from albor_core.train.observe.sampler import TelemetrySampler
from albor_core.train.process.attempt import Attempt, Outcome
from albor_core.train.process.faults import Faults
from albor_core.train.process.signals import SignalRequests
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
from albor_core.train.step.choose import check_optimizer, choose_step
from albor_core.train.step.interval_totals import IntervalTotals
from albor_core.train.step.optimizer_step import Stepper, take_step
from albor_core.train.step.pending_figures import IntervalFigures, PendingFigures
from albor_core.train.step.spikes import SpikeWatch
from albor_core.train.step.stability import (
    GradientFlow,
    Trouble,
    find_trouble,
    group_norms,
    may_go_back,
    times_in_a_row,
)

ABANDON_S = 60.0
_LEFT_ITS_PATH = ("nan_limit", "loss_spike")
_EXIT_BY_SIGNAL = {signal.SIGTERM: 143, signal.SIGINT: 130}


class Training:
    """One life of a run, from its config to an Outcome."""

    def __init__(
        self,
        life: Attempt,
        config: Config,
        signals: SignalRequests,
        faults: Faults,
        state: StateWriter,
        *,
        allow_config_change: bool = False,
    ) -> None:
        """Build and resume. Raises AlborError for everything a user can mend."""
        self.life, self.config, self.signals, self.faults = life, config, signals, faults
        parts = build(config, begins=not list_checkpoints(life.run.checkpoints))
        self.companions, self.copies = companions(parts), HostCopies()
        self.reporter = Reporter(life, config, state, num_steps=parts.clock.planned)
        self.cord = AlertMonitor(
            config.resolved()["monitoring"],
            warmup_steps=config.training.warmup_steps,
            attempt=life.attempt,
        )
        overruled = last_event(life.run.journal, "jidoka.overruled") or {}
        self.cord.recall(overruled.get("data") or {})
        self.reporter.show_budgets(self.cord.budgets_ms)
        spikes = SpikeWatch(config.training.stability.loss_spike)
        self.tally = IntervalTotals(parts.placement.device, spikes)
        self.course = TrainState(parts, self.reporter, self.cord, self.tally)
        self.timer, self.clock = BrickTimer(parts.placement.device), StepClock()
        self.sampler = self._sampler(parts)
        self.flow = GradientFlow()
        self._unread: PendingFigures | None = None
        self._pause_for: Alert | None = None
        self._trouble: Trouble | None = None
        self._end: Outcome | None = None
        self._peak = self._peak_flops(parts)
        source = begin(self.course, life, allow_config_change=allow_config_change)
        self.stepper: Stepper
        self.ranks.send_order(Word.CHOOSE)
        self.course.parts, self.stepper = choose_step(
            self.course.parts, self.reporter.journal.event
        )
        check_optimizer(self.parts, self.reporter.journal.event, is_new=self.step == 0)
        self._logged_at = self._began_at = self.step
        self._is_warm = False
        self._told: list[dict[str, str]] = []
        self._tell_rejected()
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
        if not prompts or tokenizer is None:
            return None
        return Sampler(tokenizer, prompts, ids_of(parts))

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

    # -- steps ---------------------------------------------------------------------------------

    def run(self, *, stop_after: int | None = None) -> Outcome:
        """Train to the end, or until something says stop; returns how it ended, all of it saved."""
        self._tell_step()
        self.faults.at("step", self.step)
        if self._evaluation_is_due() and self._stopped() is None:
            self._evaluate()
        self.clock.lap()
        while self._end is None:
            is_done = self.step >= self.last_step and not self._evaluation_is_due()
            stopped = None if is_done else self._stopped(stop_after)
            if stopped is not None or is_done:
                self._catch_up()
                self._end = self._end or stopped
                break
            self._enter_steps()
            self._settle_memory()
            self._train_step(self.step + 1)
            self._read_late()
            self.parts.clock.advance(self.progress)
            self._tell_step()
            self._after_step()
            self.faults.at("step", self.step)
        return self._finish(self._end or Outcome("completed", 0, self.step))

    def _tell_step(self) -> None:
        at, left = self.progress, (self.last_step - self.step) * self.parts.sequences_per_step
        self.reporter.at_step(
            self.step,
            last=self.last_step,
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

    def _settle_memory(self) -> None:
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
        start, sequences = clock.start(at.cursor), at.sequences + clock.batch
        self.ranks.send_order(Word.STEP, step, start, sequences)
        total, updated = take_step(
            self.parts,
            self.stepper,
            self.faults,
            self.timer.brick,
            step=step,
            start=start,
            sequences=sequences,
        )
        self.tally.add(total, *updated)
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
                "gradient.missing", step=step, severity="red", count=len(names), names=names[:20]
            )
        if self.flow.is_broken:
            message = f"{len(names)} parameters get no gradient, {names[0]} among them"
            self._end = Outcome("gradient_missing", STOPPED_BY_ANDON, step, message)

    # -- what is due after a step --------------------------------------------------------------

    def _after_step(self) -> None:
        training, step, last = self.config.training, self.step, self.last_step
        if self.progress.passed(training.log_interval) or step == last:
            self._unread = PendingFigures(
                self.tally, self.parts.noise.state, self.stepper.norms(), self.timer.drain()
            )
        if not self._may_wait():
            self._catch_up()
        if self._unread is None:
            self.reporter.beat()  # a step is never shown with the loss of the one before
        self.keeper.collect()
        if self._end is not None:
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
            self.requests.obey()
        alert, self._pause_for = self._pause_for, None
        if alert is not None and self._end is None:
            self.requests.pause(alert.message)

    @property
    def _reads_late(self) -> bool:
        return self.parts.placement.is_gpu  # a CPU computes nothing meanwhile

    def _may_wait(self) -> bool:
        """Whether this step's figures can be read after the next one was launched: whatever is due
        now would need them, save them, or end with them.
        """
        step, signals = self.step, self.signals
        is_quiet = not (self.flow.is_open or self._trouble or self._end or self._pause_for)
        is_asked = signals.stop is not None or signals.command or self.keeper.wanted
        is_due = self._evaluation_is_due() or step == self.last_step
        is_due |= self.progress.passed(self.config.training.checkpoint.save_every)
        return self._reads_late and is_quiet and not is_asked and not is_due

    def _read_late(self) -> None:
        """The figures of the step before, while the device is at the next."""
        if self._unread is not None:
            self._log(nullcontext())
            self.reporter.beat()

    def _catch_up(self) -> None:
        """Read what is unread, and leave the path that it says was lost."""
        if self._unread is not None:
            self._log(self.clock.held(disturbs=False))
        if self._trouble is not None and self._end is None:
            self._go_back(self._trouble)

    def _log(self, held: AbstractContextManager[None]) -> None:
        """Judge and write down what is unread. `held`: the clock, if no step goes on meanwhile."""
        readout, self._unread = self._unread, None
        assert readout is not None
        found = readout.read()  # here we wait for the device
        readings, seconds, steps = found.readings, self.clock.lap(), self._steps_since_log()
        with held:
            interval = Interval(steps, seconds)
            self._trouble = self._trouble or find_trouble(
                readings,
                step=self.step,
                sound=self.progress.sound,
                nan_limit=self.config.training.nan_limit,
            )
            if self._trouble is None:
                self.progress.sound = max(self.progress.sound, self.step - readings.unsure)
            self.reporter.loss_ema.add(readings.loss)
            if self._logged_at > self._began_at + steps:  # the first interval compiles and warms up
                self.reporter.step_s.add(interval.step_ms / 1000)
            bricks_ms = readout.bricks.ms(steps, interval.step_ms)
            values = self._values(found, interval)
            machine = self.watch.newest()
            self._note_guards(found)
            self._tell_rejected()
            disturbed = self.clock.is_disturbed
            alerts = [
                *self.cord.check_values(values, self.step),
                *self.cord.check_budgets(
                    self.step,
                    tokens=self.reporter.tokens(self.step),
                    wall_hours=self.reporter.elapsed_s / 3600,
                ),
                *self.cord.check_bricks(self.step, bricks_ms, disturbed=disturbed),
            ]
            self._raise(alerts)
            self.reporter.interval(self.step, values, bricks_ms=bricks_ms, machine=machine)
            self.clock.begin_interval()

    def _tell_rejected(self) -> None:
        """An event for each backend that failed parity since the last look."""
        for found in rejected_kernels():
            if found not in self._told:
                self._told.append(found)
                self.reporter.journal.event(
                    "kernels.rejected", step=self.step, severity="yellow", **found
                )

    def _steps_since_log(self) -> int:
        """Steps of this life in the interval that ends now."""
        steps = self.step - self._logged_at
        self._logged_at = self.step
        return max(1, steps)

    def _values(self, found: IntervalFigures, interval: Interval) -> dict[str, float]:
        parts, readings = self.parts, found.readings
        values = {
            "train/loss": readings.loss,
            "train/loss_ema": self.reporter.loss_ema.value,
            "train/tokens": self.reporter.tokens(self.step),
            "optim/lr": parts.lr(self.progress.sequences),
            "optim/grad_norm": readings.grad_norm,
            "optim/noise_scale_tokens": found.noise_scale,
            "perf/step_ms": interval.step_ms,
            "perf/tokens_per_s": interval.per_second(parts.tokens_per_step),
            "perf/samples_per_s": interval.per_second(parts.sequences_per_step),
        }
        for group, norm in group_norms(found.norms).items():
            values[f"optim/grad_norm_{group}"] = norm
        rate = values["perf/tokens_per_s"]
        flops = parts.model.config.flops_per_token(self.config.data.seq_len)
        if rate is not None:
            values["perf/mfu"] = mfu(flops, rate, self._peak)
        return {key: value for key, value in values.items() if value is not None}

    def _note_guards(self, found: IntervalFigures) -> None:
        """Say what was skipped and what was scaled down in the interval."""
        readings = found.readings
        event = partial(self.reporter.journal.event, step=self.step, severity="yellow")
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
            self._end = Outcome(trouble.reason, STOPPED_BY_ANDON, self.step, message)
            self.keeper.went_back(leave_good(self.course, folder, trouble))
            return
        with self.clock.held():
            source = go_back(self.course, folder, trouble, in_a_row=times)
            self.keeper.went_back(source)
            self._logged_at = self._began_at = self.step
            self._show_guards()
            self._tell_step()
        self.keeper.wanted = True
        self._trouble = None
        self.clock.lap()

    def _raise(self, alerts: list[Alert]) -> None:
        """Pull the cord as far as the strongest alert says."""
        for alert in alerts:
            self.reporter.alert(alert)
            if alert.kind == "brick":
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
            if alert.action == "stop" and self._end is None:
                message = f"{alert.rule}: {alert.message}"
                self._end = Outcome("andon", STOPPED_BY_ANDON, self.step, message)
            elif alert.action == "pause" and self._pause_for is None:
                self._pause_for = alert

    # -- evaluate ------------------------------------------------------------------------------

    def _evaluation_is_due(self) -> bool:
        step, every = self.step, self.config.training.eval_interval
        is_planned = self.progress.passed(every) or step == self.last_step
        return self.parts.val is not None and is_planned and self.progress.evaluated_step != step

    def _evaluate(self) -> None:
        """Validation loss of the weights as they are; a stop meanwhile leaves it due."""
        with self.clock.held():
            self.reporter.phase("evaluating", limit_s=self.config.guard.eval_limit_s)
            score = scoring(self.parts, self.stepper)
            loss = validation_loss(self.parts, score, go_on=self._goes_on)
            if loss is None:
                return
            values = {"val/loss": loss, "val/ppl": perplexity(loss)}
            self.progress.evaluated_step = self.step
            self.reporter.validation(self.step, values)
            self._raise(list(self.cord.check_values(values, self.step)))
            self._judge_progress(loss)
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
        if patience is not None and progress.evals_without_gain >= patience and self._end is None:
            message = f"validation loss has not improved for {patience} evaluations"
            self._end = Outcome("early_stopped", 0, self.step, message)

    def _sample(self) -> None:
        if self.sampler is None:
            return
        for prompt in self.sampler.prompts:
            text = self.sampler.continue_prompt(self.parts.model, self.parts.placement, prompt)
            self.reporter.journal.append("s", step=self.step, prompt=prompt[:500], text=text[:1500])
            self.reporter.beat()

    # -- save ----------------------------------------------------------------------------------

    def _save(self) -> None:
        """Copy to the host; the saver writes, the keeper collects what became of it."""
        self._catch_up()
        with self.clock.held():
            self.reporter.phase("checkpointing", limit_s=self.config.guard.checkpoint_limit_s)
            self._compare_ranks()
            self.progress.kernels |= dispatch.taken(self.parts.placement.device)
            take = partial(take_snapshot, self.course, self.companions, self.copies)
            self.keeper.save(take, self.step, self.progress.evaluated_step)

    def _compare_ranks(self) -> None:
        """Copies of one model that are no copies any more must not become a checkpoint."""
        if self.ranks.is_alone or self.ranks.is_sharded:
            return
        self.ranks.send_order(Word.COMPARE)
        if not self.ranks.agree(fingerprint(self.parts.model)):
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
        with self.clock.held():
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
            severity="red" if outcome.code == STOPPED_BY_ANDON else "info",
            status=status,
            reason=outcome.reason,
            code=outcome.code,
            message=outcome.message[:500],
            kernels=kernels_in_use(),
        )
        self.reporter.phase(status)
        self.reporter.journal.wait()
        self.reporter.journal.close()
        self.ranks.send_order(Word.END)
        self.ranks.leave()
        gc.unfreeze()
        return outcome

    def abandon(self) -> None:
        """After an exception: let a save in flight finish, it holds nothing of what went wrong."""
        gc.unfreeze()
        self.keeper.wait(ABANDON_S)
        self.reporter.journal.wait()
        self.watch.close()
