"""The training loop, to be read top to bottom: begin, resume, steps, what is due after each, end.

One thread does everything that changes the run: it alone steps, writes the journal and the state
file. Threads beside it copy nothing and decide nothing: one writes checkpoints from host memory,
one samples the machine. The device is waited for once per log interval.

A step is an optimizer step. Step N's figures are those after N steps; step 0 is the model as it
begins. Everything due after a step happens in one order (log, evaluate, save), and requests from
outside are looked at only then, so a checkpoint of step N always means "all of N, nothing of N+1".
"""

from __future__ import annotations

import math
import signal

import torch
from torch import Tensor

from albor_core.andon.alert import Alert
from albor_core.andon.bricks import brick_name
from albor_core.kernels import dispatch
from albor_core.run.config import Config
from albor_core.run.errors import AlborError, DataError, NoCheckpointError
from albor_core.run.state import StateWriter
from albor_core.train.bricks import BrickTimer, StepClock
from albor_core.train.checkpoint import Checkpoint, Snapshot, newest_usable
from albor_core.train.cord import Cord
from albor_core.train.evaluate import Sampler, perplexity, validation_loss
from albor_core.train.faults import Faults
from albor_core.train.keeper import Keeper
from albor_core.train.life import Life, Outcome, Signals, answer_command, take_command
from albor_core.train.meter import Interval, mfu, peak_flops
from albor_core.train.optim import clip_gradients
from albor_core.train.parts import build, kernels_in_use
from albor_core.train.reporter import Reporter, versions
from albor_core.train.resume import (
    HostCopies,
    Progress,
    changed_fields,
    hashes,
    refuse_change,
    restore,
    take_snapshot,
)
from albor_core.train.saver import Retention, Saver
from albor_core.train.tally import Readings, Tally
from albor_core.train.watch import Machine, Watch

ABANDON_S = 60.0
_EXIT_BY_SIGNAL = {signal.SIGTERM: 143, signal.SIGINT: 130}


class Training:
    """One life of a run, from its config to an Outcome."""

    def __init__(
        self,
        life: Life,
        config: Config,
        signals: Signals,
        faults: Faults,
        state: StateWriter,
        *,
        allow_config_change: bool = False,
    ) -> None:
        """Build and resume. Raises AlborError for everything a user can mend."""
        self.life, self.config, self.signals, self.faults = life, config, signals, faults
        self.parts = build(config)
        self.companions, self.copies = self.parts.companions(), HostCopies()
        self.reporter = Reporter(life, config, state, num_steps=self.parts.num_steps)
        resolved = config.resolved()
        self.cord = Cord(
            resolved["monitoring"],
            warmup_steps=config.training.warmup_steps,
            attempt=life.attempt,
        )
        self.tally = Tally(self.parts.placement.device)
        self.progress = Progress()
        self.timer, self.clock = BrickTimer(self.parts.placement.device), StepClock()
        self.sampler = self._sampler()
        self._disturbed = self._is_paused = False
        self._pause_for: Alert | None = None
        self._end: Outcome | None = None
        self._peak = peak_flops(self.parts.placement.device_name)
        source = self._resume(allow_config_change=allow_config_change)
        self._logged_at = self._began_at = self.step
        self.keeper = Keeper(self._saver(source), self.reporter, self._answer)
        if source is not None:
            self.keeper.resumed_from(source, self.progress.evaluated_step)
        system = config.monitoring.system
        self.watch = Watch(
            life.run.path,
            life.run.journal,
            interval_s=system.interval / 1000,
            enabled=system.enabled,
        )

    # -- begin ---------------------------------------------------------------------------------

    def _sampler(self) -> Sampler | None:
        prompts, tokenizer = self.config.training.sample_prompts, self.config.data.tokenizer
        return Sampler(tokenizer, prompts) if prompts and tokenizer is not None else None

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

    def _resume(self, *, allow_config_change: bool) -> Checkpoint | None:
        """Go back to the newest good checkpoint; without any, to the beginning.

        The rewind is in the journal, on the disk, before the first step: what an earlier life said
        about later steps is no part of this history.
        """
        journal = self.reporter.journal
        try:
            checkpoint, rejected = newest_usable(self.life.run.checkpoints)
        except NoCheckpointError as error:
            journal.event("checkpoint.bad", severity="red", reason=error.message[:1500])
            raise
        for bad in rejected:
            journal.event(
                "checkpoint.bad",
                severity="yellow",
                path=str(bad.path),
                reason=bad.reason[:500],
            )
        if checkpoint is None:
            if self.life.attempt > 1:
                journal.rewind(-1)
            self.reporter.params(self.config.resolved())
        else:
            self._restore(checkpoint, allow_config_change=allow_config_change)
            journal.rewind(checkpoint.step)
        journal.barrier()
        self._announce(checkpoint)
        return checkpoint

    def _restore(self, checkpoint: Checkpoint, *, allow_config_change: bool) -> None:
        trainer = checkpoint.trainer()
        resolved = self.config.resolved()
        changes = changed_fields(trainer["config"], resolved)
        data_hash = checkpoint.manifest["data_hash"]
        if not allow_config_change:
            refuse_change(changes, str(self.life.run.config_resolved))
            if data_hash != self.parts.train.manifest.data_hash:
                raise DataError(
                    f"{self.config.data.train}: not the shards this run was trained on so far",
                    hint="put them back, or go on with --allow-config-change",
                )
        self.progress = restore(
            checkpoint, trainer, self.parts, self.reporter, self.cord, self.tally
        )
        if trainer["device"] == self.parts.placement.device.type:  # the same race, decided already
            chosen = self.progress.kernels.items()
            dispatch.pin({op: b for op, b in chosen if b in ("triton", "reference")})
        for path, old, new in changes:
            self.reporter.journal.event(
                "config.changed", step=self.step, severity="yellow", field=path, was=old, now=new
            )
            self.reporter.journal.append("p", key=path, value=new)

    def _announce(self, checkpoint: Checkpoint | None) -> None:
        placement = self.parts.placement
        self.reporter.state.fields["device"] = placement.device_name or str(placement.device)
        self.reporter.journal.event(
            "run.start",
            step=self.step,
            resumed_from=None if checkpoint is None else checkpoint.step,
            attempt=self.life.attempt,
            device=placement.device_name or str(placement.device),
            precision=placement.precision,
            threads=torch.get_num_threads(),
            versions=versions(torch.__version__),
            num_steps=self.parts.num_steps,
            parameters=self.parts.model.config.num_parameters,
        )

    @property
    def step(self) -> int:
        return self.progress.step

    # -- steps ---------------------------------------------------------------------------------

    def run(self, *, stop_after: int | None = None) -> Outcome:
        """Train to the end, or until something says stop; returns how it ended, all of it saved."""
        parts, last = self.parts, self.parts.num_steps
        self.reporter.at_step(self.step, epoch=parts.epoch(self.step))
        self.faults.at("step", self.step)
        if self._evaluation_is_due() and self._stopped() is None:
            self._evaluate()
        self.clock.take()
        while self._end is None:
            is_done = self.step >= last and not self._evaluation_is_due()
            self._end = None if is_done else self._stopped(stop_after)
            if self._end is not None or is_done:
                break
            self._enter_steps()
            self._train_step(self.step + 1)
            self.progress.step += 1
            self.reporter.at_step(self.step, epoch=parts.epoch(self.step))
            self._after_step()
            self.faults.at("step", self.step)
        return self._finish(self._end or Outcome("completed", 0, self.step))

    def _enter_steps(self) -> None:
        guard = self.config.guard
        if self.step == self._began_at and self.parts.placement.is_gpu:
            self.reporter.phase("compiling", limit_s=guard.compile_limit_s)
        else:
            self.reporter.phase("training", limit_s=guard.stale_s)

    def _train_step(self, step: int) -> None:
        """One optimizer step. Nothing here waits for the device."""
        parts, accumulation = self.parts, self.config.training.gradient_accumulation
        parts.optimizer.set_lr(parts.schedule.lr_at(step))
        factor = self.faults.loss_factor(step)
        total = torch.zeros((), device=parts.placement.device)
        for micro in range(accumulation):
            with self.timer.brick("data"):
                self.faults.at("data", step)
                ids = parts.batch(step, micro)
            with self.timer.brick("forward"), parts.placement.autocast():
                _, loss = parts.forward(ids, ids)
                assert loss is not None
                loss = loss / accumulation if factor is None else loss * (factor / accumulation)
            with self.timer.brick("backward"):
                scaled = loss if parts.scale is None else loss * parts.scale.scale
                scaled.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        with self.timer.brick("optimizer"):
            self._update(total)

    def _update(self, loss: Tensor) -> None:
        """Clip and apply the gradients, unless loss or gradients are not finite: then the weights
        stay as they are, the step counts, and so does the skip.
        """
        parts = self.parts
        if parts.scale is not None:
            parts.scale.unscale(parts.optimizer.parameters)
        norm = clip_gradients(parts.optimizer.parameters, self.config.training.grad_clip)
        skip = (~(torch.isfinite(norm) & torch.isfinite(loss))).float()
        counts = skip
        if parts.scale is not None:  # overflowing is how the scale is found, until it is at 1
            is_real = ~torch.isfinite(loss) | (parts.scale.scale <= 1.0)
            counts = skip * is_real
            parts.scale.update(skip)
        parts.optimizer.step(skip)
        self.tally.add(loss, norm, skip, counts)

    # -- what is due after a step --------------------------------------------------------------

    def _after_step(self) -> None:
        training, step, last = self.config.training, self.step, self.parts.num_steps
        if step % training.log_interval == 0 or step == last:
            self._log()
        self.keeper.collect()
        if self._end is not None:
            return
        if self._evaluation_is_due():
            self._evaluate()
        if step % training.checkpoint.save_every == 0 and step < last:
            self.keeper.wanted = True
        self._save_if_wanted()
        self._obey()
        alert, self._pause_for = self._pause_for, None
        if alert is not None and self._end is None:
            self._pause(alert.message)

    def _log(self) -> None:
        readings = self.tally.take()  # here we wait for the device
        seconds, steps = self.clock.take(), self._steps_since_log()
        with self.clock.held():
            interval = Interval(steps, seconds)
            self.reporter.loss_ema.add(readings.loss)
            if self._logged_at > self._began_at + steps:  # the first interval compiles and warms up
                self.reporter.step_s.add(interval.step_ms / 1000)
            bricks_ms = self.timer.take(steps, interval.step_ms)
            values = self._figures(readings, interval)
            machine = self.watch.take()
            self._note_skips(readings)
            alerts = [
                *self.cord.check_values(values, self.step),
                *self.cord.check_budgets(
                    self.step,
                    tokens=self.reporter.tokens(self.step),
                    wall_hours=self.reporter.elapsed_s / 3600,
                ),
                *self.cord.check_bricks(self.step, bricks_ms, disturbed=self._disturbed),
            ]
            self._raise(alerts)
            self.reporter.interval(self.step, values, bricks_ms=bricks_ms, machine=machine)
            self._disturbed = False

    def _steps_since_log(self) -> int:
        """Steps of this life in the interval that ends now."""
        steps = self.step - self._logged_at
        self._logged_at = self.step
        return max(1, steps)

    def _figures(self, readings: Readings, interval: Interval) -> dict[str, float]:
        parts = self.parts
        values = {
            "train/loss": readings.loss,
            "train/loss_ema": self.reporter.loss_ema.value,
            "train/tokens": self.reporter.tokens(self.step),
            "optim/lr": parts.schedule.lr_at(self.step),
            "optim/grad_norm": readings.grad_norm,
            "perf/step_ms": interval.step_ms,
            "perf/tokens_per_s": interval.per_second(parts.tokens_per_step),
            "perf/samples_per_s": interval.per_second(parts.sequences_per_step),
        }
        rate = values["perf/tokens_per_s"]
        flops = parts.model.config.flops_per_token(self.config.data.seq_len)
        if rate is not None:
            values["perf/mfu"] = mfu(flops, rate, self._peak)
        return {key: value for key, value in values.items() if value is not None}

    def _note_skips(self, readings: Readings) -> None:
        if readings.skipped:
            self.progress.skipped += readings.skipped
            self.reporter.state.fields["guards"]["nan_skipped"] = self.progress.skipped
            self.reporter.journal.event(
                "step.skipped",
                step=self.step,
                severity="yellow",
                reason="loss or gradient is not finite",
                count=readings.skipped,
                in_a_row=readings.worst_row,
            )
        limit = self.config.training.nan_limit
        if readings.worst_row >= limit:
            message = f"{readings.worst_row} steps in a row without a finite loss and gradient"
            self._end = Outcome("nan_limit", 4, self.step, message)

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
                )
            if alert.action == "stop" and self._end is None:
                self._end = Outcome("andon", 4, self.step, f"{alert.rule}: {alert.message}")
            elif alert.action == "pause" and self._pause_for is None:
                self._pause_for = alert

    # -- evaluate ------------------------------------------------------------------------------

    def _evaluation_is_due(self) -> bool:
        step, every = self.step, self.config.training.eval_interval
        is_planned = step % every == 0 or step == self.parts.num_steps
        return self.parts.val is not None and is_planned and self.progress.evaluated_step != step

    def _evaluate(self) -> None:
        """Validation loss of the weights as they are; a stop meanwhile leaves it due."""
        assert self.parts.val is not None
        with self.clock.held():
            self._disturbed = True
            self.reporter.phase("evaluating", limit_s=self.config.guard.eval_limit_s)
            loss = validation_loss(
                self.parts.model,
                self.parts.val,
                self.parts.placement,
                batch_size=self.config.data.batch_size,
                num_batches=self.config.training.eval_batches,
                go_on=self._goes_on,
            )
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
        with self.clock.held():
            self._disturbed = True
            self.reporter.phase("checkpointing", limit_s=self.config.guard.checkpoint_limit_s)
            self.progress.kernels = {c.op: c.backend for c in dispatch.choices()}
            self.keeper.save(self._snapshot, self.step, self.progress.evaluated_step)

    def _save_if_wanted(self) -> None:
        """One save at a time: a wish that comes meanwhile waits for the next step."""
        if self.keeper.wanted and not self.keeper.is_busy:
            self._save()

    def _snapshot(self) -> Snapshot:
        return take_snapshot(
            self.parts,
            self.progress,
            self.reporter,
            self.cord,
            self.tally,
            self.companions,
            self.copies,
        )

    # -- requests from outside -----------------------------------------------------------------

    def _stopped(self, stop_after: int | None = None) -> Outcome | None:
        if self.signals.stop is not None:
            number = self.signals.stop
            return Outcome("stopped", _EXIT_BY_SIGNAL[number], self.step, number.name)
        if stop_after is not None and self.step >= stop_after and self.step < self.parts.num_steps:
            return Outcome("stopped", 0, self.step, f"--stop-after {stop_after}")
        return None

    def _obey(self) -> str | None:
        """Carry out what lies in guard/cmd.json, if a signal said so; returns its word."""
        if not self.signals.command:
            return None
        self.signals.command = False
        found = take_command(self.life.run, self.progress.last_command)
        if found is None:
            return None
        command_id, word = found
        self.progress.last_command = command_id
        if word == "checkpoint":
            if self.keeper.has(self.step, self.progress.evaluated_step):
                self._answer(command_id, "done", f"step {self.step} is saved already")
            else:
                self.keeper.ask(command_id)
                self._save_if_wanted()
        elif word == "pause":
            self._answer(command_id, "done", f"paused at step {self.step}")
            if not self._is_paused:
                self._pause("asked for")
        elif word == "resume":
            self._answer(command_id, "done", f"goes on from step {self.step}")
        else:
            self._answer(command_id, "refused", f"{word!r} is not for the trainer")
        return word

    def _pause(self, reason: str) -> None:
        """Stand still, visibly alive, until a resume command or a stop."""
        with self.clock.held():
            self._disturbed = True
            self._is_paused = True
            self.reporter.journal.event(
                "control.paused", step=self.step, severity="yellow", reason=reason
            )
            self.reporter.phase("paused", limit_s=self.config.guard.stale_s)
            while self.signals.stop is None:
                self.signals.wait(0.5)
                if self._obey() == "resume":
                    break
                self.keeper.collect()
                self._save_if_wanted()
                self.reporter.phase("paused", limit_s=self.config.guard.stale_s)
                self._show_machine(self.watch.take())
                self.reporter.keep_alive()
            self._is_paused = False
            if self.signals.stop is not None:
                return
            self.cord.resumed()
            self.reporter.calm()
            self.reporter.journal.event("control.resumed", step=self.step)

    def _show_machine(self, machine: Machine | None) -> None:
        if machine is not None:
            self.reporter.state.fields |= machine.state()

    def _answer(self, command_id: str, status: str, detail: str) -> None:
        try:
            answer_command(self.life.run, command_id, status, detail)
        except OSError as error:  # the guard will say "no answer"; training goes on
            self.reporter.journal.event(
                "control.unanswered", step=self.step, severity="yellow", reason=str(error)
            )

    # -- end -----------------------------------------------------------------------------------

    def _finish(self, outcome: Outcome) -> Outcome:
        """Save what is not saved, say how it ended, let go."""
        self.reporter.phase("checkpointing", limit_s=self.config.guard.checkpoint_limit_s)
        self.keeper.wait()
        if not self.keeper.has(self.step, self.progress.evaluated_step):
            self._save()
            self.keeper.wait()
        self.watch.close()
        if outcome.code == 0 and not self.keeper.has(self.step, self.progress.evaluated_step):
            raise AlborError(
                f"the final checkpoint of step {self.step} could not be written",
                hint="free some disk, then `albor train resume RUN`",
            )
        outcome = Outcome(outcome.reason, outcome.code, self.step, outcome.message)
        word = {"completed": "completed", "early_stopped": "completed", "nan_limit": "failed"}
        self.reporter.journal.event(
            "run.end",
            step=self.step,
            severity="red" if outcome.code == 4 else "info",
            status=word.get(outcome.reason, "stopped"),
            reason=outcome.reason,
            code=outcome.code,
            message=outcome.message[:500],
            kernels=kernels_in_use(),
        )
        self.reporter.phase(word.get(outcome.reason, "stopped"))
        self.reporter.journal.close()
        return outcome

    def abandon(self) -> None:
        """After an exception: let a save in flight finish, it holds nothing of what went wrong."""
        self.keeper.wait(ABANDON_S)
        self.watch.close()
