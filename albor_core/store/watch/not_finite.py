"""When NaN or Inf of a metric is told, whatever the metric is called. Pure.

    what it is                        after it was finite      while it never was
    a loss by its name                the first                the first
    what stands for the run           the first                EARLY in a row
    a goal's metric                   the first                EARLY in a row
    of episodes (a mean reward)       IN_A_ROW                 never: none has ended yet
    of gradients                      IN_A_ROW                 AT_SCALING in a row
    one of a family (classes, layers) IN_A_ROW, of 3/4 of it   never: the class is absent
    any other                         IN_A_ROW                 never: it is not measured

"Stands for the run" is run/values/main_metrics.py on the names that were logged; the first HEADS
of them, since others may be NaN by design now and then; while it never was finite, the very first
and what is of validation. A loss scaler skips steps whose gradient is infinite, some at first and
one now and then. A metric that came back from NaN is told only after
more than twice the longest time that it stayed away, and what stands for the run likewise once that
happened RETURNS times. At the end of a run a metric whose last value is not finite is told after
one, unless it was so before. What was told is over after STEADY finite values in a row.

Steps that are late, rare or missing count for nothing: only values do. No more than MOST_TOLD
metrics are told by name, the rest as one; names after the first MOST_NAMES are judged as losses
alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from albor_core.run.values.directions import direction, is_validation
from albor_core.run.values.main_metrics import Logged, main_metrics

RULE = "not-finite-"
"""How the rules begin of alerts that tell of NaN or Inf, one a metric."""
IN_A_ROW, EARLY, AT_SCALING = 3, 3, 16
STEADY, RETURNS, HEADS = 10, 2, 2
MOST_TOLD, MOST_NAMES = 64, 16384
_FAMILY = 4  # so many of one kind are a family
_KEEPS_GOOD = 1 << 20
_EPISODES = re.compile(
    r"(?:^|[^a-z])(?:ep|eps|episodes?|episodic|rollouts?|returns?|rew|rewards?|success)(?![a-z])"
)


class Found(NamedTuple):
    """What a value says of its metric: `value` is not finite and is to be told, or it is finite
    again and what was told is over.
    """

    key: str
    value: float
    step: int
    is_over: bool = False


class _Seen:
    """Of one metric: finite values since the last that was none, those that are none in a row, the
    step of their first, the longest such row that ended, how many did, and whether it was told.
    """

    __slots__ = ("bad", "came_back", "first", "good", "is_told", "longest", "value", "was_finite")

    def __init__(self) -> None:
        self.good = self.bad = self.first = self.longest = self.came_back = 0
        self.was_finite = self.is_told = False
        self.value = math.nan

    def least(self, again: int) -> int:
        """Values in a row that tell of what stands for the run."""
        least = 1 if self.was_finite else EARLY
        return max(least, again) if self.came_back >= RETURNS else least

    def take(self, value: float, step: int) -> None:
        if math.isfinite(value):
            if self.bad and self.was_finite:
                self.came_back += 1
                self.longest = max(self.longest, self.bad)
            self.was_finite, self.bad = True, 0
            self.good = min(self.good + 1, _KEEPS_GOOD)
            return
        if not self.bad:
            self.first = step
        self.good, self.bad, self.value = 0, self.bad + 1, value


class NotFinite:
    """What it remembers of one attempt. `chosen`: metrics with a goal or a pin."""

    def __init__(self, chosen: Collection[str] = ()) -> None:
        self._chosen = frozenset(chosen)
        self._seen: dict[str, _Seen] = {}
        self._heads: tuple[int, tuple[str, ...]] = (0, ())
        self._families: tuple[int, dict[str, list[str]]] = (0, {})

    def choose(self, chosen: Collection[str]) -> None:
        """These have a goal or a pin, too."""
        self._chosen = self._chosen.union(chosen)

    def take(self, step: int, values: Mapping[str, Any]) -> Iterator[Found]:
        """Values that were logged together."""
        doubtful = []
        for key, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            seen = self._seen.get(key)
            if seen is None:
                seen = _Seen()
                if len(self._seen) < MOST_NAMES:
                    self._seen[key] = seen
            seen.take(float(value), step)
            if seen.bad and not seen.is_told:
                doubtful.append((key, seen))
            elif seen.is_told and seen.good >= STEADY:
                seen.is_told = False
                yield Found(key, float(value), step, is_over=True)
        for key, seen in doubtful:  # when all of a line are known: families are judged together
            if self._is_trouble(key, seen):
                seen.is_told = True
                yield Found(key, seen.value, seen.first)

    def end(self) -> Iterator[Found]:
        """The run is over: those that ended so, though not for long enough until now."""
        for key, seen in self._seen.items():
            is_new = seen.bad and seen.was_finite and not seen.is_told and not seen.came_back
            if is_new and not (_is_of_gradients(key) or _is_of_episodes(key) or self._kin(key)):
                seen.is_told = True
                yield Found(key, seen.value, seen.first)

    def _is_trouble(self, key: str, seen: _Seen) -> bool:
        kin = self._kin(key)
        if is_loss(key) and not _has_number(kin, key):
            return True
        again = 2 * seen.longest + 1 if seen.came_back else 0
        if _is_of_gradients(key):
            return seen.bad >= max(IN_A_ROW if seen.was_finite else AT_SCALING, again)
        heads = () if kin else self._first()
        if not seen.was_finite and not is_validation(key):
            heads = heads[:1]
        if (key in self._chosen or key in heads) and not _is_of_episodes(key):
            return seen.bad >= seen.least(again)
        if not seen.was_finite or seen.bad < max(IN_A_ROW, again):
            return False
        return 4 * sum(self._seen[one].bad > 0 for one in kin) >= 3 * len(kin)

    def _first(self) -> tuple[str, ...]:
        """What stands for the run, by the names until now."""
        if self._heads[0] != len(self._seen):
            logged = [Logged(name) for name in self._seen]
            mains = main_metrics(logged, most=HEADS)
            self._heads = (len(logged), tuple(one.name for one in mains))
        return self._heads[1]

    def _kin(self, key: str) -> list[str]:
        """The metrics of its family, itself among them; none where it has no family."""
        if self._families[0] != len(self._seen):
            found: dict[str, list[str]] = {}
            for name in self._seen:
                for family in _families(name):
                    found.setdefault(family, []).append(name)
            self._families = (len(self._seen), found)
        known = (self._families[1].get(family, []) for family in _families(key))
        return max((one for one in known if len(one) >= _FAMILY), key=len, default=[])

    def to_json(self) -> dict[str, Any]:
        """Metrics of which more than that they were always finite is known, each by its figures."""
        return {
            "fine": [key for key, one in self._seen.items() if _is_plain(one)],
            "seen": {
                key: [int(was) if isinstance(was := getattr(one, name), bool) else was
                      for name in _KEPT] + [repr(one.value)]
                for key, one in self._seen.items()
                if not _is_plain(one)
            },
        }  # fmt: skip

    def load(self, saved: Mapping[str, Any]) -> None:
        """What `to_json` gave. Raises TypeError, ValueError or KeyError for anything else."""
        for key in saved["fine"]:
            one = self._seen[str(key)] = _Seen()
            one.take(0.0, 0)
        for key, (*kept, value) in saved["seen"].items():
            one = self._seen[str(key)] = _Seen()
            for name, number in zip(_KEPT, kept, strict=True):
                setattr(one, name, bool(number) if name in _FLAGS else int(number))
            one.value = float(value)


_KEPT = ("good", "bad", "first", "longest", "came_back", "was_finite", "is_told")
_FLAGS = ("was_finite", "is_told")


def _is_plain(one: _Seen) -> bool:
    return one.was_finite and not (one.bad or one.came_back or one.is_told)


def is_loss(key: str) -> bool:
    """Whether the name says that it is one."""
    return "loss" in key.rpartition("/")[2].lower()


def _is_of_gradients(key: str) -> bool:
    return "grad" in key.lower() or "loss_scale" in key.lower()


def _is_of_episodes(key: str) -> bool:
    return _EPISODES.search(key.lower()) is not None


def _has_number(kin: Collection[str], key: str) -> bool:
    """Whether its family counts its members: class_0, class_1."""
    return bool(kin) and any(c.isdigit() for c in key)


def _families(name: str) -> tuple[str, ...]:
    """What its siblings share with it: the name without numbers; where that says what is measured,
    the folder of a deep one (val/iou/cat) or the first word of its last part (iou_cat).
    """
    folder, _, last = name.rpartition("/")
    found = []
    if (bare := re.sub(r"[0-9]+", "#", name)) != name:
        found.append(bare)
    if "/" in folder and _says_what(folder.rpartition("/")[2]):
        found.append(f"{folder}/")
    word, mark, rest = last.partition("_")
    if mark and rest and _says_what(word):
        found.append(f"{folder}/{word}_")
    return tuple(found)


def _says_what(word: str) -> bool:
    return direction(word) is not None or "class" in word.lower()
