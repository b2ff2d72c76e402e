"""What people ask of a running loop: save, pause, go on. Looked at between two steps only."""

from __future__ import annotations

from collections.abc import Callable

from albor_core.andon.bricks.budgets import overrule_command, read_overrules
from albor_core.run.errors import UsageError
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.run.trainer_box import put_answer, read_command
from albor_core.train.alert_actions import Due
from albor_core.train.observe.sampler import Machine
from albor_core.train.process.signals import SignalRequests
from albor_core.train.resume.saving import CheckpointSaving
from albor_core.train.resume.train_state import TrainState
from albor_core.train.step.brick_timer import StepClock
from albor_core.train.step.stability import Trouble


def answer(run: RunDir, journal: Journal, command_id: str, status: str, detail: str) -> None:
    """Tell the guard; training goes on if that fails, and the guard says "no answer"."""
    try:
        put_answer(run, command_id, status, detail)
    except OSError as error:
        journal.event("control.unanswered", severity="warning", reason=str(error))


class Requests:
    """Carries out what lies in guard/cmd.json, when a signal said that something does."""

    def __init__(
        self,
        run: RunDir,
        signals: SignalRequests,
        train_state: TrainState,
        checkpoint_saving: CheckpointSaving,
        step_clock: StepClock,
        due: Due,
        *,
        newest_machine: Callable[[], Machine | None],
        save_if_wanted: Callable[[], None],
    ) -> None:
        self.run, self.signals, self.train_state = run, signals, train_state
        self.checkpoint_saving, self.due = checkpoint_saving, due
        self.step_clock = step_clock
        self._newest_machine, self._save_if_wanted = newest_machine, save_if_wanted
        self._is_paused = False

    def obey(self) -> str | None:
        """The word of the command that was carried out, if there was one."""
        if not self.signals.command:
            return None
        self.signals.command = False
        progress = self.train_state.progress
        found = read_command(self.run)
        if found is None or found.id == progress.last_command:
            return None
        command_id, word, argument = found
        progress.last_command = command_id
        step = progress.step
        if word == "checkpoint":
            if self.checkpoint_saving.has(step, progress.evaluated_step):
                self._answer(command_id, "done", f"step {step} is saved already")
            else:
                self.checkpoint_saving.ask(command_id)
                self.due.save = True
                self._save_if_wanted()
        elif word == "pause":
            self._answer(command_id, "done", f"paused at step {step}")
            if not self._is_paused:
                self.pause("asked for")
        elif word == "resume":
            return self._resume(command_id, argument)
        elif word == "rollback":
            return self._roll_back(command_id, argument)
        else:
            self._answer(command_id, "refused", f"{word!r} is not for the trainer")
        return word

    def _roll_back(self, command_id: str, argument: str) -> str:
        """Have the loop go back; the first bad step is what was said, or the newest one."""
        step = self.train_state.step
        if self._is_paused:
            self._answer(command_id, "refused", "paused: let it go on first")
            return "refused"
        first = min(step, int(argument)) if argument.isdigit() else step
        self._answer(command_id, "done", f"goes back to before step {first}")
        self.due.trouble = Trouble("andon", max(1, first), "a rollback was asked for")
        return "rollback"

    def _resume(self, command_id: str, argument: str) -> str:
        """Go on, with other step-time budgets if a person says so; the word of what was done."""
        monitor, reporter = self.train_state.alert_monitor, self.train_state.reporter
        step = self.train_state.step
        words = [f"goes on from step {step}"]
        try:
            said = monitor.overrule(read_overrules(argument))
        except UsageError as error:
            self._answer(command_id, "refused", error.message)
            return "refused"
        if said:
            reporter.journal.event(
                "jidoka.overruled", step=step, said=argument, **monitor.overruled()
            )
            reporter.show_budgets(monitor.budgets_ms)
            words.append(f"from now on {said}")
        if self._is_paused and (over := monitor.excess()):
            words.append(
                f"{' and '.join(over)} may pause it again for the same excess; to overrule:"
                f" {overrule_command(self.run.id, over[0])}"
            )
        self._answer(command_id, "done", "; ".join(words))
        return "resume"

    def pause(self, reason: str) -> None:
        """Stand still, visibly alive, until a resume command or a stop."""
        reporter, step = self.train_state.reporter, self.train_state.step
        with self.step_clock.held():
            self._is_paused = True
            reporter.journal.event("control.paused", step=step, severity="warning", reason=reason)
            self._show_pause()
            while self.signals.stop is None:
                self.signals.wait(0.5)
                if self.obey() == "resume":
                    break
                self.checkpoint_saving.collect()
                self._save_if_wanted()
                self._show_pause()
                self._show_machine(self._newest_machine())
                reporter.keep_alive()
            self._is_paused = False
            if self.signals.stop is not None:
                return
            self.train_state.alert_monitor.resumed()
            reporter.calm()
            reporter.journal.event("control.resumed", step=step)

    def _show_pause(self) -> None:
        limit_s = self.train_state.parts.config.guard.stale_s
        self.train_state.reporter.phase("paused", limit_s=limit_s)

    def _show_machine(self, machine: Machine | None) -> None:
        if machine is not None:
            self.train_state.reporter.state.fields |= machine.state()

    def _answer(self, command_id: str, status: str, detail: str) -> None:
        answer(self.run, self.train_state.reporter.journal, command_id, status, detail)
