"""Runs of one store at one moment: their params, last values and table, read together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from albor_core.history.columns import Column, Columns, column
from albor_core.run.errors import UsageError
from albor_core.store.query.export import last_values_of, params_of, summaries_of
from albor_core.store.query.table import RunList
from albor_core.store.rows.rows import KeyStat
from albor_core.store.rows.run_row import Param, RunRow

T = TypeVar("T")
_TOGETHER = 200  # runs whose params or summaries are read when one of them is asked for
_MOST_CELLS = 100_000_000  # of a table: a gigabyte
RUN_KINDS = {  # the columns of a table of runs, before its params and metrics
    "id": "text", "name": "text", "experiment": "text", "kind": "text", "status": "text",
    "created": "float", "ended": "float", "attempts": "int", "step": "int", "max_steps": "int",
    "host": "text", "seed": "int", "commit": "text", "tags": "texts", "path": "text",
}  # fmt: skip
_FIELDS = {
    "ended": "ended_wall", "step": "last_step", "commit": "git_commit", "status": "ended_status",
}  # fmt: skip


class Selection:
    """Rows of one store at one moment, and the data read for all of them together. Any thread may
    use it: a store is opened for each answer.
    """

    def __init__(self, path: Path, rows: Sequence[RunRow]) -> None:
        self.path, self.rows = path, rows
        self._params: dict[str, dict[str, Param]] = {}
        self._summaries: dict[str, dict[str, KeyStat]] = {}

    def params(self, run_id: str) -> dict[str, Param]:
        found = self._of(run_id, self._params, _params)
        return dict(found)

    def summary(self, run_id: str) -> dict[str, KeyStat]:
        found = self._of(run_id, self._summaries, summaries_of)
        return dict(found)

    def _of(
        self,
        run_id: str,
        known: dict[str, T],
        ask: Callable[[RunList, Sequence[str]], dict[str, T]],
    ) -> T:
        """The answer for one run; if it must be read, it is read for its neighbours too."""
        if run_id not in known:
            start = self._places[run_id] // _TOGETHER * _TOGETHER
            with RunList(self.path) as table:
                known |= ask(table, [row.id for row in self.rows[start : start + _TOGETHER]])
        return known[run_id]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {row.id: place for place, row in enumerate(self.rows)}

    def columns(self) -> Columns:
        """A table of the runs: the columns of lists, then `params.KEY`, then `metrics.KEY`, the
        last value of each. Raises UsageError for a table that would not fit into memory.
        """
        count, place = len(self.rows), self._places
        params: dict[str, list[Any]] = {}
        metrics: dict[str, list[Any]] = {}
        if count:
            with RunList(self.path) as table:
                for found, ask in ((params, params_of), (metrics, last_values_of)):
                    for run_id, key, value in ask(table, [*place]):
                        if (cells := found.get(key)) is None:
                            _check_size(count, len(params) + len(metrics) + 1)
                            cells = found[key] = [None] * count
                        cells[place[run_id]] = value
        return {
            **{name: column(self._cells(name), kind) for name, kind in RUN_KINDS.items()},
            **{f"params.{key}": column(params[key]) for key in sorted(params)},
            **{f"metrics.{key}": Column("float", metrics[key]) for key in sorted(metrics)},
        }

    def _cells(self, name: str) -> list[Any]:
        field = _FIELDS.get(name, name)
        cells = [getattr(row, field) for row in self.rows]
        return self._words(cells) if name == "status" else cells

    def _words(self, ended: Iterable[str | None]) -> list[str]:
        """The status of each run; the kernel is asked only if no end is recorded."""
        from albor_core.feed.runs.listed_status import statuses_of_unended  # noqa: PLC0415

        unended = [(row.id, row.path) for row in self.rows if row.ended_status is None]
        now = statuses_of_unended(unended)
        return [word or now[row.id] for word, row in zip(ended, self.rows, strict=True)]


def _check_size(runs: int, columns: int) -> None:
    if runs * columns > _MOST_CELLS:
        raise UsageError(
            f"cannot make a table of {runs:,} runs: they have more than {columns - 1:,} different"
            " params and metrics",
            hint="a narrower filter, or albor runs export --what params",
        )


def _params(table: RunList, runs: Sequence[str]) -> dict[str, dict[str, Param]]:
    found: dict[str, dict[str, Param]] = {run: {} for run in runs}
    for run_id, key, value in params_of(table, runs):
        found[run_id][key] = value
    return found
