"""The other ranks of an attempt: processes that rank 0 starts, watches and takes with it.

Rank 0 is the trainer that everybody else knows: it holds run.lock, gets the signals, writes state,
journal and checkpoints. The rest are its children in its own session. Each has a pipe that ends
when it does: one rank less ends the attempt, whoever waits for whom in which collective, and the
guard starts a new one. A rank dies with rank 0 by the kernel's hand (PR_SET_PDEATHSIG).

Standard library only: ranks load torch at the same time as rank 0 does.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from albor_core.run.program.parent_death import die_with_parent
from albor_core.train.process.attempt import Attempt, Outcome

# For rank 0 to come out of a collective by itself, and for ranks to leave at the end.
GRACE_S = 10.0
_LOOK_S = 0.5
RANK, PARENT, STORE_FD, WORDS_FD = (
    "ALBOR_RANK",
    "ALBOR_RANK_0",
    "ALBOR_RANKS_STORE_FD",
    "ALBOR_RANK_WORDS_FD",
)


@dataclass
class _Member:
    rank: int
    process: subprocess.Popen[bytes]
    pipe: int
    said: bytes = b""


class RankProcesses:
    """Ranks 1 to world_size - 1. `start` and `close` belong to the main thread."""

    def __init__(self, attempt: Attempt, world_size: int, arguments: list[str]) -> None:
        """`arguments`: what this trainer was started with, RUN_DIR first."""
        self._attempt, self._world_size, self._arguments = attempt, world_size, arguments
        self._members: list[_Member] = []
        self._is_closing = threading.Event()
        self._has_fallen = threading.Event()
        self._fallen: Outcome | None = None

    def start(self, on_loss: Callable[[Outcome], None]) -> None:
        """Start them all, and this process's part of the rendezvous.

        `on_loss` is called in another thread if one ended early and rank 0 did not `close` within
        GRACE_S: it hangs in a collective and will not come back.
        """
        store = socket.create_server(("127.0.0.1", 0), backlog=self._world_size)
        cores = len(os.sched_getaffinity(0))
        shared = {
            "WORLD_SIZE": str(self._world_size),
            "LOCAL_WORLD_SIZE": str(self._world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.getsockname()[1]),
            # each rank would take every core
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")
            or str(max(1, cores // self._world_size)),
            # DDP warns that its buckets stay as they are, which is what we want of it
            "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
            # a host name that leads nowhere must not keep ranks of one machine apart
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        }
        os.environ |= {**shared, "RANK": "0", "LOCAL_RANK": "0", STORE_FD: str(store.detach())}
        for rank in range(1, self._world_size):
            self._members.append(self._spawn(rank))
        watcher = threading.Thread(target=self._watch, args=(on_loss,), name="crew", daemon=True)
        watcher.start()

    def _spawn(self, rank: int) -> _Member:
        reading, writing = os.pipe()
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            RANK: str(rank),
            PARENT: str(os.getpid()),
            WORDS_FD: str(writing),
            "ALBOR_ATTEMPT": str(self._attempt.number),
            "ALBOR_NONCE": self._attempt.nonce,
        }
        for name in (STORE_FD, "ALBOR_RUN_LOCK_FD"):
            environment.pop(name, None)
        safe = ["-P"] if sys.flags.safe_path else []
        try:
            process = subprocess.Popen(
                [sys.executable, *safe, "-m", "albor_core.train", *self._arguments],
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=(writing,),
            )
        finally:
            os.close(writing)
        return _Member(rank, process, reading)

    # -- watching --------------------------------------------------------------------------------

    def _watch(self, on_loss: Callable[[Outcome], None]) -> None:
        with selectors.DefaultSelector() as selector:
            for member in self._members:
                selector.register(member.pipe, selectors.EVENT_READ, member)
            lost = None
            while lost is None:
                if self._is_closing.is_set():
                    return
                for key, _ in selector.select(_LOOK_S):
                    member = key.data
                    part = os.read(member.pipe, 65536)
                    member.said += part
                    if not part:
                        lost = member
                        break
        if self._is_closing.is_set():
            return
        self._fallen = _end_of(lost)
        self._has_fallen.set()
        if not self._is_closing.wait(GRACE_S):
            on_loss(self._fallen)

    def loss(self, patience_s: float = 2.0) -> Outcome | None:
        """What the first rank to end came to; waits a little, since rank 0 may feel it first."""
        if not self._members:
            return None
        self._has_fallen.wait(patience_s)
        return self._fallen

    def close(self, *, is_lost: bool) -> None:
        """No rank is left when this returns: those that do not leave in time are killed, and if the
        attempt `is_lost`, they wait for nothing any more.
        """
        self._is_closing.set()
        deadline = time.monotonic() + (0.0 if is_lost else GRACE_S)
        for member in self._members:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()


def _end_of(member: _Member) -> Outcome:
    """The outcome of a rank, as it reported it, or by how its process ended."""
    with suppress(ValueError, TypeError):
        words: dict[str, Any] = json.loads(member.said)
        return Outcome(**{**words, "message": f"rank {member.rank}: {words['message']}"})
    try:
        code = member.process.wait(GRACE_S)
    except subprocess.TimeoutExpired:  # closed its pipe and lives on: nothing of ours does that
        code = None
    how = f"ended with code {code}"
    if code is not None and code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    return Outcome("rank_lost", 1, 0, f"rank {member.rank} (process {member.process.pid}) {how}")


# -- in a rank ---------------------------------------------------------------------------------


def my_rank() -> int:
    """0 for the trainer itself."""
    return int(os.environ.get(RANK, "0"))


def join_crew() -> None:
    """Be a rank that never outlives rank 0 and leaves signals to it."""
    die_with_parent(int(os.environ[PARENT]))
    ignore_stops()


def ignore_stops() -> None:
    """They are rank 0's to obey."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def send_outcome(outcome: Outcome) -> None:
    """Last words, for rank 0 to repeat."""
    with suppress(OSError):
        os.write(int(os.environ[WORDS_FD]), json.dumps(asdict(outcome)).encode())
