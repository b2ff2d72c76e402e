"""Ranks that torchrun or srun started, maybe on several hosts: how they meet and learn of an end.

Nothing is forked: each process is a rank already. All meet at one of torch's stores, which the
launcher's agent keeps at MASTER_PORT or else rank 0 does. Rank 0 says there which run it is; every
rank gives a sign of life each second, and its last words. One rank less ends the attempt, of which
the launcher may start another.

A rank ends with the process that started it: a launcher that is killed leaves no rank behind.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError, ConfigError
from albor_core.run.program.launched_rank import LaunchedRank
from albor_core.run.values.flatten import diff_configs
from albor_core.train.process.attempt import Attempt, Outcome

MEETING = "ALBOR_RANKS_MEETING"
"""The variable by which `group.join` knows where in the store the ranks of an attempt meet."""
BEAT_S = 1.0
SILENCE_S = 60.0  # loading a library may keep all threads of a process for seconds
GRACE_S = 10.0  # to come out of a collective, and to leave at the end
_PROMPT_S = 4.0  # of silence, where a broken connection already says that a rank is gone
_STORE_S = 30.0
_LOOK_S = 0.1
_LEFT = "left"
_BROKEN = ("gloo", "nccl", "connection", "peer", "broken pipe", "socket")


@dataclass(frozen=True)
class Hello:
    """What rank 0 says to those who come."""

    run: str = ""
    """Empty: there is nothing to take part in, because of `reason`."""
    attempt: int = 0
    nonce: str = ""
    cwd: str = ""
    reason: str = ""
    code: int = 0


def is_broken_connection(error: BaseException) -> bool:
    """Whether an exception may be another rank's end, felt here."""
    text = f"{type(error).__name__} {error}".lower()
    return isinstance(error, RuntimeError | OSError) and any(word in text for word in _BROKEN)


def _connect(launched: LaunchedRank, *, serves: bool = False) -> Any:
    import torch.distributed as dist  # noqa: PLC0415  loads torch: seconds

    try:
        return dist.TCPStore(  # type: ignore[attr-defined]  # its stubs export it from C alone
            launched.address,
            launched.port,
            None,
            serves,
            timeout=timedelta(seconds=_STORE_S),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        what = "cannot listen at" if serves else "cannot reach rank 0 at"
        raise ConfigError(
            f"{launched}: {what} {launched.address}:{launched.port}: {str(error).splitlines()[0]}",
            hint="MASTER_ADDR is to be the host of rank 0, MASTER_PORT a free port there",
        ) from error


def _within(store: Any, *names: str) -> Any:
    import torch.distributed as dist  # noqa: PLC0415

    return dist.PrefixStore("/".join(("albor", *names)), store)  # type: ignore[attr-defined]


def _enter(launched: LaunchedRank, nonce: str) -> None:
    """Tell accelerate and `group.join` who this is."""
    os.environ |= {
        "RANK": str(launched.rank),
        "WORLD_SIZE": str(launched.world_size),
        "LOCAL_RANK": str(launched.local_rank),
        "MASTER_ADDR": launched.address,
        "MASTER_PORT": str(launched.port),
        MEETING: nonce,
    }
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as in RankProcesses
    with suppress(OSError):
        if socket.gethostbyname(launched.address).startswith("127."):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def meeting_store(store: Any) -> Any:
    """The part of the launcher's store that is this attempt's; the whole store of other ranks."""
    nonce = os.environ.get(MEETING)
    return store if nonce is None else _within(store, nonce, "group")


class _SignsOfLife:
    """A thread that gives this rank's signs of life and looks at those of others."""

    def __init__(self, launched: LaunchedRank, nonce: str) -> None:
        self.launched, self.nonce = launched, nonce
        self.closing, self.has_lost = threading.Event(), threading.Event()
        self.lost: Outcome | None = None
        self.is_suspicious = False
        self._heard: dict[int, tuple[bytes, float]] = {}
        self._beats = 0
        self.store = _within(_connect(launched), nonce)
        self._thread: threading.Thread | None = None

    def begin(
        self, look: Callable[[Any], Outcome | None], on_loss: Callable[[Outcome], None]
    ) -> None:
        """`look` at a store of the thread's own each second; `on_loss` where what it found did not
        end this process's part within GRACE_S: it hangs in a collective.
        """
        rank, words = self.launched.rank, {"host": socket.gethostname(), "pid": os.getpid()}
        self.store.set(f"who/{rank}", json.dumps(words))
        self.store.set(f"beat/{rank}", "0")
        self.store.set(f"words/{rank}", "")

        def live() -> None:
            self.lost = self._until_lost(look)
            if self.lost is None:
                return
            self.has_lost.set()
            if not self.closing.wait(GRACE_S):
                on_loss(self.lost)

        self._thread = threading.Thread(target=live, name="ranks", daemon=True)
        self._thread.start()

    def _until_lost(self, look: Callable[[Any], Outcome | None]) -> Outcome | None:
        try:
            store = _within(_connect(self.launched), self.nonce)
            while not self.closing.wait(BEAT_S):
                self._beats += 1
                store.set(f"beat/{self.launched.rank}", str(self._beats))
                if (found := look(store)) is not None:
                    return found
        except (RuntimeError, AlborError) as error:
            if not self.closing.is_set():
                at = f"{self.launched.address}:{self.launched.port}"
                return lost_rank(f"the store at {at} is gone ({str(error).splitlines()[0][:200]})")
        return None

    def is_silent(self, store: Any, rank: int) -> bool:
        """Whether `rank` has given no sign for too long."""
        now, beat = time.monotonic(), store.get(f"beat/{rank}")
        known = self._heard.get(rank)
        if known is None or known[0] != beat:
            self._heard[rank] = (beat, now)
            return False
        return now - known[1] > (_PROMPT_S if self.is_suspicious else SILENCE_S)

    def say(self, words: str) -> None:
        """Write the words to the store, if it is available."""
        with suppress(RuntimeError):
            self.store.set(f"words/{self.launched.rank}", words)

    def close(self) -> None:
        self.closing.set()
        if self._thread is not None:
            self._thread.join(GRACE_S)


def lost_rank(message: str) -> Outcome:
    return Outcome("rank_lost", 1, 0, message)


def name_of(store: Any, rank: int) -> str:
    """A rank, its process and its host."""
    with suppress(RuntimeError, ValueError, KeyError):
        who = json.loads(store.get(f"who/{rank}"))
        return f"rank {rank} (process {who['pid']} on {who['host']})"
    return f"rank {rank}"


class LaunchedRanks:
    """The others, as rank 0 sees them. `start`, `loss` and `close` belong to the main thread."""

    def __init__(self, attempt: Attempt, launched: LaunchedRank, *, limit_s: float) -> None:
        """`limit_s`: for the last of them to come."""
        self._attempt, self._launched, self._limit_s = attempt, launched, limit_s
        self._missing = set(_above_0(launched))
        self._signs: _SignsOfLife | None = None
        self._server: Any = None
        self._starter = _open_process(launched.starter)

    def start(self, on_loss: Callable[[Outcome], None]) -> None:
        """Open the place to meet and say which run it is, without waiting. See RankProcesses."""
        attempt = self._attempt
        _enter(self._launched, attempt.nonce)
        self._server = _connect(self._launched, serves=not self._launched.has_store)
        self._signs = _SignsOfLife(self._launched, attempt.nonce)
        began = time.monotonic()

        def give_up(lost: Outcome) -> None:
            self._say_end(lost.message)
            on_loss(lost)

        self._signs.begin(lambda store: self._look(store, began), give_up)
        hello = Hello(str(attempt.run.path), attempt.number, attempt.nonce, str(Path.cwd()))
        _within(self._server, str(self._launched.restart)).set("hello", json.dumps(asdict(hello)))

    def _look(self, store: Any, began: float) -> Outcome | None:
        if self._starter is not None and select.select([self._starter], [], [], 0)[0]:
            os.close(self._starter)
            self._starter = None
            os.kill(os.getpid(), signal.SIGTERM)  # as the one that is gone would have asked
        self._missing = {r for r in self._missing if not store.check([f"words/{r}"])}
        if self._missing and time.monotonic() - began > self._limit_s:
            who = ", ".join(map(str, sorted(self._missing)))
            return lost_rank(f"rank {who} of {self._launched.world_size} did not come")
        here = [r for r in _above_0(self._launched) if r not in self._missing]
        for rank in here:
            if (words := store.get(f"words/{rank}").decode()) not in ("", _LEFT):
                return self._in_its_words(store, rank, words)
        assert self._signs is not None
        for rank in here:
            if self._signs.is_silent(store, rank) and store.get(f"words/{rank}") == b"":
                return lost_rank(f"{name_of(store, rank)} is gone without a word")
        return None

    @staticmethod
    def _in_its_words(store: Any, rank: int, words: str) -> Outcome:
        said: dict[str, Any] = json.loads(words)
        return Outcome(**{**said, "message": f"{name_of(store, rank)}: {said['message']}"})

    def loss(self, patience_s: float = 3 * _PROMPT_S) -> Outcome | None:
        """The outcome of the rank that ended, after a connection broke; None if none did."""
        if self._signs is None:
            return None
        self._signs.is_suspicious = True
        self._signs.has_lost.wait(patience_s)
        return self._signs.lost

    def close(self, *, is_lost: bool) -> None:
        """Let go: those that follow leave by themselves, and are waited for a little."""
        if self._signs is None:
            return
        self._signs.close()
        if is_lost:
            lost = self._signs.lost
            self._say_end("it failed, as its log says" if lost is None else lost.message)
            return
        deadline, waiting = time.monotonic() + GRACE_S, set(_above_0(self._launched))
        with suppress(RuntimeError):
            while waiting and time.monotonic() < deadline:
                waiting = {r for r in waiting if self._signs.store.get(f"words/{r}") == b""}
                time.sleep(_LOOK_S if waiting else 0.0)

    def _say_end(self, message: str) -> None:
        assert self._signs is not None
        self._signs.say(message[:500] or "it ended")


def dismiss(launched: LaunchedRank, reason: str, code: int, *, limit_s: float = 60.0) -> None:
    """Rank 0: send the others home, who are to exit with `code`. Waits for them a little, if they
    could not find this word without us.
    """
    with suppress(AlborError, RuntimeError):
        meeting = _within(_connect(launched, serves=not launched.has_store), str(launched.restart))
        hello = Hello(reason=reason, code=code)
        meeting.set("hello", json.dumps(asdict(hello)))
        deadline, heard = time.monotonic() + limit_s, [f"heard/{r}" for r in _above_0(launched)]
        while not (launched.has_store or meeting.check(heard)) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)


def _above_0(launched: LaunchedRank) -> range:
    return range(1, launched.world_size)


class LaunchedMember:
    """This process as one of the ranks above 0."""

    def __init__(self, launched: LaunchedRank) -> None:
        self.launched = launched
        self._parent = os.getppid()
        self._signs: _SignsOfLife | None = None

    def meet(self, limit_s: float) -> Hello:
        """Wait for rank 0 and come into its attempt, if there is one. Raises AlborError."""
        deadline = time.monotonic() + limit_s
        if not self.launched.has_store:
            self._wait(deadline, limit_s, self._is_open)
        meeting = _within(_connect(self.launched), str(self.launched.restart))
        self._wait(deadline, limit_s, lambda: meeting.check(["hello"]))
        hello = Hello(**json.loads(meeting.get("hello")))
        meeting.set(f"heard/{self.launched.rank}", "")
        if not hello.run:
            return hello
        _enter(self.launched, hello.nonce)
        self._signs = _SignsOfLife(self.launched, hello.nonce)
        self._signs.begin(self._look, self._give_up)
        return hello

    def _wait(self, deadline: float, limit_s: float, claim: Callable[[], bool]) -> None:
        try:
            self._wait_for(claim, deadline, limit_s)
        except RuntimeError as error:
            raise AlborError(f"{self.launched}: the place to meet rank 0 is gone") from error

    def _wait_for(self, claim: Callable[[], bool], deadline: float, limit_s: float) -> None:
        while not claim():
            if os.getppid() != self._parent:
                raise AlborError(f"{self.launched}: its launcher is gone")
            if time.monotonic() > deadline:
                where = f"{self.launched.address}:{self.launched.port}"
                raise AlborError(
                    f"{self.launched} waited {limit_s:.0f} s for rank 0 at {where}",
                    hint="see what rank 0 printed; MASTER_ADDR is to be its host",
                )
            time.sleep(_LOOK_S)

    def _is_open(self) -> bool:
        """Asked without torch, which would complain of each time that it is not."""
        try:
            with socket.create_connection((self.launched.address, self.launched.port), 1.0):
                return True
        except OSError:
            return False

    def _look(self, store: Any) -> Outcome | None:
        assert self._signs is not None
        if os.getppid() != self._parent:
            lost = lost_rank(f"its launcher (process {self._parent}) is gone")
            self.leave(lost)
            os._exit(lost.code)
        if words := store.get("words/0").decode():
            return lost_rank(f"rank 0 has ended: {words}")
        if self._signs.is_silent(store, 0):
            return lost_rank(f"{name_of(store, 0)} is gone without a word")
        return None

    def _give_up(self, lost: Outcome) -> None:
        os.write(2, f"error: {self.launched}: {lost.message}\n".encode())
        os._exit(lost.code)

    def loss(self) -> Outcome | None:
        """What became of the others, now that a connection broke; None if nothing did."""
        assert self._signs is not None
        self._signs.is_suspicious = True
        self._signs.has_lost.wait(3 * _PROMPT_S + GRACE_S)  # rank 0 finds out first, and says so
        return self._signs.lost

    def leave(self, outcome: Outcome | None = None) -> None:
        """Leave the group, with a message for rank 0 to repeat if the rank failed."""
        assert self._signs is not None
        self._signs.closing.set()
        self._signs.say(_LEFT if outcome is None else json.dumps(asdict(outcome)))


def refuse_other_config(
    launched: LaunchedRank, own: Mapping[str, Any], of_run: Mapping[str, Any]
) -> None:
    """Raise ConfigError if this rank was started with another config than rank 0."""
    if changes := diff_configs(of_run, own):
        listed = "; ".join(f"{path}: {theirs} there, {mine} here" for path, theirs, mine in changes)
        raise ConfigError(
            f"{launched} was started with another config than rank 0 ({listed})",
            hint="start all ranks with the same CONFIG and --set",
        )


def _open_process(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended."""
    if not pid:
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:  # gone already: stop, as `_look` does
        os.kill(os.getpid(), signal.SIGTERM)
    except OSError:
        pass
    return None
