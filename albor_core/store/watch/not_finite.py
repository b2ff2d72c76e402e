"""When NaN or Inf of a metric is told, whatever the metric is called. Pure.

    what it is                        after it was finite      while it never was
    a loss, or a mean of errors       the first                the first (Inf of errors: EARLY)
    what stands for the run, a goal's the first                EARLY in a row, AT_FIRST
                                                               beside what is finite; at the end
    of episodes (a mean reward)       as the others are        never: none has ended yet
    of gradients                      IN_A_ROW, NaN beside a   AT_FIRST in a row, likewise
                                      loss of exactly 0: first
    of clocks and settings            IN_A_ROW                 never: not known yet
    one of a family (classes, layers) IN_A_ROW, of 3/4 of it   never: the class is absent
    a part (AP_small beside AP)       as the others are        never: what it counts is absent
    any other                         IN_A_ROW, or newest      never: it is not measured
                                      for HELD_S

"Stands for the run" is run/values/main_metrics.py on what was logged; the first HEADS of them,
since others may be NaN by design now and then; while it never was finite, the very first and what
is of validation. A loss scaler skips steps whose gradient is infinite, some at first and one now
and then; a correlation has no value before there are samples enough. NaN of validation, or of the
best until now, may fill a place in the first line, beside other figures, until there is one: such
a metric counts as measured from two finite values in a row on, and never so it is told at the end.
A mean of the episodes of a window has no value where none ended: in training it is judged so only
after MEASURED finite values in a row. Trainers that hide NaN log a loss of exactly 0 beside the NaN
of its gradient.
A metric that came back from NaN is told only after more than twice the longest time that it stayed
away, and what stands for the run likewise once that happened RETURNS times, or where it began so.
At the end of a run a metric whose last value is not finite is told after one, unless it was so
before. What was told is over after STEADY finite values in a row.

Steps that are late, rare or missing count for nothing: only values do. No more than MOST_TOLD
metrics are told by name, the rest as one; names after the first MOST_NAMES are judged as losses
alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Any, NamedTuple

from albor_core.run.values.directions import direction, is_background, is_validation, is_whole_loss
from albor_core.run.values.main_metrics import Logged, main_metrics

RULE = "not-finite-"
"""How the rules begin of alerts that tell of NaN or Inf, one a metric."""
IN_A_ROW, EARLY, AT_FIRST = 3, 3, 16
STEADY, RETURNS, HEADS, MEASURED = 10, 2, 2, 6
HELD_S = 2.0
"""How long the newest value of a side figure is not finite before that is told."""
MOST_TOLD, MOST_NAMES = 64, 16384
_FAMILY = 4  # so many of one kind are a family
_KEEPS_GOOD = 1 << 20
_ERRORS = re.compile(
    r"(?:^|[^a-z])(?:[a-z]?nll|b?ce|x?entropy|ppl|perplexity|bp[bcd]|elbo|objective|residual"
    r"|likelihood|errors?|err|n?r?mse|n?mae|msle|rmsle|huber|energy)(?![a-z])"
)
_EPISODES = re.compile(
    r"(?:^|[^a-z])(?:ep|eps|episodes?|episodic|rollouts?|returns?|rew|rewards?(?!/)|success)"
    r"(?![a-z])"
)
_AFTER_PART = re.compile(r"(?<=[A-Z])[a-z]$|[_.@-]")
_BEST = re.compile(r"(?:^|[^a-z])(?:best|min|max|lowest|highest)(?![a-z])")


class Found(NamedTuple):
    """What a value says of its metric: `value` is not finite and is to be told, or it is finite
    again and what was told is over.
    """

    key: str
    value: float
    step: int
    is_over: bool = False


@dataclass(slots=True)
class _Seen:
    """What is remembered of one metric."""

    fills: bool = False  # NaN may fill the place of what is not measured yet
    was_finite: bool = False
    is_told: bool = False
    count: int = 0
    good: int = 0  # finite values since the last that was none
    bad: int = 0  # those that are none, in a row
    first: int = 0  # the step of the first of them
    since: float = 0.0  # and its time
    ran: int = 0  # how many finite ones came just before it
    longest: int = 0  # of such rows that ended
    came_back: int = 0  # how many did
    value: float = math.nan  # the newest that was none

    def least(self, early: int) -> int:
        """Values in a row that tell of what stands for the run."""
        least = 1 if self.was_finite else early
        return max(least, self.again()) if self.came_back >= RETURNS else least

    def again(self) -> int:
        """Values in a row that are more than it has come back from."""
        return 2 * self.longest + 1 if self.came_back else 0

    def take(self, value: float, step: int, wall: float) -> None:
        self.count += 1
        if not math.isfinite(value):
            if not self.bad:
                self.first, self.since, self.ran = step, wall, self.good
            self.good, self.bad, self.value = 0, self.bad + 1, value
            return
        if self.bad and (self.was_finite or self.fills):
            self.came_back += 1
            self.longest = max(self.longest, self.bad)
        self.was_finite, self.bad = True, 0
        self.good = min(self.good + 1, _KEEPS_GOOD)
        if self.fills and self.good > 1:  # it is measured as the others are
            self.fills, self.came_back, self.longest = False, 0, 0


class _Shared:
    """Names by each of what they share with others."""

    def __init__(self, shared: Callable[[str], Iterable[str]]) -> None:
        self._shared, self._count = shared, 0
        self._found: dict[str, list[str]] = {}

    def of(self, names: Collection[str]) -> Mapping[str, list[str]]:
        """`names` are those of the last time, and newer ones behind them."""
        for name in islice(names, self._count, None):
            for word in self._shared(name):
                self._found.setdefault(word, []).append(name)
        self._count = len(names)
        return self._found


class NotFinite:
    """What it remembers of one attempt. `chosen`: metrics with a goal or a pin."""

    def __init__(self, chosen: Collection[str] = ()) -> None:
        self._chosen = frozenset(chosen)
        self._seen: dict[str, _Seen] = {}
        self._held: set[str] = set()  # what time may tell of
        self._lines = 0
        self._has_finite = False  # any of its figures, but of clocks and settings
        self._heads: tuple[tuple[int, int], tuple[str, ...]] = ((0, 0), ())
        self._families, self._parts = _Shared(_families), _Shared(_wholes)
        self._hides = False  # the last line has a loss of exactly 0

    def choose(self, chosen: Collection[str]) -> None:
        """These have a goal or a pin, too."""
        self._chosen = self._chosen.union(chosen)

    def take(self, step: int, values: Mapping[str, Any], wall: float = 0.0) -> Iterator[Found]:
        """Values that were logged together, at a time."""
        numbers = {
            key: float(value)
            for key, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        of_line = {key: self._known(key, is_beside=len(numbers) > 1) for key in numbers}
        self._lines += 1
        self._hides = any(value == 0 and is_whole_loss(key) for key, value in numbers.items())
        for key, seen in of_line.items():
            seen.take(numbers[key], step, wall)
            if seen.bad:
                continue
            self._has_finite = self._has_finite or not is_background(key)
            self._held.discard(key)
            if seen.is_told and seen.good >= STEADY:
                seen.is_told = False
                yield Found(key, numbers[key], step, is_over=True)
        for key, seen in of_line.items():  # when all are known: families are judged together
            if not seen.bad or seen.is_told:
                continue
            if self._is_trouble(key, seen):
                yield self._told(key, seen)
            elif self._may_be_held(key, seen):
                self._held.add(key)

    def _known(self, key: str, *, is_beside: bool) -> _Seen:
        seen = self._seen.get(key)
        if seen is None:
            seen = _Seen(fills=is_beside and not self._lines and _may_fill(key))
            if len(self._seen) < MOST_NAMES:
                self._seen[key] = seen
        return seen

    def wait(self, wall: float) -> Iterator[Found]:
        """It is that late, and nothing more was logged: side figures that stay as they are."""
        for key in [one for one in sorted(self._held) if wall - self._seen[one].since >= HELD_S]:
            yield self._told(key, self._seen[key])

    def end(self) -> Iterator[Found]:
        """The run is over: those that ended so, though not for long enough until now."""
        for key, seen in self._seen.items():
            is_new = seen.bad and not seen.is_told and not seen.came_back
            if not is_new or self._may_end_so(key, seen):
                continue
            never = not seen.was_finite and (_is_error(key) or self._stands(key, seen))
            if never or (seen.was_finite and not seen.fills):
                yield self._told(key, seen)

    def _may_end_so(self, key: str, seen: _Seen) -> bool:
        kin = self._kin(key)
        if not seen.was_finite and (kin or _is_of_episodes(key)):
            return True
        if key in self._chosen:
            return False
        return _may_be_none(key) or not self._is_alone(kin) or self._is_absent(key, seen)

    def _told(self, key: str, seen: _Seen) -> Found:
        self._held.discard(key)
        seen.is_told = True
        return Found(key, seen.value, seen.first)

    def _is_trouble(self, key: str, seen: _Seen) -> bool:
        kin, again = self._kin(key), seen.again()
        if seen.fills:
            return bool(again) and seen.bad >= again
        if is_loss(key) and not _has_number(kin, key):
            return True
        if _is_of_gradients(key):
            return seen.bad >= max(self._least_of_gradients(seen), again)
        is_alone = self._is_alone(kin)
        counts = not kin or (seen.was_finite and (is_alone or key in self._chosen))
        if counts and (least := self._least(key, seen)):
            return seen.bad >= least
        return is_alone and seen.was_finite and seen.bad >= max(IN_A_ROW, again)

    def _least_of_gradients(self, seen: _Seen) -> int:
        if self._hides and math.isnan(seen.value):
            return 1
        return IN_A_ROW if seen.was_finite else AT_FIRST

    def _is_alone(self, kin: Collection[str]) -> bool:
        """Whether it has no family, or one of which as good as all is none."""
        return 4 * sum(self._seen[one].bad > 0 for one in kin) >= 3 * len(kin)

    def _least(self, key: str, seen: _Seen) -> int:
        """Values in a row that tell of it, because of what it is; 0: it is a side figure."""
        if self._may_lack_episodes(key, seen) or self._is_absent(key, seen):
            return 0
        if _is_error(key) and math.isnan(seen.value) and not seen.came_back:
            return 1
        if self._stands(key, seen):
            return seen.least(AT_FIRST if self._has_finite else EARLY)
        return 0

    def _may_be_held(self, key: str, seen: _Seen) -> bool:
        is_side = seen.was_finite and not (seen.fills or seen.came_back) and key in self._seen
        is_side = is_side and self._is_alone(self._kin(key))
        return is_side and not (_may_be_none(key) or self._may_lack_episodes(key, seen))

    def _may_lack_episodes(self, key: str, seen: _Seen) -> bool:
        """Whether it is of episodes, and none may have ended."""
        if not _is_of_episodes(key):
            return False
        is_sure = seen.ran >= MEASURED or is_validation(key) or key in self._chosen
        return not (seen.was_finite and (is_sure or math.isinf(seen.value)))

    def _is_absent(self, key: str, seen: _Seen) -> bool:
        """Whether it never was a number, as a part of what is one, or beside other such parts."""
        never = not seen.was_finite and math.isnan(seen.value)
        if not never or key in self._chosen or _is_error(key):
            return False
        parts = self._parts.of(self._seen)
        for whole in _wholes(key):
            beside = [whole] if whole in self._seen else []
            if _says_what(whole.rpartition("/")[2]):
                beside += parts.get(whole, ())
            for one in beside:
                if self._seen[one].was_finite and is_validation(one) == is_validation(key):
                    return True
        return False

    def _stands(self, key: str, seen: _Seen) -> bool:
        heads = self._first()
        if not seen.was_finite and not is_validation(key):
            heads = heads[:1]
        return key in self._chosen or key in heads

    def _first(self) -> tuple[str, ...]:
        """What stands for the run, by what was logged until now."""
        at = len(self._seen), self._lines.bit_length()
        if self._heads[0] != at:
            logged = [Logged(name, points=one.count) for name, one in self._seen.items()]
            mains = main_metrics(logged, most=HEADS)
            self._heads = (at, tuple(one.name for one in mains))
        return self._heads[1]

    def _kin(self, key: str) -> list[str]:
        """The metrics of its family, itself among them; none where it has no family."""
        families = self._families.of(self._seen)
        known = (families.get(family, []) for family in _families(key))
        return max((one for one in known if len(one) >= _FAMILY), key=len, default=[])

    def to_json(self) -> dict[str, Any]:
        """Metrics of which more than that they were always finite is known, each by its figures."""
        return {
            "lines": self._lines,
            "has_finite": self._has_finite,
            "held": sorted(self._held),
            "fine": [key for key, one in self._seen.items() if _is_plain(one)],
            "seen": {
                key: [repr(was) if isinstance(was, float) else was for was in astuple(one)]
                for key, one in self._seen.items()
                if not _is_plain(one)
            },
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned. Raises TypeError, ValueError or KeyError for
        anything else."""
        self._lines, self._has_finite = int(saved["lines"]), bool(saved["has_finite"])
        for key in saved["fine"]:
            one = self._seen[str(key)] = _Seen()
            one.take(0.0, 0, 0.0)
        for key, kept in saved["seen"].items():
            of_fields = zip(astuple(_Seen()), kept, strict=True)
            self._seen[str(key)] = _Seen(*(type(blank)(was) for blank, was in of_fields))
        self._held = {str(key) for key in saved["held"] if key in self._seen}


def _is_plain(one: _Seen) -> bool:
    return one.was_finite and not (one.bad or one.came_back or one.is_told or one.fills)


def is_loss(key: str) -> bool:
    """Whether the name says that it is one."""
    return "loss" in key.rpartition("/")[2].lower()


def _is_error(key: str) -> bool:
    """Whether it is a loss, or by its name a mean that has a value wherever there are data."""
    return is_loss(key) or _ERRORS.search(key.rpartition("/")[2].lower()) is not None


def _may_fill(key: str) -> bool:
    return is_validation(key) or _BEST.search(key.lower()) is not None


def _may_be_none(key: str) -> bool:
    """Whether it is now and then of a healthy run: of gradients, of clocks and settings."""
    return _is_of_gradients(key) or is_background(key)


def _is_of_gradients(key: str) -> bool:
    if "penalty" in key.lower():
        return False  # a loss
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


def _wholes(name: str) -> list[str]:
    """What it may be a part of: AP of AP_small, small_AP, AP-cat, APs and AP/small."""
    folder, slash, last = name.rpartition("/")
    found = [folder] if slash else []
    for mark in _AFTER_PART.finditer(last):
        parts = last[: mark.start()], last[mark.end() :] if mark[0] in "_.@-" else ""
        found += [f"{folder}{slash}{part}" for part in parts if part]
    return found


def _says_what(word: str) -> bool:
    return direction(word) is not None or "class" in word.lower()
