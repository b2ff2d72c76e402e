"""Confines a program: in namespaces if the kernel grants them, else by other means.

`enter_namespaces` and `build_root` are called by the process that starts the others; `lock_in` by
the program's own process, right before the program.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import wraps
from math import ceil
from pathlib import Path
from typing import Any

from albor_core.eval.code.sandbox import kernel


@dataclass(frozen=True)
class ProgramLimits:
    """Resource limits of one program."""

    wall_s: float = 10.0
    memory_bytes: int = 1 << 30
    """Of the program and its children together; address space of each."""
    file_bytes: int = 16 << 20
    """Of one file."""
    disk_bytes: int = 64 << 20
    processes: int = 32
    """Threads count."""
    files: int = 128
    output_bytes: int = 1 << 20

    @property
    def cpu_s(self) -> int:
        """CPU seconds of one process: above `wall_s`, which ends a single thread first."""
        return ceil(self.wall_s) + 1


@dataclass(frozen=True)
class Facts:
    """The protection used against each kind of harm; "none" if there is none."""

    processes: str
    network: str
    files: str
    calls: str
    user: str

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds of harm without protection, which a program could do."""
        return tuple(name for name, means in asdict(self).items() if means == "none")


def enter_namespaces(without: frozenset[str]) -> bool:
    """Enter new namespaces with this process and its children; False if the kernel grants none."""
    if "namespaces" in without:
        return False
    uid, gid = os.geteuid(), os.getegid()
    try:
        if "user" not in without:
            kernel.unshare(kernel.NAMESPACES)  # for those who may: users stay apart from each other
            return True
    except OSError:
        pass
    try:
        kernel.unshare(kernel.NAMESPACES | kernel.NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:
        return False
    return True


def build_root(limits: ProgramLimits, packages: str) -> bool:
    """Give the process a root file system in memory: the interpreter to read, and an empty /tmp of
    `disk_bytes`. False, with nothing changed, if the kernel refuses.
    """
    sources = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"]
    sources += [sys.base_prefix, *([packages] if packages else [])]
    sources += ["/nix/store"] if sys.base_prefix.startswith("/nix/") else []
    sources += [f"/dev/{name}" for name in ("null", "zero", "urandom", "random")]
    places = ("/mnt", "/media", "/srv", "/var/tmp", "/run", "/tmp")  # noqa: S108
    real = [str(Path(one).resolve()) for one in sources]
    hides = {one for one in places if any(each.startswith(f"{one}/") for each in sources + real)}
    base = next((one for one in places if Path(one).is_dir() and one not in hides), None)
    if base is None:
        return False
    is_made = False
    try:
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        plain = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("tmpfs", base, "tmpfs", plain, "size=1m,nr_inodes=4096,mode=0755")
        is_made = True
        for source in sources:
            _show(source, base)
        _mount_writable(f"{base}/tmp", limits.disk_bytes)  # noqa: S108
        os.chdir(base)
        kernel.pivot_root_here()
        kernel.mount(None, "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | plain)
    except OSError:
        if is_made:
            with contextlib.suppress(OSError):
                kernel.unmount(base)
        return False
    return True


def _show(source: str, base: str) -> None:
    """Mount `source` read-only at the same path below `base`."""
    place = Path(base + source)
    if not Path(source).exists() or place.exists():  # or below one that is there already
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if Path(source).is_symlink():
        place.symlink_to(Path(source).readlink())
        _show(str(Path(source).resolve()), base)
        return
    place.mkdir() if Path(source).is_dir() else place.touch()
    kernel.mount(source, str(place), None, kernel.MS_BIND | kernel.MS_REC)
    if not source.startswith("/dev/"):
        kernel.make_read_only(str(place))


def _mount_writable(path: str, size: int) -> None:
    Path(path).mkdir()
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", path, "tmpfs", flags, f"size={size},nr_inodes=1024,mode=1777")


def drop_root(folder: str, facts: Facts, packages: str, without: frozenset[str]) -> tuple[str, int]:
    """Change from root to a user that owns nothing but `folder`; any other user stays as it is.

    Returns a description of the resulting user, and a mask of the capabilities to keep: one to read
    files, if the interpreter lies in a folder that only root can enter.
    """
    if os.geteuid() != 0 or "user" in without:
        return "our own", 0
    in_reach = facts.files == "mount namespace" or all(
        map(is_open_to_all, filter(None, (sys.base_prefix, packages)))
    )
    if not in_reach:
        kernel.keep_capabilities()
    own = 1_500_000_000 + int.from_bytes(os.urandom(4)) % 500_000_000
    for uid in (own, 65534):
        try:
            os.setgroups([])
            if folder:
                os.chown(folder, uid, uid)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:
            continue  # numbers that this machine's user namespace has not
        return (
            "one of its own" if uid == own else "one that owns nothing",
            0 if in_reach else kernel.READ_ANYTHING,
        )
    return "our own", 0


def is_open_to_all(place: str) -> bool:
    """Whether any user can enter the folder and every folder above it."""
    whole = Path(place).resolve()
    try:
        return all(one.stat().st_mode & 0o001 for one in (whole, *whole.parents))
    except OSError:
        return False


def limit_resources(most_of: Mapping[int, int]) -> None:
    """Set limits of this process by RLIMIT number; a lower existing limit stays."""
    for what, most in most_of.items():
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def lock_in(
    limits: ProgramLimits,
    facts: Facts,
    folder: str,
    packages: str,
    keep: int,
    without: frozenset[str],
) -> None:
    """Apply limits and drop capabilities, files and system calls, irreversibly."""
    limit_resources(
        {
            resource.RLIMIT_CPU: limits.cpu_s,
            resource.RLIMIT_AS: limits.memory_bytes,
            resource.RLIMIT_FSIZE: limits.file_bytes,
            resource.RLIMIT_NOFILE: limits.files,
            resource.RLIMIT_NPROC: limits.processes,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
            resource.RLIMIT_MSGQUEUE: 0,
        }
    )
    kernel.drop_capabilities(keep)
    if facts.files != "mount namespace" and offered(without)["landlock"]:
        readable = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", sys.base_prefix, packages]
        kernel.restrict_files(filter(None, readable), [folder, "/dev/null"])
        _let_copies_go_on()
    if facts.calls == "seccomp":
        kernel.refuse_calls(
            own_processes=facts.processes == "pid namespace",
            own_files=facts.files == "mount namespace",
        )
    os.environ.clear()
    os.environ.update(
        PATH="/usr/bin:/bin", HOME=folder, TMPDIR=folder, LANG="C.UTF-8", OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
    )  # fmt: skip
    os.umask(0o077)
    os.chdir(folder)


def _let_copies_go_on() -> None:
    """Make `shutil` copy contents even where modes and times cannot be set."""

    def leniently(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def call(*arguments: Any, **named: Any) -> None:
            with contextlib.suppress(PermissionError):
                function(*arguments, **named)

        return call

    shutil.copymode, shutil.copystat = leniently(shutil.copymode), leniently(shutil.copystat)


def offered(without: frozenset[str]) -> dict[str, bool]:
    """Which protections besides namespaces exist; called before /proc is hidden."""
    return {
        "seccomp": "seccomp" not in without and kernel.knows_calls(),
        "landlock": "landlock" not in without and kernel.landlock_abi() > 0,
    }


def facts_of(has: dict[str, bool], *, has_namespaces: bool, has_root: bool) -> Facts:
    """The protections, given what the kernel offers. `user` is "" until `drop_root` sets it.

    Landlock alone leaves modes, times and attributes open, and nothing else keeps signals from
    other processes: without the seccomp filter both are "none".
    """
    calls = "seccomp" if has["seccomp"] else "none"
    files = "landlock" if has["landlock"] and has["seccomp"] else "none"
    ended = "adopted and killed" if has["seccomp"] else "none"
    return Facts(
        processes="pid namespace" if has_namespaces else ended,
        network="net namespace" if has_namespaces else calls,
        files="mount namespace" if has_root else files,
        calls=calls,
        user="",
    )
