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
import signal
from contextlib import AbstractContextManager, suppress
from functools import partial

import numpy as np
import torch

from albor_core.andon.bricks.names import OTHER
from albor_core.checkpoint.folder import Checkpoint, list_checkpoints
from albor_core.checkpoint.retention import Retention, clear_doomed
from albor_core.checkpoint.saver import Saver
from albor_core.config.config import Config
from albor_core.kernels import dispatch
from albor_core.plan.recipes.own import folder_of
from albor_core.run.errors import AlborError
from albor_core.run.exit import STOPPED_BY_ANDON, end_word
from albor_core.run.journal import last_event
from albor_core.run.state import StateWriter
from albor_core.run.values.quantity import counted
from albor_core.train.alert_actions import Due
from albor_core.train.board import Board
from albor_core.train.build import Parts, build
from albor_core.train.evaluate import batches_of, scoring, validation
from albor_core.train.new_state import new_state
from albor_core.train.observe.reporter import HEARTBEAT_S, Reporter
from albor_core.train.optim.registry import check_optimizer
from albor_core.train.preparation import prepare
from albor_core.train.process.attempt import Attempt, Outcome
from albor_core.train.process.faults import Faults
from albor_core.train.process.signals import SignalRequests
from albor_core.train.process.start_times import StartTimes
from albor_core.train.ranks.group import Word
from albor_core.train.requests import Requests, answer
from albor_core.train.resume.rewind import begin, go_back, leave_good, target_of
from albor_core.train.resume.saving import CheckpointSaving
from albor_core.train.resume.train_state import (
    HostCopies,
    Progress,
    hashes,
    refuse_unequal_ranks,
    take_snapshot,
)
from albor_core.train.step.brick_timer import BrickTimer, StepClock
from albor_core.train.step.brick_trace import TraceOrder
from albor_core.train.step.choose import choose_step, plain_step
from albor_core.train.step.optimizer_step import take_step
from albor_core.train.step.stability import Trouble, may_go_back, times_in_a_row

ABANDON_S = 60.0
_LEFT_ITS_PATH = ("nan_limit", "loss_spike")
_EXIT_BY_SIGNAL = {signal.SIGTERM: 143, signal.SIGINT: 130}


class Training:
    """One attempt of a run, from its config to an Outcome."""

    def __init__(
        self,
        attempt: Attempt,
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
        self.start_times = times or StartTimes()
        mark = self.start_times.mark
        self.attempt, self.config, self.signals, self.faults = attempt, config, signals, faults
        saved = list_checkpoints(attempt.run.checkpoints)
        parts = build(config, begins=not saved, folder=folder_of(attempt.run), mark=mark)
        kept = parts.recipe.companions(saved[0] if saved else None) | parts.trainable.companions()
        self.companions, self.host_copies = kept, HostCopies()
        self.train_state = new_state(attempt, parts, state)
        device = parts.placement.device
        self.brick_timer, self.step_clock = BrickTimer(device), StepClock(device)
        self.due = Due()
        self.board = Board(
            attempt,
            self.train_state,
            self.due,
            signals,
            self.start_times,
            self.brick_timer,
            self.step_clock,
            self._between_steps,
            reads_late=self.reads_late,
        )
        mark("reports")
        prepare(parts, attempt.run.path, begins=not saved, reporter=self.reporter)
        source = begin(self.train_state, attempt, allow_config_change=allow_config_change)
        mark("checkpoint")
        self._choose_step()
        check_optimizer(
            self.parts.optimizer,
            self.parts.trainable,
            config.optimizer,
            self.reporter.journal.event,
            is_new=self.step == 0,
        )
        self._began_at, self._is_warm = self.step, False
        self.board.on_start()
        self.checkpoint_saving = self._checkpoint_saving(source)
        self.requests = Requests(
            attempt.run,
            signals,
            self.train_state,
            self.checkpoint_saving,
            self.step_clock,
            self.due,
            newest_machine=self.board.newest_machine,
            save_if_wanted=self._save_if_wanted,
        )

    # -- begin ---------------------------------------------------------------------------------

    def _checkpoint_saving(self, source: Checkpoint | None) -> CheckpointSaving:
        run, policy = self.attempt.run, self.config.training.checkpoint
        step = None if source is None else source.step
        saver = Saver(
            run.checkpoints,
            run.journal,
            run_id=run.id,
            hashes=hashes(self.parts),
            retention=Retention(policy.keep, policy.keep_every, step),
            verify=policy.verify_after_write,
            parent=None if source is None else (source.step, source.manifest["id"]),
            after_publish=lambda step: self.faults.at("ckpt", step),
        )
        saving = CheckpointSaving(saver, self.reporter, partial(answer, run, self.reporter.journal))
        if source is not None:
            saving.resumed_from(source, self.progress.evaluated_step)
        return saving

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
        return self.train_state.step

    @property
    def last_step(self) -> int:
        return self.train_state.last_step

    def _choose_step(self) -> None:
        """Choose the implementation of the step: the fastest that passes its checks here, or the
        plain one if an earlier attempt on such a device fell back."""
        event, device = self.reporter.journal.event, self.parts.placement.device_name
        said = (last_event(self.attempt.run.journal, "step.chosen") or {}).get("data") or {}
        goes_back = self.config.training.parity == "plain" and "fell_back_on" in said
        if goes_back and said["fell_back_on"] == device:
            self._train_plainly("an attempt before fell back to it on such a device")
            return
        self.parts.ranks.send_order(Word.CHOOSE)
        self.train_state.parts, self.train_state.stepper = choose_step(self.parts, event)

    def _train_plainly(self, because: str) -> None:
        """Train with the plain model without kernels from now on, also in later attempts."""
        self.parts.ranks.send_order(Word.PLAIN)
        self.train_state.parts, self.train_state.stepper = plain_step(self.parts, because)
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
        self.board.brick_tracer.order = trace
        self.board.report_step()
        self.faults.at("step", self.step)
        self._fall_back_if_due()
        if self._evaluation_is_due() and self._stopped() is None:
            self._evaluate()
            self.start_times.mark("validation")
        self.step_clock.restart()
        while self.due.end is None:
            is_done = self.step >= self.last_step and not self._evaluation_is_due()
            stopped = None if is_done else self._stopped(stop_after)
            if stopped is not None or is_done:
                self._catch_up()
                self.due.end = self.due.end or stopped
                break
            self._fall_back_if_due()
            self._enter_steps()
            self._freeze_startup_objects()
            self.board.brick_tracer.before_step(self.step + 1)
            self._train_step(self.step + 1)
            self.parts.clock.advance(self.progress)
            self.board.on_step()
            self._after_step()
            self.faults.at("step", self.step)
        return self._finish(self.due.end or Outcome("completed", 0, self.step))

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
            with self.step_clock.held():  # no step took that long
                gc.collect()
                gc.freeze()

    def _train_step(self, step: int) -> None:
        """Train one optimizer step. It waits for the device in the first two steps only."""
        clock, at = self.parts.clock, self.progress
        batch = clock.batch_at(at.sequences)
        start, sequences = clock.start(at.cursor, batch), at.sequences + batch
        self.parts.ranks.send_order(Word.STEP, step, start, sequences, batch)
        self.faults.at(OTHER, step)
        total, updated, named = take_step(
            self.parts,
            self.train_state.stepper,
            self.faults,
            self.brick_timer.brick,
            step=step,
            start=start,
            sequences=sequences,
            batch=batch,
        )
        self.board.on_launch(step, total, updated, named)

    # -- what is due after a step --------------------------------------------------------------

    def _after_step(self) -> None:
        training, step, last = self.config.training, self.step, self.last_step
        if self.progress.passed(training.log_interval) or step == last:
            self.board.interval_log.end()
        if not self._may_wait():
            self._catch_up()
        if self.board.interval_log.is_read:
            self.reporter.beat()  # a step is never shown with the loss of the one before
        self.checkpoint_saving.collect()
        if self.due.end is not None:
            return
        if self._evaluation_is_due():
            self._evaluate()
        is_due = self.progress.passed(training.checkpoint.save_every)
        if self.step == step and is_due and step < last:
            self.due.save = True
            self._make_way()
        self._save_if_wanted()
        if self.signals.command:
            self._catch_up()
            self.requests.obey()
            self._catch_up()
        alert, self.due.pause_for = self.due.pause_for, None
        if alert is not None and self.due.end is None:
            self.requests.pause(alert.message)

    @property
    def reads_late(self) -> bool:
        """Whether a step's figures are read while the next is computed."""
        return self.parts.placement.is_gpu  # a CPU computes nothing meanwhile

    def _may_wait(self) -> bool:
        """Whether this step's figures can be read after the next one was launched: whatever is due
        now would need them, save them, or end with them.
        """
        step, due, signals = self.step, self.due, self.signals
        is_quiet = not (self.board.gradient_flow.is_open or due.trouble or due.end or due.pause_for)
        is_asked = signals.stop is not None or signals.command or due.save
        is_due = self._evaluation_is_due() or step == self.last_step
        is_due |= self.progress.passed(self.config.training.checkpoint.save_every)
        return self.reads_late and is_quiet and not is_asked and not is_due

    def _catch_up(self) -> None:
        """Read what is unread, and leave the path that it says was lost."""
        self.board.interval_log.read()
        if self.due.trouble is not None and self.due.end is None:
            self._go_back(self.due.trouble)

    def _between_steps(self, brick: str) -> AbstractContextManager[object]:
        """Time work between steps, as a brick of the log interval."""
        return self.faults.slowed(self.brick_timer.brick, self.step)(brick)

    def _fall_back_if_due(self) -> None:
        """Leave the kernels between two steps, and compare what trains in their place."""
        found_at, self.due.fallback = self.due.fallback, None
        if found_at is None:
            return
        self._catch_up()
        steps = self.step - self._began_at
        because = f"parity failed at step {found_at}; {counted(steps, 'step')} were by kernels"
        with self.step_clock.held():
            del self.train_state.stepper  # its graphs and buffers, before the plain one needs room
            self._train_plainly(because)
            self.board.on_fallback()
        self.step_clock.restart()

    def _go_back(self, trouble: Trouble) -> None:
        """Return to the last good checkpoint, or stop if that was tried often enough."""
        self.checkpoint_saving.wait()
        stability, folder = self.config.training.stability, self.attempt.run.checkpoints
        before = self.progress
        times = times_in_a_row(
            before.rollbacks_in_a_row, before.last_trouble, target_of(folder, trouble)
        )
        if not may_go_back(times, stability):
            message = f"{trouble.message}; went back {times - 1} times in a row"
            self.due.end = Outcome(trouble.reason, STOPPED_BY_ANDON, self.step, message)
            self.checkpoint_saving.went_back(leave_good(self.train_state, folder, trouble))
            return
        with self.step_clock.held():
            source = go_back(self.train_state, folder, trouble, in_a_row=times)
            self.checkpoint_saving.went_back(source)
            self._began_at = self.step
            self.board.on_rollback()
        self.due.save, self.due.trouble = True, None
        self.step_clock.restart()

    # -- evaluate ------------------------------------------------------------------------------

    def _evaluation_is_due(self) -> bool:
        step, every = self.step, self.config.training.eval_interval
        is_planned = self.progress.passed(every) or step == self.last_step
        return self.parts.val is not None and is_planned and self.progress.evaluated_step != step

    def _evaluate(self) -> None:
        """Validation loss of the weights as they are; a stop meanwhile leaves it due."""
        with self.step_clock.held(), self._between_steps("eval"):
            self.reporter.phase("evaluating", limit_s=self.config.guard.eval_limit_s)
            forward = scoring(self.parts, self.train_state.stepper)
            means = validation(self.parts, forward, go_on=self._goes_on)
            if means is None:
                return
            rows = np.concatenate(batches_of(self.parts))
            values = self.parts.recipe.figures(means, rows)
            self.progress.evaluated_step = self.step
            self.board.on_eval(values)

    def _goes_on(self) -> bool:
        self.reporter.beat()
        return self.signals.stop is None

    # -- save ----------------------------------------------------------------------------------

    def _save(self) -> None:
        """Copy to the host; the saver writes, `CheckpointSaving` collects what became of it."""
        self._catch_up()
        with self.step_clock.held(), self._between_steps("checkpoint"):
            self.reporter.phase("checkpointing", limit_s=self.config.guard.checkpoint_limit_s)
            refuse_unequal_ranks(self.train_state)
            self.progress.kernels |= dispatch.taken(self.parts.placement.device)
            take = partial(take_snapshot, self.train_state, self.companions, self.host_copies)
            self.due.save = False
            self.checkpoint_saving.save(take, self.step, self.progress.evaluated_step)

    def _make_way(self) -> None:
        """Where a run may go back to must not hang on how quick a disk is, if it is to be repeated
        bit by bit: then a planned save waits for the one in flight and not for a later step.
        """
        if self.parts.placement.is_gpu and not self.config.training.deterministic:
            return
        with self.step_clock.held(), self._between_steps("checkpoint"):
            while self.checkpoint_saving.is_busy:
                self.checkpoint_saving.wait(HEARTBEAT_S)
                self.reporter.beat()

    def _save_if_wanted(self) -> None:
        """Save a requested checkpoint, one at a time: a later request waits for the next step."""
        if self.due.save and not self.checkpoint_saving.is_busy:
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
        self.checkpoint_saving.wait()
        is_lost = outcome.reason in _LEFT_ITS_PATH  # the last good checkpoint is the better one
        if not is_lost and not self.checkpoint_saving.has(self.step, self.progress.evaluated_step):
            self._save()
            self.checkpoint_saving.wait()
        self.board.on_end(is_lost=is_lost)
        self.checkpoint_saving.turn_down(f"the run has ended: {outcome.reason}")
        self.board.close()
        if outcome.code == 0 and not self.checkpoint_saving.has(
            self.step, self.progress.evaluated_step
        ):
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
            clear_doomed(self.attempt.run.checkpoints)
        self.reporter.journal.close()
        self.parts.ranks.send_order(Word.END)
        self.parts.ranks.leave()
        gc.unfreeze()
        return outcome

    def abandon(self) -> None:
        """After an exception: let a save in flight finish, it holds nothing of what went wrong."""
        gc.unfreeze()
        self.board.close()
        self.checkpoint_saving.wait(ABANDON_S)
        self.reporter.journal.wait()
