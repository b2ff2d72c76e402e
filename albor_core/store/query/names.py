"""What a filter, a column, an order or a metric may be called, and what a misspelt one meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from albor_core.run.errors import NotFoundError
from albor_core.run.headlines import HOUSE_NAMES
from albor_core.run.rundir import RunDir
from albor_core.store.file.crowded import logged_without_room, refuse_without_room, without_room
from albor_core.store.query.filter import FilterError
from albor_core.store.query.table import RunList
from albor_core.store.query.terms import FIELDS, Filter


class Unknown:
    """Terms of a filter about something that is not a field, nor a metric or param of any run: an
    empty answer would read as "no such run". Tables are looked at one after the other.
    """

    def __init__(self, where: Filter) -> None:
        self._terms = [term for term in where.terms if term.kind in ("number", "param")]
        self._names: set[str] = set()
        self._crowded: list[RunDir] = []
        self._has_runs = False

    def look(self, table: RunList) -> None:
        """A table without runs knows nothing and refuses nothing."""
        if not self._terms or table.is_empty():
            return
        self._has_runs = True
        self._terms = [term for term in self._terms if not table.is_known(term.field, term.stat)]
        if self._terms:
            self._names |= table.measured()
            self._crowded += table.crowded()

    def refuse(self) -> None:
        """Raise FilterError, with the nearest name, for a term that no table knew."""
        if self._has_runs and self._terms:
            term = self._terms[0]
            if run := logged_without_room(self._crowded, term.field):
                what, hint = without_room(run, term.field)
                raise FilterError(term.at, what, hint=hint)
            what = "a field, nor a metric or param of any run"
            if term.stat:
                what = f"a metric of any run, and only metrics have :{term.stat}"
            close = nearest(term.field, {*FIELDS, *self._names})
            raise FilterError(term.at, f"{term.field!r} is not {what}{close}")


def meant_metric(said: str, keys: Collection[str]) -> str:
    """The key of `keys` that a metric's name stands for: itself, its house name (`loss` is
    `train/loss`), or the only one that ends with it. Raises NotFoundError with the nearest.
    """
    found = _meant(said, keys)
    if len(found) != 1:
        raise NotFoundError(f"no metric {said!r}{nearest(said, found or keys)}")
    return found[0]


def metric_of(run: RunDir, said: str, keys: Collection[str]) -> str:
    """As `meant_metric`, of one run that has these keys in its store. The NotFoundError names the
    next command, and tells a metric that the run never logged from one that had no room.
    """
    try:
        return meant_metric(said, keys)
    except NotFoundError as error:
        refuse_without_room([(run, keys)], said)
        hint = f"albor runs show {run.id}"
        raise NotFoundError(f"{run.id}: {error.message}", hint=hint) from error


def has_metric(said: str, keys: Collection[str]) -> bool:
    """Whether a metric's name stands for a key of `keys`."""
    return len(_meant(said, keys)) == 1


def _meant(said: str, keys: Collection[str]) -> list[str]:
    """The keys that a name may stand for."""
    if said in keys:
        return [said]
    if (house := HOUSE_NAMES.get(said)) in keys and house is not None:
        return [house]
    return [key for key in keys if key.endswith(f"/{said}")]


def nearest(said: str, known: Iterable[str]) -> str:
    """`; the nearest is 'x'`, or nothing where nothing is near."""
    import difflib  # noqa: PLC0415  3 ms, where something was misspelt

    words: dict[str, str] = {}
    for name in sorted(known):
        words.setdefault(name.lower(), name)
        words.setdefault(name.lower().rpartition("/")[2], name)
    close = difflib.get_close_matches(said.lower(), words, n=1)
    return f"; the nearest is {words[close[0]]!r}" if close else ""
