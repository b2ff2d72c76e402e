"""Without namespaces a program keeps its hands off what its user owns: modes, times, processes."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from albor_core.eval.code.sandbox import confinement, kernel

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not kernel.landlock_abi() or not kernel.knows_calls(),
    reason="calls by their numbers on x86-64, where there is Landlock",
)
NOBODY = 65534
HERE = -100
libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: Any) -> None:
    """By its number, so that none is changed into another on its way."""
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    if libc.syscall(ctypes.c_long(number), *words) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def opened(path, flags=os.O_RDONLY):
    return os.open(path, flags)


FIVE = (ctypes.c_long * 4)(5, 0, 5, 0)
SETTING = (ctypes.c_ulonglong * 2)(ctypes.addressof(ctypes.create_string_buffer(b"a", 8)), 1)
FILES = {  # what is done to a file that this user owns and may read, by name
    "chmod": lambda path: call(90, path, 0o777),
    "fchmod": lambda path: call(91, opened(path), 0o777),
    "fchmodat": lambda path: call(268, HERE, path, 0o777),
    "fchmodat2": lambda path: call(452, opened(path, os.O_PATH), b"", 0o777, 0x1000),
    "chown": lambda path: call(92, path, -1, os.getgid()),
    "fchown": lambda path: call(93, opened(path), -1, os.getgid()),
    "lchown": lambda path: call(94, path, -1, os.getgid()),
    "fchownat": lambda path: call(260, HERE, path, -1, os.getgid(), 0),
    "utime": lambda path: call(132, path, FIVE),
    "utimes": lambda path: call(235, path, FIVE),
    "futimesat": lambda path: call(261, HERE, path, FIVE),
    "utimensat": lambda path: call(280, HERE, path, FIVE, 0),
    "utimensat of a descriptor": lambda path: call(280, opened(path), None, FIVE, 0),
    "utimensat of now": lambda path: call(280, HERE, path, None, 0),
    "setxattr": lambda path: call(188, path, b"user.a", b"b", 1, 0),
    "lsetxattr": lambda path: call(189, path, b"user.a", b"b", 1, 0),
    "fsetxattr": lambda path: call(190, opened(path), b"user.a", b"b", 1, 0),
    "setxattrat": lambda path: call(463, HERE, path, 0, b"user.a", SETTING, 16),
    "removexattr": lambda path: call(197, path, b"user.there"),
    "lremovexattr": lambda path: call(198, path, b"user.there"),
    "fremovexattr": lambda path: call(199, opened(path), b"user.there"),
    "removexattrat": lambda path: call(466, HERE, path, 0, b"user.there"),
    "file_setattr": lambda path: call(469, HERE, path, (ctypes.c_ulonglong * 3)(), 24, 0),
    "ioctl that sets flags": lambda path: call(
        16, opened(path), 0x4008_6602, ctypes.byref(ctypes.c_long(0x40))
    ),
}
EMPTIED = {
    "truncate": lambda path: call(76, path, 0),
    "open to read": lambda path: call(2, path, os.O_RDONLY | os.O_TRUNC),
    "openat to read": lambda path: call(257, HERE, path, os.O_RDONLY | os.O_TRUNC, 0),
    "openat for nothing": lambda path: call(257, HERE, path, 3 | os.O_TRUNC, 0),
    "openat2": lambda path: call(
        437, HERE, path, (ctypes.c_ulonglong * 3)(os.O_RDONLY | os.O_TRUNC, 0, 0), 24
    ),
}
ONE = (ctypes.c_int * 1)(0)
ATTRIBUTES = (ctypes.c_uint * 12)(48, 3)  # SCHED_BATCH


def own_signals(pid):
    """A descriptor's news go to another process, as a signal of one's choice."""
    ours, theirs = os.pipe()
    call(72, ours, 8, pid)
    call(72, ours, 10, signal.SIGTERM)
    call(72, ours, 4, os.O_ASYNC)
    os.write(theirs, b"x")


PROCESSES = {
    "kill": lambda pid: call(62, pid, signal.SIGTERM),
    "tkill": lambda pid: call(200, pid, signal.SIGTERM),
    "tgkill": lambda pid: call(234, pid, pid, signal.SIGTERM),
    "fcntl": own_signals,
    "setpriority": lambda pid: call(141, 0, pid, 19),
    "setpriority of all": lambda pid: call(141, 2, 0, 19),
    "setpriority of the group": lambda pid: call(141, 1, os.getpgid(pid), 19),
    "sched_setaffinity": lambda pid: call(203, pid, 8, ctypes.byref(ctypes.c_long(1))),
    "sched_setscheduler": lambda pid: call(144, pid, 3, ONE),
    "sched_setparam": lambda pid: call(142, pid, ONE),
    "sched_setattr": lambda pid: call(314, pid, ATTRIBUTES, 0),
    "ioprio_set": lambda pid: call(251, 1, pid, 3 << 13),
    "ioprio_set of all": lambda pid: call(251, 3, os.getuid(), 3 << 13),
    "prlimit64": lambda pid: call(302, pid, 4, (ctypes.c_ulonglong * 2)(0, 0), None),
}


@pytest.fixture
def place():
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    for name in ("in", "out"):
        (folder / name).mkdir()
    (folder / "out" / "theirs").write_text("as it was")
    with contextlib.suppress(OSError):  # not every file system has them
        os.setxattr(folder / "out" / "theirs", "user.there", b"as it was")
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def inside(place, what, abi=None):
    """What `what` returns, or the number of its error, from a process of an ordinary user that is
    held as a program is; with the Landlock of an older kernel where `abi` says so.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        said: Any = "not held"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            if abi is not None:
                found = min(abi, kernel.landlock_abi())
                kernel.landlock_abi = lambda: found
            kernel.drop_capabilities()
            kernel.restrict_files(
                ["/usr", "/lib", "/lib64", str(place / "out")], [str(place / "in")]
            )
            confinement._let_copies_go_on()
            kernel.refuse_calls(own_processes=False, own_files=False)
            os.chdir(place / "in")
            said = what()
        except OSError as error:
            said = {"errno": error.errno}
        except BaseException as error:
            said = repr(error)
        finally:
            os.write(theirs, json.dumps(said).encode())
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        answer = json.loads(file.read())
    os.waitpid(pid, 0)
    return answer


def state(path):
    found = path.stat()
    names = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return (found.st_mode, found.st_mtime_ns, found.st_ctime_ns, found.st_size, names)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_user_is_not_changed_by(place, name):
    theirs = place / "out" / "theirs"
    before = state(theirs)
    answer = inside(place, lambda: FILES[name](os.fsencode(theirs)))
    assert answer == {"errno": 25 if "ioctl" in name else 1}
    assert state(theirs) == before


@pytest.mark.parametrize("name", EMPTIED)
def test_a_file_is_not_emptied_where_landlock_does_not_look_at_it(place, name):
    theirs = place / "out" / "theirs"
    answer = inside(place, lambda: EMPTIED[name](os.fsencode(theirs)), abi=2)
    assert answer == {"errno": 38 if name == "openat2" else 1}
    assert theirs.read_text() == "as it was"


@pytest.mark.parametrize("abi", [4, None], ids=["older Landlock", "this kernel's"])
@pytest.mark.parametrize("name", PROCESSES)
def test_another_process_of_the_user_is_not_changed_by(place, name, abi):
    whose = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
    with subprocess.Popen(["/usr/bin/sleep", "60"], process_group=0, **whose) as other:
        before = (os.getpriority(os.PRIO_PROCESS, other.pid), os.sched_getaffinity(other.pid))
        try:
            assert inside(place, lambda: PROCESSES[name](other.pid), abi) == {"errno": 1}
            after = (os.getpriority(os.PRIO_PROCESS, other.pid), os.sched_getaffinity(other.pid))
            assert (after, os.sched_getscheduler(other.pid)) == (before, os.SCHED_OTHER)
        finally:
            other.kill()
    assert other.returncode == -signal.SIGKILL


def test_a_socket_that_could_send_to_any_other_is_not_made(place):
    def pair(kind):
        one, two = socket.socketpair(socket.AF_UNIX, kind)
        one.send(b"x")
        return two.recv(1).decode()

    assert inside(place, lambda: pair(socket.SOCK_STREAM)) == "x"
    assert inside(place, lambda: pair(socket.SOCK_DGRAM)) == {"errno": 1}


def test_ordinary_python_goes_on(place):
    def work():
        with tempfile.TemporaryDirectory(dir=".") as folder:
            base = Path(folder)
            os.makedirs(base / "a" / "b")  # noqa: PTH103  as tasks do
            (base / "a" / "b" / "one").touch()
            (base / "a" / "b" / "one").touch()
            (base / "a" / "b" / "one").write_text("1")
            shutil.copy(base / "a" / "b" / "one", base / "two")
            shutil.copy2(base / "a" / "b" / "one", base / "three")
            shutil.copytree(base / "a", base / "c")
            shutil.move(base / "two", base / "four")
            with zipfile.ZipFile(base / "z.zip", "w") as file:
                file.write(base / "three", "three")
            with zipfile.ZipFile(base / "z.zip") as file:
                file.extractall(base / "out")
            with tempfile.NamedTemporaryFile(dir=folder) as file:
                file.write(b"1")
                file.truncate(0)
            with (base / "four").open("w+") as file:
                assert not file.isatty()
            os.sched_setaffinity(0, os.sched_getaffinity(0))
            os.nice(1)
            heard = []
            signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
            signal.raise_signal(signal.SIGUSR1)
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            found = [path.name for path in base.rglob("*") if path.is_file()]
            return [sorted(found), len(heard), (base / "c" / "b" / "one").read_text()]

    assert "x".encode("cp437") == b"x"  # known from here on: not every user reads our interpreter
    for abi in (1, 4, None):
        answer = inside(place, work, abi)
        assert answer == [["four", "one", "one", "three", "three", "z.zip"], 2, "1"], (abi, answer)


def test_what_nothing_holds_is_none():
    has = {"seccomp": False, "landlock": True}
    facts = confinement.facts_of(has, has_namespaces=False, has_root=False)
    assert set(facts.missing) == {"processes", "network", "files", "calls"}
