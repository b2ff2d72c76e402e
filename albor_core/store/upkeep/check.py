"""Do the stores say what the runs wrote? A look at all of them; nothing is written, none repaired.

A store is whole if SQLite finds no damage in it, and says what its run wrote if it was made from
the very files that lie beside it, up to their last whole line.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from albor_core.run.errors import NotFoundError
from albor_core.run.home.runs import other_home, placed
from albor_core.run.rundir import RunDir, not_plain, read_json
from albor_core.run.values.quantity import counted
from albor_core.store.file.connect import open_reader, problems, remove_copy
from albor_core.store.file.paths import local_store
from albor_core.store.index.catch_up import positions_of
from albor_core.store.index.sources import files_of, is_same_file, parse_plain, read_batch
from albor_core.store.upkeep.cut_short import cut_short
from albor_core.store.upkeep.rebuild import unreadable

_YOUNG_S = 10.0  # from the start of a run to its own store, on a busy machine


@dataclass
class CheckReport:
    """What was looked at. `problems` has a sentence for each thing that a rebuild would mend, or
    that a user should know of.
    """

    target: Path
    stores: int = 0
    runs: int = 0
    gone: list[str] = field(default_factory=list)
    """Runs whose folder is not at its place: the global store is all there is of them."""
    strays: list[str] = field(default_factory=list)
    """Folders of runs that lie in the home, while nothing there leads to them."""
    lost: list[str] = field(default_factory=list)
    """Those of them that it does not have either: no rebuild brings them back."""
    cut: list[str] = field(default_factory=list)
    """Runs that lack lines they once had: no rebuild brings them back."""
    damaged_lines: dict[str, int] = field(default_factory=dict)
    """Run -> lines of its files that were skipped; a rebuild skips them too."""
    problems: list[str] = field(default_factory=list)


def check(
    target: Path,
    runs: Iterable[RunDir],
    *,
    strays: Iterable[RunDir] | None = None,
    thorough: bool = False,
) -> CheckReport:
    """Look at the global store `target` and at the stores of `runs`; `thorough` compares every
    index of a store with its table. `strays` are runs of the home that it does not know, where
    `runs` are all others.

    Raises OSError, StoreError where a store is harmed meanwhile.
    """
    report = CheckReport(target)
    listed: set[str] | None = None  # unknown where the store is damaged: that is said already
    is_missing = False
    rows: dict[str, tuple[str, float | None]] = {}
    try:
        report.problems += _damage(target, report, thorough)
        if not report.problems:
            rows = _rows(target)
            listed = set(rows)
    except NotFoundError:
        is_missing = True
    known = list(runs)
    if strays is not None:
        known += _left_behind(rows, {run.id for run in known})
    for run in known:
        report.runs += 1
        if not run.path.is_dir():
            report.gone.append(run.id)
            report.problems += [f"{run.id}: its folder is not at {run.path}"]
        elif why := unreadable(run):
            report.problems.append(f"{run.path}: {why}")
        elif what := cut_short(run, target):
            report.cut.append(run.id)
            report.problems += [f"{run.id}: {what}", *_damage_of(run, report, thorough)]
        else:
            report.problems += _of_run(run, report, thorough)
        if listed is not None and run.id not in listed and not run.liveness().is_alive:
            report.problems.append(_unlisted(run, target, report))
    for run in strays or ():
        report.strays.append(str(run.path))
        report.problems.append(f"{run.path}: a run that nothing in {target.parent / 'runs'} names")
    if is_missing and report.runs:
        report.problems.insert(
            0, f"{target}: no such store, and {counted(report.runs, 'run', 'has', 'have')} a place"
        )
    return report


def _unlisted(run: RunDir, target: Path, report: CheckReport) -> str:
    if run.id not in report.gone:
        return f"{run.id}: not in {target}"
    report.problems.pop()  # this says more of it
    report.lost.append(run.id)
    return f"{run.id}: neither in {target} nor in its folder; albor runs rm {run.id} forgets it"


def _rows(target: Path) -> dict[str, tuple[str, float | None]]:
    """The folder of each run in an intact global store, and when it was made."""
    db, copy = open_reader(target)
    try:
        rows = db.execute("SELECT run, path, created FROM runs")
        return {run: (path, created) for run, path, created in rows}
    finally:
        db.close()
        remove_copy(copy)


def _left_behind(rows: dict[str, tuple[str, float | None]], known: set[str]) -> Iterator[RunDir]:
    """Runs of which only rows came along when the home was copied. Those whose history alone was to
    be kept are none: their home has other runs, and their folder is in no other home.
    """
    for run_id, (path, created) in rows.items():
        if run_id in known:
            continue
        run = placed(run_id, path, created, is_ours=True)
        is_elsewhere = other_home(Path(path), run_id) is not None
        if (is_elsewhere or not known) and not run.path.is_dir():
            yield run


def _damage(path: Path, report: CheckReport, thorough: bool) -> list[str]:
    """What SQLite finds wrong. Raises NotFoundError."""
    found = problems(path, thorough=thorough)
    report.stores += 1
    return [text if text.startswith(str(path)) else f"{path}: {text}" for text in found]


def _damage_of(run: RunDir, report: CheckReport, thorough: bool) -> list[str]:
    try:
        return _damage(local_store(run), report, thorough)
    except NotFoundError:
        return []


def _of_run(run: RunDir, report: CheckReport, thorough: bool) -> Iterator[str]:
    store, files = local_store(run), files_of(run)
    is_alive = run.liveness().is_alive
    try:
        damage = _damage(store, report, thorough)
        yield from damage
        positions = {} if damage else positions_of(store, run.own_id)
    except NotFoundError:
        if is_alive and _should_have_a_store(run):
            yield f"{run.path}: the run is active, but its store {store} is missing"
        if not is_alive and any(_size(path) for path in files.values()):
            yield f"{run.path}: what it wrote is in no store of its own"
        return
    if skipped := sum(position.damaged for position in positions.values()):
        report.damaged_lines[run.id] = skipped
    for name, position in positions.items():
        path = files[name]
        if what := not_plain(path):
            yield f"{path}: {what}, not a plain file"
        elif not is_same_file(path, position):
            yield f"{path}: not the file that {store} was made from"
        elif not is_alive and read_batch(path, position, parse_plain) is not None:
            yield f"{path}: {_size(path) - position.offset} bytes of it are not in {store}"


def _should_have_a_store(run: RunDir) -> bool:
    """Whether a living run began so long ago that its index process has made one, if it has any."""
    is_indexed = (read_json(run.launch) or {}).get("index", True)
    return bool(is_indexed) and time.time() - run.run_json.stat().st_mtime > _YOUNG_S


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
