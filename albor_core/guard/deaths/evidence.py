"""What can still be learned about a death: logs, kernel messages, memory control group, GPUs.

Every look is bounded (3 s, some KiB) and may find nothing: None means unknown, never "none".
"""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from albor_core.guard.policy import TrainerWords
from albor_core.run.values.lenient import finite_of, parsed
from albor_core.run.values.metrics import printable

TOOL_LIMIT_S = 3.0
_LOG_BYTES = 64 << 10
_TOOL_BYTES = 1 << 20
_LOG_LINES = 200
_LINE_CHARS = 2048
_KERNEL_LINES = 20
_REASON_CHARS = 500
_KMSG_RECORDS = 20_000
_THREADS = 64
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([^)]*)\): (\d+)")
_TRACE_FILE = re.compile(r'^\s*File "([^"]+)", line (\d+)')
_TRACE_ERROR = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning))(?::\s?(.*))?$"
)
_TRACE_ODD = re.compile(r"^([A-Za-z_][\w.]*)(?::\s(.*))?$")
_GPU_FIELDS = (
    "uuid",
    "name",
    "memory.used",
    "memory.total",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "ecc.errors.uncorrected.volatile.total",
)
_GPU_KEYS = ("uuid", "name", "mem_used", "mem_total", "util", "temp_c", "power_w", "ecc_uncorr")
_MIB = 1 << 20


# --- logs ----------------------------------------------------------------------------------------


def log_tail(path: Path) -> list[str]:
    """The last lines of a log, each cut to 2048 characters; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            raw = file.read(_LOG_BYTES)
    except OSError:
        return []
    lines = raw.decode("utf-8", "replace").splitlines()
    return [line[:_LINE_CHARS] for line in lines[-_LOG_LINES:]]


def python_error(lines: list[str]) -> tuple[str, str, str] | None:
    """Type, message and file:line of the last uncaught Python exception in a log."""
    for end in range(len(lines) - 1, -1, -1):
        found = _TRACE_ERROR.match(lines[end]) or _odd_error(lines, end)
        if found is None:
            continue
        for line in reversed(lines[:end]):
            place = _TRACE_FILE.match(line)
            if place is not None:
                return found[1], found[2] or "", f"{place[1]}:{place[2]}"
    return None


def error_line(
    words: TrainerWords | None,
    python: tuple[str, str, str] | None,
    log: list[str],
    code: int | None,
) -> str:
    """One line for how a program failed: its exception as Python says it, else its exit code and
    the last line that it wrote; "" where it wrote nothing.
    """
    if words is not None and words.error_type not in ("", "SystemExit"):
        found = _exception(words.error_type, words.error_message)
    elif python is not None and code in (None, 1):  # else it was caught, and something else said
        found = _exception(python[0], python[1])
    else:
        last = next((line for line in reversed(log) if line.strip()), "")
        text = printable(last.rstrip("\r").rpartition("\r")[2].strip())
        found = f"exited with code {code}: {text}" if text and code is not None else ""
    return found if len(found) <= _REASON_CHARS else found[: _REASON_CHARS - 3] + "..."


def _exception(kind: str, message: str) -> str:
    first = printable(message.strip().partition("\n")[0])
    return f"{kind}: {first}" if first else kind


def _odd_error(lines: list[str], at: int) -> re.Match[str] | None:
    """An exception whose name does not say that it is one: it stands right below its frame."""
    found = _TRACE_ODD.match(lines[at])
    frame = lines[max(0, at - 4) : at]
    is_below = bool(frame) and frame[-1].startswith("  ") and any(map(_TRACE_FILE.match, frame))
    return found if is_below else None


# --- the kernel ----------------------------------------------------------------------------------


def kernel_lines(since_mono_s: float) -> list[str] | None:
    """Kernel messages since a time on the monotonic clock; None where they may not be read."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    lines = []
    try:
        for _ in range(_KMSG_RECORDS):
            try:
                record = os.read(fd, 8192).decode("utf-8", "replace")
            except BrokenPipeError:  # this record was overwritten meanwhile; the next read goes on
                continue
            head, _, text = record.partition(";")
            stamp = head.split(",")
            if len(stamp) > 2 and stamp[2].isdigit() and int(stamp[2]) / 1e6 >= since_mono_s:
                lines.append(text.split("\n", 1)[0])
    except BlockingIOError:
        return lines
    except OSError:
        return None
    finally:
        os.close(fd)
    return lines


def xids(lines: Iterable[str]) -> list[dict[str, Any]]:
    """NVIDIA driver errors among kernel messages: {code, pci, line}."""
    return [
        {"code": int(match[2]), "pci": match[1], "line": line[:300]}
        for line in lines
        if (match := _XID.search(line))
    ][:_KERNEL_LINES]


def oom_lines(lines: Iterable[str], pid: int) -> list[str]:
    """Kernel messages that say this process was killed for memory."""
    wanted = re.compile(rf"\b[Kk]illed process {pid}\b|oom-kill:.*\bpid={pid}\b")
    return [line[:300] for line in lines if wanted.search(line)][:_KERNEL_LINES]


def oom_kills() -> int | None:
    """How often the kernel killed for memory in our memory control group so far."""
    for path, key in _memory_files():
        try:
            text = path.read_text()
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == key and value.isdigit():
                return int(value)
    return None


def rss_peak() -> int | None:
    """Bytes that the largest program which we started and saw end ever had in memory."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 or None


def cgroup_version() -> str | None:
    """v1, v2, or None where there is neither."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return "v2"
    return "v1" if (root / "memory").is_dir() else None


def _memory_files() -> list[tuple[Path, str]]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    root = Path("/sys/fs/cgroup")
    found = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        group = group.lstrip("/")
        if not controllers:
            found.append((root / group / "memory.events", "oom_kill"))
        elif "memory" in controllers.split(","):
            found.append((root / "memory" / group / "memory.oom_control", "oom_kill"))
            found.append((root / "memory" / "memory.oom_control", "oom_kill"))  # in a container
    return found


# --- a process that hangs ------------------------------------------------------------------------


def threads_of(pid: int) -> list[dict[str, Any]]:
    """The state of each thread of a process: name, state, kernel wait channel and stack."""
    found = []
    try:
        tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name))
    except OSError:
        return []
    for task in tasks[:_THREADS]:
        status = _text(task / "status") or ""
        lines = dict(line.partition(":\t")[::2] for line in status.splitlines())
        stack = _text(task / "stack")
        found.append(
            {
                "tid": int(task.name),
                "name": lines.get("Name"),
                "state": lines.get("State"),
                "wchan": _text(task / "wchan"),
                "stack": None if stack is None else stack.splitlines()[:16],
            }
        )
    return found


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()[:4096]
    except OSError:
        return None


# --- the machine ---------------------------------------------------------------------------------


def gpu_report() -> dict[str, Any]:
    """GPUs as a short-lived nvidia-smi sees them; `error` says why there are none."""
    output = _run_briefly(
        ["nvidia-smi", "--query-gpu=" + ",".join(_GPU_FIELDS), "--format=csv,noheader,nounits"],
        TOOL_LIMIT_S,
    )
    if output is None:
        return {"source": "none", "error": "nvidia-smi is missing, failed or hung", "devices": []}
    devices = [device for line in output.splitlines() if (device := _device(line))]
    processes = gpu_processes() or []
    for device in devices:
        device["procs"] = [process for process in processes if process["uuid"] == device["uuid"]]
    error = None if devices else "nvidia-smi answered nothing that can be read"
    return {"source": "nvidia-smi", "error": error, "devices": devices}


def _device(line: str) -> dict[str, Any] | None:
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(_GPU_KEYS):
        return None
    device: dict[str, Any] = dict(zip(_GPU_KEYS[:2], values[:2], strict=True))
    for key, value in zip(_GPU_KEYS[2:], values[2:], strict=True):
        number = finite_of(parsed(value))
        device[key] = number if number is None or not key.startswith("mem_") else int(number * _MIB)
    return device


def gpu_processes() -> list[dict[str, Any]] | None:
    """Who computes on which GPU: {pid, uuid, mem}; None if nvidia-smi cannot say."""
    output = _run_briefly(
        [
            "nvidia-smi",
            "--query-compute-apps=pid,gpu_uuid,used_memory",
            "--format=csv,noheader,nounits",
        ],
        TOOL_LIMIT_S,
    )
    if output is None:
        return None
    found = []
    for line in output.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == 3 and values[0].isdigit():
            memory = finite_of(parsed(values[2]))
            found.append(
                {
                    "pid": int(values[0]),
                    "uuid": values[1],
                    "mem": None if memory is None else int(memory * _MIB),
                }
            )
    return found


def host_report(folder: Path) -> dict[str, Any]:
    """Memory, disks, load and kernel of this machine now."""
    return {
        "mem_avail": _memory_available(),
        "disk_free": disk_free(folder),
        "shm_free": disk_free(Path("/dev/shm")),  # noqa: S108 - the shared-memory disk itself
        "load": list(os.getloadavg()),
        "kernel": os.uname().release,
        "cgroup": cgroup_version(),
    }


def disk_free(folder: Path) -> int | None:
    """Bytes a user may still write where `folder` lives."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _memory_available() -> int | None:
    match = re.search(
        r"^MemAvailable:\s+(\d+) kB", _text(Path("/proc/meminfo")) or "", re.MULTILINE
    )
    return None if match is None else int(match[1]) * 1024


def uptime_s() -> float | None:
    """Seconds since boot, suspend included."""
    try:
        return round(time.clock_gettime(time.CLOCK_BOOTTIME), 1)
    except OSError:
        return None


def _run_briefly(argv: list[str], limit_s: float) -> str | None:
    """Output of a short-lived tool; None if it is missing, fails or takes longer than `limit_s`.

    Never waits for a tool that SIGKILL cannot end (nvidia-smi on a hung driver): the corpse is
    reaped with other orphans.
    """
    try:
        tool = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    assert tool.stdout is not None
    output, deadline = bytearray(), time.monotonic() + limit_s
    with tool.stdout as pipe:
        while (left := deadline - time.monotonic()) > 0 and len(output) < _TOOL_BYTES:
            if not select.select([pipe], [], [], left)[0]:
                break
            part = os.read(pipe.fileno(), 65536)
            if not part:
                break
            output += part
    try:
        code = tool.wait(max(0.05, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        tool.kill()
        code = tool.returncode = -signal.SIGKILL  # ends Popen's own interest in it
    return output.decode(errors="replace") if code == 0 else None
