"""Which run a person means: a folder, an id, a name or the beginning of an id, in any case."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from albor_core.run.errors import AlborError, NotFoundError, UsageError
from albor_core.run.home.folders import albor_home, pointer_of
from albor_core.run.home.registry import host_word, known_as
from albor_core.run.home.runs import is_known_id, run_at, runs_in
from albor_core.run.light_dataclass import dataclass
from albor_core.run.rundir import RunDir, folder_of, read_json
from albor_core.store.file.paths import global_store

_MAX_TOLD = 5
_MAX_COMPARED = 2_000  # names that a misspelt one is compared with: a tenth of a second


class AmbiguousError(UsageError):
    """What was given means several runs; the message has their ids."""


@dataclass(frozen=True)
class _Known:
    """A run that this home or a store knows. `name` may be its id."""

    id: str
    name: str
    path: Path
    is_ours: bool = True  # by the word of this home, not of another one's store

    def folder(self) -> RunDir | None:
        """The run's directory, if it still exists. The home's pointer is the first to know of a
        move."""
        pointer = read_json(pointer_of(self.id))
        for entry, is_ours in ((pointer, True), ({"path": str(self.path)}, self.is_ours)):
            run = run_at(self.id, entry, is_ours=is_ours)
            if run is not None and run.run_json.is_file():
                return run
        return None


def find_run(reference: str) -> RunDir:
    """The run that `reference` means: a run directory, an output_dir (its newest run), an id, a
    name or the unique beginning of an id.

    Raises NotFoundError that says what was looked for and what is nearest, AmbiguousError.
    """
    run_id, run = find_id(reference)
    if run is None:
        raise NotFoundError(
            f"no run {reference!r}: its folder is gone", hint=f"albor runs show {run_id}"
        )
    return run


def find_id(reference: str, store: Path | None = None) -> tuple[str, RunDir | None]:
    """The id that `reference` means, as `find_run`, and its folder if that is still there.

    `store`: whose runs are meant besides those of this home. Raises as `find_run`.
    """
    path = folder_of(reference)
    if path is not None and (path / "run.json").is_file():
        run = RunDir(path.resolve())  # the folder's own name is the id: not `..`, not a link's
        run = known_as(run) or run
        return run.id, run
    if (lacks := _missing_checkpoint(reference)) is not None:
        raise lacks
    if path is not None and (inside := runs_in(path)):
        run = known_as(inside[0]) or inside[0]
        return run.id, run
    if store is None and (whole := _whole_id(reference.lower())) is not None:
        return whole.id, whole
    known, trouble = _known(store or global_store())
    found = _meant(reference, known, trouble)
    return found.id, found.folder()


def _missing_checkpoint(reference: str) -> NotFoundError | None:
    """What is said of RUN_DIR/checkpoints/step-N where the run has no such checkpoint any more."""
    place = Path(reference)
    folder = place.parent
    is_one = place.name.startswith("step-") and folder.name == "checkpoints"
    if not is_one or os.path.lexists(place) or folder_of(str(folder)) is None:
        return None
    kept = sorted(
        int(one.name.removeprefix("step-"))
        for one in folder.glob("step-*")
        if one.name.removeprefix("step-").isdecimal()
    )
    told = ", ".join(map(str, kept)) or "none"
    return NotFoundError(
        f"no such checkpoint {reference!r} (kept: {told})",
        hint=f"albor checkpoints ls {folder.parent.name}",
    )


def _whole_id(word: str) -> RunDir | None:
    """The one run of this home with this id: no store is opened for what is most often said."""
    if not is_known_id(word):
        return None
    run = run_at(word, read_json(pointer_of(word)))
    if run is None or not run.run_json.is_file():
        return None
    return None if any(other.startswith(f"{word}@") for other in _pointers()) else run


def _pointers() -> list[str]:
    """The ids that this home has files for."""
    try:
        files = os.listdir(albor_home() / "runs")  # noqa: PTH208  names alone, of ten thousand
    except OSError:
        return []
    return [file.removesuffix(".json") for file in files if file.endswith(".json")]


def called(name: str) -> list[str]:
    """The runs of this home that have `name` or, as their id, mean it before any other."""
    known, _ = _known(global_store())
    word = name.casefold()
    return [run.id for run in known.values() if word in (run.name.casefold(), run.id)]


def _known(store: Path) -> tuple[dict[str, _Known], AlborError | None]:
    """Known runs by id, and the error of the store, if any: runs are then found by their folder."""
    try:
        known, trouble = _of_store(store), None
    except AlborError as error:
        known, trouble = {}, error
    return known | _of_home(known), trouble


def _meant(reference: str, known: dict[str, _Known], trouble: AlborError | None) -> _Known:
    """One of the known runs: whole ids first, then whole names, then beginnings of ids."""
    word = reference.lower()
    if word in known:
        twins = [run for run in known.values() if run.id.startswith(f"{word}@")]
        if twins:
            raise _ambiguous(f"{reference!r} is a run of several machines", [
                f"{word}@{_host(known[word])}", *(run.id for run in twins)
            ])  # fmt: skip
        return known[word]
    first, at, host = word.rpartition("@")
    if at and first in known and _host(known[first]) == host:
        return known[first]  # the one that needs no host, said with its host
    name = reference.casefold()
    named = [run for run in known.values() if run.name.casefold() == name]
    if len(named) > 1:
        raise _ambiguous(f"{reference!r} is the name of {len(named)} runs", _ids(named))
    begun = [run for run in known.values() if word and run.id.startswith(word)]
    if named:
        return named[0]
    if len(begun) > 1:
        raise _ambiguous(f"{reference!r} is the start of {len(begun)} runs", _ids(begun))
    if begun:
        return begun[0]
    raise NotFoundError(
        f"no run {reference!r}: not a run directory, an output_dir with runs, an id or a name"
        f"{_nearest(reference, known.values())}",
        hint="albor runs ls",
    ) from trouble


def _ids(runs: Iterable[_Known]) -> list[str]:
    return sorted(run.id for run in runs)


def _ambiguous(what: str, ids: list[str]) -> AmbiguousError:
    more = f" and {len(ids) - _MAX_TOLD} more" if len(ids) > _MAX_TOLD else ""
    return AmbiguousError(
        f"{what}: {', '.join(ids[:_MAX_TOLD])}{more}", hint=f"say which, such as {ids[0]}"
    )


def _host(run: _Known) -> str:
    folder = run.folder()
    return host_word((read_json(folder.run_json) or {}).get("host") if folder else None)


def _nearest(reference: str, known: Collection[_Known]) -> str:
    from albor_core.store.query.names import nearest  # noqa: PLC0415  where something was misspelt

    newest = [*known][-_MAX_COMPARED:]
    return nearest(reference, [word for run in newest for word in (run.name, run.id)])


def _of_store(path: Path) -> dict[str, _Known]:
    """The runs of a store by id. Raises AlborError where it cannot be read."""
    if not path.is_file():
        return {}
    from albor_core.store.query.table import RunList  # noqa: PLC0415  not needed for a folder

    is_ours = path == global_store()
    with RunList(path) as table:
        return {run: _Known(run, name, Path(place), is_ours) for run, name, place in table.names()}


def _of_home(known: Collection[str]) -> dict[str, _Known]:
    """Runs of this home but the `known` ones, by id."""
    from albor_core.store.index.annotations import name_of  # noqa: PLC0415  few runs are not in the store

    found = {}
    for run_id in _pointers():
        if run_id in known:
            continue
        run = run_at(run_id, read_json(pointer_of(run_id)))
        if run is not None and run.run_json.is_file():
            found[run_id] = _Known(run_id, name_of(run), run.path)
    return found
