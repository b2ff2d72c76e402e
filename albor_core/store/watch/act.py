"""What the index process can do about an alert: ask the guard of the run, or run a command.

It never touches the program itself. Where no guard lives it only tells.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from albor_core.run.control import ANDON, send
from albor_core.run.errors import AlborError
from albor_core.run.rundir import RunDir

NO_GUARD = "tells only: no guard"
TIMEOUT_S = 30.0
OUTPUT_BYTES = 4096
_ORDERS = {"stop": "stop", "pause": "pause", "checkpoint": "checkpoint", "rollback": "rollback"}
_OF_TRAINER = ("checkpoint", "rollback")
_MOST_COMMANDS = 100


def why_not(action: str, *, kind: str, has_guard: bool) -> str:
    """Why an action of a rule cannot be done by the index process; "" where it can, or is none."""
    if action not in _ORDERS:
        return ""
    if not has_guard:
        return NO_GUARD
    if action in _OF_TRAINER and kind != "train":
        return f"tells only: the program has no {action} to be asked for"
    return ""


def ask_guard(run: RunDir, action: str, step: int, rule: str) -> tuple[str, str]:
    """Ask the guard for `rule`, for a rollback to before `step`; the id of what was asked for, and
    why it could not be. Never raises.
    """
    argument = str(step) if action == "rollback" else ""
    try:
        return send(run, _ORDERS[action], sender=ANDON, argument=argument, by=rule), ""
    except (AlborError, OSError) as error:
        return "", str(error)


def is_order(action: str) -> bool:
    """Whether the guard is who does it."""
    return action in _ORDERS


@dataclass(frozen=True)
class ActionEnd:
    """How a command of a rule ended: `code` is None where it could not be started or was killed."""

    alert_id: str
    argv: tuple[str, ...]
    code: int | None
    output: str
    problem: str = ""


class Commands:
    """Commands of rules, one after the other in a thread, without a shell. `ended` gets each."""

    def __init__(self, run: RunDir) -> None:
        self.ended: deque[ActionEnd] = deque(maxlen=_MOST_COMMANDS)
        self._run = run
        self._waiting: deque[tuple[str, tuple[str, ...], dict[str, str]]] = deque()
        self._lock = threading.Lock()
        self._works = False

    def put(self, alert: Mapping[str, Any], argv: Sequence[str]) -> bool:
        """Have it run soon; False where too many wait."""
        environment = {**os.environ, **alert_environment(self._run, alert)}
        with self._lock:
            if len(self._waiting) >= _MOST_COMMANDS:
                return False
            self._waiting.append((str(alert.get("id")), tuple(argv), environment))
            starts = not self._works
            self._works = True
        if starts:
            threading.Thread(target=self._work, name="alert-commands", daemon=True).start()
        return True

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not self._works

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._works = False
                    return
                alert_id, argv, environment = self._waiting.popleft()
            self.ended.append(_run_bounded(alert_id, argv, environment, str(self._run.path)))


def alert_environment(run: RunDir, alert: Mapping[str, Any]) -> dict[str, str]:
    """What a command learns of its alert: words, never parts of a command line."""
    words = {
        f"ALBOR_ALERT_{name.upper()}": "" if value is None else str(value).replace("\0", "")
        for name, value in alert.items()
        if isinstance(value, str | int | float) or value is None
    }
    return {"ALBOR_RUN_ID": run.id, "ALBOR_RUN_DIR": str(run.path), **words}


def _run_bounded(
    alert_id: str, argv: tuple[str, ...], environment: dict[str, str], folder: str
) -> ActionEnd:
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return ActionEnd(alert_id, argv, None, "", f"cannot start: {error}")
    assert process.stdout is not None
    kept, deadline, is_killed = b"", time.monotonic() + TIMEOUT_S, False
    with process.stdout as pipe:
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                if is_killed:
                    break  # a process of another session keeps the pipe
                _kill(process)
                is_killed, deadline = True, time.monotonic() + 1.0
            elif select.select([pipe], [], [], left_s)[0]:
                piece = os.read(pipe.fileno(), 65536)
                if not piece:
                    break
                kept = (kept + piece)[-OUTPUT_BYTES:]
    try:
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:  # it closed its output and goes on
        _kill(process)
        code, is_killed = process.wait(), True
    problem = f"killed after {TIMEOUT_S:g} s" if is_killed else ""
    return ActionEnd(alert_id, argv, code, kept.decode(errors="replace"), problem)


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)  # its session is its own: whatever it started too
    except OSError:
        return
