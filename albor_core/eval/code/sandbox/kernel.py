"""Kernel functions that confine a program: namespaces, mounts, Landlock, seccomp, capabilities.

Thin calls through ctypes, for Linux on x86-64 and arm64. Each raises OSError if the kernel refuses;
the caller decides on a fallback.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000
NEWUSER, NEWPID, NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
NAMESPACES = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2

READ_ANYTHING = 1 << 2  # CAP_DAC_READ_SEARCH
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_KEEPCAPS, _CAPBSET_DROP = 1, 4, 8, 24
_SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS, _SET_SECCOMP = 36, 38, 22
_KILL = 9


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int, what: str) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), what)


def _syscall(number: int, what: str, *arguments: object) -> int:
    return _checked(int(_libc.syscall(ctypes.c_long(number), *arguments)), what)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    done = _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _checked(done, f"mount {target}")


def unmount(target: str) -> None:
    """Unmount `target`, lazily if it is busy."""
    _checked(_libc.umount2(os.fsencode(target), _DETACH), f"unmount {target}")


def pivot_root_here() -> None:
    """Make the working directory the root, so that nothing above it can be reached."""
    _syscall(_CALLS["pivot_root"], "pivot_root", b".", b".")
    unmount(".")
    os.chdir("/")


def make_read_only(path: str) -> None:
    """Make the mount at `path` and those below it read-only, without setuid and devices."""
    attributes = struct.pack("=QQQQ", MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)
    where, recursive = os.fsencode(path), 0x8000
    try:
        _syscall(442, "mount_setattr", -100, where, recursive, attributes, len(attributes))
    except OSError:  # before Linux 5.12: the mount alone, with the flags it may not lose
        flags = os.statvfs(path).f_flag & 0xF | MS_RDONLY | MS_NOSUID | MS_NODEV
        mount(None, path, None, MS_BIND | MS_REMOUNT | flags)


def die_with_parent(signal: int = _KILL) -> None:
    """Have the kernel send `signal` to this process when the thread that started it ends."""
    _prctl(_SET_PDEATHSIG, signal, "prctl")


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants."""
    _prctl(_SET_CHILD_SUBREAPER, 1, "prctl")


def hide_memory() -> None:
    """Forbid other processes of this user to trace this one or read its memory."""
    _prctl(_SET_DUMPABLE, 0, "prctl")


def keep_capabilities() -> None:
    """Keep capabilities over the next change of user, so that `drop_capabilities` can leave one."""
    _prctl(_SET_KEEPCAPS, 1, "prctl")


def drop_capabilities(keep: int = 0) -> None:
    """Drop all capabilities of this process and its children; those of the mask `keep` stay in this
    process."""
    _prctl(_SET_NO_NEW_PRIVS, 1, "prctl")
    for number in range(64):
        if _libc.prctl(_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break  # past the last, or none to drop
    header, kept = (
        struct.pack("=Ii", 0x2008_0522, 0),
        struct.pack("=IIIIII", keep, keep, 0, 0, 0, 0),
    )
    _checked(_libc.capset(header, kept), "capset")


# Landlock: which files a process may use; needs no privileges, from Linux 5.13 on.

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ, _ALL = 0b1101, {1: 13, 2: 14, 3: 15, 4: 15}  # execute, read file, read folder; rights by ABI
_OF_FILES = 0b110 | 1 | 1 << 14 | 1 << 15  # what a rule on a file may grant


def landlock_abi() -> int:
    """The version of Landlock; 0 if the kernel lacks it."""
    return max(0, int(_libc.syscall(ctypes.c_long(_LANDLOCK_CREATE), None, 0, 1)))


def restrict_files(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Restrict this process and its children to files below these folders, from now on."""
    abi = landlock_abi()
    rights = (1 << _ALL.get(abi, 16)) - 1
    network = 0b11 if abi >= 4 else 0  # no TCP either
    scope = 0b11 if abi >= 6 else 0  # no signals out, no abstract sockets
    attributes = struct.pack("=QQQ", rights, network, scope)[: 8 if abi < 4 else 16 + 8 * (abi > 5)]
    ruleset = _syscall(_LANDLOCK_CREATE, "landlock", attributes, len(attributes), 0)
    for paths, granted in ((readable, _READ), (writable, rights)):
        for path in filter(os.path.exists, paths):
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = granted & rights & (-1 if os.path.isdir(path) else _OF_FILES)  # noqa: PTH112
            rule = struct.pack("=Qi", allowed, file)
            _syscall(_LANDLOCK_ADD, "landlock", ruleset, 1, rule, 0)
            os.close(file)
    _prctl(_SET_NO_NEW_PRIVS, 1, "prctl")
    _syscall(_LANDLOCK_RESTRICT, "landlock", ruleset, 0)
    os.close(ruleset)


# seccomp: system calls that no task needs, refused with EPERM. Numbers of x86-64 and arm64.

_ARCHITECTURES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}
_NONE = -1  # arm64 never had the call
_TABLE: dict[str, tuple[int, int]] = {
    "pivot_root": (155, 41), "socket": (41, 198),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "perf_event_open": (298, 241),
    # the file system and the namespaces the program is in
    "mount": (165, 40), "umount2": (166, 39), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "quotactl": (179, 60), "fanotify_init": (300, 262), "acct": (163, 89),
    "swapon": (167, 224), "swapoff": (168, 225),
    # the machine
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    "syslog": (103, 116), "personality": (135, 92),
    # large doors into the kernel
    "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "vmsplice": (278, 75),
    # memory that no limit counts
    "memfd_create": (319, 279), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180),
}  # fmt: skip
_TO_OTHERS: dict[str, tuple[int, int]] = {  # where the program shares processes with the user
    "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "ioprio_set": (251, 30),
}  # fmt: skip
_PAST_LANDLOCK: dict[str, tuple[int, int]] = {  # where it shares files: who owns one may always
    "chmod": (90, _NONE), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, _NONE), "fchown": (93, 55), "lchown": (94, _NONE), "fchownat": (260, 54),
    "utime": (132, _NONE), "utimes": (235, _NONE), "futimesat": (261, _NONE),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
_BY_ARGUMENT: dict[str, tuple[int, int]] = {
    "clone": (56, 220), "clone3": (435, 435), "prlimit64": (302, 261), "tgkill": (234, 131),
    "setpriority": (141, 140), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "fcntl": (72, 25),
    "ioctl": (16, 29), "truncate": (76, 45), "open": (2, _NONE), "openat": (257, 56),
    "openat2": (437, 437), "socketpair": (53, 199),
}  # fmt: skip
_OWNS = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: a signal of one's choice to any process
_ASKS = (
    0x5401, 0x802C_542A, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451,
)  # fmt: skip  # TCGETS, TCGETS2, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_TRUNCATES, _HOLDS_TRUNCATION = 0x200, 3  # O_TRUNC, and the Landlock ABI that looks at it
_COLUMN, _ARCHITECTURE = _ARCHITECTURES.get(platform.machine(), (0, 0))


def _numbers(of: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """System call numbers by name, on this architecture; calls that it lacks are left out."""
    here = {name: numbers[_COLUMN] for name, numbers in of.items()}
    return {name: number for name, number in here.items() if number != _NONE}


_CALLS = _numbers(_TABLE | _BY_ARGUMENT)

_ALLOW, _END = 0x7FFF_0000, 0x8000_0000
_REFUSE, _NOT_THERE, _NO_TERMINAL = 0x0005_0001, 0x0005_0026, 0x0005_0019
_NEW_NAMESPACES = NAMESPACES | NEWUSER | NEWCGROUP | 0x80
_Line = tuple[int, int, int, int]


def _load(offset: int) -> _Line:
    return (0x20, 0, 0, offset)


def _answer(value: int) -> _Line:
    return (0x06, 0, 0, value)


def _unless_equal(value: int, skip: int) -> _Line:
    return (0x15, 0, skip, value)


def _when(call: int, then: Sequence[_Line]) -> list[_Line]:
    """Filter lines for one system call; `then` must end with an answer."""
    return [_unless_equal(call, len(then)), *then]


def _argument(place: int) -> _Line:
    """The filter line that loads the low word of an argument."""
    return _load(16 + 8 * place)


def _only(
    place: int, values: Sequence[int], found: int = _ALLOW, other: int = _REFUSE
) -> list[_Line]:
    """Filter lines that answer `found` if an argument is one of `values`, else `other`."""
    count = len(values)
    tests = [(0x15, count - at, 0, value) for at, value in enumerate(values)]
    return [_argument(place), *tests, _answer(other), _answer(found)]


def _filter(*, own_processes: bool, own_files: bool) -> list[_Line]:
    lines = [_load(4), (0x15, 1, 0, _ARCHITECTURE), _answer(_END), _load(0)]
    lines += [(0x35, 0, 1, 0x4000_0000), _answer(_REFUSE)]  # the x32 names of the same calls
    refused = _numbers(_TABLE)
    if not own_processes:
        refused |= _numbers(_TO_OTHERS)
    if not own_files:
        refused |= _numbers(_PAST_LANDLOCK)
    for call in refused.values():
        lines += _when(call, [_answer(_REFUSE)])
    by_argument = {
        "clone3": [_answer(_NOT_THERE)],  # its flags are out of a filter's sight
        "clone": [
            _argument(0), (0x45, 0, 1, _NEW_NAMESPACES), _answer(_REFUSE), _answer(_ALLOW),
        ],
        "prlimit64": _only(0, (0, os.getpid())),
        # one that keeps no connection can be sent from to any socket that has a path
        "socketpair": [_argument(1), (0x54, 0, 0, 0xF), *_only(1, (2, 3), _REFUSE, _ALLOW)[1:]],
    }  # fmt: skip
    if not own_processes:
        by_argument |= _of_other_processes()
    if not (own_processes and own_files):
        by_argument["ioctl"] = _only(1, _ASKS, other=_NO_TERMINAL)
    if not own_files and landlock_abi() < _HOLDS_TRUNCATION:
        by_argument |= _of_truncation()
    for name, then in by_argument.items():
        if name in _CALLS:
            lines += _when(_CALLS[name], then)
    return [*lines, _answer(_ALLOW)]


def _of_other_processes() -> dict[str, list[_Line]]:
    """Filter rules of calls that a process may apply to itself only; 0 is the caller, and signals
    name it by its number."""
    own = _only(0, (0, os.getpid()))
    names = ("sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
    of_process = [_argument(0), (0x15, 1, 0, 0), _answer(_REFUSE), *_only(1, (0, os.getpid()))]
    return dict.fromkeys(names, own) | {
        "tgkill": _only(0, (os.getpid(),)),
        "setpriority": of_process,
        "fcntl": _only(1, _OWNS, _REFUSE, _ALLOW),
    }


def _of_truncation() -> dict[str, list[_Line]]:
    """Filter rules of calls that truncate a file without write permission, which an old Landlock
    does not check."""

    def opening(flags: int) -> list[_Line]:
        wanted = [_argument(flags), (0x54, 0, 0, _TRUNCATES | 3)]
        return [*wanted, *_only(flags, (_TRUNCATES, _TRUNCATES | 3), _REFUSE, _ALLOW)[1:]]

    return {
        "truncate": [_answer(_REFUSE)],
        "open": opening(1),
        "openat": opening(2),
        "openat2": [_answer(_NOT_THERE)],  # its flags are out of sight
    }


def refuse_calls(*, own_processes: bool, own_files: bool) -> None:
    """Install a permanent filter for this process and its children: no network, no tracing, no
    mounts, no keys.

    Unless it has `own_processes` it also cannot change other processes. Unless it has `own_files`
    it cannot set modes, owners, times and attributes, not even in its own folder: a filter sees no
    paths.
    """
    if not _ARCHITECTURE:
        raise OSError(38, f"no filter of system calls is known for {platform.machine()}")
    code = b"".join(
        struct.pack("=HBBI", *line)
        for line in _filter(own_processes=own_processes, own_files=own_files)
    )
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
    _prctl(_SET_NO_NEW_PRIVS, 1, "prctl")
    _checked(_libc.prctl(_SET_SECCOMP, 2, program, 0, 0), "seccomp")


def descendants(of: int) -> list[int]:
    """All descendants of a process, parents first, as far as visible now."""
    found, stack = [], [of]
    while stack:
        children = _children(stack.pop())
        found += children
        stack += children
    return found


def _children(of: int) -> list[int]:
    """The children of all threads of a process, without those already gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process is gone, at once or while its threads are read
        for thread in Path(f"/proc/{of}/task").iterdir():
            with contextlib.suppress(OSError):  # this thread is
                found += map(int, (thread / "children").read_text().split())
    return found


def knows_calls() -> bool:
    """Whether system calls can be filtered here: their numbers are known, and the kernel supports
    filters."""
    return bool(_ARCHITECTURE) and Path("/proc/sys/kernel/seccomp/actions_avail").exists()
