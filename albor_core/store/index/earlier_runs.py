"""Losses of earlier runs of the same config, which say what the loss of a run should be.

The same experiment, and a config that differs in nothing but the seed and what does not change what
is learned; of runs that ended by themselves or were stopped by a person.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from albor_core.andon.health.curve import Curve
from albor_core.run.errors import AlborError
from albor_core.run.values.flatten import flatten
from albor_core.store.file.connect import open_reader, remove_copy
from albor_core.store.index.series.levels import unpack_preview

INCIDENTAL = ("training.seed", "training.output_dir", "monitoring.", "guard.", "data.num_workers")
"""Settings that do not change what is learned, only where it lies and who looks at it."""
_RATES = (
    *("optimizer.lr", "optimizer.min_lr", "optimizer.muon_lr", "optimizer.embedding_lr"),
    *("optimizer.head_lr", "lr", "learning_rate"),
)
_LOSS = "train/loss"
_MOST, _MOST_ASKED = 5, 100
_EARLIER = (
    "SELECT r.id FROM runs r JOIN experiments e ON e.id = r.experiment_id WHERE e.name = ?"
    " AND r.run != ? AND r.ended_status IN ('completed', 'stopped') ORDER BY r.created DESC LIMIT ?"
)
_PREVIEW = (
    "SELECT l.data FROM keys k JOIN metric_levels l ON l.run_id = k.run_id AND l.key_id = k.key_id"
    " WHERE k.run_id = ? AND k.name = ? AND k.nonfinite = 0 AND l.level = 0"
)


def earlier_losses(
    store: Path, run_id: str, *, experiment: str, config: Mapping[str, Any], same_lr: bool = True
) -> tuple[Curve, ...]:
    """The newest of them in the global store, at most five, as means of up to 256 stretches.

    Nothing for a run whose config is unknown, or where the store cannot be read: it is only a
    comparison.
    """
    wanted = _recipe(flatten(config), same_lr)
    if not wanted or not store.is_file():
        return ()
    try:
        connection, folder = open_reader(store)
    except AlborError:
        return ()
    try:
        with closing(connection):
            return _curves(connection, run_id, experiment, wanted, same_lr)
    except (sqlite3.Error, ValueError):
        return ()
    finally:
        remove_copy(folder)


def _curves(
    db: sqlite3.Connection, run_id: str, experiment: str, wanted: Mapping[str, Any], same_lr: bool
) -> tuple[Curve, ...]:
    found: list[Curve] = []
    for (number,) in db.execute(_EARLIER, (experiment, run_id, _MOST_ASKED)).fetchall():
        params = db.execute("SELECT key, value FROM params WHERE run_id = ?", (number,))
        if _recipe({key: json.loads(value) for key, value in params}, same_lr) != wanted:
            continue
        if (row := db.execute(_PREVIEW, (number, _LOSS)).fetchone()) is not None:
            found.append(_curve(row[0]))
        if len(found) == _MOST:
            break
    return tuple(found)


def _curve(preview: bytes) -> Curve:
    """Each bucket in the middle of its steps; the last one, which may hold few, is left out."""
    buckets = unpack_preview(preview)
    stride = buckets[1].start - buckets[0].start if len(buckets) > 1 else 1
    kept = buckets[:-1]
    middles = [bucket.start + (stride - 1) / 2 for bucket in kept]
    return Curve(middles, [bucket.mean for bucket in kept])


def _recipe(params: Mapping[str, Any], same_lr: bool) -> dict[str, Any]:
    """What of a flat config makes the curve."""
    return {
        key: value
        for key, value in params.items()
        if not key.startswith(INCIDENTAL)
        and not key.endswith("seed")
        and (same_lr or key not in _RATES)
    }
