"""Commands are files: a viewer puts one into the guard's inbox, the guard answers in its outbox.

Files survive a restart of either side, have no 108-byte path limit and work over any shell. A
command names the guard's enum words only (no paths, no argv); it expires, and it must belong to the
reader's own user. Where the disk takes no file any more, a stop is a signal to the guard instead.
"""

from __future__ import annotations

import getpass
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albor_core.run.errors import TryAgainError, UsageError, remedy
from albor_core.run.files.pulled_file import refuse_pulled
from albor_core.run.files.whole_file import write_json
from albor_core.run.guard_state import GuardState, read_guard
from albor_core.run.light_dataclass import dataclass
from albor_core.run.liveness import signal_holder
from albor_core.run.rundir import RunDir, read_json

if TYPE_CHECKING:
    from albor_core.documents.guard import GuardAnswerDocument

COMMANDS = ("stop", "stop_now", "pause", "resume", "checkpoint", "rollback", "retry_now", "ack")
ANDON = "andon"  # the sender of what a rule asks for
_PROGRAMS = {"cli": "albor guard stop", "albor-tui": "the cockpit", "interrupt": "Ctrl-C"}
LIFETIME_S = 60.0
BY_SIGNAL = "signal"  # the id of a stop that no file could carry
_KEPT_ANSWERS = 100
_MAX_BYTES = 4096


@dataclass(frozen=True)
class Command:
    """One request, as the guard sees it. `problem` is set when it must be refused."""

    id: str
    cmd: str
    sender: str
    problem: str = ""
    argument: str = ""
    by: str = ""
    """Who asked, for people."""


@dataclass(frozen=True)
class Answer:
    """The answer to a command: status is accepted, done or refused."""

    id: str
    status: str
    detail: str = ""


def user_name() -> str:
    """Who says or asks something."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return str(os.getuid())


def person(sender: str) -> str:
    """`the cockpit (user, host)`: who asks, through which program."""
    return f"{_PROGRAMS.get(sender, sender)} ({user_name()}, {os.uname().nodename})"


def send(run: RunDir, cmd: str, *, sender: str, argument: str = "", by: str = "") -> str:
    """Put a command into the inbox; returns its id. A stop that cannot be written is signalled, and
    its id is BY_SIGNAL. `by`: who asks, if it is not a person. Raises UsageError for an unknown
    word, TryAgainError if nothing helps.
    """
    if cmd not in COMMANDS:
        raise UsageError(f"{cmd!r} is not a command", hint="one of " + ", ".join(COMMANDS))
    refuse_pulled(run, cmd.replace("_", " "), f"albor guard status {run.own_id}")
    command_id = os.urandom(8).hex()
    body = {
        "schema": "albor.command/1",
        "id": command_id,
        "cmd": cmd,
        "from": sender,
        "by": by or person(sender),
        "argument": argument,
        "not_after_wall": time.time() + LIFETIME_S,
    }
    try:
        write_json(run.guard / "inbox" / f"{command_id}.json", body)
    except OSError as error:
        if cmd in ("stop", "stop_now") and _signal_guard(run, is_now=cmd == "stop_now"):
            return BY_SIGNAL
        advice = remedy(error) or "look at what is wrong with that folder"
        raise TryAgainError(
            f"{run.guard / 'inbox'}: {error.strerror}", hint=f"{advice}{_by_hand(run, cmd)}"
        ) from error
    return command_id


def _signal_guard(run: RunDir, *, is_now: bool) -> bool:
    """Ask the guard of `run` to stop by SIGTERM, which it takes for the command; whether it was
    asked. To a guard that is stopping already a second signal would mean now.
    """

    def guards_this_run(argv: list[str]) -> bool:
        words = argv[-3:-1] == ["-m", "albor_core.guard"]
        return words and Path(argv[-1]).resolve() == run.path.resolve()

    is_stopping = (read_guard(run) or {}).get("state") == GuardState.STOPPING
    if is_stopping and not is_now:
        return True
    asked = signal_holder(run.guard_lock, signal.SIGTERM, guards_this_run)
    if asked and is_now:  # another number: two of one kind may arrive as one
        signal_holder(run.guard_lock, signal.SIGINT, guards_this_run)
    return asked


def _by_hand(run: RunDir, cmd: str) -> str:
    if not cmd.startswith("stop"):
        return f"; albor guard stop {run.id} works without"
    guard = run.liveness().guard
    return f"; or by hand: kill -TERM {guard} (the guard)" if guard else ""


def wait_answer(
    run: RunDir,
    command_id: str,
    timeout_s: float,
    *,
    until: Callable[[Answer], bool] = lambda answer: answer.status != "accepted",
) -> Answer | None:
    """The newest answer that satisfies `until`, the newest at all when time is up, None without
    any. To a stop that was signalled the answer is the guard's end.
    """
    deadline, answer = time.monotonic() + timeout_s, None
    while True:
        found = (
            _sign_of_end(run)
            if command_id == BY_SIGNAL
            else read_json(run.guard / "outbox" / f"{command_id}.json")
        )
        if found is not None:
            answer = Answer(command_id, str(found.get("status")), str(found.get("detail") or ""))
            if until(answer):
                return answer
        if time.monotonic() >= deadline:
            return answer
        time.sleep(0.05)


def _sign_of_end(run: RunDir) -> dict[str, Any]:
    status = "accepted" if run.liveness().guard is not None else "done"
    return {"status": status, "detail": "by signal, since no command could be written"}


def take_commands(run: RunDir, now_wall: float) -> list[Command]:
    """Remove and return what is in the inbox, oldest first; a bad command carries its `problem`."""
    inbox = run.guard / "inbox"
    try:
        with os.scandir(inbox) as entries:
            waiting = sorted(
                (e for e in entries if _may_be_command(e)),
                key=lambda e: e.stat(follow_symlinks=False).st_mtime_ns,
            )
    except OSError:
        return []
    taken = []
    for entry in waiting:
        path = inbox / entry.name
        taken.append(_judge(entry.name[:-5], entry, read_json(path, _MAX_BYTES), now_wall))
        path.unlink(missing_ok=True)
    return taken


def _may_be_command(entry: os.DirEntry[str]) -> bool:
    """A folder of that name is not ours to remove; half-written files start with a dot."""
    whole = entry.name.endswith(".json") and not entry.name.startswith(".")
    return whole and not entry.is_dir(follow_symlinks=False)


def _judge(
    command_id: str, entry: os.DirEntry[str], body: dict[str, Any] | None, now: float
) -> Command:
    status = entry.stat(follow_symlinks=False)
    is_ours = status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode)
    foreign = "" if is_ours else "not a file of this user"
    if body is None or (body.get("schema"), body.get("id")) != ("albor.command/1", command_id):
        return Command(command_id, "", "", foreign or "not a whole albor.command/1 document")
    cmd, sender = str(body.get("cmd")), str(body.get("from"))
    problem = foreign or _why_not(cmd, body.get("not_after_wall"), now)
    argument, by = (str(body.get(key) or "")[:256] for key in ("argument", "by"))
    return Command(command_id, cmd, sender[:64], problem, argument, by or sender[:64])


def _why_not(cmd: str, expires: object, now: float) -> str:
    """The reason not to obey a complete command, "" if there is none."""
    if cmd not in COMMANDS:
        return f"unknown command {cmd!r}"
    is_due = isinstance(expires, int | float) and now <= expires <= now + 2 * LIFETIME_S
    return "" if is_due else "expired"


def answer(run: RunDir, command_id: str, status: str, detail: str = "") -> None:
    """Say what became of a command; the newest hundred answers are kept. Raises OSError."""
    outbox = run.guard / "outbox"
    document: GuardAnswerDocument = {
        "schema": "albor.answer/1",
        "id": command_id,
        "status": status,
        "detail": detail,
        "wall": time.time(),
    }
    write_json(outbox / f"{command_id}.json", document)
    old = sorted(outbox.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-_KEPT_ANSWERS]
    for path in old:
        path.unlink(missing_ok=True)
