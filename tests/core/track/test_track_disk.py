"""The tracker on a disk that takes nothing, or its time: no loop waits, nothing goes unsaid."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from albor_core import track
from albor_core.cli.main import cli
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.files import line_appender
from albor_core.run.files.reserved_file import ReservedFile
from albor_core.run.journal import read_journal
from albor_core.run.rundir import read_json
from albor_core.run.values.quantity import counted
from albor_core.track import last_words

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Not a guarded run, and no index process."""
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)
    monkeypatch.setattr(last_words, "LAST_WAIT_S", 0.0)


class Disk:
    """The `os` of the journal, whose disk has `room` bytes left; None for as many as one likes."""

    def __init__(self, room=None):
        self.room = room
        self.is_slow = False
        self.go = threading.Event()
        self.pace_s = 0.0

    def write(self, fd, data):
        if self.is_slow and threading.current_thread() is threading.main_thread():
            time.sleep(2 * line_appender.SLOW_S)
        elif self.is_slow:
            self.go.wait(60)
            time.sleep(self.pace_s)
        if self.room is not None and self.room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room = None if self.room is None else self.room - len(data)
        return os.write(fd, data)

    def __getattr__(self, name):
        return getattr(os, name)


@pytest.fixture
def disk(monkeypatch):
    made = Disk()
    monkeypatch.setattr(line_appender, "os", made)
    yield made
    made.go.set()


def steps(run):
    found = (line.record for line in read_journal(run.dir.journal))
    return [record["step"] for record in found if record["t"] == "m"]


def wait_until(claim, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not (found := claim()):
        assert time.monotonic() < deadline, claim
        time.sleep(0.02)
    return found


def test_lines_that_a_full_disk_never_took_are_counted_at_the_end(disk, capfd):
    with track.start() as run:
        disk.room = 5000
        for step in range(1, 201):
            run.log({"x": float(step)}, step=step)
    lost = 200 - len(steps(run))
    assert 0 < len(steps(run)) < 200
    words = read_json(run.dir.exit)
    assert (words["reason"], words["step"], words["lines_lost"]) == ("completed", 200, lost)
    told = capfd.readouterr().err
    what = f"albor: {counted(lost, 'line')} that run {run.id} logged could not be written"
    assert f"{what}: {run.dir.journal}: No" in told
    assert read_json(run.dir.state)["journal"]["dropped"] == lost


def test_lines_that_waited_for_room_are_there_and_nothing_is_called_lost(disk, capfd):
    with track.start() as run:
        disk.room = 0
        for step in range(1, 101):
            run.log({"x": float(step)}, step=step)
        assert "waits in memory" in wait_until(lambda: capfd.readouterr().err)
        counted = wait_until(lambda: (read_json(run.dir.state) or {})["journal"]["pending"])
        assert 0 < counted <= 101
        disk.room = None
    assert steps(run) == list(range(1, 101))
    assert read_json(run.dir.exit)["lines_lost"] == 0
    assert "lost" not in capfd.readouterr().err


def test_a_disk_that_has_room_again_shortly_after_the_end_loses_nothing(disk, monkeypatch):
    monkeypatch.setattr(last_words, "LAST_WAIT_S", 30.0)
    with track.start() as run:
        disk.room = 0
        run.log({"x": 1.0}, step=1)
        timer = threading.Timer(0.3, setattr, (disk, "room", None))
        timer.start()
    timer.join()
    assert steps(run) == [1]
    assert read_json(run.dir.exit)["lines_lost"] == 0


def test_a_loop_goes_on_while_its_disk_is_slow(disk):
    with track.start() as run:
        disk.is_slow = True
        for step in range(1, 101):  # would wait for `go` if it wrote itself
            run.log({"x": float(step)}, step=step)
        assert steps(run) == [1]
        assert run._journal.pending == 99
        disk.go.set()
    assert steps(run) == list(range(1, 101))
    assert read_json(run.dir.exit)["lines_lost"] == 0


@pytest.mark.slow
def test_a_slow_disk_is_waited_for_at_the_end_as_long_as_it_takes_lines(disk, monkeypatch):
    monkeypatch.setattr(last_words, "LAST_WAIT_S", 2.0)
    with track.start() as run:
        disk.is_slow, disk.pace_s = True, 0.6
        for step in range(1, 8):
            run.log({"x": float(step)}, step=step)
        disk.go.set()
    assert steps(run) == list(range(1, 8))
    assert read_json(run.dir.exit)["lines_lost"] == 0


LIMITED = """
import resource, signal, sys
from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
IndexProcess.tend = lambda self: None
run = track.start()
print(run.path, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for step in range(1, 3001):
    run.log({"loss": 1.0 / step}, step=step)
{ending}
"""


@pytest.mark.parametrize("ending, code", [
    ("", 0), ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM),
])  # fmt: skip
def test_a_file_size_limit_that_was_met_is_told_however_the_program_ends(ending, code):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.replace("{ending}", ending)],
        capture_output=True, text=True, timeout=60, cwd=ROOT, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    run = Path(done.stdout.strip())
    lines = sum(line.record["t"] == "m" for line in read_journal(run / "journal.jsonl"))
    assert json.loads((run / "exit.json").read_text())["lines_lost"] == 3000 - lines > 0
    assert f"{3000 - lines:,} lines that run {run.name} logged could not be written" in done.stderr
    assert "File too large" in done.stderr


PRINTS = """
import resource, sys
from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
IndexProcess.tend = lambda self: None
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
with track.start() as run:
    print(run.path, flush=True)
    for line in range(6000):
        print("line", line, flush=line % 50 == 0)
    {ending}
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending, code", [("", 0), ("raise ValueError('at the end')", 1)])
def test_what_was_printed_and_no_log_took_is_counted_in_the_last_words(ending, code, tmp_path):
    program, environment = PRINTS.format(ending=ending), {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    run = Path(done.stdout.splitlines()[0])
    logged = (run / "logs" / "a0001.log").stat().st_size
    lost = json.loads((run / "exit.json").read_text())["console_bytes_lost"]
    told = f"{lost:,} bytes that run {run.name} printed are in no log: File too large"
    assert told in done.stderr
    whole = len(done.stdout) - done.stdout.index("line 0")
    assert lost >= whole - logged > 0
    shown = CliRunner().invoke(cli, ["logs", run.name, "--tail", "1"])
    assert f"{lost:,} bytes that {run.name} printed are not in this log" in shown.stderr
    shown = CliRunner().invoke(cli, ["runs", "show", run.name])
    assert f"{lost:,} bytes that it printed are in no log" in shown.output


def test_last_words_may_be_said_twice_where_nothing_else_has_room(tmp_path, monkeypatch):
    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    reserved = ReservedFile(tmp_path / "exit.json")
    monkeypatch.setattr("albor_core.run.files.reserved_file.write_json", full)
    for code in (0, 1):
        reserved.write({"code": code})
        assert json.loads((tmp_path / "exit.json").read_text()) == {"code": code}
    with pytest.raises(OSError, match="No space"):
        reserved.write({"code": 2})


def test_last_words_have_room_where_nothing_else_has(tmp_path, monkeypatch):
    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    reserved = ReservedFile(tmp_path / "exit.json")
    assert list(tmp_path.iterdir()) == []  # and a kill leaves nothing
    monkeypatch.setattr("albor_core.run.home.new_run.write_bytes", full)
    reserved.write({"code": 0})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"code": 0}
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]


def test_last_words_of_an_earlier_life_are_replaced(tmp_path):
    (tmp_path / "exit.json").write_text('{"code": 1}')
    ReservedFile(tmp_path / "exit.json").write({"code": 0})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"code": 0}


def test_a_file_system_without_nameless_files_takes_last_words_as_others_do(tmp_path, monkeypatch):
    real = os.open

    def refuse(path, flags, *rest, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    ReservedFile(tmp_path / "exit.json").write({"code": 0})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"code": 0}


IN_NOWHERE = """
import os, sys, tempfile
from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.errors import UsageError
IndexProcess.tend = lambda self: None
gone = tempfile.mkdtemp()
os.chdir(gone)
os.rmdir(gone)
where = sys.argv[1] or None
try:
    with track.start(name="adrift", dir=where) as run:
        run.log({"x": 1.0})
    print(run.path)
except UsageError as error:
    print("refused:", error)
"""


def test_a_program_whose_working_directory_was_deleted_can_be_tracked(albor_home):
    def started(where):
        done = subprocess.run(
            [sys.executable, "-c", IN_NOWHERE, where],
            capture_output=True, text=True, timeout=60, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    run = Path(started(""))
    assert run.parent == albor_home / "runs"
    assert json.loads((run / "exit.json").read_text())["reason"] == "completed"
    assert json.loads((run / "run.json").read_text())["git"]["commit"] is None
    assert "refused: dir 'runs': the working directory of this program was deleted" in (
        started("runs")
    )
