"""What has to hold of a run that is over, against the same run undisturbed."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults import Scene
from stage import PATIENCE_S, Stage
from tiny_run import history

from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import read_json

DETERMINISTIC = (
    "train/loss",
    "train/loss_ema",
    "optim/lr",
    "optim/grad_norm",
    "train/tokens",
    "val/loss",
)
Point = tuple[str, int, float]


@dataclass(frozen=True)
class End:
    """Where a run is when it is over, as far as chance has no part in it."""

    digest: str
    """Of weights, optimizer, random number generators and data position."""
    said: list[tuple[int, str, float]]
    """The journal's points in the order in which they were said, rewinds applied."""
    points: list[Point]
    """What `runs export` makes of them."""


def end_of(stage: Stage) -> End:
    keys = [word for key in DETERMINISTIC for word in ("--key", key)]
    done = stage.albor("runs", "export", stage.name, "--format", "jsonl", *keys)
    assert done.returncode == 0, done.stderr
    rows = map(json.loads, done.stdout.splitlines())
    return End(
        stage.albor("runs", "digest", stage.name).stdout.strip(),
        history(stage.run, DETERMINISTIC),
        [(row["key"], row["step"], row["value"]) for row in rows],
    )


def violations(scene: Scene, wanted: End) -> Iterator[str]:
    """Everything that is wrong with the end of a run, in sentences."""
    stage = scene.stage
    yield from _ended_otherwise(stage)
    found = end_of(stage)
    if found.digest != wanted.digest:
        yield f"it ended as {found.digest!r}, undisturbed as {wanted.digest!r}"
    yield from _unlike(found, wanted, stage.steps)
    yield from _stores(stage)
    yield from _checkpoints(stage)
    yield from _leftovers(stage)
    yield from _deaths(scene)


def _ended_otherwise(stage: Stage) -> Iterator[str]:
    guard = read_json(stage.run.guard / "guard.json") or {}
    if (guard.get("state"), guard.get("exit_code")) != ("done", 0):
        yield f"the guard ended otherwise: {stage.told()}"


def _unlike(found: End, wanted: End, steps: int) -> Iterator[str]:
    logged = [step for step, key, _ in found.said if key == "train/loss"]
    if missing := sorted(set(range(1, steps + 1)) - set(logged)):
        yield f"{len(missing)} steps are missing from its history, first {missing[:5]}"
    if twice := [step for step, count in Counter(logged).items() if count > 1]:
        yield f"{len(twice)} steps are twice in its history, first {twice[:5]}"
    if logged != sorted(logged):
        yield "its history is not in order"
    for what, one, two in (
        ("its journal", found.said, wanted.said),
        ("what is exported", found.points, wanted.points),
    ):
        if one != two:
            other = [pair for pair in zip(one, two, strict=False) if pair[0] != pair[1]]
            yield f"{what} differs: {len(one)} points, not {len(two)}; first {other[:1]}"


def _stores(stage: Stage) -> Iterator[str]:
    """They settle by themselves, agree with the journal, and come out the same from it again."""
    stage.albor("runs", "show", stage.name)
    deadline, check = time.monotonic() + PATIENCE_S, None
    while check is None or (check.returncode != 0 and time.monotonic() < deadline):
        check = stage.albor("db", "check", "--thorough")
    if check.returncode != 0:
        yield f"db check: {check.stderr}"
    stores = {"the run's": stage.run.store, "the home's": stage.home / "experiments.db"}
    before = {name: _rows(path) for name, path in stores.items()}
    made = stage.albor("db", "rebuild")
    if made.returncode != 0:
        yield f"db rebuild: {made.returncode}: {made.stderr}"
    for name, path in stores.items():
        after = _rows(path)
        for table in sorted(before[name].keys() | after.keys()):
            if before[name].get(table) != after.get(table):
                one, two = before[name].get(table, []), after.get(table, [])
                other = [row for row in one if row not in two][:2]
                other += [row for row in two if row not in one][:2]
                yield f"{name} store: {table} is not the same after db rebuild: {other}"[:600]


_SURROGATE = ("id", "run_id", "experiment_id")  # numbers that a store gives by itself


def _rows(path: Path) -> dict[str, list[Any]]:
    """All rows of all plain tables, without the ids that a store makes up."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as store:
        store.row_factory = sqlite3.Row
        names = [
            row[0]
            for row in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not row[0].startswith(("sqlite_", "run_search"))
        ]
        return {
            name: sorted(
                repr([(key, row[key]) for key in row.keys() if key not in _SURROGATE])  # noqa: SIM118
                for row in store.execute(f"SELECT * FROM {name}")
            )
            for name in names
        }


def _checkpoints(stage: Stage) -> Iterator[str]:
    done = stage.albor("checkpoints", "verify", stage.name)
    if done.returncode != 0:
        yield f"checkpoints verify: {done.returncode}: {done.stdout}"


def _leftovers(stage: Stage) -> Iterator[str]:
    for folder in (stage.run.path, stage.home):
        halves = (*folder.rglob("*.tmp"), *folder.rglob("*.part"))
        left = [str(path.relative_to(folder)) for path in halves]
        if left:
            yield f"{len(left)} temporary files were left, such as {left[0]}"
    deadline = time.monotonic() + PATIENCE_S
    while lock_holder(stage.run.index_lock) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in processes_of(stage):
        yield f"process {pid} of the run was left"


def processes_of(stage: Stage) -> list[int]:
    """Everybody who works in its folder: by run id in the environment, or by the command line."""
    marks = (f"ALBOR_RUN_DIR={stage.run.path}\0".encode(), f"{stage.run.path}\0".encode())
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "environ").read_bytes(), (place / "cmdline").read_bytes()
        except OSError:
            continue
        if any(mark in part for mark, part in zip(marks, text, strict=True)):
            found.append(int(place.name))
    return [pid for pid in found if pid != os.getpid()]


def _deaths(scene: Scene) -> Iterator[str]:
    """Each death that was caused is an attempt more and has one crash report; no other is there."""
    run = scene.stage.run
    attempts = scene.stage.where()[0]
    reports = len(list(run.crash_reports.glob("*.json")))
    if not (scene.deaths == attempts - 1 == reports):
        yield (
            f"{scene.deaths} deaths were caused, {attempts - 1} lives were begun again,"
            f" {reports} crash reports were written"
        )
