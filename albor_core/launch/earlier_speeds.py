"""The speed of earlier runs of the same shape on the same device, from the global store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from albor_core.plan.speed import MeasuredSpeed, from_runs
from albor_core.run.errors import AlborError
from albor_core.run.values.flatten import flatten
from albor_core.store.file.paths import global_store
from albor_core.store.query.reader import Reader
from albor_core.store.rows.rows import KeyStat
from albor_core.store.rows.run_row import RunRow

SHAPE = (
    "model.architecture.",
    "data.batch_size",
    "data.seq_len",
    "data.document_mask",
    "optimizer.name",
    "training.mode",
    "training.mixed_precision",
    "training.residual_in_fp32",
    "training.activation_checkpointing",
    "training.compile",
    "training.deterministic",
    "training.distributed.",
    "training.batch_ramp.",
    "training.seq_len_ramp.",
)
"""Settings that decide how fast a step is; fields, and sections where a dot ends them."""
MOST, MOST_ASKED = 5, 200
_RATE, _EVAL, _SAVE = "perf/tokens_per_s", "brick/eval_ms", "brick/checkpoint_ms"
_POWER = "/power_w"  # ends the key of each GPU's


def earlier_speed(
    config: Mapping[str, Any],
    *,
    device: str,
    host: str,
    threads: int | None,
    store: Path | None = None,
) -> MeasuredSpeed | None:
    """The mean speed of the newest matching runs, at most five; None if there is none, or the store
    cannot be read.

    `config`: resolved. `device`: as in run.start, a GPU's name or cpu, on this `host` with this
    number of `threads`; None: any.
    """
    path = store or global_store()
    if not path.is_file():
        return None
    wanted = shape_of(flatten(config))
    try:
        with Reader(path) as reader:
            rows = [row for row in reader.runs(limit=MOST_ASKED) if row.tokens_per_s]
            alike = (
                _speed_of(reader, row, wanted, device=device, host=host, threads=threads)
                for row in rows
            )
            found = [one for one in alike if one is not None][:MOST]
    except AlborError:
        return None
    return from_runs(found)


def shape_of(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a flat config that determine the speed of a step."""
    return {
        key: value
        for key, value in flat.items()
        if any(key.startswith(name) if name.endswith(".") else key == name for name in SHAPE)
    }


def _speed_of(
    reader: Reader,
    row: RunRow,
    wanted: Mapping[str, Any],
    *,
    device: str,
    host: str,
    threads: int | None,
) -> MeasuredSpeed | None:
    if not wanted or shape_of(reader.params(row.id)) != wanted:
        return None
    events = reader.events(row.id, names=("run.start", "checkpoint.saved"))
    about = next((event.data for event in reversed(events) if event.name == "run.start"), {})
    is_here = row.host == host and threads in (None, about.get("threads"))
    if about.get("device") != device or not (is_here or device != "cpu"):
        return None
    series = {key: reader.series(row.id, key).mean for key in (_RATE, _EVAL, _SAVE)}
    rates = [rate for rate in _finite(series[_RATE][1:] or series[_RATE]) if rate]
    if not rates:
        return None
    summary = reader.summary(row.id)
    evaluations = summary["val/loss"].count if "val/loss" in summary else 0
    saves = sum(event.name == "checkpoint.saved" for event in events)
    return MeasuredSpeed(
        "runs",
        row.id,
        len(rates) / sum(1 / rate for rate in rates),
        min(rates),
        max(rates),
        start_s=max(0.0, (row.first_wall or 0) - row.created) if row.created else 0.0,
        eval_s=_each(series[_EVAL], summary, _EVAL, evaluations),
        checkpoint_s=_each(series[_SAVE], summary, _SAVE, saves),
        watts=_watts(reader, row.id, summary),
    )


def _watts(reader: Reader, run_id: str, summary: Mapping[str, KeyStat]) -> float | None:
    """Total power of all devices whose power was measured; None if it was measured of none."""
    powers = (_finite(reader.series(run_id, key).mean) for key in summary if key.endswith(_POWER))
    means = [fmean(power) for power in powers if power]
    return sum(means) if means else None


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _each(
    means: Sequence[float], summary: Mapping[str, KeyStat], key: str, number: int
) -> float | None:
    """Seconds of one of `number` things whose milliseconds were logged per interval."""
    known = _finite(means)
    if not number or not known:
        return None
    return fmean(known) / 1e3 * summary[key].count / number
