"""Runs that came to this home from elsewhere, and what they are called here.

Each machine gives its runs ids of its own, so that two may have given the same one. The run that
this home knew first keeps it; another one is ID@HOST here, and still ID in its own files.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from albor_core.run.errors import InUseError
from albor_core.run.home.folders import albor_home, begun_mark, own_home, pointer_of
from albor_core.run.home.new_run import mark_begun, point_to
from albor_core.run.home.runs import has_store, is_known_id, place_of, placed, run_at
from albor_core.run.rundir import RunDir, load_json, read_json
from albor_core.run.values.lenient import Document, finite


def known_as(run: RunDir, about: Document | None = None) -> RunDir | None:
    """The run under the id by which this home knows its folder, or would: ID@HOST where another run
    has its id, as two machines may give one to each. None where it is a copy of that other run.

    `about` is its run.json, where that is not in its folder yet.
    """
    if run.alias:
        return run
    folder = albor_home() / "runs"
    first = _place(folder / f"{run.own_id}.json")
    if first is not None and _is_same(first, run.path):
        return run
    twins = {pointer.stem: _place(pointer) for pointer in folder.glob(f"{run.own_id}@*.json")}
    for alias, place in twins.items():
        if place is not None and _is_same(place, run.path):
            return RunDir(run.path, alias)
    here = run.metadata() if about is None else about
    other = read_json(RunDir(first).run_json) if first is not None else None
    if other is None and not _is_anothers(folder / f"{run.own_id}.json", here):
        return run
    if other is not None and is_same_run(here, other):
        return None
    alias = on_host = f"{run.own_id}@{host_word(here.get('host'))}"
    number = 2
    while alias in twins:  # two homes of one machine
        alias, number = f"{on_host}-{number}", number + 1
    return RunDir(run.path, alias)


def is_same_run(one: Document, other: Document) -> bool:
    """Whether two run.json are of one run: made under the same id at the same moment on the same
    host. The rest may have been filled in since.
    """
    if finite(one, "created") is None:
        return one == other
    return all(one.get(key) == other.get(key) for key in ("id", "created", "host", "nonce"))


def _is_anothers(pointer: Path, about: Document) -> bool:
    """Whether an id is still that of another run, though its folder is gone: the store keeps what
    it told.
    """
    known, here = finite(read_json(pointer) or {}, "created"), finite(about, "created")
    return known is not None and here is not None and known != here


class PlacesNow:
    """Where runs of a store lie now, as `placed` says; the disk is asked once a folder, not once a
    run, since lists have ten thousand. `is_ours`: the store is this home's of all runs.
    """

    def __init__(self, *, is_ours: bool) -> None:
        self._is_ours = is_ours
        self._own = str(albor_home() / "runs")
        self._is_there: dict[str, bool] = {}  # and no other home's
        self._names: frozenset[str] | None = None

    def of(self, run_id: str, path: str, created: object) -> str:
        """The folder of a run that the store has at `path`."""
        folder, _, name = path.rpartition("/")
        if folder == self._own or not path.startswith("/"):
            return path
        if folder not in self._is_there:
            is_others = self._is_ours and _may_be_a_home(folder)
            self._is_there[folder] = not is_others and os.path.isdir(folder)  # noqa: PTH112
        if self._is_there[folder] and name not in self._names_here():
            return path
        return str(placed(run_id, path, created, is_ours=self._is_ours).path)

    def _names_here(self) -> frozenset[str]:
        if self._names is None:
            try:
                self._names = frozenset(os.listdir(self._own))  # noqa: PTH208  names alone
            except OSError:
                self._names = frozenset()
        return self._names


def _may_be_a_home(folder: str) -> bool:
    """Whether `folder`, with runs in it, lies in what looks like a home other than this one."""
    path = Path(folder)
    return not path.is_relative_to(albor_home()) and any(
        has_store(place) or any((place / "runs").glob("*.json")) for place in (path, *path.parents)
    )


def is_launched_here(run: RunDir) -> bool:
    """Whether this home began the run, or was told by its user to go on with it: the one gate of
    whatever starts a program, imports a class or sends a command that a run's folder names. What
    the folder says of itself does not count, since anybody may have written it; what the home
    remembers does.
    """
    about = read_json(run.run_json) or {}
    known = known_as(run, about)
    if known is None:
        return False
    file = begun_mark(known.id)
    if not file.parent.is_dir():  # of a version before marks
        file = pointer_of(known.id)
    mark = read_json(file)
    return mark is not None and finite(mark, "created") == finite(about, "created")


def is_begun_here(run: RunDir) -> bool:
    """Whether a run launched by this home is also of this host: its config may bring commands."""
    return run.metadata().get("host") == os.uname().nodename and is_launched_here(run)


def mark_launched_here(run: RunDir) -> None:
    """Have this home remember that its user launches the run by words of their own: a command line,
    a config. Of two copies of a run the home knows that one from then on. Raises OSError.
    """
    if is_launched_here(run):
        return
    about = read_json(run.run_json) or {}
    known, created = known_as(run, about) or run, finite(about, "created")
    if known.alias or _place(pointer_of(known.id)) is not None:
        point_to(known, pointer_of(known.id), created)
    mark_begun(known, created)


NOT_LAUNCHED_HERE = "it was not launched from this home, so what its folder names is not run here"


def resumed_by_config(folder: str | Path) -> str:
    """The command by which a user says what a training run from elsewhere may do here."""
    config, place = (shlex.quote(str(path)) for path in (Path(folder) / "config.yaml", folder))
    return f"read its config, then: albor train apply {config} --resume {place}"


def refuse_unlaunched(run: RunDir, verb: str, hint: str) -> None:
    """Raise InUseError for a run that `is_launched_here` does not know."""
    if not is_launched_here(run):
        raise InUseError(f"cannot {verb} {run.id}: {NOT_LAUNCHED_HERE}", hint=hint)


def _place(pointer: Path) -> Path | None:
    run = run_at(pointer.stem, read_json(pointer))
    return None if run is None else run.path


def _is_same(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve()


def host_word(host: object) -> str:
    """A host's name as ids have it."""
    return re.sub(r"[^a-z0-9._-]+", "-", str(host or "").lower()).strip("-.") or "elsewhere"


def damaged_pointers() -> Iterator[tuple[Path, str]]:
    """Files of ALBOR_HOME/runs that lead to no run, and why: they are passed over everywhere."""
    for pointer in sorted((albor_home() / "runs").glob("*.json")):
        if not is_known_id(pointer.stem):
            yield pointer, "its name is not that of a run"
            continue
        try:
            entry = load_json(pointer)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError as error:
            yield pointer, error.strerror or str(error)
        except ValueError as error:
            yield pointer, str(error)
        else:
            if place_of(entry) is None:
                yield pointer, "holds no path of a folder"


def register(run: RunDir) -> None:
    """Have this home know a run that came from elsewhere, by the id that `known_as` gave it.

    Raises NotFoundError where `run` is not a run directory, OSError.
    """
    pointer = own_home() / "runs" / f"{run.id}.json"
    if place_of(read_json(pointer)) != str(run.path):
        point_to(run, pointer, run.metadata().get("created"))
