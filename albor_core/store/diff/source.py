"""One run of a comparison, and the store that knows most about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import Any

from albor_core.run.errors import AlborError, NotFoundError
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.directions import Goals
from albor_core.run.values.flatten import flatten
from albor_core.store.diff import facts as diff_facts
from albor_core.store.diff.verdict import WINDOW
from albor_core.store.file.paths import local_store, rebuild_hint
from albor_core.store.file.standing import Standing
from albor_core.store.query.reader import Reader
from albor_core.store.rows.run_row import RunRow
from albor_core.store.rows.series import Series

REACH_POINTS = 1000
_MAX_WINDOW_STEPS = 4000
_TOKENS_A_STEP = (1e-9, 1e18)  # what is beyond was never a count of tokens


def row_of(reader: Reader, run_id: str, own_stores: Mapping[str, Path]) -> RunRow:
    """A run as the store knows it, or else the run's own store, which survives the loss of the
    global one. Raises NotFoundError.
    """
    try:
        return reader.run(run_id)
    except NotFoundError as error:
        if (own := own_stores.get(run_id)) is None:
            raise
        with suppress(AlborError), Reader(own) as found:
            return found.run(run_id)
        error.hint = rebuild_hint()
        raise


@contextmanager
def open_sources(reader: Reader, rows: Iterable[RunRow]) -> Iterator[list[Reader]]:
    """For each run the store that knows most about it."""
    with ExitStack() as stack:
        found = []
        for row in rows:
            path = local_store(RunDir(Path(row.path)))
            best = reader
            if path != reader.path and path.is_file():
                try:
                    own = stack.enter_context(Reader(path))
                    own.run(row.id)
                    best = own
                except AlborError:  # damaged or another run's: the given store has the preview
                    best = reader
            found.append(best)
        yield found


class ComparedRun:
    """A run to compare, and the store with its rows."""

    def __init__(self, reader: Reader, row: RunRow, goals: Goals) -> None:
        self.reader, self.row, self._goals = reader, row, goals
        self.params: Mapping[str, Any] = reader.params(row.id) or _written_config(row)
        told = reader.detail(row.id)
        self.facts, self.argv = told.facts, told.argv
        self.code = diff_facts.code(self.facts, row.git_commit, row.git_dirty)
        loaded = reader.events(row.id, names=("recipe.loaded",), limit=1)
        self.data = diff_facts.data(self.facts, loaded[0].data if loaded else {})
        self.summary = {k: s for k, s in reader.summary(row.id, goals=goals).items() if s.count}

    def main_metrics(self) -> tuple[str, ...]:
        """The metrics that stand for the run and have a direction, or that a person pinned."""
        known = self.reader.standings([self.row.id]).get(self.row.id, Standing())
        found = replace(known, goals=self._goals).chosen(most=len(known.logged))
        return tuple(one.name for one in found if one.better or one.is_pinned)

    def has_own_store(self) -> bool:
        return self.reader.path == local_store(RunDir(Path(self.row.path)))

    def series(self, key: str, max_points: int) -> Series:
        return self.reader.series(self.row.id, key, max_points=max_points)

    def value_at(self, key: str, step: int) -> float | None:
        """The newest value at `step`: of windows so small that no bucket holds a later one."""
        for width in (64, 1024, 65_536):
            found = self.reader.series(
                self.row.id, key, lo=max(0, step - width), hi=step, max_points=width + 1
            )
            if found.last:
                return found.last[-1]
        return None

    def command(self) -> dict[str, str]:
        """The command line, of which a training's config says all."""
        return {} if self.row.kind == "train" or not self.argv else {"command": join(self.argv)}

    def environment(self) -> dict[str, Any]:
        """Host, device and versions of the newest attempt."""
        starts = self.reader.events(self.row.id, names=("run.start",), limit=1)
        started = starts[0].data if starts else {}
        return diff_facts.environment(self.facts, self.row.host, started)

    def axis(self, key: str) -> str:
        """The unit of a metric's steps: "" is the step of the program."""
        told = self.reader.events(self.row.id, names=("import.axis",))
        return diff_facts.axis((event.data for event in told), key)

    def tokens_per_step(self) -> float | None:
        stat = self.summary.get("train/tokens")
        if stat is None or not stat.last or not stat.last_step:
            return None
        tokens = stat.last / stat.last_step
        return tokens if _TOKENS_A_STEP[0] < tokens < _TOKENS_A_STEP[1] else None

    def tail(self, key: str, end: int) -> tuple[list[int], list[float]]:
        """Points in the last WINDOW up to `end`, and enough before it to know where the window
        starts.
        """
        stat = self.summary[key]
        first = stat.first_step or 0
        spacing = max(1, (end - first) // max(stat.count, 1))
        span = min(WINDOW * (end - first), float(_MAX_WINDOW_STEPS * spacing))
        start = end - int(span / WINDOW)
        # where the shared range starts and its last part: nothing in between decides
        rows = (
            *self.reader.points(self.row.id, key, start, end - int(span) - 1, limit=1),
            *self.reader.points(self.row.id, key, end - int(span), end),
        )
        if rows:
            return [step for step, _, _ in rows], [value for _, value, _ in rows]
        series = self.series(key, REACH_POINTS)  # the global store: means of buckets
        return [*map(int, series.steps)], [*series.mean]


def _written_config(row: RunRow) -> dict[str, Any]:
    """The resolved config in the run's folder, as a store would have it."""
    return flatten(read_json(RunDir(Path(row.path)).config_resolved) or {})
