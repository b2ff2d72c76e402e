"""What differs in the params of any number of runs: a row per run, a column per param. Pure, but
for `read_matrix`, which asks a store.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from albor_core.feed.workspace.groups import MISSING, group_label
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import natural_place
from albor_core.run.values.directions import Direction
from albor_core.store.query.export import params_of
from albor_core.store.query.listing import ListColumn
from albor_core.store.query.table import RunList

MOST_RUNS = 1000  # of one matrix


@dataclass(frozen=True)
class ParamColumn:
    """A param and its value of each run, as groups are called; "" of a run that recorded none of
    its params. `kinds` is how many different values there are.
    """

    key: str
    labels: tuple[str, ...]
    kinds: int


@dataclass(frozen=True)
class RunMatrix:
    """`columns` are the params that are not the same for all, those of few values first; `figures`
    the newest values of `metric`. `alike` counts the params that all have the same.
    """

    runs: tuple[str, ...]
    experiments: tuple[str, ...] = ()
    columns: tuple[ParamColumn, ...] = ()
    metric: str = ""
    figures: tuple[float | None, ...] = ()
    better: Direction | None = None
    alike: int = 0
    left_out: int = 0

    def order(self, by: int | None = None) -> list[int]:
        """The places of the runs by a column: numbers, texts, unknown ones; by none of them by the
        metric, the best first.
        """
        places = range(len(self.runs))
        if by is not None:
            return sorted(places, key=lambda at: _label_rank(self.columns[by].labels[at]))
        sign = -1.0 if self.better == "max" else 1.0
        return sorted(places, key=lambda at: _figure_rank(self.figures[at], sign))


def run_matrix(
    runs: Sequence[str],
    params: Mapping[str, Mapping[str, Any]],
    *,
    metric: str = "",
    figures: Mapping[str, float | None] | None = None,
    better: Direction | None = None,
) -> RunMatrix:
    """The matrix of these runs; numbers are the same however they were written. A run that recorded
    no param differs in none.
    """
    shown = tuple(runs[:MOST_RUNS])
    keys = dict.fromkeys(key for run in shown for key in params.get(run, ()))
    columns, alike = [], 0
    for key in keys:
        labels = tuple(
            group_label(params[run].get(key)) if params.get(run) else "" for run in shown
        )
        if (kinds := len({*labels} - {""})) > 1:
            columns.append(ParamColumn(key, labels, kinds))
        else:
            alike += 1
    columns.sort(key=lambda column: (column.kinds, natural_place(column.key)))
    known = figures or {}
    return RunMatrix(
        runs=shown,
        columns=tuple(columns),
        metric=metric,
        figures=tuple(known.get(run) for run in shown),
        better=better,
        alike=alike,
        left_out=len(runs) - len(shown),
    )


def read_matrix(
    store: Path, runs: Sequence[str], metric: str, better: Direction | None = None
) -> RunMatrix:
    """The same of a store of many runs. Raises AlborError."""
    shown = tuple(runs[:MOST_RUNS])
    params: dict[str, dict[str, Any]] = {}
    with RunList(store) as table:
        for run, key, value in params_of(table, shown):
            params.setdefault(run, {})[key] = value
        experiments = {row.id: row.experiment or "" for row in table.by_id(shown)}
        found = table.cells(shown, [ListColumn(metric, "last")]) if metric else {}
    figures = {run: _number(values[0]) for run, values in found.items()}
    made = run_matrix(runs, params, metric=metric, figures=figures, better=better)
    return replace(made, experiments=tuple(experiments.get(run, "") for run in shown))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _figure_rank(value: float | None, sign: float) -> tuple[int, float]:
    if value is None:
        return 2, 0.0
    return (1, 0.0) if math.isnan(value) else (0, sign * value)


def _label_rank(label: str) -> tuple[int, float, tuple[Any, ...]]:
    if label in ("", MISSING):
        return 2, 0.0, (label,)
    try:
        return 0, float(label), (label,)
    except ValueError:
        return 1, 0.0, natural_place(label)
