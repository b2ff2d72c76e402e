"""The console of tracked programs: into the log and on, unchanged, whatever happens to the pump."""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
from pathlib import Path

import pytest

from albor_core.track.console import console_pump

ROOT = Path(__file__).resolve().parents[3]
HEAD = """
import os, signal, subprocess, sys, threading, time
from albor_core import track
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
"""


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    yield made
    for program in made.started:  # where a test failed
        if program.poll() is None:
            program.kill()
            program.wait()


class Desk:
    """A folder to run tracked programs in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.runs = folder / "runs"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, code: str, **where: object) -> subprocess.Popen[bytes]:
        """A program whose runs are below `runs`; `code` follows HEAD."""
        script = self.folder / "program.py"
        script.write_text(HEAD + code)
        environ = self.environ | where.pop("env", {})
        program = subprocess.Popen(
            [sys.executable, str(script)], env=environ, cwd=self.folder, **where
        )
        self.started.append(program)
        return program

    @property
    def environ(self) -> dict[str, str]:
        ours = ("ALBOR_", "PYTEST_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return kept | {
            "ALBOR_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm",
            "ALBOR_QUIET": "1",
        }

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Python with these words, and its output."""
        return subprocess.run(
            [sys.executable, *words], env=self.environ, cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def run(self, code: str, **where: object) -> tuple[int, bytes, bytes]:
        """Exit code and what came out of two pipes."""
        where = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **where}
        program = self.start(code, **where)
        out, err = program.communicate(timeout=120)
        return program.returncode, out, err

    def log(self, name: str = "a0001.log") -> bytes:
        (path,) = self.home.glob(f"runs/*/logs/{name}")
        return path.read_bytes()

    def logs(self) -> list[Path]:
        return sorted(self.home.glob("runs/*/logs/*.log"))

    def touch(self, name: str) -> None:
        (self.folder / name).touch()


class Terminal:
    """A pty that somebody looks at."""

    def __init__(self, rows: int = 31, columns: int = 97) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(rows, columns)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, claim, limit_s: float = 60.0) -> bytes:
        deadline = time.monotonic() + limit_s
        while not claim(self.seen):
            assert time.monotonic() < deadline, self.seen[-2000:]
            if select.select([self.ours], [], [], 0.05)[0]:
                self.seen += os.read(self.ours, 65536)
        return self.seen

    def close(self) -> None:
        for fd in (self.ours, self.theirs):
            with contextlib.suppress(OSError):
                os.close(fd)


@pytest.fixture
def terminal():
    made = Terminal()
    yield made
    made.close()


def wait_until(claim, limit_s: float = 60.0):
    deadline = time.monotonic() + limit_s
    while not (found := claim()):
        assert time.monotonic() < deadline, claim
        time.sleep(0.01)
    return found


def pumps_of(pid: int) -> list[int]:
    """Pumps that this process started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if b"console_pump" in words and int(parent[1]) == pid and parent[0] != b"Z":
                    found.append(int(entry.name))
    return found


def pumps_of_folder(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if b"console_pump" in words and os.fsencode(folder) in words:
                    found.append(int(entry.name))
    return found


def numbered(raw: bytes) -> list[int]:
    return [int(number) for number in re.findall(rb"line (\d+)\r?\n", raw)]


# -- what a program sees, and what others see of it ---------------------------------------------


def test_both_streams_and_children_and_c_code_are_in_the_log_and_where_they_went_before(desk):
    code, out, err = desk.run("""
print("before")
with track.start():
    print("one"); sys.stdout.flush()
    subprocess.run("echo two; echo three >&2", shell=True)
    os.write(1, b"four\\n"); os.write(2, b"five\\n")
    print("six", file=sys.stderr)
print("after")
""")
    assert (code, out, err) == (0, b"before\none\ntwo\nfour\nafter\n", b"three\nfive\nsix\n")
    assert sorted(desk.log().split()) == sorted(
        [b"one", b"two", b"three", b"four", b"five", b"six"]
    )


def test_without_a_terminal_a_program_sees_none(desk):
    _, out, _ = desk.run("""
with track.start():
    print(os.isatty(1), os.isatty(2), sys.stdout.isatty())
    subprocess.run("[ -t 1 ] || echo none", shell=True)
""")
    assert out == b"False False False\nnone\n" or out == b"none\nFalse False False\n"


def test_on_a_terminal_a_program_sees_one_of_the_same_size_and_colours_pass(desk, terminal):
    program = desk.start(
        """
with track.start():
    print(os.isatty(1), os.isatty(2), os.get_terminal_size(1)[:])
    print("\\x1b[31mred\\x1b[0m")
    print("end")
""",
        stdout=terminal.theirs,
        stderr=terminal.theirs,
    )
    seen = terminal.read_until(lambda seen: b"end\r\n" in seen)
    assert program.wait(60) == 0
    assert seen == b"True True (97, 31)\r\n\x1b[31mred\x1b[0m\r\nend\r\n"
    assert desk.log() == seen.replace(b"\r", b"")


def test_a_terminal_that_changes_its_size_is_followed_and_the_program_is_told_again(desk, terminal):
    program = desk.start(
        """
sizes = []
signal.signal(signal.SIGWINCH, lambda *_: sizes.append(os.get_terminal_size(1)[:]))
with track.start():
    print("ready", flush=True)
    while (120, 40) not in sizes: time.sleep(0.01)
    print("told", flush=True)
""",
        stdout=terminal.theirs,
    )
    terminal.read_until(lambda seen: b"ready" in seen)
    terminal.resize(40, 120)
    terminal.read_until(lambda seen: b"told" in seen)
    assert program.wait(60) == 0


def test_two_streams_into_one_pipe_keep_their_order(desk):
    code, out, _ = desk.run(
        """
with track.start():
    for i in range(500):
        os.write(1 + i % 2, b"line %d\\n" % i)
""",
        stderr=subprocess.STDOUT,
    )
    assert code == 0 and numbered(out) == list(range(500))
    assert desk.log() == out


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_a_file_gets_the_same_bytes_whether_written_from_its_start_or_appended_to(desk, mode):
    path = desk.folder / "out.txt"
    path.write_bytes(b"old\n")
    with path.open(mode) as file:
        desk.run(
            """
print("first")
with track.start():
    for i in range(2000): print("line", i)
print("last")
""",
            stdout=file,
        )
    body = b"".join(b"line %d\n" % i for i in range(2000))
    assert path.read_bytes() == (b"old\n" if mode == "ab" else b"") + b"first\n" + body + b"last\n"
    assert desk.log() == body


def test_a_flood_arrives_whole_before_the_program_has_ended(desk):
    code, out, _ = desk.run("""
with track.start():
    for i in range(100_000): print("line", i)
""")
    assert code == 0 and numbered(out) == list(range(100_000))
    assert desk.log() == out


def test_a_reader_that_leaves_ends_the_program_as_without_a_tracker(desk):
    program = desk.start(
        """
with track.start():
    while True: print("x" * 100)
""",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    program.stdout.read(100)
    program.stdout.close()
    assert b"BrokenPipeError" in program.stderr.read()
    program.stderr.close()
    assert program.wait(60) == 1
    assert b"BrokenPipeError" in desk.log()


def test_an_uncaught_error_is_in_the_log_and_the_exit_code_is_its_own(desk):
    code, _, err = desk.run("run = track.start()\nraise SystemExit(7)")
    assert (code, err) == (7, b"")
    code, _, err = desk.run("run = track.start()\nprint('x')\nraise OSError('no route')")
    assert code == 1 and b"OSError: no route" in err
    assert any(b"OSError: no route" in log.read_bytes() for log in desk.logs())


def test_the_traceback_of_an_error_that_leaves_the_block_is_in_the_log_once_on_lines_of_its_own(
    desk,
):
    code, out, err = desk.run("""
with track.start():
    print("half a line", end="")
    raise OSError("no route")
""")
    assert (code, out) == (1, b"half a line")
    assert desk.log() == b"half a line\n" + err and err.startswith(b"Traceback")


@pytest.mark.parametrize(
    ("handling", "count"),
    [
        ("run.close('failed')", 1),
        ("traceback.print_exc(); run.close('failed')", 1),
        ("logging.exception('oh'); run.close('failed')", 1),
        ("run.close()", 0),
    ],
)
def test_an_error_that_a_program_handles_is_in_the_log_once_where_the_run_failed_by_it(
    desk, handling, count
):
    code, _, _ = desk.run(f"""
import logging, traceback
run = track.start()
try: raise OSError("no route")
except OSError: {handling}
""")
    assert code == 0
    assert desk.log().count(b"Traceback (most recent") == count


def test_under_a_guard_the_output_goes_straight_to_the_log_and_is_there_once(desk):
    (desk.folder / "guarded.py").write_text(
        HEAD
        + """
with track.start() as run:
    print("one", flush=True)
    os.write(1, os.readlink("/proc/self/fd/1").encode())
"""
    )
    words = ("guard", "run", "--", sys.executable, "guarded.py")
    done = desk.command("-P", "-m", "albor_core.cli", *words)
    assert done.returncode == 0, done.stderr
    (log,) = desk.logs()
    assert log.read_text() == f"one\n{log}"


@pytest.mark.parametrize("closed", [[1], [2], [1, 2]])
def test_a_file_that_took_the_place_of_a_closed_descriptor_is_not_taken_for_output(desk, closed):
    desk.run(f"""
for fd in {closed}: os.close(fd)
with track.start() as run:
    run.log({{"acc": 1.0}})
    found = [os.readlink(f"/proc/self/fd/{{fd}}") for fd in {closed}]
open("done", "w").write(" ".join(found))
""")
    told = (desk.folder / "done").read_text()
    assert "/runs/" in told and "pipe:" not in told
    (journal,) = desk.home.glob("runs/*/journal.jsonl")
    assert b'"acc":1.0' in journal.read_bytes()


def test_a_program_without_any_output_runs_as_ever(desk):
    program = desk.start(
        """
assert sys.stdout is None
with track.start() as run: run.log({"acc": 1.0})
assert not os.listdir(run.path / "logs")
open("done", "w").close()
""",
        preexec_fn=lambda: os.closerange(1, 3),
    )
    assert program.wait(60) == 0


def test_what_a_program_puts_in_place_of_its_output_meanwhile_stays(desk):
    code, out, _ = desk.run(f"""
run = track.start()
print("seen", flush=True)
file = os.open({str(desk.folder / "mine")!r}, os.O_WRONLY | os.O_CREAT)
os.dup2(file, 1)
print("mine", flush=True)
run.close()
print("mine too", flush=True)
""")
    assert (code, out) == (0, b"seen\n")
    assert (desk.folder / "mine").read_bytes() == b"mine\nmine too\n"
    assert desk.log() == b"seen\n"


@pytest.mark.parametrize("code", ["track.start(console=False)", "track.start()"])
def test_the_console_can_be_left_alone(desk, code):
    env = {} if "False" in code else {"ALBOR_CONSOLE": "0"}
    told = desk.run(f"run = {code}\nprint(os.readlink('/proc/self/fd/1'))", env=env)
    assert told[0] == 0 and told[1].startswith(b"pipe:") and not desk.logs()


def test_keys_stop_continue_interrupt_and_feed_a_program_on_its_terminal_as_ever(desk):
    (desk.folder / "program.py").write_text(
        HEAD
        + """
signal.signal(signal.SIGCONT, lambda *_: print("resumed", flush=True))
with track.start():
    print("name?", flush=True)
    print("hello", input(), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
    try:
        while True: time.sleep(0.01)
    except KeyboardInterrupt: print("interrupted", flush=True)
"""
    )
    pid, fd = pty.fork()
    if not pid:
        os.environ.update(ALBOR_HOME=str(desk.home), PYTHONPATH=str(ROOT), ALBOR_QUIET="1")
        os.environ.pop("PYTEST_CURRENT_TEST")
        os.chdir(desk.folder)
        job = f"{sys.executable} program.py; echo code $?; fg; echo code $?"
        os.execvp("bash", ["bash", "-c", f"set -m; {job}"])
    terminal = Terminal()
    terminal.close()
    terminal.ours, terminal.seen = fd, b""
    for words, keys in (
        (b"name?", b"world\n"),
        (b"hello world True\r\n", b"\x1a"),
        (b"code 148", b""),
        (b"resumed\r\n", b"\x03"),
        (b"interrupted\r\ncode 0", b""),
    ):
        terminal.read_until(lambda seen, words=words: words in seen)
        terminal.seen = terminal.seen.partition(words)[2]
        os.write(fd, keys)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(fd)
    assert desk.log() == b"name?\nhello world True\nresumed\ninterrupted\n"


def test_a_program_that_leaves_its_console_alone_loads_nothing_of_it(desk):
    code, out, _ = desk.run("""
run = track.start(console=False)
print([name for name in sys.modules if "track.console" in name])
""")
    assert (code, out) == (0, b"[]\n")


# -- several runs, forks, children ---------------------------------------------------------------


def test_runs_one_after_the_other_and_two_at_once_have_each_their_part(desk):
    code, out, _ = desk.run("""
with track.start(name="a"): print("1")
print("2")
b = track.start(name="b"); print("3", flush=True)
c = track.start(name="c"); print("4", flush=True)
b.close(); print("5", flush=True)
c.close(); print("6", flush=True)
with track.start(name="d"): print("7")
""")
    assert (code, out.split()) == (0, [b"1", b"2", b"3", b"4", b"5", b"6", b"7"])
    logs = {path.parent.parent.name[0]: path.read_bytes().split() for path in desk.logs()}
    assert logs == {"a": [b"1"], "b": [b"3", b"4"], "c": [b"4", b"5"], "d": [b"7"]}


def test_each_attempt_of_a_resumed_run_has_a_log_of_its_own(desk):
    for words in ("one", "two"):
        code, _, err = desk.run(f"""
with track.start(id="mine", resume="allow"): print({words!r})
""")
        assert code == 0, err
    assert [(log.name, log.read_bytes()) for log in desk.logs()] == [
        ("a0001.log", b"one\n"),
        ("a0002.log", b"two\n"),
    ]


def test_forked_children_are_in_the_log_and_a_run_of_their_own_is_their_own(desk):
    code, out, _ = desk.run("""
with track.start(name="parent"):
    print("parent", flush=True)
    if not (child := os.fork()):
        print("child", flush=True)
        with track.start(name="own"): print("own", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    import multiprocessing
    worker = multiprocessing.get_context("fork").Process(target=print, args=("worker",))
    worker.start(); worker.join()
print("after")
""")
    assert (code, out.split()) == (0, [b"parent", b"child", b"own", b"worker", b"after"])
    logs = {
        path.parent.parent.name.split("-")[0]: path.read_bytes().split() for path in desk.logs()
    }
    assert logs == {"parent": [b"parent", b"child", b"own", b"worker"], "own": [b"own"]}


def test_workers_of_every_kind_of_multiprocessing_are_in_the_log(desk):
    code, _, err = desk.run("""
import multiprocessing
if __name__ == "__main__":
    with track.start():
        for kind in ("fork", "spawn", "forkserver"):
            context = multiprocessing.get_context(kind)
            worker = context.Process(target=print, args=(kind,), kwargs={"flush": True})
            worker.start(); worker.join()
""")
    assert (code, err, desk.log()) == (0, b"", b"fork\nspawn\nforkserver\n")


def test_forking_from_threads_while_others_write_and_pumps_die_hangs_nobody(desk):
    program = desk.start(
        """
run = track.start()
def fork():
    for i in range(30):
        if not (child := os.fork()):
            os.write(1, b"child\\n"); os._exit(0)
        os.waitpid(child, 0)
threads = [threading.Thread(target=fork) for _ in range(3)]
for thread in threads: thread.start()
open("talks", "w").close()
for i in range(3000): os.write(1, b"line %d\\n" % i)
for thread in threads: thread.join()
run.close()
""",
        stdout=subprocess.PIPE,
    )
    wait_until((desk.folder / "talks").exists)
    for pump in pumps_of(program.pid):
        os.kill(pump, signal.SIGKILL)
    out = program.stdout.read()
    program.stdout.close()
    assert program.wait(60) == 0
    assert numbered(out) == list(range(3000)) and out.count(b"child\n") == 90


def test_a_grandchild_that_outlives_the_program_holds_up_nobody_and_is_still_heard(desk):
    program = desk.start(
        """
with track.start():
    subprocess.Popen("while [ ! -e go ]; do sleep 0.05; done; echo late", shell=True)
    print("end", flush=True)
""",
        stdout=subprocess.PIPE,
    )
    assert program.wait(60) == 0  # while the grandchild waits for us
    desk.touch("go")
    assert program.stdout.read() == b"end\nlate\n"
    program.stdout.close()
    assert desk.log() == b"end\nlate\n"


def test_a_program_that_becomes_a_daemon_is_heard_as_long_as_it_speaks(desk):
    program = desk.start(
        """
run = track.start()
print("parent", flush=True)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
wait_for("go")
print("daemon", flush=True)
""",
        stdout=subprocess.PIPE,
    )
    assert program.wait(60) == 0
    desk.touch("go")
    assert program.stdout.read() == b"parent\ndaemon\n"
    program.stdout.close()
    assert desk.log() == b"parent\ndaemon\n"


def test_what_the_cells_of_a_notebook_print_is_in_the_log_once(desk):
    """The kernel's streams, as ipykernel makes them: what comes at descriptor 1 is sent on too. And
    IPython puts a `write` of its own in place of theirs, for each cell.
    """
    (desk.folder / "ipykernel").mkdir()
    (desk.folder / "ipykernel" / "iostream.py").write_text("""
import contextlib, os, sys, threading
class OutStream:
    encoding, echo = "utf-8", None
    def __init__(self):
        self.sent = []
        out, into = os.pipe()
        os.dup2(into, 1)
        self.watch_fd_thread = threading.Thread(target=self._watch, args=(out,), daemon=True)
        self.watch_fd_thread.start()
    def _watch(self, out):
        while data := os.read(out, 1000): self.write(data.decode())
    def write(self, text):
        if self.echo is not None: self.echo.write(text)
        self.sent.append(text)
        return len(text)
    def flush(self): pass
@contextlib.contextmanager
def cell():
    write = sys.stdout.write
    sys.stdout.write = lambda text: write(text)
    try: yield
    finally: sys.stdout.write = write
""")
    code, _, err = desk.run("""
from ipykernel.iostream import OutStream, cell
kernel = sys.stdout = OutStream()
with cell(): print("before")
with cell():
    run = track.start()
    print("first")
with cell():
    print("second")
    os.write(1, b"from C\\n")
with cell():
    run.close()
    print("after")
while "from C\\n" not in kernel.sent: time.sleep(0.01)
assert kernel.echo is None
told = "".join(kernel.sent).replace("from C\\n", "")
assert told == "before\\nfirst\\nsecond\\nafter\\n", kernel.sent
""")
    assert code == 0, err
    assert sorted(desk.log().splitlines()) == [b"first", b"from C", b"second"]


# -- deaths ----------------------------------------------------------------------------------------

TALKING = """
run = track.start()
for i in range(COUNT):
    data = b"line %d\\n" % i
    while data: data = data[os.write(1, data):]  # as any library does: a signal may come
    if i == 2000: open("talks", "w").close()
run.close()
print("end")
"""


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_what_was_written_before_a_sudden_end_is_shown_and_in_the_log(desk, end):
    program = desk.start(
        f"""
run = track.start()
for i in range(5000): os.write(1, b"line %d\\n" % i)
{end}
""",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    out = program.stdout.read()  # until the pump ends
    program.stdout.close()
    assert program.wait(60) == {"o": 3 if "exit" in end else -9 if "kill" in end else -6}["o"]
    assert numbered(out) == list(range(5000)) == numbered(desk.log())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("where", ["pipe", "append", "terminal"])
def test_a_pump_that_dies_or_stops_again_and_again_costs_no_line_and_no_order(
    desk, terminal, how, where
):
    path = desk.folder / "out.txt"
    count = 60_000
    with path.open("ab") as file:
        target = {"pipe": subprocess.PIPE, "append": file, "terminal": terminal.theirs}[where]
        program = desk.start(TALKING.replace("COUNT", str(count)), stdout=target)
    reader = None
    if where == "pipe":
        with path.open("wb") as sink:
            reader = subprocess.Popen(["cat"], stdin=program.stdout, stdout=sink)
        program.stdout.close()
    kills, last = 0, 0
    deadline = time.monotonic() + 120
    while program.poll() is None:
        assert time.monotonic() < deadline
        if select.select([terminal.ours], [], [], 0.002)[0]:
            terminal.seen += os.read(terminal.ours, 65536)
        pumps = pumps_of(program.pid)
        if kills < 4 and pumps and pumps[0] != last and (desk.folder / "talks").exists():
            last = pumps[0]
            os.kill(last, how)
            kills += 1
    if where == "terminal":
        terminal.read_until(lambda seen: b"end\r\n" in seen)
    if reader is not None:
        reader.wait(60)
    out = terminal.seen if where == "terminal" else path.read_bytes()
    assert program.returncode == 0 and kills >= 1
    assert numbered(out) == list(range(count)) and out.endswith((b"end\n", b"end\r\n"))
    assert numbered(desk.log()) == list(range(count))


def test_killing_program_and_pump_at_once_keeps_in_the_log_all_that_was_shown(desk):
    program = desk.start(TALKING.replace("COUNT", "10_000_000"), stdout=subprocess.PIPE)
    first = program.stdout.read(100_000)
    pump = pumps_of(program.pid)[0]
    os.kill(pump, signal.SIGKILL)
    program.kill()
    shown = numbered(first + program.stdout.read())
    program.stdout.close()
    assert program.wait(60) == -9
    logged = numbered(desk.log())
    assert logged == list(range(len(logged))) and len(shown) > 1000
    assert shown == logged[: len(shown)] or shown[:-1] == logged[: len(shown) - 1]


def test_where_no_pump_can_be_started_any_more_the_program_has_its_own_output_back(desk):
    fake = desk.folder / "python"
    fake.symlink_to(sys.executable)
    program = desk.start(
        """
run = track.start()
sys.executable = "/nowhere/python"
print("one", flush=True)
open("talks", "w").close()
wait_for("go")
for i in range(1000): os.write(1, b"line %d\\n" % i)
run.close()
print("end")
""",
        stdout=subprocess.PIPE,
    )
    wait_until((desk.folder / "talks").exists)
    (pump,) = pumps_of(program.pid)
    os.kill(pump, signal.SIGKILL)
    desk.touch("go")
    out = program.stdout.read()
    program.stdout.close()
    assert program.wait(60) == 0
    assert sorted(numbered(out)) == list(range(1000)) and out.endswith(b"end\n")


def test_a_program_whose_pump_is_gone_for_good_waits_for_its_words_and_for_no_child(desk):
    """The thread that passes on what was left ends with the program; a child goes on to print."""
    program = desk.start(
        """
import subprocess
from albor_core.track.console import console
run = track.start()
sys.executable = "/nowhere/python"
relay, begun = console.relay, time.monotonic()
console.relay = lambda *given: (time.sleep(1), relay(*given))  # as on a busy machine
child = subprocess.Popen(["sleep", "20"])
open("talks", "w").close()
wait_for("go")
for i in range(1000): os.write(1, b"line %d\\n" % i)
run.close()
print("end", time.monotonic() - begun < 15, flush=True)
child.kill()
""",
        stdout=subprocess.PIPE,
    )
    wait_until((desk.folder / "talks").exists)
    (pump,) = pumps_of(program.pid)
    os.kill(pump, signal.SIGSTOP)  # it takes nothing more, and is replaced in vain
    desk.touch("go")
    out = program.stdout.read()
    program.stdout.close()
    assert program.wait(60) == 0
    assert sorted(numbered(out)) == list(range(1000)) and out.endswith(b"end True\n")


def test_a_slow_terminal_slows_the_program_and_loses_nothing(desk, terminal):
    program = desk.start(
        """
with track.start():
    for i in range(20_000): print("line", i)
""",
        stdout=terminal.theirs,
    )
    seen = b""
    while not seen.endswith(b"line 19999\r\n"):
        assert select.select([terminal.ours], [], [], 60)[0], seen[-100:]
        seen += os.read(terminal.ours, 64)
        if len(seen) % 50 == 0:
            time.sleep(0.05)
    assert program.wait(60) == 0
    assert numbered(seen) == list(range(20_000)) == numbered(desk.log())


def test_a_full_disk_below_the_log_costs_log_lines_alone_and_the_log_says_how_many(desk):
    """The limit on a file's size stands for the disk: its write fails in the same way."""
    code, out, _ = desk.run("""
import resource
with track.start() as run:
    pump = next(
        int(pid) for pid in os.listdir("/proc") if pid.isdigit()
        and b"console_pump" in open(f"/proc/{pid}/cmdline", "rb").read()
        and int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]) == os.getpid()
    )
    _, hard = resource.prlimit(pump, resource.RLIMIT_FSIZE)
    print("line 0", flush=True)
    while not os.path.getsize(run.dir.log(1)): time.sleep(0.01)
    resource.prlimit(pump, resource.RLIMIT_FSIZE, (100, hard))
    for i in range(1, 5000): print("line", i)
    sys.stdout.flush()
    while os.path.getsize(run.dir.log(1)) < 100: time.sleep(0.01)
    second = track.start()  # returns once all that was printed is through
    resource.prlimit(pump, resource.RLIMIT_FSIZE, (hard, hard))
    second.close()
    print("line 5000")
""")
    assert code == 0 and numbered(out) == list(range(5001))
    log = next(log for log in desk.logs() if b"line 0\n" in log.read_bytes()).read_bytes()
    (lost,) = re.findall(rb"\[albor: ([\d,]+) bytes were not recorded: File too large\]\n", log)
    assert log.endswith(b"]\nline 5000\n")
    assert int(lost.replace(b",", b"")) + 100 + len(b"line 5000\n") == len(out)


def test_a_log_that_takes_nothing_holds_up_neither_program_nor_terminal_and_is_tried_again(desk):
    """A pipe that nobody reads stands for a disk that does not answer."""
    code, out, _ = desk.run("""
from pathlib import Path
from albor_core.track.console import capture, console
console._PAUSE_S = 2.0
os.mkfifo("hanging.log")
log = os.open("hanging.log", os.O_RDWR | os.O_NONBLOCK)
recording = capture.capture(Path("hanging.log"))
for i in range(30_000): print("line", i)
sys.stdout.flush()
seen = b""
while b"]\\n" not in seen:
    try: seen = seen[-200:] + os.read(log, 1 << 16)
    except BlockingIOError: time.sleep(0.01)
recording.end()
open("told", "wb").write(seen[seen.index(b"[albor"):])
print("end")
""")
    assert code == 0 and numbered(out) == list(range(30_000)) and out.endswith(b"end\n")
    told = (desk.folder / "told").read_bytes()
    assert re.match(rb"\[albor: [\d,]+ bytes were not recorded: it took nothing for sec", told)


def page():
    fd = os.memfd_create("marks")
    os.ftruncate(fd, console_pump.Marks.SIZE)
    return fd


def test_what_a_log_lacks_is_known_to_the_next_pump_and_to_the_program(tmp_path):
    marks = console_pump.Marks(page())
    log = console_pump.Log(3, str(tmp_path / "no" / "a0001.log"), 100, 3, marks)
    log.append(b"x" * 70)
    log.append(b"x" * 7)
    assert marks.loss(3) == (77, 77, errno.ENOENT)
    (tmp_path / "no").mkdir()
    after = console_pump.Log(3, str(tmp_path / "no" / "a0001.log"), 100, 3, marks)
    after.prepare()
    assert (tmp_path / "no" / "a0001.log").read_text() == (
        "[albor: 77 bytes were not recorded: No such file or directory]\n"
    )
    assert marks.loss(3) == (77, 0, errno.ENOENT)
    assert marks.loss(4) == marks.loss(43) == (0, 0, 0)


def test_a_log_is_bounded_as_a_guards_is_and_loses_nothing_when_it_is_put_aside(tmp_path):
    path = tmp_path / "a0001.log"
    log = console_pump.Log(1, str(path), 100, 3, console_pump.Marks(page()))
    for number in range(60):
        log.prepare()
        log.append(b"line %d\n" % number)
    names = ["a0001.log.3", "a0001.log.2", "a0001.log.1", "a0001.log"]
    kept = b"".join((tmp_path / name).read_bytes() for name in names)
    assert numbered(kept)[-1] == 59 and len(numbered(kept)) == 60 - numbered(kept)[0]
    assert all(100 <= (tmp_path / name).stat().st_size < 110 for name in names[:3])
    assert (tmp_path / "a0001.times").exists() or (tmp_path / "a0001.times.1").exists()


def test_the_console_leaves_no_process_behind(desk):
    code, _, _ = desk.run("with track.start(): print('x')")
    assert code == 0
    wait_until(lambda: not pumps_of_folder(desk.home))
