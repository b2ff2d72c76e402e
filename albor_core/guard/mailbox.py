"""Commands: from the inbox to the guard, from the guard to the trainer, and the answers back."""

from __future__ import annotations

import signal
import time
from collections import deque
from dataclasses import dataclass, field

from albor_core.guard.process.processes import Process, catches
from albor_core.guard.records import log_line
from albor_core.run import trainer_box
from albor_core.run.control import Command, take_commands
from albor_core.run.control import answer as put_answer
from albor_core.run.guard_options import Options
from albor_core.run.rundir import RunDir, read_json


def accepted_commands(run: RunDir) -> list[Command]:
    """The commands to carry out; invalid ones are answered here."""
    try:
        found = take_commands(run, time.time())
    except OSError as error:
        log_line(f"{run.guard / 'inbox'}: {error.strerror}")
        return []
    for command in found:
        if command.problem:
            answer(run, command.id, "refused", command.problem)
    return [command for command in found if not command.problem]


def answer(run: RunDir, command_id: str, status: str, detail: str = "") -> None:
    """Answer a command as well as the disk allows."""
    try:
        put_answer(run, command_id, status, detail)
    except OSError as error:
        log_line(f"answer to {command_id} ({status} {detail}): {error.strerror}")


@dataclass
class Relay:
    """Hands commands to the trainer one at a time: guard/cmd.json and SIGUSR2; cmd_done.json back.

    A signal to a program without a handler for it would kill it: so none is sent before the
    trainer's first news, and none to a program that does not catch it.
    """

    run: RunDir
    options: Options
    _waiting: deque[Command] = field(default_factory=deque)
    _sent: Command | None = None
    _give_up_s: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is under way."""
        return self._sent is None and not self._waiting

    @staticmethod
    def reaches(process: Process, *, has_news: bool) -> bool:
        """Whether this program listens."""
        return has_news and catches(process.pid, signal.SIGUSR2)

    def add(self, command: Command) -> None:
        """Accept a command for the trainer."""
        self._waiting.append(command)
        answer(self.run, command.id, "accepted")

    def pick_up(self) -> None:
        """Go on with what an earlier guard had sent and not answered."""
        sent = trainer_box.read_command(self.run)
        if sent is None or not sent.id.isalnum():
            return
        said = read_json(self.run.guard / "outbox" / f"{sent.id}.json") or {}
        if said.get("status") == "accepted":
            self._expect(Command(sent.id, sent.cmd, "an earlier guard"))

    def tend(self, process: Process, *, has_news: bool) -> None:
        """Collect an answer, send the next."""
        if self._sent is not None:
            self._collect(self._sent)
        if self._sent is None and self._waiting and self.reaches(process, has_news=has_news):
            self._send(self._waiting.popleft(), process)

    def _send(self, command: Command, process: Process) -> None:
        try:
            sent = trainer_box.TrainerCommand(command.id, command.cmd, command.argument)
            trainer_box.put_command(self.run, sent)
        except OSError as error:
            answer(self.run, command.id, "refused", f"cmd.json: {error.strerror}")
            return
        self._expect(command)
        process.send(signal.SIGUSR2)

    def _expect(self, command: Command) -> None:
        limit_s = (
            self.options.checkpoint_limit_s
            if command.cmd in ("checkpoint", "rollback")
            else self.options.stale_s
        )
        self._sent, self._give_up_s = command, time.monotonic() + limit_s

    def _collect(self, sent: Command) -> None:
        said = trainer_box.read_answer(self.run, sent.id)
        if said is not None:
            answer(self.run, sent.id, said.status, said.detail)
            self._sent = None
        elif time.monotonic() > self._give_up_s:
            answer(self.run, sent.id, "refused", "the trainer did not answer")
            self._sent = None

    def abandon(self, why: str) -> None:
        """The trainer is gone: nothing that waits for it will happen."""
        if self._sent is not None:
            self._collect(self._sent)
        for command in [*([self._sent] if self._sent is not None else []), *self._waiting]:
            answer(self.run, command.id, "refused", why)
        self._sent = None
        self._waiting.clear()
