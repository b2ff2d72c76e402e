"""A run on disk: where each file is, what may name a run, and how its small files are read.

    RUN_DIR/  run.json config.yaml config.resolved.json script.txt training_state.json journal.jsonl
              system.jsonl annotations.jsonl checkpoints/ eval/ guard/ crash-reports/ logs/ traces/
              exit.json run.lock pulled.json .albor/experiments.db .albor/watch.json

One writer per file. Standard library only: the guard imports this.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from albor_core.run.errors import NotFoundError
from albor_core.run.light_dataclass import dataclass
from albor_core.run.liveness import Liveness, liveness

RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MAX_JSON_BYTES = 1 << 20
FRESH_S = 60.0
"""A run directory this young may still be waiting for its guard and its index process; one that has
not begun by then does not come.
"""
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFLNK: "a link"}


def is_run_id(text: str) -> bool:
    """Whether `text` may name a run: it becomes a folder name, so nothing that could escape one."""
    return RUN_ID.fullmatch(text) is not None


def new_run_id(name: str) -> str:
    """A fresh id: a readable slug of `name`, and 6 random hex digits so that parallel starts
    differ.
    """
    slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:48] or "run"
    return f"{slug}-{os.urandom(3).hex()}"


@dataclass(frozen=True)
class RunDir:
    """The paths of one run. Opening nothing, holding nothing.

    `alias`: how this home calls it where its own id is another run's (see `known_as`).
    """

    path: Path
    alias: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """The name of the run in this home."""
        return self.alias or self.path.name

    @property
    def own_id(self) -> str:
        """The name of the run in its own files and store."""
        return self.path.name

    @property
    def run_json(self) -> Path:
        return self.path / "run.json"

    @property
    def config_yaml(self) -> Path:
        return self.path / "config.yaml"

    @property
    def config_resolved(self) -> Path:
        return self.path / "config.resolved.json"

    @property
    def script(self) -> Path:
        """The script that was run, where no commit holds it; secrets taken out."""
        return self.path / "script.txt"

    @property
    def state(self) -> Path:
        return self.path / "training_state.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def annotations(self) -> Path:
        return self.path / "annotations.jsonl"

    @property
    def system(self) -> Path:
        """The file of machine and program figures, and of alerts, from the index process."""
        return self.path / "system.jsonl"

    @property
    def watch(self) -> Path:
        """Who watches the run, by which rules: run/files/watch_file.py."""
        return self.path / ".albor" / "watch.json"

    @property
    def spans(self) -> Path:
        """The file that records which spans were sent to a collector: run/files/spans_file.py."""
        return self.path / ".albor" / "spans.json"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def evaluations(self) -> Path:
        """The folder of evaluations, one folder per evaluation of a checkpoint:
        albor_core/eval/kept.py."""
        return self.path / "eval"

    @property
    def guard(self) -> Path:
        return self.path / "guard"

    @property
    def guard_json(self) -> Path:
        return self.guard / "guard.json"

    @property
    def attempts(self) -> Path:
        return self.guard / "attempts.jsonl"

    @property
    def launch(self) -> Path:
        """The file of what the guard starts: argv, environment additions, working directory,
        options."""
        return self.guard / "launch.json"

    @property
    def crash_reports(self) -> Path:
        return self.path / "crash-reports"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def exit(self) -> Path:
        return self.path / "exit.json"

    @property
    def pulled(self) -> Path:
        """The file that marks the folder as a copy, and of what: run/files/pulled_file.py."""
        return self.path / "pulled.json"

    @property
    def run_lock(self) -> Path:
        return self.path / "run.lock"

    @property
    def guard_lock(self) -> Path:
        return self.guard / "guard.lock"

    @property
    def index_lock(self) -> Path:
        return self.path / ".albor" / "index.lock"

    @property
    def store(self) -> Path:
        return self.path / ".albor" / "experiments.db"

    def log(self, attempt: int) -> Path:
        """The program's stdout and stderr in one attempt."""
        return self.logs / f"a{attempt:04d}.log"

    def newest_log(self) -> Path | None:
        """The log of the latest attempt, or None before the first."""
        return max(self.logs.glob("a*.log"), default=None)

    def liveness(self) -> Liveness:
        """Who works on this run now."""
        return liveness(self.run_lock, self.guard_lock)

    def metadata(self) -> dict[str, Any]:
        """run.json. Raises NotFoundError where this is not a run directory."""
        found = read_json(self.run_json)
        if found is None:
            raise NotFoundError(
                f"{self.path}: no readable run.json, so this is not a run directory",
                hint="albor runs ls",
            )
        return found


def folder_of(reference: str) -> Path | None:
    """The folder that `reference` names, if it names one that we can look into."""
    try:
        path = Path(reference).expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError):  # a name too long for the kernel; ~ of an unknown user
        return None


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any] | None:
    """A small JSON object that another process may be replacing or that was planted; None for
    anything else.

    Bounded, never follows a link and never blocks on a FIFO.
    """
    try:
        return load_json(path, limit)
    except (OSError, ValueError):
        return None


def load_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """A JSON object, as `read_json`. Raises OSError, or ValueError that says what the file is: "is
    a folder"."""
    try:
        with open_plain(path) as file:
            raw = file.read(limit + 1)
    except NotPlainError as error:
        raise ValueError(error.strerror) from error
    if len(raw) > limit:
        raise ValueError(f"is larger than {limit >> 10} KiB")
    if not raw.strip(b"\0"):
        raise ValueError("is all NUL" if raw else "is empty")
    try:
        document = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError("is not complete JSON") from error
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object")
    return document


class NotPlainError(OSError):
    """A folder, FIFO, link or device where a plain file was meant; `strerror` says which."""


def open_plain(path: Path) -> BinaryIO:
    """A plain file, open for reading: not through a link, and without waiting for the writer of a
    FIFO. Raises OSError, NotPlainError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO) and (what := not_plain(path)):
            raise NotPlainError(errno.EINVAL, what, str(path)) from error
        raise
    kind = os.fstat(fd).st_mode
    if not stat.S_ISREG(kind):
        os.close(fd)  # fdopen would raise on a folder
        raise NotPlainError(errno.EINVAL, _kind(kind), str(path))
    return os.fdopen(fd, "rb")


def not_plain(path: Path) -> str:
    """ "is a FIFO", and the like; "" for a plain file and where there is none."""
    try:
        kind = path.lstat().st_mode
    except OSError:
        return ""
    return "" if stat.S_ISREG(kind) else _kind(kind)


def _kind(mode: int) -> str:
    return f"is {_KINDS.get(stat.S_IFMT(mode), 'not a plain file')}"


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
