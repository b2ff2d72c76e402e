"""The program on a terminal, without one, and when the terminal goes away."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import sim_run
from sim_run import Simulation, make

from albor_tui.main import main


@pytest.fixture
def ended_run(tmp_path):
    """A real run directory, written by the simulator to its end, in this test's home."""
    subprocess.run(
        [sys.executable, sim_run.__file__, str(tmp_path / "out"), "--steps", "40",
         "--rate", "0", "--name", "finished"],
        check=True, timeout=60, capture_output=True,
    )  # fmt: skip
    return next((tmp_path / "out").iterdir())


@pytest.fixture
def live_run(tmp_path):
    """A real process that holds run.lock and writes ten steps a second."""
    process = subprocess.Popen(
        [sys.executable, sim_run.__file__, str(tmp_path / "out"), "--steps", "100000",
         "--rate", "20", "--name", "alive"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    run = Path(process.stdout.readline().strip())
    deadline = time.monotonic() + 30
    while not (run / "training_state.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield run, process
    process.kill()
    process.wait()
    process.stdout.close()


def strict(text: str) -> dict:
    def refuse(word: str) -> float:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_once_prints_one_document_of_a_run(ended_run, capsys):
    assert main(["--once", str(ended_run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    document = strict(lines[0])
    assert document["schema"] == "albor.monitor/1"
    assert document["status"]["word"] == "completed"
    assert document["now"]["step"] == 40


def test_once_prints_every_run_of_a_folder(ended_run, capsys):
    assert main(["--once", str(ended_run.parent)]) == 0
    document = strict(capsys.readouterr().out)
    assert [run["name"] for run in document["runs"]] == ["finished"]


def test_json_streams_documents_until_the_reader_leaves(live_run):
    run, _ = live_run
    with subprocess.Popen(
        [sys.executable, "-m", "albor_tui.main", "--json", str(run)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None and program.stderr is not None
        first, second = (strict(program.stdout.readline()) for _ in range(2))
        program.stdout.close()
        assert program.wait(timeout=20) == 141
        assert program.stderr.read() == ""
    assert first["status"]["word"] == "running"
    assert second["now"]["step"] > first["now"]["step"]


def test_an_unknown_run_is_an_error_document(capsys, tmp_path):
    assert main(["--once", "no-such-run"]) == 3
    assert strict(capsys.readouterr().out)["error"]["code"] == "not_found"


def test_a_run_that_lost_its_run_json_is_told_from_an_empty_folder(ended_run, capsys):
    (ended_run / "run.json").unlink()
    assert main(["--once", str(ended_run)]) == 3
    assert "run.json is missing" in strict(capsys.readouterr().out)["error"]["message"]


def test_once_of_a_damaged_store_says_so_and_fails(capsys, tmp_path):
    store = tmp_path / "bad.db"
    store.write_bytes(b"no store at all" * 500)
    assert main(["--once", str(store)]) == 1
    assert "bad.db" in strict(capsys.readouterr().out)["problem"]


def test_without_a_terminal_it_says_what_works_instead(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "albor_tui.main"], capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert "albor runs ls" in done.stderr
    assert "\x1b" not in done.stderr


class Terminal:
    """The cockpit on a pseudo-terminal of its own session."""

    def __init__(self, *argv: str, rows: int = 45, columns: int = 160, **environ: str) -> None:
        self.raw = bytearray()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # readline puts COLUMNS and LINES into the environment behind Python's back, a test
            # worker inherits them, and they would win over the real size.
            look = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
            clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
            command = [sys.executable, "-m", "albor_tui.main", *argv]
            os.execve(sys.executable, command, {**clean, **look, **environ})
        self.resize(rows, columns)
        self.is_open = True

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float) -> None:
        """Take what the program draws for at most `seconds`."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if ready:
            try:
                self.raw += os.read(self.fd, 1 << 16)
            except OSError:  # EIO: the program has gone
                time.sleep(0.01)

    def until(self, pattern: bytes, seconds: float = 30.0) -> float:
        """Read until `pattern` was drawn; returns the seconds it took."""
        start = time.monotonic()
        while not re.search(pattern, bytes(self.raw)):
            assert time.monotonic() - start < seconds, bytes(self.raw[-2000:])
            self.read(0.1)
        return time.monotonic() - start

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def hang_up(self) -> None:
        os.close(self.fd)
        self.is_open = False

    def status(self, seconds: float) -> int | None:
        """Exit code within `seconds`, None if it still runs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            done, raw = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.pid = 0
                return os.waitstatus_to_exitcode(raw)
            if self.is_open:
                self.read(0.05)
            else:
                time.sleep(0.05)
        return None

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.is_open:
            os.close(self.fd)


@pytest.fixture
def terminal():
    opened: list[Terminal] = []

    def open_terminal(*argv: str, **options) -> Terminal:
        opened.append(Terminal(*argv, **options))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


def test_a_dumb_terminal_gets_a_sentence_and_exit_2(terminal):
    screen = terminal(TERM="dumb")
    assert screen.status(30) == 2
    assert b"albor runs ls" in screen.raw
    assert b"\x1b" not in screen.raw


# the list of runs, or what is wrong with its run, which comes to the front sooner or later
FRONT = b"at a glance|needs you"


def left(screen: Terminal) -> int | None:
    """The exit status after `q`, pressed once more where another screen was in front."""
    screen.press("q")
    status = screen.status(10)
    if status is None:
        screen.press("q")
        status = screen.status(20)
    return status


@pytest.mark.slow
def test_a_live_run_is_on_the_screen_and_q_leaves(terminal, live_run):
    screen = terminal()
    screen.until(b"alive")
    screen.until(b"running")
    screen.press("\r")
    screen.until(b"smoothed")
    screen.raw.clear()
    screen.press("q")  # back to the screen in front, which is drawn again
    screen.until(FRONT)
    assert left(screen) == 0


@pytest.mark.slow
def test_a_lost_connection_ends_the_cockpit_and_not_the_run(terminal, live_run):
    _, process = live_run
    screen = terminal()
    screen.until(b"alive")
    screen.hang_up()
    assert screen.status(10) is not None
    assert process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_plain_kill_puts_the_terminal_back(terminal, live_run, number):
    screen = terminal()
    screen.until(b"alive")
    screen.raw.clear()
    os.kill(screen.pid, number)
    assert screen.status(10) == 128 + number
    for mode in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l"):
        assert mode in screen.raw


def test_closed_input_gets_a_sentence_and_exit_2():
    line = f"{shlex.quote(sys.executable)} -m albor_tui.main <&-"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "albor runs ls" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_it_leaves_a_dead_terminal_even_if_no_hangup_signal_arrives(terminal, tmp_path):
    """nohup ignores SIGHUP: only the watchdog is left to notice."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "import albor_tui.terminal.hangup as h; h.signal.signal = lambda *a: None; "
        "from albor_tui.main import main; sys.exit(main([]))"
    )
    screen = Terminal.__new__(Terminal)
    screen.raw, screen.is_open = bytearray(), True
    screen.pid, screen.fd = pty.fork()
    if screen.pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-c", code])
    screen.resize(24, 80)
    try:
        screen.until(b"albor demo")
        screen.hang_up()
        assert screen.status(10) is not None
    finally:
        screen.close()


@pytest.mark.slow
def test_a_storm_of_resizes_ends_with_a_whole_screen(terminal, live_run):
    screen = terminal()
    screen.until(b"alive")
    sizes = [(1, 1), (2, 5), (24, 80), (200, 500), (45, 160), (10, 20), (3, 300)]
    for turn in range(150):
        screen.resize(*sizes[turn % len(sizes)])
        screen.read(0.005)
    screen.resize(45, 160)
    screen.until(FRONT)
    screen.raw.clear()
    screen.press("t")  # another theme: every cell is drawn again, at the last size
    screen.until(FRONT)
    assert left(screen) == 0


@pytest.mark.slow
def test_the_cockpit_draws_little_when_nothing_happens(terminal, ended_run):
    screen = terminal(str(ended_run.parent))
    screen.until(b"finished")
    start = time.monotonic()
    while time.monotonic() - start < 4:
        screen.read(0.2)
    screen.raw.clear()
    start = time.monotonic()
    while time.monotonic() - start < 3:
        screen.read(0.2)
    assert len(screen.raw) < 3 * 2048  # an age that ticks; a full screen would be 15 KB each time


def test_the_simulator_holds_its_lock(tmp_path):
    run = make(tmp_path, "locked")
    simulation = Simulation(run, steps=3, rate=0, seed=1)
    try:
        code = (
            "import sys; from pathlib import Path; from albor_core.run.liveness import lock_holder;"
            "print(lock_holder(Path(sys.argv[1])))"
        )
        child = subprocess.run(
            [sys.executable, "-c", code, str(run.run_lock)],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        assert child.stdout.strip() == str(os.getpid())
    finally:
        os.close(simulation.lock)
