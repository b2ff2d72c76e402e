"""One run of the history: its params, metrics, events and media."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from albor_core.history.columns import Columns, column
from albor_core.history.frames import Frame
from albor_core.history.metrics import Metrics
from albor_core.run.errors import AlborError, NotFoundError, UsageError, remedy
from albor_core.run.home.runs import placed
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.defined_metrics import FACT, Defined, defined_by
from albor_core.store.file.paths import local_store
from albor_core.store.query.names import meant_metric
from albor_core.store.query.reader import Reader
from albor_core.store.rows.rows import EventRow, KeyStat
from albor_core.store.rows.run_row import Param, RunRow

if TYPE_CHECKING:
    from albor_core.history.selection import Selection
    from albor_core.store.query.media import MediaRow

T = TypeVar("T")
CATCH_UP_S = 5.0  # for what an ended run wrote last: a second on an idle machine
EVENT_KINDS = {
    "wall": "float", "step": "int", "attempt": "int", "name": "text", "severity": "text",
    "source": "text", "data": "json",
}  # fmt: skip


MEDIA_KINDS = {
    "key": "text", "step": "int", "kind": "text", "hash": "text", "bytes": "int", "name": "text",
    "version": "int", "caption": "text", "path": "text", "wall": "float", "meta": "json",
}  # fmt: skip


class Rows(Frame, Sequence[T], Generic[T]):
    """Rows of one kind, as objects or as a table. `kinds` names the columns, which are fields of
    the rows."""

    def __init__(self, rows: Sequence[T], kinds: Mapping[str, str]) -> None:
        self._rows, self._kinds = tuple(rows), kinds

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Rows[T]: ...
    def __getitem__(self, place: int | slice) -> T | Rows[T]:
        found = self._rows[place]
        return Rows(found, self._kinds) if isinstance(place, slice) else found  # type: ignore[arg-type,return-value]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self._rows)} rows of {', '.join(self._kinds)}>"

    def columns(self) -> Columns:
        return {
            name: column([cell(row, name) for row in self._rows], kind)
            for name, kind in self._kinds.items()
        }


def cell(row: object, name: str) -> Any:
    """The value of a row's field as tables show it."""
    value = getattr(row, name)
    return str(value) if isinstance(value, Path) else value


class RecordedRun:
    """A run as it was known when it was asked for; ask again for what is new.

    `id name experiment kind host seed commit tags path` are as recorded, `created` and `ended` UTC
    seconds, `step` the last one, what is not known None. Texts are data: a name may hold anything.
    `status`, `metrics`, `events` and `media` are read when they are asked for.
    """

    def __init__(self, row: RunRow, selection: Selection) -> None:
        self.row, self._selection = row, selection
        self.id, self.name, self.experiment, self.kind = row.id, row.name, row.experiment, row.kind
        self.created, self.ended, self.step = row.created, row.ended_wall, row.last_step
        self.host, self.seed, self.commit = row.host, row.seed, row.git_commit
        self.tags, self.path = row.tags, Path(row.path)

    def __repr__(self) -> str:
        return f"<run {self.id!r} of {self.experiment!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedRun) and (self.id, self.path) == (other.id, other.path)

    def __hash__(self) -> int:
        return hash((self.id, self.path))

    @property
    def status(self) -> str:
        """The status of the run now: running, completed, failed, lost, ...
        (docs/reference/events.md)."""
        from albor_core.feed.runs.listed_status import status_of  # noqa: PLC0415  few ask

        return status_of(self.row)

    @property
    def params(self) -> dict[str, Param]:
        """The resolved config and what the program added, flattened to dotted keys."""
        return self._selection.params(self.id)

    @property
    def config(self) -> dict[str, Any]:
        """The nested config; of a run whose folder is gone, rebuilt from its params."""
        return read_json(self.folder.config_resolved) or nested(self.params)

    @property
    def summary(self) -> dict[str, KeyStat]:
        """Every metric in figures: last, best, best_step, minimum, maximum, count, ..."""
        return self._selection.summary(self.id)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return tuple(self.summary)

    @property
    def store(self) -> Path:
        """The store file that the run was found in."""
        return self._selection.path

    @property
    def folder(self) -> RunDir:
        """Its run directory, which may be gone."""
        return placed(self.id, self.path)

    def metrics(self, keys: str | Sequence[str] | None = None, *, x: str | None = None) -> Metrics:
        """Metrics side by side, all of them if `keys` are not given. Short names work: `loss` is
        `train/loss`, and the last part of a name is enough if it is unique.

        `x` is "step", "wall" (UTC seconds), "tokens" (interpolated between steps that logged them),
        or a metric, which then gives rows only at its own steps. Without `x` it is what the program
        passed for all of `keys` to `run.define_metric`, or else "step".
        """
        if x is not None and (not isinstance(x, str) or not x):
            raise UsageError(f"x {x!r} is not the name of an axis", hint="x='step'")
        wanted = [keys] if isinstance(keys, str) else None if keys is None else list(keys)
        return Metrics(self.id, self._points, wanted, x or self._defined_x(wanted or ()))

    def _defined_x(self, keys: Sequence[str]) -> str:
        """The x that the program declared for all of these metrics."""
        with Reader(self._selection.path) as reader:
            said = defined_by(reader.detail(self.id).facts.get(FACT))
        if not said or not keys:
            return "step"
        names = self.keys
        try:
            found = {said.get(meant_metric(key, names), Defined()).x for key in keys}
        except NotFoundError:
            return "step"  # whoever reads them says so
        return (found.pop() or "step") if len(found) == 1 else "step"

    @property
    def events(self) -> Rows[EventRow]:
        """Events of the run, in order of time."""
        with Reader(self._selection.path) as reader:
            return Rows(reader.events(self.id), EVENT_KINDS)

    @property
    def media(self) -> Rows[MediaRow]:
        """Pictures, tables, sounds and files of the run, in the order they were recorded: `path` is
        the file of each, None if it has none. Raises NotFoundError if the run directory is gone,
        StoreError.
        """
        from albor_core.store.query.media import media  # noqa: PLC0415  few ask

        self._points().close()
        return Rows(media(self.folder), MEDIA_KINDS)

    def _points(self) -> Reader:
        """The store with the run's points. Raises NotFoundError if they are gone, StoreError."""
        check_points(self.folder)
        if why := bring_up(self.folder):
            warnings.warn(f"{self.id}: {why}", stacklevel=2)
        return Reader(local_store(self.folder))


def check_points(run: RunDir) -> None:
    """Raise NotFoundError if the points of a run are gone."""
    if not run.run_json.is_file():
        raise NotFoundError(
            f"cannot read points of {run.id}: the run directory is gone, and the points with it",
            hint=f"albor runs show {run.id} --json, which has what is left",
        )


def bring_up(run: RunDir) -> str:
    """Index what an ended run wrote last, as far as a few seconds allow; return why the data may be
    incomplete, or "".
    """
    from albor_core.store.index.catch_up import (  # noqa: PLC0415  for points
        await_first_rows,
        catch_up,
        drain_index,
    )

    store = local_store(run)
    try:
        await_first_rows(run)
        if not store.is_file():
            drain_index(run)
        elif not catch_up(run, timeout_s=CATCH_UP_S):
            return "what is read may be a part of what it wrote: not all of it is in the store yet"
    except AlborError as error:
        return f"what is read may be a part of what it wrote: {error.message}"
    except OSError as error:
        why = f"{error.strerror or error}; {remedy(error)}".rstrip("; ")
        return f"what is read may be a part of what it wrote: {why}"
    return ""


def nested(params: Mapping[str, Param]) -> dict[str, Any]:
    """Nest dotted keys into mappings; a key stays whole if its beginning is a value."""
    found: dict[str, Any] = {}
    for key, value in params.items():
        inner, parts = found, key.split(".")
        for part in parts[:-1]:
            if not isinstance(inner.setdefault(part, {}), dict):
                inner, parts = found, [key]
                break
            inner = inner[part]
        inner[parts[-1]] = value
    return found
