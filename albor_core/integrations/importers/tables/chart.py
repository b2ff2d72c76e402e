"""A chart of W&B as its page downloads it: columns `RUN - METRIC`, and beside each its `__MIN` and
`__MAX` over the runs or steps that one point stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from albor_core.integrations.importers.foreign import Example, Losses
from albor_core.integrations.importers.tables.rows import Row
from albor_core.run.values.lenient import is_number, real

_BOUND = re.compile(r"__(?:MIN|MAX)$")
_STEPS = ("step", "global_step", "train/global_step", "trainer/global_step", "_step")


def is_chart(names: list[str]) -> bool:
    """Whether column names are those of a chart: all but the first read `RUN - METRIC`, and either
    the first is a step column, or another one is a bound (`__MIN`, `__MAX`) or W&B's ` - _step`.
    """
    rest = names[1:]
    is_marked = any(_BOUND.search(name) or name.endswith(" - _step") for name in rest)
    return bool(rest) and all(" - " in name for name in rest) and (is_marked or names[0] in _STEPS)


def chart_rows(rows: Iterable[Row], losses: Losses, asked: str | None = None) -> Iterator[Row]:
    """A row for each run of each row; a bound of run `asked` that differs from its value is
    counted.
    """
    for row in rows:
        (axis, at), *columns = row.items()
        runs: dict[str, dict[str, object]] = {}
        for name, value in columns:
            run, _, metric = name.rpartition(" - ")
            if value is None or metric.startswith("_step"):
                continue
            if _BOUND.search(metric):
                middle = row.get(_BOUND.sub("", name))
                if run == asked and value != middle and is_number(value):
                    losses.note("bound of a chart", example=Example(name, at, real(value)))
                continue
            runs.setdefault(run, {})[metric] = value
        for run, values in runs.items():
            place = {"step": at} if axis in _STEPS else {axis: at}
            yield {**values, **place, "run": run}
