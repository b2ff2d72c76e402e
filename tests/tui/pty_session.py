"""A program on a pseudo-terminal of its own: what it draws, when, and what it costs.

    with PtySession([sys.executable, "-m", "albor_tui.main"], rows=45, columns=160) as session:
        session.until("runs")
        session.press("q")
        assert session.status(10) == 0

The session is the terminal: it answers the queries that a modern one answers, keeps every byte with
the moment it came (`recording`), and draws them on an emulated screen when somebody asks. It reads
only inside its own calls, so it can be as slow as a test wants (`read_rate`), stop, or hang up.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyte

from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir, read_json

COCKPIT = (sys.executable, "-m", "albor_tui.main")
_ANSWERS = {  # what a terminal with synchronized output says
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",
    b"\x1b[?2027$p": b"\x1b[?2027;0$y",
    b"\x1b[?u": b"\x1b[?0u",
}
_QUERY = re.compile(b"|".join(re.escape(query) for query in _ANSWERS))
# readline puts COLUMNS and LINES into the environment behind Python's back, a test worker inherits
# them, and they would win over the real size; users have their bytecode.
_NOT_INHERITED = ("COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE", "NO_COLOR", "SSH_TTY", "TMUX")
_UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[(?:[<>=][\d;]*[a-zA-Z]|\?[\d;]*\$p)")


@dataclass(frozen=True)
class Chunk:
    """Bytes and the moment (time.monotonic) they were read."""

    at: float
    data: bytes


@dataclass(frozen=True)
class Cost:
    """What a process and its children took so far."""

    cpu_s: float
    rss_bytes: int


class PtySession:
    """A program with a terminal of `rows` by `columns`; it leads a session of its own."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        rows: int = 45,
        columns: int = 160,
        env: Mapping[str, str] | None = None,
        answers: bool = True,
    ) -> None:
        clean = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        look = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        self.recording: list[Chunk] = []
        self.read_rate: float | None = None
        self._answers = answers
        self._unread = b""  # the end of the bytes, where half a query may be
        self._shown = 0  # chunks already on the emulated screen
        self._allowance = (time.monotonic(), 0.0)
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.began = time.monotonic()
        self.fd, far = pty.openpty()
        self._set_size(rows, columns)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            os.login_tty(far)
            os.execvpe(argv[0], list(argv), {**clean, **look, **(env or {})})
        os.close(far)
        self.is_open = True
        self._status: int | None = None

    def __enter__(self) -> PtySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the terminal's side -----------------------------------------------------------------

    def pump(self, seconds: float) -> None:
        """Read, at `read_rate`, for this long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._read(min(left, 0.05))

    def until(self, shows: str | Callable[[PtySession], bool], seconds: float = 30.0) -> float:
        """Read until the screen shows this text, or the claim holds; returns when (monotonic).

        Fails with what is on the screen.
        """
        deadline = time.monotonic() + seconds
        while True:
            holds = shows in self.text() if isinstance(shows, str) else shows(self)
            if holds:
                return self.recording[-1].at if self.recording else time.monotonic()
            assert time.monotonic() < deadline, f"never: {shows}\n{self.text()}"
            self._read(0.05)

    def until_bytes(self, pattern: bytes, seconds: float = 30.0, start: int = 0) -> float:
        """Read until the bytes since chunk `start` match; returns when the last one came."""
        deadline = time.monotonic() + seconds
        compiled, seen, taken = re.compile(pattern), bytearray(), start
        while True:
            fresh = self.recording[taken:]
            if fresh:
                back = max(0, len(seen) - 256)  # a match may lie across two chunks
                seen += b"".join(chunk.data for chunk in fresh)
                taken += len(fresh)
                if compiled.search(seen, back):
                    return self.recording[-1].at
            assert time.monotonic() < deadline, f"never: {pattern!r}"
            self._read(0.02)

    def until_still(self, seconds: float, within: float = 30.0) -> None:
        """Read until nothing has come for so long."""
        deadline = time.monotonic() + within
        last = time.monotonic()
        while time.monotonic() - last < seconds:
            assert time.monotonic() < deadline, "never still"
            if self._read(0.05):
                last = time.monotonic()

    @property
    def waiting(self) -> int:
        """Bytes that the program has sent and nobody has read, as far as the kernel counts them."""
        count = fcntl.ioctl(self.fd, termios.FIONREAD, struct.pack("i", 0))
        return int(struct.unpack("i", count)[0])

    def press(self, keys: str) -> float:
        """Type; returns the moment."""
        now = time.monotonic()
        os.write(self.fd, keys.encode())
        return now

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size; the program gets its SIGWINCH."""
        self._set_size(rows, columns)
        self._catch_up()
        self._screen.resize(rows, columns)

    def hang_up(self) -> None:
        """Close the master, as sshd does when the link is gone."""
        if self.is_open:
            os.close(self.fd)
            self.is_open = False

    def _set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self, seconds: float) -> bool:
        """One read of what comes within `seconds`; False if there was nothing."""
        budget = self._budget()
        if not self.is_open or budget <= 0:
            time.sleep(min(seconds, 0.05))
            return False
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, min(budget, 1 << 16))
        except OSError:  # EIO: nobody has the other end any more
            data = b""
        if not data:
            time.sleep(0.01)
            return False
        self.recording.append(Chunk(time.monotonic(), data))
        if self._answers:
            self._answer(data)
        return True

    def _answer(self, data: bytes) -> None:
        data, end = self._unread + data, 0
        for query in _QUERY.finditer(data):
            end = query.end()
            with contextlib.suppress(OSError):
                os.write(self.fd, _ANSWERS[query[0]])
        self._unread = data[max(end, len(data) - 16) :]

    def _budget(self) -> int:
        if self.read_rate is None:
            return 1 << 16
        then, left = self._allowance
        now = time.monotonic()
        left = min(left + (now - then) * self.read_rate, max(1.0, self.read_rate / 4))
        self._allowance = (now, left - int(left))
        return int(left)

    # -- what was drawn ----------------------------------------------------------------------

    @property
    def raw(self) -> bytes:
        """Every byte so far."""
        return b"".join(chunk.data for chunk in self.recording)

    def since(self, moment: float) -> bytes:
        """The bytes that came after `moment`."""
        return b"".join(chunk.data for chunk in self.recording if chunk.at > moment)

    @property
    def screen(self) -> pyte.Screen:
        """The emulated screen, with all bytes drawn."""
        self._catch_up()
        return self._screen

    def text(self) -> str:
        """The screen as lines."""
        return "\n".join(self.screen.display)

    def _catch_up(self) -> None:
        for chunk in self.recording[self._shown :]:
            self._stream.feed(_UNKNOWN_TO_PYTE.sub(b"", chunk.data))
        self._shown = len(self.recording)

    # -- the process -------------------------------------------------------------------------

    def cost(self) -> Cost:
        """CPU seconds and resident bytes of the program and its living children."""
        cpu, rss = 0.0, 0
        try:
            root = psutil.Process(self.pid)
            family = [root, *root.children(recursive=True)]
        except psutil.Error:
            return Cost(0.0, 0)
        for one in family:
            with contextlib.suppress(psutil.Error):
                times = one.cpu_times()
                cpu += times.user + times.system
                rss += one.memory_info().rss
        return Cost(cpu, rss)

    def status(self, seconds: float) -> int | None:
        """Exit code within `seconds`, None if it still runs."""
        deadline = time.monotonic() + seconds
        while self._status is None:
            done, raw = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self._status = os.waitstatus_to_exitcode(raw)
                while self.is_open and self._read(0.05):  # its last words
                    pass
            elif time.monotonic() > deadline:
                return None
            else:
                self._read(0.05)
        return self._status

    @property
    def is_alive(self) -> bool:
        """Whether the program still runs."""
        return self.status(0) is None

    def close(self) -> None:
        """Kill what is left, children too, and let go of the terminal."""
        if self._status is None:
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()  # a helper of another program would spin without its terminal
            os.kill(self.pid, signal.SIGKILL)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.hang_up()


def cockpit(*arguments: str, **options: object) -> PtySession:
    """`albor-tui ARGUMENTS` on a terminal."""
    return PtySession([*COCKPIT, *arguments], **options)  # type: ignore[arg-type]


def shown_step(session: PtySession) -> int:
    """The step on the screen of a run; -1 if there is none."""
    found = re.search(r"step ([\d,]+) /", session.text())
    return int(found[1].replace(",", "")) if found else -1


def replay(recording: Sequence[Chunk], rows: int, columns: int) -> Iterator[tuple[float, str]]:
    """The screen as text after each chunk."""
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    for chunk in recording:
        stream.feed(_UNKNOWN_TO_PYTE.sub(b"", chunk.data))
        yield chunk.at, "\n".join(screen.display)


class LiveRun:
    """A simulated run in a process of its own: it holds run.lock and logs at `rate` a second."""

    def __init__(self, parent: Path, *, rate: float = 10.0, name: str = "alive") -> None:
        script = Path(__file__).with_name("sim_run.py")
        argv = [sys.executable, str(script), str(parent), "--name", name]
        argv += ["--steps", "100000", "--rate", str(rate)]
        self.process = psutil.Popen(argv, stdout=-1, text=True)
        self.path = Path(self.process.stdout.readline().strip())
        deadline = time.monotonic() + 30
        while not (self.path / "training_state.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def __enter__(self) -> LiveRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def step(self) -> int:
        """The step in the state file; 0 before the first."""
        return int((read_json(self.path / "training_state.json") or {}).get("global_step") or 0)

    def goes_on(self) -> bool:
        """Whether the run takes ten more steps."""
        start, deadline = self.step, time.monotonic() + 20
        while time.monotonic() < deadline:
            if self.step >= start + 10:
                return True
            time.sleep(0.05)
        return False

    def kill(self) -> None:
        """kill -9, if it still lives."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def guarded_run(name: str, *, rate: float = 10.0, steps: int = 100_000) -> Iterator[RunDir]:
    """A simulated run under a real guard with its index process, in the home of the environment."""
    script = str(Path(__file__).with_name("sim_run.py"))
    command = [sys.executable, script, "--steps", str(steps), "--rate", str(rate)]
    albor = [str(Path(sys.executable).with_name("albor")), "guard", "run", "--name", name]
    done = subprocess.run(
        [*albor, "--detach", "--json", "--", *command], capture_output=True, check=True, timeout=60
    )
    run = RunDir(Path(json.loads(done.stdout)["run"]["path"]))
    try:
        deadline = time.monotonic() + 30
        while not run.state.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield run
    finally:
        kill_both(run)


def is_paused(run: RunDir) -> bool:
    """Whether the trainer rests: by itself, or stopped by its guard."""
    if (read_json(run.state) or {}).get("phase") == "paused":
        return True
    pid = lock_holder(run.run_lock)
    return pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED


def kill_both(run: RunDir) -> None:
    """kill -9 of guard and trainer, by the locks they hold."""
    for lock in (run.guard_lock, run.run_lock):
        pid = lock_holder(lock)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
