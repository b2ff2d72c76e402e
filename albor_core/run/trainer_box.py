"""guard/cmd.json, guard/cmd_done.json: a command from the guard to the trainer, and its answer.

The guard writes the first, then sends SIGUSR2; the trainer looks between two steps and writes the
second. One command is under way at a time; both files stay, and the id says what answers what.
What people send to the guard lies in its inbox: run/control.py.
"""

from __future__ import annotations

from typing import NamedTuple

from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import RunDir, read_json

_COMMAND, _ANSWER = "cmd.json", "cmd_done.json"


class TrainerCommand(NamedTuple):
    """`cmd` is checkpoint, pause, resume or rollback; `argument` the budgets to go on with, or the
    first step that is bad.
    """

    id: str
    cmd: str
    argument: str = ""


class TrainerAnswer(NamedTuple):
    """`status` is done or refused."""

    status: str
    detail: str


def put_command(run: RunDir, command: TrainerCommand) -> None:
    """The guard's end. Raises OSError."""
    body = {"cmd": command.cmd, "id": command.id, "argument": command.argument}
    write_json(run.guard / _COMMAND, body)


def read_command(run: RunDir) -> TrainerCommand | None:
    """The newest that was put there, answered or not."""
    found = read_json(run.guard / _COMMAND) or {}
    command_id, word = found.get("id"), found.get("cmd")
    if not isinstance(command_id, str) or not isinstance(word, str):
        return None
    return TrainerCommand(command_id, word, str(found.get("argument") or ""))


def put_answer(run: RunDir, command_id: str, status: str, detail: str = "") -> None:
    """The trainer's end. Raises OSError."""
    write_json(run.guard / _ANSWER, {"id": command_id, "status": status, "detail": detail})


def read_answer(run: RunDir, command_id: str) -> TrainerAnswer | None:
    """The trainer's answer to this command; None before there is one."""
    found = read_json(run.guard / _ANSWER) or {}
    if found.get("id") != command_id:
        return None
    status = "refused" if found.get("status") == "refused" else "done"
    return TrainerAnswer(status, str(found.get("detail") or ""))
