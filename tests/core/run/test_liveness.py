"""Locks: held exactly as long as their process lives, and readable by everybody else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from read_only import where_read_only

from albor_core.run.errors import InUseError
from albor_core.run.liveness import boot_id, liveness, lock_holder, start_ticks, take_lock

ROOT = Path(__file__).resolve().parents[3]


def holder(path, then="input()"):
    """A process that holds the lock on `path`, says so, and then runs `then`."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from albor_core.run.liveness import take_lock\n"
        "fd = take_lock(Path(sys.argv[1]), inheritable=True)\n"
        "print('held', flush=True)\n" + then
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    return process


def end(process):
    process.kill()
    process.communicate(timeout=30)


@pytest.mark.parametrize("last", [signal.SIGKILL, signal.SIGTERM])
def test_a_lock_names_its_holder_and_dies_with_it(tmp_path, last):
    path = tmp_path / "run.lock"
    assert lock_holder(path) is None
    process = holder(path)
    try:
        assert lock_holder(path) == process.pid
        process.send_signal(last)
        process.wait(timeout=30)
        assert lock_holder(path) is None
    finally:
        end(process)


ASK = (
    "from albor_core.run.liveness import lock_holder\n"
    "print(lock_holder(Path(sys.argv[1])) == os.getpid(), flush=True); input()\n"
)
AS_ANOTHER = f"""
os.environ["ALBOR_RUN_LOCK_FD"] = str(fd)  # as the guard's stub does
code = "import os, sys; from pathlib import Path\\n" + {ASK!r}
os.execv(sys.executable, [sys.executable, "-c", code, sys.argv[1]])
"""


@pytest.mark.parametrize("then", [ASK, AS_ANOTHER], ids=["as it was", "after an exec"])
def test_a_program_that_asks_about_its_own_lock_keeps_it(tmp_path, then):
    path = tmp_path / "run.lock"
    process = holder(path, then)
    try:
        assert process.stdout.readline() == "True\n"
        assert lock_holder(path) == process.pid
    finally:
        end(process)


def test_a_forked_child_names_its_parent_while_that_lives(tmp_path):
    path = tmp_path / "run.lock"
    process = holder(
        path,
        "from albor_core.run.liveness import lock_holder\n"
        "parent, (reading, writing) = os.getpid(), os.pipe()\n"
        "if os.fork() == 0:\n"
        "    print(lock_holder(Path(sys.argv[1])) == parent, flush=True)\n"
        "    os.close(writing); os.read(reading, 1)\n"  # until the parent is gone
        "    print(lock_holder(Path(sys.argv[1])), flush=True)\n"
        "    os._exit(0)\n"
        "input()",
    )
    try:
        assert process.stdout.readline() == "True\n"
        assert lock_holder(path) == process.pid
        process.kill()
        assert process.stdout.readline() == "None\n"
    finally:
        end(process)


def test_a_second_holder_is_refused_with_the_pid_of_the_first(tmp_path):
    path = tmp_path / "run.lock"
    process = holder(path)
    try:
        with pytest.raises(InUseError, match=f"already held by process {process.pid}"):
            take_lock(path)
        assert lock_holder(path) == process.pid
    finally:
        end(process)


def test_a_lock_survives_exec_and_not_a_worker_left_behind(tmp_path):
    """The guard's stub execs the trainer; the trainer's forked workers must not keep it alive."""
    path = tmp_path / "run.lock"
    process = holder(path, then="os.execvp('cat', ['cat'])")
    try:
        process.stdin.write("still here\n")
        process.stdin.flush()
        assert process.stdout.readline() == "still here\n"
        assert lock_holder(path) == process.pid
    finally:
        end(process)
    forked = (
        "pid = os.fork()\n"
        "if pid == 0: os.execvp('cat', ['cat'])\n"
        "print(pid, flush=True); os.kill(os.getpid(), 9)"
    )
    process = holder(path, then=forked)
    worker = int(process.stdout.readline())
    try:
        process.wait(timeout=30)
        assert start_ticks(worker) is not None
        assert lock_holder(path) is None
    finally:
        os.kill(worker, signal.SIGKILL)
        end(process)


def test_a_file_that_cannot_be_written_still_tells_its_holder(tmp_path):
    path = tmp_path / "run.lock"
    process = holder(path)
    try:
        path.chmod(0o400)
        assert lock_holder(path) == process.pid
    finally:
        end(process)


def test_a_live_run_on_a_read_only_mount_is_alive(tmp_path):
    process = holder(tmp_path / "run.lock")
    code = "import sys; from pathlib import Path; from albor_core.run.liveness import *\n"
    code += "print(lock_holder(Path(sys.argv[1])))"
    try:
        argv = [sys.executable, "-c", code, tmp_path / "run.lock"]
        done = where_read_only(tmp_path, argv, cwd=ROOT)
    finally:
        end(process)
    assert done.stdout.strip() == str(process.pid), done.stderr


def test_a_link_or_fifo_in_place_of_a_lock_is_held_by_nobody_and_does_not_block(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    assert lock_holder(tmp_path / "link") is None
    assert lock_holder(tmp_path / "fifo") is None
    with pytest.raises(OSError, match="symbolic links"):
        take_lock(tmp_path / "link")


def test_a_run_is_alive_while_trainer_or_guard_is(tmp_path):
    run_lock, guard_lock = tmp_path / "run.lock", tmp_path / "guard.lock"
    assert not liveness(run_lock, guard_lock).is_alive
    process = holder(guard_lock)
    try:
        found = liveness(run_lock, guard_lock)
        assert (found.trainer, found.guard, found.is_alive) == (None, process.pid, True)
    finally:
        end(process)


def test_start_ticks_name_a_process_even_with_a_hostile_name(tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    try:
        ticks = start_ticks(process.pid)
        assert ticks is not None
        assert ticks >= start_ticks(os.getpid())
    finally:
        process.kill()
        process.wait(timeout=30)
    assert start_ticks(process.pid) is None


def test_this_boot_has_a_name():
    assert boot_id() == boot_id() != ""
