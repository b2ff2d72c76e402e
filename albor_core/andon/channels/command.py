"""Runs a command for an alert: argv without a shell, the alert as JSON on stdin and as
ALBOR_ALERT_* variables; bounded in time and output.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 30.0
OUTPUT_BYTES = 4096
RUN_IN = "/"  # what a relative path leads from
_LONGEST_WORD = 4096  # of the environment


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended: `code` is None if it could not be started. `problem` is "" if it ended
    by itself, in time.
    """

    code: int | None
    output: str
    problem: str = ""


def alert_environment(alert: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables that describe an alert to a command: values only, never parts of a
    command line."""
    return {
        f"ALBOR_ALERT_{name.upper()}": ("" if value is None else str(value))
        .replace("\0", "")
        .encode(errors="replace")
        .decode()[:_LONGEST_WORD]
        for name, value in alert.items()
        if isinstance(value, str | int | float) or value is None
    }


def run_command(
    argv: Sequence[str],
    stdin: bytes,
    environment: Mapping[str, str],
    *,
    timeout_s: float = TIMEOUT_S,
) -> CommandEnd:
    """Run a command to its end, for at most `timeout_s`; the last OUTPUT_BYTES of its output are
    kept.

    Processes that it starts are ended with it, if they stay in its session.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=RUN_IN,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        strerror = getattr(error, "strerror", None) or "its words cannot be passed on"
        return CommandEnd(None, "", f"cannot start {argv[0]!r}: {strerror}")
    deadline = time.monotonic() + timeout_s
    output, in_time = _talk(process, stdin, deadline)
    if in_time:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(max(0.0, deadline - time.monotonic()))
            return CommandEnd(code, output)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    return CommandEnd(process.wait(), output, f"killed after {timeout_s:g} s")


def _talk(process: subprocess.Popen[bytes], stdin: bytes, deadline: float) -> tuple[str, bool]:
    """Write `stdin` to the process and read its output until it closes it; return the output and
    whether it closed in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    kept, left, pipe, out = b"", stdin, process.stdin, process.stdout
    os.set_blocking(pipe.fileno(), False)
    with out:
        while (wait_s := deadline - time.monotonic()) > 0:
            writing = [pipe] if not pipe.closed else []
            readable, writable, _ = select.select([out], writing, [], wait_s)
            if writable:
                left = _give(pipe, left)
            if readable:
                piece = os.read(out.fileno(), 65536)
                if not piece:
                    _close(pipe)
                    return kept.decode(errors="replace"), True
                kept = (kept + piece)[-OUTPUT_BYTES:]
        _close(pipe)
    return kept.decode(errors="replace"), False


def _give(pipe: Any, left: bytes) -> bytes:
    """Write as much as the pipe accepts and return the rest; the pipe is closed after the last
    byte, or when it has no reader."""
    try:
        left = left[os.write(pipe.fileno(), left[:65536]) if left else 0 :]
    except BlockingIOError:
        return left
    except OSError:
        left = b""
    if not left:
        _close(pipe)
    return left


def _close(pipe: Any) -> None:
    with suppress(OSError):
        pipe.close()
