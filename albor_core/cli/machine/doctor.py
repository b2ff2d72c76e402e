"""`albor doctor`: what this machine has, and what would stop or endanger a run."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.output import clean, emit, field_values, json_option, print_line
from albor_core.run.errors import ConfigError, UsageError
from albor_core.run.files.ownership import distrust
from albor_core.run.home.folders import absent_home, albor_home, own_home
from albor_core.run.home.runs import registered_runs
from albor_core.run.rundir import RunDir
from albor_core.run.values.quantity import byte_size, counted

if TYPE_CHECKING:
    from albor_core.andon.channels.sinks import Sink

_WAL_RESET_FIXED = (3, 51, 3)  # sqlite.org/wal.html#walresetbug
_LOW_DISK_BYTES = 5 << 30
_RECENT_RUNS = 200
_BIGGEST = 10


@dataclass(frozen=True)
class Check:
    """A finding. `ok` is None if it is only information."""

    name: str
    ok: bool | None
    detail: str
    hint: str = ""


@click.command()
@click.option(
    "--disk", is_flag=True, help="Show how much disk each part of ALBOR_HOME takes instead."
)
@json_option
def doctor(disk: bool, as_json: bool) -> int:
    """Check Python, packages, stores, disk, GPU, terminal and runs. Exits with 1 if something is
    bad.

    ALBOR_HOME_MAX, such as 50GiB, is a size for ALBOR_HOME: doctor warns from nine tenths of it.
    """
    if disk:
        return _disk(as_json)
    found = list(checks())
    if as_json:
        emit({"schema": "albor.doctor/1", "checks": [field_values(check) for check in found]})
    else:
        for check in found:
            mark = {True: "ok  ", False: "BAD ", None: "-   "}[check.ok]
            print_line(f"{mark} {check.name:<12} {check.detail}")
            if check.hint and check.ok is not True:
                print_line(f"{'':18}{check.hint}")
    return 1 if any(check.ok is False for check in found) else 0


def _disk(as_json: bool) -> int:
    from albor_core.store.upkeep.home_size import cap, measured

    most, home = cap(), own_home()
    found = measured(home, registered_runs())
    if as_json:
        emit({"schema": "albor.doctor.disk/1", "home": str(home), "bytes": found.total,
              "max_bytes": most, "parts": found.parts, "runs": found.runs})  # fmt: skip
        return 0
    limit = "" if most is None else f" of {byte_size(most)}"
    print_line(f"{byte_size(found.total):>9}{limit} in {clean(home)}")
    for name, size in found.parts.items():
        print_line(f"{byte_size(size):>9} {name}")
    shown = list(found.runs.items())[:_BIGGEST]
    if shown:
        print_line(f"\nthe largest of {counted(len(found.runs), 'run')}:")
    for run_id, size in shown:
        print_line(f"{byte_size(size):>9} {clean(run_id)}")
    return 0


def _cap() -> Iterator[Check]:
    """Whether the home comes near the size that its owner gave it."""
    from albor_core.store.upkeep.home_size import CAP, NEAR, cap
    from albor_core.store.upkeep.remove import size_of

    try:
        most = cap()
    except UsageError as error:
        yield Check("home size", False, clean(error.message), error.hint)
        return
    if most is None:
        return
    size = size_of(albor_home().resolve())
    is_well = False if size > most else None if size > NEAR * most else True
    yield Check(
        "home size",
        is_well,
        f"{byte_size(size)} of the {byte_size(most)} of {CAP}",
        "albor doctor --disk says what takes it; albor checkpoints prune, albor runs rm",
    )


def checks() -> Iterator[Check]:
    """Each thing looked at, cheap ones first; nothing is changed."""
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0])
    yield _packages()
    yield _sqlite()
    yield from _home()
    yield from _cap()
    yield from _pointers()
    yield from _stores()
    yield _gpu()
    yield _terminal()
    yield _runs()
    yield from _rules()
    yield from _sinks()
    yield from _strangers()
    yield from _odd_values()


def _packages() -> Check:
    found, missing = [], []
    for name in ("torch", "triton", "accelerate", "safetensors", "tokenizers", "pyarrow"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            if name != "triton":  # comes with a torch for CUDA, and nothing else needs it
                missing.append(name)
    if missing:
        return Check(
            "training", None, f"missing: {' '.join(missing)}", "pip install 'albor[train]'"
        )
    return Check("training", True, ", ".join(found))


def _sqlite() -> Check:
    is_fixed = sqlite3.sqlite_version_info >= _WAL_RESET_FIXED
    what = "has" if is_fixed else "lacks"
    return Check(
        "sqlite",
        True if is_fixed else None,
        f"{sqlite3.sqlite_version}, {what} the WAL-reset fix of 3.51.3",
        "the stores lock their checkpoints, so this is safe; avoid other writers on them",
    )


def _home() -> Iterator[Check]:
    try:
        home = own_home()
    except UsageError as error:
        yield Check("home", False, error.message, error.hint)
        return
    nearest = next(path for path in (home, *home.parents) if path.exists())
    may_write = os.access(nearest, os.W_OK)
    absent = absent_home()
    detail = absent or str(home) if may_write else f"{home} cannot be written"
    if may_write and absent and os.environ.get("ALBOR_HOME"):
        yield Check("home", None, absent, "the first run makes it; or export the one that you mean")
    else:
        yield Check("home", may_write, detail, "set ALBOR_HOME to a folder you can write")
    mode = home.stat().st_mode & 0o077 if home.exists() else 0
    if mode:
        yield Check("privacy", False, f"{home} is open to others", f"chmod 700 {home}")
    from albor_core.store.file.paths import file_system, is_remote

    if is_remote(kind := file_system(nearest)):
        yield Check(
            "network",
            None,
            f"{home} is on {kind}: the store of all runs has no WAL there and is slow",
            "set ALBOR_HOME to a folder on this host's disk, then albor db rebuild",
        )
    free = shutil.disk_usage(nearest).free
    yield Check(
        "disk",
        free > _LOW_DISK_BYTES,
        f"{byte_size(free)} free at {nearest}",
        "checkpoints need about 12 bytes per parameter each",
    )


def _pointers() -> Iterator[Check]:
    from albor_core.run.home.registry import damaged_pointers

    found = list(damaged_pointers())
    if found:
        pointer, why = found[0]
        more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
        hint = f"remove it; albor db rebuild {pointer.parent} brings back the runs in that folder"
        yield Check("pointers", False, f"{clean(pointer)}: {clean(why)}{more}", clean(hint))


def _stores() -> Iterator[Check]:
    from albor_core.cli.common.lookup import absent_runs
    from albor_core.feed.runs.store_lag import find_arrears
    from albor_core.run.errors import AlborError
    from albor_core.store.file.paths import global_store, rebuild_hint
    from albor_core.store.query.reader import Reader

    path = global_store()
    again = rebuild_hint(path)
    if not path.is_file():
        if any(True for _ in registered_runs()):
            yield Check("store", False, f"{path}: missing, though there are runs", again)
        else:
            yield Check("store", None, f"{path}: not there yet", "albor demo")
        return
    try:
        with Reader(path) as reader:
            count, absent = len(reader.runs()), absent_runs(reader).missing
            arrears = find_arrears(reader, [row.id for row in reader.runs()], settled=True)
    except AlborError as error:
        yield Check("store", False, error.message, error.hint or again)
        return
    what = f"{path}: {count:,} runs, {byte_size(path.stat().st_size)}"
    if absent:
        what += f"; {counted(absent, 'registered run', 'is', 'are')} not in it"
    yield Check("store", not absent, what, again)
    late = {run: one.unindexed_bytes for run, one in arrears.items() if one.unindexed_bytes}
    if late:
        detail = f"{byte_size(sum(late.values()))} of the journal of {_first(late)} are not in it"
        yield Check("index", False, detail, again)
    lost = {run: one.lines_lost for run, one in arrears.items() if one.lines_lost}
    if lost:
        detail = (
            f"{counted(sum(lost.values()), 'line')} that {_first(lost)} logged could not be written"
        )
        yield Check("lost lines", None, detail, f"albor runs show {next(iter(lost))}")


def _first(runs: Collection[str]) -> str:
    more = f" and {counted(len(runs) - 1, 'more run')}" if len(runs) > 1 else ""
    return clean(next(iter(runs))) + more


def _gpu() -> Check:
    from albor_core.launch.found_gpu import find_gpu
    from albor_core.telemetry.shared_gpus import SharedGpus

    gpus = SharedGpus()
    samples = gpus.sample()
    if not samples:
        return Check("gpu", None, f"none: {gpus.why_none}")
    names = ", ".join(f"{s.index}: {s.name}" for s in samples)
    found = find_gpu()
    if found is not None and found.obstacle:
        detail = f"{names}; a run trains on the CPU: {found.obstacle}"
        is_wanted = "CUDA_VISIBLE_DEVICES" in found.obstacle
        return Check("gpu", None if is_wanted else False, detail, found.remedy)
    return Check("gpu", True, names)


def _terminal() -> Check:
    term, encoding = os.environ.get("TERM", ""), (sys.stdout.encoding or "").lower()
    is_true = os.environ.get("COLORTERM") in ("truecolor", "24bit")
    colours = "truecolor" if is_true else "256 colors or fewer"
    is_plain = term in ("", "dumb") or "utf" not in encoding
    return Check(
        "terminal",
        None if is_plain else True,
        f"TERM={term or 'unset'}, {encoding}, {colours}",
        "albor-tui needs a terminal with UTF-8; the albor commands do not",
    )


def _runs() -> Check:
    from albor_core.cli.common.run_ending import way_on
    from albor_core.feed.run.status import run_status

    words: dict[str, list[RunDir]] = {}
    for run in registered_runs():
        if run.run_json.is_file():
            words.setdefault(run_status(run).word, []).append(run)
    if lost := words.get("lost"):
        shown = " ".join(run.id for run in lost[:3])
        return Check("runs", None, f"{len(lost)} lost: {shown}", way_on(lost[0]))
    detail = ", ".join(f"{len(found)} {word}" for word, found in sorted(words.items()))
    return Check("runs", True, detail or "none yet")


def _rules() -> Iterator[Check]:
    """Rules of the user that watch no run."""
    from albor_core.andon.rules.sources import read_rules_file

    damaged: list[ConfigError] = []
    try:
        read_rules_file(albor_home(), damaged=damaged)
    except ConfigError as error:
        damaged = [error]
    if damaged:
        more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        hint = damaged[0].hint or "fix that file; docs/how-to/alert-rules.md"
        yield Check("rules", False, f"{clean(damaged[0].message)}{more}", clean(hint))


def _sinks() -> Iterator[Check]:
    """Checks of sinks: problems of the user's own, and sinks that a run found dead."""
    from albor_core.andon.channels.kept_sinks import user_sinks
    from albor_core.andon.channels.sinks import unset_variables

    try:
        mine = user_sinks()
    except ConfigError as error:
        yield Check("sinks", False, clean(error.message), error.hint or "fix that file")
        mine = ()
    if missing := unset_variables(mine):
        names = ", ".join(sorted(missing))
        yield Check("sinks", None, f"not set here: {names}", "export it, or no alert arrives")
    sound = []
    for sink in (one for one in mine if one.url_env not in missing):
        if flaw := _sink_flaw(sink):
            yield flaw
        else:
            sound.append(sink.name)
    if dead := _dead_sinks():
        run_id, why = next(iter(dead.items()))
        more = f", and of {counted(len(dead) - 1, 'more run')}" if len(dead) > 1 else ""
        detail = f"alerts of {run_id} do not arrive at {why}{more}"
        yield Check("sinks", False, clean(detail), f"albor alerts notify-test {run_id}")
    elif sound:
        detail = f"{', '.join(sound)}; not tried, albor alerts notify-test sends to each"
        yield Check("sinks", True, detail)


def _sink_flaw(sink: Sink) -> Check | None:
    """Why no alert can arrive there, or what is odd about it."""
    from albor_core.andon.channels.kept_sinks import RULES_FILE
    from albor_core.andon.channels.readiness import argument_problem, sink_problem

    hint = clean(f"fix it in {albor_home() / RULES_FILE}; albor alerts notify-test tries it")
    if why := sink_problem(sink, os.environ):
        return Check("sinks", False, clean(f"no alert can arrive at {sink.name}: {why}"), hint)
    if doubt := argument_problem(sink):
        return Check("sinks", None, clean(f"{sink.name}: {doubt}"), hint)
    return None


def _dead_sinks() -> dict[str, str]:
    """By live run with an unreachable sink: the first such sink, and why."""
    from albor_core.run.files.watch_file import read_watch

    dead: dict[str, str] = {}
    for run in islice(registered_runs(), _RECENT_RUNS):
        told = read_watch(run) if run.liveness().is_alive else None
        for state in () if told is None else told.sinks:
            if not state.ok:
                dead.setdefault(run.id, f"{state.name}: {state.why}")
    return dead


def _strangers() -> Iterator[Check]:
    """Runs that a guard refuses, since others may have written what it would start."""
    found = {}
    for run in islice(registered_runs(), _RECENT_RUNS):
        with contextlib.suppress(OSError):  # its folder is gone
            if why := distrust(run):
                found[run.id] = why
    if found:
        run_id, why = next(iter(found.items()))
        more = f", and {counted(len(found) - 1, 'more run')}" if len(found) > 1 else ""
        yield Check("trust", None, f"{clean(why)}{more}", f"albor guard refuses {run_id}")


def _odd_values() -> Iterator[Check]:
    """Checks of values of the newest runs that could not be recorded as given."""
    from albor_core.run.errors import AlborError
    from albor_core.run.values.metrics import MAX_NAMES, NO_ROOM_EVENT
    from albor_core.store.file.paths import global_store
    from albor_core.store.query.reader import Reader

    if not global_store().is_file():
        return
    told: dict[str, str] = {}
    skipped: dict[str, int] = {}
    crowded: dict[str, str] = {}
    try:
        with Reader(global_store()) as reader:
            for row in reader.runs(limit=_RECENT_RUNS):
                if events := reader.events(row.id, names=("track.odd",), limit=1):
                    told[row.id] = _odd_words(events[0].data)
                at = reader.positions(row.id)
                lost, unread = sum(one.damaged for one in at), sum(one.ignored for one in at)
                if events := reader.events(row.id, names=(NO_ROOM_EVENT,), limit=1):
                    crowded |= _left_out(row.id, events[0].data.get("left_out"))
                elif unread and len(reader.summary(row.id)) >= MAX_NAMES:  # before there was one
                    crowded[row.id] = f"names in {counted(unread, 'line')}"
                else:
                    lost += unread
                if lost:
                    skipped[row.id] = lost
    except AlborError:
        return  # said by the check of the store itself
    if told:
        run_id, words = next(iter(told.items()))
        more = f", and in {counted(len(told) - 1, 'more run')}" if len(told) > 1 else ""
        hint = "docs/how-to/track-your-own-loop.md says what becomes of each"
        yield Check("logged", None, f"odd values in {run_id}: {words}{more}", hint)

    if skipped:
        run_id, count = next(iter(skipped.items()))
        more = f", and in {counted(len(skipped) - 1, 'more run')}" if len(skipped) > 1 else ""
        said = f"{counted(count, 'damaged or unknown line')} in the files of {run_id}{more}"
        yield Check("lines", None, said, f"albor runs show {run_id}; its other lines are there")

    for run_id, names in crowded.items():
        said = f"values of {names} of {run_id} left out: a run's store holds {MAX_NAMES:,}"
        hint = f"they stand in its journal only; albor runs pin {run_id} METRIC gives one room"
        yield Check("names", None, f"{said} names", hint)


def _left_out(run_id: str, names: object) -> dict[str, str]:
    """How many names of a run had no room; nothing where a goal gave each of them room."""
    if names == 0:
        return {}
    return {run_id: f"{names:,} names" if isinstance(names, int) else "names"}


def _odd_words(data: Mapping[str, Any]) -> str:
    counts, examples = data.get("counts"), data.get("examples")
    if not isinstance(counts, dict):
        return "of an unknown kind"
    shown = examples if isinstance(examples, dict) else {}
    return clean(", ".join(f"{n} {kind} ({shown.get(kind, '')})" for kind, n in counts.items()))
