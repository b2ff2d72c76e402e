"""A run on disk: where each file is, how a run directory is made, named and found.

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
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from albor_core.run.light_dataclass import dataclass
from albor_core.run.errors import AlborError, InUseError, NotFoundError, UsageError, remedy
from albor_core.run.files.whole_file import write_bytes, write_json
from albor_core.run.liveness import Liveness, liveness
from albor_core.run.values.traceparent import parent_fact

RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_TWIN_ID = re.compile(rf"{RUN_ID.pattern}@[a-z0-9._-]+")  # as `known_as` makes them
MAX_JSON_BYTES = 1 << 20
_MAX_PATH = 4000  # bytes, so that the names of a run's files fit into the system's 4096
FRESH_S = 60.0
"""A run directory this young may still be waiting for its guard and its index process; one that has
not begun by then does not come.
"""
_MAX_BELOW_HOME = 12  # folders between a home and a run in it
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFLNK: "a link"}


def albor_home() -> Path:
    """`ALBOR_HOME`, by default ~/.albor: the global store and one pointer file per run."""
    return Path(os.environ.get("ALBOR_HOME") or Path.home() / ".albor").expanduser().absolute()


def begun_mark(run_id: str) -> Path:
    """The file by which this home remembers that it began a run: what may bring commands with it.
    It is not in the run's folder, nor beside it, where unpacking another's run could put it.
    """
    return albor_home() / "begun" / f"{run_id}.json"


def pointer_of(run_id: str) -> Path:
    """The file of ALBOR_HOME that leads to a run's folder."""
    return albor_home() / "runs" / f"{run_id}.json"


def check_home() -> Path:
    """`albor_home()`, where it is a folder or could become one. Raises UsageError."""
    home = albor_home()
    # what is there is looked up first: another process may be making the rest
    place = next(place for place in (home, *home.parents) if os.path.lexists(place))
    if not os.path.isdir(place):  # noqa: PTH112  Path.is_dir raises where we may not look
        raise UsageError(
            f"ALBOR_HOME is {home}, but {place} is not a folder",
            hint="export ALBOR_HOME=FOLDER, a folder of yours; unset it for ~/.albor",
        )
    return home


def absent_home() -> str:
    """What to say of a home that is not there; "" where it is. A fresh machine has none, and
    `ALBOR_HOME` may be mistyped.
    """
    home = albor_home()
    if os.path.lexists(home):
        return ""
    is_chosen = bool(os.environ.get("ALBOR_HOME"))
    return f"ALBOR_HOME is {home}: no such folder" if is_chosen else f"{home}: not made yet"


def own_home() -> Path:
    """`check_home()`, for whoever writes there. Raises UsageError, also where its folders are
    somebody else's, who could put other runs in the place of ours.
    """
    home = check_home()
    for folder in (home, home / "runs"):
        if owner := foreign_owner(folder):
            raise UsageError(
                f"{folder}: belongs to {owner}",
                hint="export ALBOR_HOME=FOLDER, a folder of yours, or chown that one",
            )
    return home


def check_writable(folder: Path) -> None:
    """That `folder` can be written, or made, as far as can be told before. Raises AlborError."""
    place = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not os.access(place, os.W_OK | os.X_OK):
        is_mounted_so = os.statvfs(place).f_flag & os.ST_RDONLY
        number = errno.EROFS if is_mounted_so else errno.EACCES
        error = OSError(number, os.strerror(number), str(place))
        raise AlborError(f"{place}: {error.strerror}", hint=remedy(error)) from error


def foreign_owner(folder: Path) -> str:
    """ "user id N" where a folder is neither ours nor root's; "" otherwise, and without one. Root
    may work in the home of a user, as containers do: there both have one owner.
    """
    try:
        owner, above = folder.stat().st_uid, folder.parent.stat().st_uid
    except OSError:
        return ""
    me = os.geteuid()
    return "" if owner in (me, 0) or (me == 0 and owner == above) else f"user id {owner}"


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
        """What names it in this home."""
        return self.alias or self.path.name

    @property
    def own_id(self) -> str:
        """What its own files and its own store call it."""
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
        """What the index process saw of machine and program, and the alerts that it told."""
        return self.path / "system.jsonl"

    @property
    def watch(self) -> Path:
        """Who watches the run, by which rules: run/files/watch_file.py."""
        return self.path / ".albor" / "watch.json"

    @property
    def spans(self) -> Path:
        """Which spans were sent to a collector of traces: run/files/spans_file.py."""
        return self.path / ".albor" / "spans.json"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def evaluations(self) -> Path:
        """One folder an evaluation of a checkpoint: albor_core/eval/kept.py."""
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
        """What the guard starts: argv, environment additions, working directory, options."""
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
        """That the folder is a copy, and of what: run/files/pulled_file.py."""
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


def create_run(
    parent: Path,
    run_id: str,
    *,
    experiment: str,
    name: str,
    kind: str,
    argv: list[str],
    seed: int | None = None,
    config: bytes | None = None,
    resolved: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    script: bytes | None = None,
    created: float | None = None,
) -> RunDir:
    """Make RUN_DIR below `parent` with run.json and the config, and register it under
    ALBOR_HOME/runs.

    `kind` is "train", "guard" (any program), "track" (the public API) or "imported", whose
    `created` is not now; `facts` (git, host, versions, data hash) go into run.json as they are.
    Raises InUseError if the folder exists, UsageError for a bad id.
    """
    if not is_run_id(run_id):
        raise UsageError(f"{run_id!r} cannot name a run", hint=f"use {RUN_ID.pattern}")
    run = RunDir(parent.absolute() / run_id)
    pointer = own_home() / "runs" / f"{run_id}.json"
    known = run_at(run_id, read_json(pointer))
    if run.path.exists() or (known is not None and known.path.exists()):
        raise InUseError(
            f"{run_id!r} is the run in {known.path if known else run.path}",
            hint="choose another name",
        )
    created = time.time() if created is None else created
    document = {
        "schema": "albor.run/1",
        "id": run_id,
        "experiment": experiment,
        "name": name,
        "kind": kind,
        "created": created,
        "argv": argv,
        "seed": seed,
        "host": os.uname().nodename,
        **({} if kind == "imported" else parent_fact(os.environ)),
        **(facts or {}),
    }
    with _undone_on_failure(run.path):
        _make_folders(run)
        if config is not None:
            write_bytes(run.config_yaml, config)
        if resolved is not None:
            write_json(run.config_resolved, resolved)
        if script is not None:
            write_bytes(run.script, script)
        write_json(run.run_json, document, durable=True)
        point_to(run, pointer, created)
        if kind != "imported":
            mark_begun(run, created)
    return run


def mark_begun(run: RunDir, created: float | None) -> None:
    """Have this home remember that its user launched a run: see `begun_mark`. Raises OSError."""
    _mark_those_of_before()
    write_json(begun_mark(run.id), {"created": created})


def _mark_those_of_before() -> None:
    """Versions before kept no marks: what their home lists when the first is made it began."""
    home, marks = albor_home(), begun_mark("x").parent
    if marks.is_dir():
        return
    listed = [(pointer, read_json(pointer)) for pointer in (home / "runs").glob("*.json")]
    for folder in (home, marks):
        private_folder(folder)
    for pointer, entry in listed:
        if entry is not None and is_known_id(pointer.stem):
            write_json(marks / pointer.name, {"created": entry.get("created")})


def point_to(run: RunDir, pointer: Path, created: float | None) -> None:
    """Have `pointer`, a file of ALBOR_HOME/runs, lead to the run. Raises OSError."""
    _mark_those_of_before()
    private_folder(pointer.parent)
    write_json(pointer, {"path": str(run.path), "created": created, **lent(run)})


def lent(run: RunDir) -> dict[str, str]:
    """What a file of ALBOR_HOME/runs says besides of a run that lies in another home and is meant
    to: it did not come as part of a copy of that one.
    """
    other = other_home(run.path, run.id)
    return {} if other is None else {"of_home": str(other)}


def is_lent(run_id: str, path: Path) -> bool:
    """Whether this home says so of the run in the folder `path`."""
    entry = read_json(pointer_of(run_id)) or {}
    return "of_home" in entry and entry.get("path") == str(path)


def _make_folders(run: RunDir) -> None:
    if run.path.is_relative_to(albor_home()):  # what `parents` makes is open to all
        private_folder(albor_home())
        private_folder(run.path.parent)
    run.path.parent.mkdir(parents=True, exist_ok=True)
    inside = (
        run.guard,
        run.guard / "inbox",
        run.guard / "outbox",
        run.logs,
        run.checkpoints,
        run.crash_reports,
        run.store.parent,
    )
    for folder in (run.path, *inside):
        folder.mkdir(mode=0o700)


def private_folder(folder: Path) -> None:
    """Make `folder`, the owner's alone, unless it is there. Raises UsageError where there can be
    none, OSError.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)  # mkdir gives `mode` to the last folder only
    except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"{folder}: no folder can be made there: {error.strerror}",
            hint="export ALBOR_HOME=FOLDER, a folder of yours; unset it for ~/.albor",
        ) from error


@contextmanager
def _undone_on_failure(path: Path) -> Iterator[None]:
    """Remove the run directory, and the folders made for it, where it cannot be made whole."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError) and error.filename == str(path):
            raise InUseError(  # somebody was faster with the same id: it is theirs
                f"{path}: this run directory exists", hint="choose another name"
            ) from error
        import shutil  # noqa: PLC0415  4 ms that every command would pay

        shutil.rmtree(path, ignore_errors=True)
        for folder in made[1:]:
            with suppress(OSError):  # not empty: somebody else uses it by now
                folder.rmdir()
        raise AlborError(
            f"{error.filename or path}: cannot make a run directory: {error.strerror}",
            hint="free space, or set training.output_dir and ALBOR_HOME to folders you can write",
        ) from error


def registered_runs() -> Iterator[RunDir]:
    """Every run this home knows of, newest first, whether or not its folder still exists."""
    found = []
    for pointer in (albor_home() / "runs").glob("*.json"):
        entry = read_json(pointer)
        if (run := run_at(pointer.stem, entry)) is not None:
            found.append((_created(entry), str(run.path), run))
    for _, _, run in sorted(found, key=lambda item: item[:2], reverse=True):
        yield run


def run_at(run_id: str, entry: Mapping[str, Any] | None, *, is_ours: bool = True) -> RunDir | None:
    """The run that a file of ALBOR_HOME/runs, named `run_id`, leads to; None where it does not.
    `is_ours`: as `placed`.
    """
    path = place_of(entry)
    if path is None or not is_known_id(run_id):
        return None
    return placed(run_id, path, (entry or {}).get("created"), is_ours=is_ours)


def place_of(entry: Mapping[str, Any] | None) -> str | None:
    """The folder that a file of ALBOR_HOME/runs names; None where that is nothing that one could
    ask the system for.
    """
    path = (entry or {}).get("path")
    if not isinstance(path, str) or not path.startswith("/"):
        return None
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return None
    is_sound = b"\0" not in raw and len(raw) < _MAX_PATH and max(map(len, raw.split(b"/"))) < 256
    return path if is_sound else None


def placed(
    run_id: str, path: str | Path, created: object = None, *, is_ours: bool = False
) -> RunDir:
    """The run that this home knows by `run_id`, recorded in the folder `path`; or where it lies now
    that the home has another place. `created`: by which its folder is told from another run's.

    `is_ours`: it is this home that recorded it, so that a folder within another one is what this
    was copied from. A path that a user gave, or that another home has, is followed there.
    """
    folder = _place_now(Path(path), created)
    other = other_home(folder, run_id) if is_ours and folder == Path(path) else None
    if other is not None and not is_lent(run_id, folder):
        folder = albor_home() / folder.relative_to(other)
    return RunDir(folder, "" if folder.name == run_id else run_id)


def _place_now(path: Path, created: object) -> Path:
    """A home that was moved, copied or mounted elsewhere has its runs below itself: what it holds
    is its own, before the folder of that path that another home may still have.
    """
    home, name = str(albor_home()), path.name
    own = f"{home}/runs/{name}"
    if own == str(path):
        return path
    is_gone = not os.path.lexists(path)
    if _is_of(own, created):
        return path if not is_gone and path.resolve() == Path(own).resolve() else Path(own)
    if not is_gone:
        return path
    parts = path.parts[1:-1]
    for begin in range(len(parts), max(-1, len(parts) - _MAX_BELOW_HOME), -1):
        inside = "/".join((home, *parts[begin:], name))  # an output_dir below the home
        if _is_of(inside, created):
            return Path(inside)
    is_half = os.path.isdir(own) and not os.path.lexists(f"{own}/run.json")  # noqa: PTH112
    return Path(own) if is_half else path


def other_home(path: Path, run_id: str) -> Path | None:
    """The home that has the run in the folder `path`, below itself, where it is not this one."""
    here = albor_home()
    if path.is_relative_to(here):
        return None
    for place in path.parents[:_MAX_BELOW_HOME]:
        runs = place / "runs"
        if os.path.lexists(runs / f"{run_id}.json") or (runs == path.parent and has_store(place)):
            return None if _is_here(place) else place
    return None


def has_store(home: str | Path) -> bool:
    """Whether a folder has a store of all runs, as homes have."""
    return os.path.isfile(os.path.join(home, "experiments.db"))  # noqa: PTH113, PTH118


def _is_here(place: Path) -> bool:
    try:
        return place.samefile(albor_home())
    except OSError:
        return False


def _is_of(folder: str, created: object) -> bool:
    """Whether a folder has the run of its name that was made at the moment `created`."""
    about = read_json(Path(folder) / "run.json")
    return about is not None and created in (None, about.get("created"))


def stray_runs() -> list[RunDir]:
    """Runs that lie in this home, to whose folders nothing in ALBOR_HOME/runs leads."""
    home = albor_home()
    inside = [home / "runs", *sorted((home / "hosts").glob("*/"))]
    found = [run for folder in inside for run in runs_in(folder)]
    if not found:
        return []
    known = {run.path.resolve() for run in registered_runs()}
    return [run for run in found if run.path.resolve() not in known]


def is_known_id(text: str) -> bool:
    """Whether a home may know a run by `text`: a run id, or one with its host."""
    return is_run_id(text) or _TWIN_ID.fullmatch(text) is not None


def runs_in(folder: Path) -> list[RunDir]:
    """The run directories directly below `folder`, newest first."""
    runs = [
        RunDir(child.parent) for child in folder.glob("*/run.json") if is_run_id(child.parent.name)
    ]
    return sorted(runs, key=lambda run: _created(read_json(run.run_json)), reverse=True)


def _created(document: Mapping[str, Any] | None) -> float:
    """When, for sorting; a damaged document is old, never an error for everybody else."""
    created = (document or {}).get("created")
    try:
        return float(created) if isinstance(created, int | float) else 0.0
    except OverflowError:  # an int of any length is JSON
        return 0.0


def folder_of(reference: str) -> Path | None:
    """The folder that `reference` names, if it names one that we can look into."""
    try:
        path = Path(reference).expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError):  # a name too long for the kernel; ~ of somebody unknown
        return None


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any] | None:
    """A small JSON object that another process may be replacing or that somebody planted; None for
    anything else.

    Bounded, never follows a link and never blocks on a FIFO.
    """
    try:
        return load_json(path, limit)
    except (OSError, ValueError):
        return None


def load_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """As `read_json`. Raises OSError, or ValueError that says what the file is: "is a folder"."""
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
