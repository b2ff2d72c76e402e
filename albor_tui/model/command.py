"""The cockpit acts by running `albor ...`: the same code, checks and errors as at a prompt.

So the cockpit itself writes into no store and loads no trainer, and what it did can be done again
in a shell. Blocks; called from worker threads only.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import Any

from albor_core.run.errors import AlborError, ConfigError, Problem, TryAgainError
from albor_core.run.light_dataclass import dataclass
from albor_core.run.program.argv import module_argv, module_env

TIMEOUT_S = 60.0
_LOOK_S = 0.05


class Cancelled(AlborError):
    """The answer is no longer wanted."""


@dataclass(frozen=True)
class CommandFailed:
    """Why a command gave no answer, for who shows it in the answer's place."""

    message: str
    hint: str = ""


def albor(
    *command: str,
    operands: tuple[str, ...] = (),
    timeout_s: float = TIMEOUT_S,
    cancelled: threading.Event | None = None,
    accept: tuple[int, ...] = (0,),
) -> dict[str, Any]:
    """The JSON document of `albor COMMAND --json -- OPERANDS`.

    `accept` are the exit codes that come with a document instead of an error. Raises AlborError
    with the command's own message and hint (ConfigError where it names problems), TryAgainError
    after `timeout_s`, Cancelled when that event is set; the command is then ended.
    """
    argv = module_argv("albor_core.cli", *command, "--json", "--", *operands)
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=module_env(),
        start_new_session=True,
    ) as process:
        out, err = _finish(process, timeout_s, cancelled or threading.Event())
    document = _parsed(out)
    is_error = document is not None and document.get("schema") == "albor.error/1"
    if process.returncode in accept and document is not None and not is_error:
        return document
    raise _error(document, err, f"albor {' '.join(command[:2])}", process.returncode)


def _finish(
    process: subprocess.Popen[bytes], timeout_s: float, cancelled: threading.Event
) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return process.communicate(timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            if not cancelled.is_set() and time.monotonic() < deadline:
                continue
        process.kill()
        process.communicate()
        if cancelled.is_set():
            raise Cancelled("not wanted any more")
        raise TryAgainError(f"albor gave no answer in {timeout_s:.0f} s")


def _parsed(out: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(out)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _error(document: dict[str, Any] | None, err: bytes, what: str, code: int) -> AlborError:
    said = (document or {}).get("error")
    if not isinstance(said, dict):
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        return AlborError(f"{what} ended with code {code}{': ' + last[0] if last else ''}")
    message, hint = str(said.get("message") or what), str(said.get("hint") or "")
    problems = tuple(
        Problem(
            str(p.get("field") or ""),
            str(p.get("message") or ""),
            str(p.get("hint") or ""),
            str(p.get("file") or ""),
        )
        for p in said.get("problems") or ()
    )
    if problems:
        return ConfigError(message, hint=hint, problems=problems)
    return AlborError(message, hint=hint)
