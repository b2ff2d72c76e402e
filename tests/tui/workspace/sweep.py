"""A home of runs that differ in lr, wd and seed and log only their own metrics, as a sweep does."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albor_core.feed.view.run_view import RunView
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer

LRS = (1e-4, 3e-4, 1e-3, 3e-3)
Curves = Mapping[str, Sequence[tuple[int, float]]]


def curves_of(lr: float, seed: int, points: int = 40) -> dict[str, list[tuple[int, float]]]:
    """mse and r2 of a run: the best lr is 1e-3."""
    rng = random.Random(f"{lr} {seed}")
    floor = 0.15 + 0.02 * abs(math.log10(lr / 1e-3)) + rng.gauss(0, 0.002)
    steps = [5 * (i + 1) for i in range(points)]
    mse = [floor + 0.6 / (1 + s / 12) + rng.gauss(0, 0.004) for s in steps]
    return {
        "train/mse": [(s, y * 0.95) for s, y in zip(steps, mse, strict=True)],
        "val/mse": [*zip(steps[3::4], mse[3::4], strict=True)],
        "val/r2": [(s, 1 - y) for s, y in [*zip(steps, mse, strict=True)][3::4]],
    }


def ended(
    home: Path,
    name: str,
    curves: Curves,
    params: Mapping[str, Any],
    *,
    reason: str = "completed",
    age_s: float = 600.0,
    experiment: str = "sweep",
    run_id: str = "",
) -> RunView:
    """A run that ended; the newer runs of a list are those of a smaller age."""
    created = time.time() - age_s
    run = create_run(
        home / "runs", run_id or name, experiment=experiment, name=name, kind="custom",
        argv=["python"], created=created,
    )  # fmt: skip
    log(run, curves, params, created)
    words = {
        "schema": "albor.exit/1",
        "run_id": run.id,
        "attempt": 1,
        "nonce": "",
        "code": int(reason == "failed"),
    }
    words |= {"reason": reason, "step": 200, "message": "", "error": None, "wall": created + 9}
    write_json(run.exit, words)
    with Indexer(run, global_store()) as indexer:
        indexer.drain()
    return RunView(id=run.id, name=name, experiment=experiment, path=str(run.path), status=reason)


def log(run: RunDir, curves: Curves, params: Mapping[str, Any], wall: float) -> None:
    journal = Journal(run.journal, attempt=1)
    try:
        for key, value in params.items():
            journal.append("p", key=key, value=value, wall=wall)
        logged = sorted(
            (step, key, value) for key, points in curves.items() for step, value in points
        )
        for step, key, value in logged:
            journal.metrics(step, {key: value}, wall=wall + step / 100)
    finally:
        journal.close()


def sweep(home: Path, lrs: Sequence[float] = LRS, seeds: int = 2) -> list[RunView]:
    """A run for each lr and seed."""
    return [
        ended(
            home,
            f"mlp-{n * seeds + seed:02d}",
            curves_of(lr, seed),
            {"lr": lr, "wd": 0.1, "seed": seed},
            age_s=9_000.0 - 60 * (n * seeds + seed),
        )
        for n, lr in enumerate(lrs)
        for seed in range(seeds)
    ]
