"""Carries out what is asked of a guard through its inbox."""

from __future__ import annotations

import signal
import time

from albor_core.guard import mailbox
from albor_core.guard.attempt import GuardedAttempt
from albor_core.guard.mailbox import Relay
from albor_core.guard.status import GuardStatus
from albor_core.run.control import ANDON, Command
from albor_core.run.guard_state import GuardState

_ALIVE = (GuardState.STARTING, GuardState.RUNNING, GuardState.PAUSED)


class GuardCommands:
    """Commands for the guard itself, and the way of all others to the program."""

    def __init__(self, status: GuardStatus, relay: Relay) -> None:
        self._status, self._relay, self._run = status, relay, status.run

    def obey(self) -> None:
        """Carry out what lies in the inbox."""
        for command in mailbox.accepted_commands(self._run):
            self._obey(command)

    def obey_early(self, late: frozenset[str]) -> None:
        """Obey commands from before this guard, except those meant for the earlier attempt."""
        for command in mailbox.accepted_commands(self._run):
            if command.id in late:  # it came when that attempt had already ended
                mailbox.answer(self._run, command.id, "refused", "meant for an earlier attempt")
            else:
                self._obey(command)

    def answer_at_end(self) -> None:
        """Tell whoever asked for the stop how the run ended, and all others that it is over."""
        state, reason, stop = self._status.state, self._status.reason, self._status.stop
        detail = reason if reason.startswith(state) else f"{state}: {reason}"
        for command_id in stop.command_ids if stop is not None else ():
            mailbox.answer(self._run, command_id, "done", detail)
        for command in mailbox.accepted_commands(self._run):
            mailbox.answer(self._run, command.id, "refused", f"the run is over: {state}")

    def _obey(self, command: Command) -> None:
        self._status.ledger.event(
            "guard.command", cmd=command.cmd, sender=command.sender, by=command.by
        )
        if command.cmd in ("stop", "stop_now"):
            self._stop(command)
        elif command.cmd == "retry_now":
            self._retry_now(command)
        elif command.cmd == "ack":
            mailbox.answer(self._run, command.id, "done", "noted")
        else:
            self._command_program(command)

    def _stop(self, command: Command) -> None:
        status = self._status
        mailbox.answer(self._run, command.id, "accepted")
        number = signal.SIGINT if command.argument == "INT" else signal.SIGTERM
        process = None if status.attempt is None else status.attempt.process
        is_stopping = status.state is GuardState.STOPPING
        if number == signal.SIGINT and is_stopping and process is not None:
            process.send(number)  # asked by another signal, it has not ended
        is_first = status.stop is None
        is_now = command.cmd == "stop_now"
        stop = status.request_stop(number, is_now=is_now, command_id=command.id, by=command.by)
        stop.by_andon |= is_first and command.sender == ANDON

    def _retry_now(self, command: Command) -> None:
        if self._status.state is not GuardState.BACKOFF:
            detail = f"not waiting: {self._status.state}"
            mailbox.answer(self._run, command.id, "refused", detail)
            return
        self._status.backoff_until_s = time.monotonic()
        mailbox.answer(self._run, command.id, "done", "starting again")

    def _command_program(self, command: Command) -> None:
        attempt, state = self._status.attempt, self._status.state
        if attempt is None or attempt.process is None or state not in _ALIVE:
            mailbox.answer(self._run, command.id, "refused", f"no program runs: {state}")
        elif self._status.launch.kind == "train" or Relay.reaches(
            attempt.process, has_news=attempt.watch.has_news
        ):
            self._relay.add(command)
        elif command.cmd == "resume" and command.argument:
            detail = "this program has no step-time budgets"
            mailbox.answer(self._run, command.id, "refused", detail)
        elif command.cmd in ("checkpoint", "rollback"):
            detail = f"this program has no {command.cmd} that the guard could ask for"
            mailbox.answer(self._run, command.id, "refused", detail)
        else:
            self._freeze(attempt, command)

    def _freeze(self, attempt: GuardedAttempt, command: Command) -> None:
        """Pause or resume a plain program with SIGSTOP and SIGCONT for its whole tree."""
        attempt.is_stopped_by_us = command.cmd == "pause"
        count = attempt.tree().send(signal.SIGSTOP if attempt.is_stopped_by_us else signal.SIGCONT)
        mailbox.answer(self._run, command.id, "done", f"{count} processes")
