"""Runs of Albor from elsewhere, copied into this home: by `albor runs pull` from another host, by
`albor runs import` from a folder.

    ALBOR_HOME/hosts/HOST/ID/   a copy: pulled.json, the run's own files, a store of its own

Copied is what tells of a run. What could start one, ask something of it or act on it (launch.json,
inboxes, locks, stores) stays where it is, and so do checkpoints unless they are asked for. A run
may be alive: its last words and its place are read before its lines, so that a copy never has an
end without what came before it, and files of lines are cut to whole ones; the rest comes with the
next copy. Nothing of a source is trusted: names, sizes and links are checked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from albor_core.feed.run.status import run_status
from albor_core.run.errors import AlborError, InUseError
from albor_core.run.files.lock_file import locked
from albor_core.run.files.pulled_file import Pulled, read_pulled, write_pulled
from albor_core.run.files.whole_file import temporary_beside, write_bytes, write_json
from albor_core.run.home.folders import own_home, private_folder
from albor_core.run.home.registry import host_word, is_same_run, known_as, register
from albor_core.run.home.runs import run_at
from albor_core.run.rundir import MAX_JSON_BYTES, RunDir, is_run_id, read_json
from albor_core.run.values.lenient import mapping
from albor_core.run.values.quantity import byte_size, counted
from albor_core.store.index.catch_up import drain_index

if TYPE_CHECKING:
    from albor_core.documents.transfer import TransferProblem

Stamp = tuple[int, int, int]
"""Size, time of change in ns and inode of a file at its source: what moves when it is written."""
HEADS = ("exit.json", "training_state.json", "guard/guard.json", "annotations.jsonl", "run.json")
"""Small files that say what a run is and how it stands; run.json, which makes it a run, is last."""
MAX_HEAD_BYTES = 4 * MAX_JSON_BYTES
_FILES = ("config.yaml", "config.resolved.json", "script.txt", "journal.jsonl", "system.jsonl")
_FOLDERS = ("crash-reports", "media", "traces")
_LOGS = re.compile(r"logs/a\d{4,}\.(?:log|times)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+=,-]*")
_LEFT = (".tmp", ".lock", ".part")
_MAX_DEPTH, _MAX_NAME = 8, 200
_BATCH_RUNS, _BATCH_BYTES = 200, 2 << 30
_KEPT_BYTES = 64 << 20
_PIECE = 1 << 16
GROWTH = 16 << 20
"""Bytes that a live file may grow by between its listing and its copy."""
_GROWING = (".jsonl", ".log", ".times")
_MOST_NAMED = 5


@dataclass(frozen=True)
class FoundRun:
    """A run at its source: its folder there, the stamps of its files, and the content of HEADS."""

    folder: str
    files: Mapping[str, Stamp]
    heads: Mapping[str, bytes]

    @property
    def about(self) -> dict[str, Any]:
        """The contents of its run.json; {} if it is unreadable."""
        try:
            found = json.loads(self.heads.get("run.json", b""))
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def id(self) -> str:
        return self.folder.rpartition("/")[2]


@dataclass(frozen=True)
class Copy:
    """Files of a folder at the source, wanted below `target` by the same names; `files`: their
    sizes as they were listed, of which no more is brought.
    """

    folder: str
    target: Path
    files: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.files)


class CopiedSource(Protocol):
    """A source to copy runs from. Methods raise AlborError if it cannot be read."""

    host: str
    """What people call it; "" for this machine, whose runs name their own."""

    def find(self) -> Sequence[FoundRun]: ...
    def fetch(self, copies: Sequence[Copy]) -> None:
        """Bring files over. What has gone meanwhile is left out."""


@dataclass
class CopyResult:
    """What became of one run. `run` is its id in this home; `change` is new, updated, unchanged, or
    here: this home has the run itself.
    """

    run: str
    own_id: str
    host: str
    name: str
    path: str
    change: str
    status: str = ""
    files: int = 0
    bytes: int = 0


@dataclass
class CopyReport:
    runs: list[CopyResult] = field(default_factory=list)
    problems: list[TransferProblem] = field(default_factory=list)
    """Runs that could not be copied, or not all of: path at the source, and a sentence."""


@contextmanager
def one_copy_at_a_time() -> Iterator[None]:
    """Held while runs are copied into this home. Raises InUseError while another process does
    it."""
    folder = own_home() / "hosts"
    private_folder(folder.parent)
    private_folder(folder)
    what = "cannot copy runs: another pull or import is running in this home"
    with locked(folder / ".pull.lock", InUseError(what, hint="try again when that has ended")):
        yield


def is_wanted(name: str, *, checkpoints: bool) -> bool:
    """Whether a file of a run, by its path in the folder, is copied besides HEADS."""
    parts = name.split("/")
    if len(parts) > _MAX_DEPTH or not all(
        _NAME.fullmatch(p) and len(p) <= _MAX_NAME for p in parts
    ):
        return False
    if name.endswith(_LEFT):
        return False
    if len(parts) == 1:
        return name in _FILES
    is_told = parts[0] in _FOLDERS or name == "guard/attempts.jsonl"
    return (
        is_told or _LOGS.fullmatch(name) is not None or (checkpoints and parts[0] == "checkpoints")
    )


def copy_runs(
    source: CopiedSource,
    found: Iterable[FoundRun],
    *,
    checkpoints: bool = False,
    dry_run: bool = False,
) -> CopyReport:
    """Make or update a copy of each run and index it; with `dry_run` only say what would be done.

    Only while holding `one_copy_at_a_time`. One that cannot be copied costs only itself. Raises
    AlborError where the source breaks off or the disk is full: what is whole by then stays.
    """
    report = CopyReport()
    planner = _Planner(source.host, report, checkpoints=checkpoints)
    plans = [plan for one in found if (plan := planner.plan(one)) is not None]
    if dry_run:
        return report
    _must_fit(plans)
    for batch in _batches(plans):
        for plan in batch:
            _prepare(plan)
        source.fetch([plan.copy() for plan in batch if plan.names])
        for plan in batch:
            _complete(plan, report, source.host)
    return report


@dataclass
class _Plan:
    """The files to copy for one run, and their destination."""

    found: FoundRun
    run: RunDir
    names: tuple[str, ...]
    heads: tuple[str, ...]
    result: CopyResult

    def copy(self) -> Copy:
        sizes = {name: self.found.files[name][0] for name in self.names}
        return Copy(self.found.folder, self.run.path, sizes)


class _Planner:
    """Plans the copy of each run and reports it; none gets the directory or the id of another."""

    def __init__(self, host: str, report: CopyReport, *, checkpoints: bool) -> None:
        self._host, self._report, self._checkpoints = host, report, checkpoints
        self._places: dict[Path, Mapping[str, Any]] = {}
        self._ids: set[str] = set()

    def plan(self, found: FoundRun) -> _Plan | None:
        """The plan for a found run; None if nothing is to be done, or nothing can be."""
        about = found.about
        if not is_run_id(found.id) or about.get("id") != found.id:
            self._refuse(found, f"its run.json does not say that it is run {found.id!r}")
            return None
        host = self._host or str(about.get("host") or "")
        run, is_known = self._place(found.id, about, host)
        if run.path in self._places:
            self._refuse(found, f"a copy of {run.id}, which is copied just now")
            return None
        self._places[run.path] = about
        self._ids.add(run.id)
        name, place = str(about.get("name") or found.id), str(run.path)
        result = CopyResult(run.id, found.id, host, name, place, "updated" if is_known else "new")
        self._report.runs.append(result)
        plan = _Plan(found, run, self._names(found, run), _heads(found, run), result)
        is_here = is_known and read_pulled(run) is None
        if is_here or not (plan.names or plan.heads) or self._is_older(found, run):
            result.change = "here" if is_here else "unchanged"
            result.status = run_status(run).word
            return None
        result.files = len(plan.names) + len(plan.heads)
        result.bytes = sum(found.files[name][0] for name in plan.names)
        result.bytes += sum(len(found.heads[name]) for name in plan.heads)
        return plan

    def _is_older(self, found: FoundRun, run: RunDir) -> bool:
        """Whether it is an older copy of what was copied from elsewhere: it takes nothing back."""
        known = read_pulled(run)
        if known is None or known.host == self._host:
            return False
        there = found.files.get("journal.jsonl", (0, 0, 0))[0]
        return run.journal.is_file() and there < run.journal.stat().st_size

    def _refuse(self, found: FoundRun, why: str) -> None:
        message = f"{found.folder}: {why}"
        self._report.problems.append({"path": found.folder, "message": message})

    def _names(self, found: FoundRun, run: RunDir) -> tuple[str, ...]:
        known = _read_stamps(run)
        return tuple(
            name
            for name, stamp in sorted(found.files.items())
            if known.get(name) != stamp
            and (is_wanted(name, checkpoints=self._checkpoints) or _is_long_head(found, name))
        )

    def _place(self, run_id: str, about: Mapping[str, Any], host: str) -> tuple[RunDir, bool]:
        """The run's present or future directory, and whether this home knows it: a known run keeps
        its directory.
        """
        home = own_home()
        twins = sorted((home / "runs").glob(f"{run_id}@*.json"))
        for pointer in (home / "runs" / f"{run_id}.json", *twins):
            if (known := run_at(pointer.stem, read_json(pointer))) is not None:
                other = read_json(known.run_json)
                if other is not None and is_same_run(about, other):
                    return known, True
        word, number = host_word(host), 1
        while True:  # two folders of one host may have the same id for two runs
            folder = home / "hosts" / (word if number == 1 else f"{word}-{number}")
            run = RunDir(folder / run_id)
            there = self._places.get(run.path) or read_json(run.run_json)
            if there is None or is_same_run(about, there):
                return self._named(run, about), False
            number += 1

    def _named(self, run: RunDir, about: Mapping[str, Any]) -> RunDir:
        """The run's directory, by the id that it gets in this home."""
        named = known_as(run, about) or run
        alias, number = f"{run.own_id}@{host_word(about.get('host'))}", 2
        word = alias
        while named.id in self._ids:
            named = RunDir(run.path, word)
            word, number = f"{alias}-{number}", number + 1
        return named


def _heads(found: FoundRun, run: RunDir) -> tuple[str, ...]:
    """The names of files that differ from the local ones."""
    return tuple(
        name
        for name in HEADS
        if name in found.heads and not _is_there(run.path / name, _head(found, name))
    )


def _is_long_head(found: FoundRun, name: str) -> bool:
    """Lines that are too many to be read beforehand; a document is never that long."""
    return name in HEADS and name not in found.heads and name.endswith(".jsonl")


def _batches(plans: Sequence[_Plan]) -> Iterator[list[_Plan]]:
    """Batches of changed runs, small enough that a broken connection costs little."""
    batch: list[_Plan] = []
    size = 0
    for plan in plans:
        batch.append(plan)
        size += plan.result.bytes
        if len(batch) >= _BATCH_RUNS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _must_fit(plans: Sequence[_Plan]) -> None:
    folder = own_home() / "hosts"
    needed, free = sum(plan.result.bytes for plan in plans), shutil.disk_usage(folder).free
    if needed + _KEPT_BYTES > free:
        raise AlborError(
            f"{folder}: {byte_size(needed)} to copy, {byte_size(free)} free",
            hint="free some space, or copy fewer runs: give a filter",
        )


def _prepare(plan: _Plan) -> None:
    """The folder, which says that it is a copy before there is anything in it."""
    private_folder(plan.run.path.parent.parent)
    private_folder(plan.run.path.parent)
    private_folder(plan.run.path)
    private_folder(plan.run.guard)
    private_folder(plan.run.store.parent)
    if read_pulled(plan.run) is None:
        write_pulled(plan.run, Pulled(plan.result.host, plan.found.folder))


def _complete(plan: _Plan, report: CopyReport, source_host: str) -> None:
    """Heads after files, whatever was read first; then the stores."""
    run, found = plan.run, plan.found
    stamps = _read_stamps(run)
    came, missing = [len(found.heads[name]) for name in plan.heads], list[str]()
    for name in plan.names:
        stamps.pop(name, None)
        if _has_arrived(run.path / name, found.files[name]):
            stamps[name] = found.files[name]
            came.append((run.path / name).stat().st_size)
        else:
            missing.append(name)
        if name.endswith(".jsonl") and (run.path / name).is_file():
            cut_torn(run.path / name)
    for name in plan.heads:
        write_bytes(run.path / name, _head(found, name))
    _write_stamps(run, stamps)
    plan.result.files, plan.result.bytes = len(came), sum(came)
    if missing:
        report.problems.append({"path": found.folder, "message": _not_come(run, missing)})
    known = read_pulled(run)
    if known is None or source_host or known.wall is None:
        known = Pulled(plan.result.host, found.folder)
    write_pulled(run, replace(known, wall=round(time.time(), 3)))
    try:
        run = known_as(RunDir(run.path)) or run
        plan.result.run = run.id
        register(run)
        drain_index(run)
    except (AlborError, OSError, sqlite3.Error) as error:
        message = error.message if isinstance(error, AlborError) else str(error)
        report.problems.append({"path": found.folder, "message": f"{run.id}: {message}"})
    plan.result.status = run_status(run).word


def _not_come(run: RunDir, missing: Sequence[str]) -> str:
    named = ", ".join(missing[:_MOST_NAMED])
    more = f" and {len(missing) - _MOST_NAMED:,} more" if len(missing) > _MOST_NAMED else ""
    what = f"{counted(len(missing), 'file')} did not come as listed ({named}{more})"
    return f"{run.id}: {what}: copy it again"


def room_for(target: Path, size: int, listed: int) -> int:
    """Bytes to copy of a file of `size` that was listed with `listed`: some more if it only grows;
    0 if another kind of file is larger, since half of it would be wrong.
    """
    if target.suffix in _GROWING:
        return listed + GROWTH
    return max(1, listed) if size <= listed else 0


def _has_arrived(path: Path, stamp: Stamp) -> bool:
    """Whether a file is at least as new as when it was listed; else it is brought next time."""
    try:
        status = path.lstat()
    except OSError:
        return False
    is_new = status.st_size >= stamp[0] and status.st_mtime_ns >= stamp[1] - 10**9
    return is_new and stat.S_ISREG(status.st_mode)


def _head(found: FoundRun, name: str) -> bytes:
    """The beginning of a file for comparison; of lines only complete ones."""
    raw = found.heads[name]
    return raw[: raw.rfind(b"\n") + 1] if name.endswith(".jsonl") else raw


def cut_torn(path: Path) -> None:
    """Cut a file of lines behind its last whole one; its time of change stays."""
    with path.open("rb+") as file:
        status = os.fstat(file.fileno())
        end = status.st_size
        while end > 0:
            start = max(0, end - _PIECE)
            cut = os.pread(file.fileno(), end - start, start).rfind(b"\n")
            if cut >= 0:
                end = start + cut + 1
                break
            end = start
        if end != status.st_size:
            file.truncate(end)
            os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _is_there(path: Path, content: bytes) -> bool:
    with suppress(OSError):
        return path.stat().st_size == len(content) and path.read_bytes() == content
    return False


def _stamps_file(run: RunDir) -> Path:
    return run.store.parent / "pulled_files.json"


def _read_stamps(run: RunDir) -> dict[str, Stamp]:
    """The stamps of copied files; {} if unknown, and then everything is copied again."""
    found = read_json(_stamps_file(run), 64 * MAX_JSON_BYTES) or {}
    return {
        name: (raw[0], raw[1], raw[2])
        for name, raw in mapping(found, "files").items()
        if isinstance(raw, list) and len(raw) == 3 and (run.path / name).is_file()
    }


def _write_stamps(run: RunDir, stamps: Mapping[str, Stamp]) -> None:
    write_json(_stamps_file(run), {"files": {name: list(stamp) for name, stamp in stamps.items()}})


def put_file(target: Path, content: IO[bytes], changed: float, most: int) -> None:
    """Replace `target` by the first `most` bytes of `content` in one step, in folders of its owner
    alone. Raises OSError.
    """
    missing = [place for place in target.parents if not place.exists()]
    for place in reversed(missing):  # `parents` gives its mode to the last folder alone
        place.mkdir(mode=0o700, exist_ok=True)
    beside = temporary_beside(target)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            while most > 0 and (piece := content.read(min(_PIECE, most))):
                most -= file.write(piece)
            file.flush()
            os.utime(fd, (changed, changed))
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
