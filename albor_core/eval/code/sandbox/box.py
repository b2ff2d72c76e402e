"""Runs and judges one program in a sandbox: `run_program` returns a verdict and leaves nothing
behind.

A secret word of each run authenticates the verdict: it is sent to the judge after the program's
process was forked, so that process never holds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albor_core.eval.code.sandbox import kernel
from albor_core.eval.code.sandbox.confinement import Facts, ProgramLimits, is_open_to_all
from albor_core.run.errors import AlborError

_ROOT = str(Path(__file__).resolve().parents[4])
_START = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from albor_core.eval.code.sandbox.inside import main; main()"
)
_POLL_S, _STARTUP_S, _ENDING_S = 0.1, 60.0, 20.0
_OURS = 4  # processes of the sandbox itself, beside those of the program
SEE = "docs/how-to/evaluate-code.md says what a machine must allow"
_HEAD = 4096  # bytes of a program's output that are kept


@dataclass(frozen=True)
class ProgramJob:
    """A program, and the tests that judge it."""

    program: str
    tests: str
    names: tuple[str, ...] = ()
    """What the program is to define; taken from it even where tests or Python have such a name."""
    helpers: str = ""
    """Code of the task that its tests rely on, trusted as they are."""


@dataclass(frozen=True)
class ProgramVerdict:
    """`outcome` is `passed`, `failed` (a test), `error` (before any test), or the limit that ended
    the program: `timeout`, `memory`, `processes`, `output`, `disk`.
    """

    outcome: str
    detail: str
    output: str
    seconds: float
    facts: Facts

    @property
    def is_passed(self) -> bool:
        return self.outcome == "passed"


def run_program(
    job: ProgramJob,
    limits: ProgramLimits | None = None,
    *,
    without: frozenset[str] = frozenset(),
) -> ProgramVerdict:
    """Run `job` in a sandbox and judge it. `without` disables protections (`namespaces`,
    `landlock`, `seccomp`, `user`), to test the others. Raises AlborError if no program can be run
    at all.
    """
    limits = limits or ProgramLimits()
    with _work_folder() as folder:
        settings = {
            "parent": os.getpid(), "path": _ROOT, "limits": asdict(limits), "folder": str(folder),
            "without": sorted(without),
            "packages": sysconfig.get_paths()["purelib"],
        }  # fmt: skip
        words = [sys.executable, "-s", "-S", "-P", "-B", "-c", _START.format(root=_ROOT)]
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        process = subprocess.Popen(
            [*words, json.dumps(settings)], cwd="/", start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"} | kept,
        )  # fmt: skip
        return _Watch(process, job, limits, folder).verdict()


class _Watch:
    """Listens to one sandbox until all its processes are gone."""

    def __init__(
        self, process: subprocess.Popen[bytes], job: ProgramJob, limits: ProgramLimits, folder: Path
    ) -> None:
        self._process, self._limits, self._folder = process, limits, folder
        self._word = secrets.token_hex(16)
        self._job = json.dumps({**asdict(job), "word": self._word}).encode()
        self._said, self._output, self._output_bytes = bytearray(), bytearray(), 0
        self._judge, self._ended_by = -1, ""
        self._started = time.monotonic()
        self._clock: float | None = None  # when the program's own time began

    def verdict(self) -> ProgramVerdict:
        try:
            self._listen()
        except BaseException:
            self._kill()
            raise
        finally:
            self._end()
        told: dict[str, Any] = {}
        for line in self._said.splitlines():
            with contextlib.suppress(ValueError):
                told |= json.loads(line)
        output = self._output.decode(errors="replace")
        if "facts" not in told or "unable" in told:
            said = told.get("unable") or output.strip() or "it ended before it began"
            last = str(said).splitlines()[-1]
            raise AlborError(f"cannot run a program apart: {last}", hint=SEE)
        is_judged = told.get("word") == self._word
        outcome = self._ended_by or (told["outcome"] if is_judged else "failed")
        detail = _ENDINGS.get(outcome, "") or str(told.get("detail", "the judge was ended"))
        seconds = time.monotonic() - (self._clock or self._started)
        return ProgramVerdict(outcome, detail, output, seconds, Facts(**told["facts"]))

    def _listen(self) -> None:
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin and stdout and stderr
        os.set_blocking(stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(stdin, selectors.EVENT_WRITE)
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            while any(key.fileobj is not stdin for key in selector.get_map().values()):
                for key, _ in selector.select(_POLL_S):
                    if key.fileobj is stdin:
                        is_done = self._write(stdin.fileno())
                    else:
                        is_done = self._read(key.fd, is_output=key.fileobj is stderr)
                    if is_done:
                        selector.unregister(key.fileobj)
                        if key.fileobj is stdin:
                            with contextlib.suppress(OSError):
                                stdin.close()
                if (over := self._over_limit()) and not self._ended_by:
                    self._ended_by = over
                    self._kill()

    def _write(self, fd: int) -> bool:
        try:
            self._job = self._job[os.write(fd, self._job) :]
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not self._job

    def _read(self, fd: int, *, is_output: bool) -> bool:
        part = os.read(fd, 65536)
        if is_output:
            self._output_bytes += len(part)
            self._output += part[: _HEAD - len(self._output)]
        else:
            self._said += part
            if self._judge < 0 and b"\n" in self._said:
                with contextlib.suppress(OSError):  # it has judged and is gone
                    self._judge = os.pidfd_open(json.loads(self._said.split(b"\n")[0])["judge"])
            if self._clock is None and self._said.count(b"\n") > 1:
                self._clock = time.monotonic()
        return not part

    def _over_limit(self) -> str:
        limits, now = self._limits, time.monotonic()
        if self._clock is None:
            return "timeout" if now - self._started > _STARTUP_S else ""
        if now - self._clock > limits.wall_s:
            return "timeout"
        if self._output_bytes > limits.output_bytes:
            return "output"
        if now - self._clock < _POLL_S:  # most programs are over by then
            return ""
        below = kernel.descendants(self._process.pid)
        if len(below) > limits.processes + _OURS:  # the kernel does not hold root to its count
            return "processes"
        if _memory(below) > limits.memory_bytes:
            return "memory"
        return "disk" if _size(self._folder) > limits.disk_bytes else ""

    def _kill(self) -> None:
        """Kill the judge, and thereby all others: the process that started it ends them, and then
        itself."""
        with contextlib.suppress(ProcessLookupError):
            if self._judge >= 0:
                signal.pidfd_send_signal(self._judge, signal.SIGKILL)
            else:
                self._process.terminate()

    def _end(self) -> None:
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                assert pipe
                pipe.close()
        if self._judge >= 0:
            os.close(self._judge)


_ENDINGS = {
    "timeout": "it ran past its time",
    "memory": "it took too much memory",
    "processes": "it started too many processes",
    "output": "it printed too much",
    "disk": "it wrote too much",
}


def _memory(processes: Iterable[int]) -> int:
    """Resident bytes of all these processes."""
    pages = 0
    for pid in processes:
        with contextlib.suppress(OSError, IndexError):  # gone since
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _size(folder: Path) -> int:
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(path, name)).st_blocks * 512
    return total


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    """A folder for a program without a file system of its own; removed afterwards with all
    contents."""
    folder = Path(tempfile.mkdtemp(prefix="albor-code-", dir=_place()))
    try:
        yield folder
    finally:
        try:
            folder.rmdir()
        except OSError:  # as deep as it may be, and whatever may not be entered
            subprocess.run(["chmod", "-R", "u+rwx", folder], check=False, capture_output=True)
            subprocess.run(["rm", "-rf", "--", folder], check=False, capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


def _place() -> str | None:
    """A folder that any user can enter, if the program's user changes (`drop_root`), else None."""
    if os.geteuid() != 0:
        return None
    return next(filter(is_open_to_all, (tempfile.gettempdir(), "/tmp", "/var/tmp")), None)  # noqa: S108
