"""Which keys a search leaves. Pure.

Python tries the ways in which a regular expression may match one by one, and those of `(z+)+y` are
more than it can ever try. So they are counted from the parsed expression before anything is
searched; one of too many is searched as text.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

NEVER_ENDS = "that regex may never end; it is searched as text"
_MOST_WAYS = 5_000_000  # on the longest key
_MOST_REPEATS = 12
_PATIENCE_S = 0.5  # for all keys


class KeySearch:
    """Looks for words as a regular expression, in any case where they have no capital. Raises
    re.error, OverflowError or RecursionError where they are not one.
    """

    def __init__(self, words: str) -> None:
        plain = re.sub(r"\\.", "", words)
        self._flags = 0 if plain != plain.lower() else re.IGNORECASE
        self._regex = re.compile(words, self._flags)
        self._text = re.compile(re.escape(words), self._flags)
        self._tree: Any = re._parser.parse(words)  # type: ignore[attr-defined]
        self._is_slow = False
        self.is_text = False
        """Whether the words were searched as text the last time."""

    def matching(self, keys: Collection[str]) -> frozenset[str]:
        """The keys in which the words are."""
        longest = max(map(len, keys), default=0)
        self.is_text = self._is_slow or _ways(self._tree, longest) > _MOST_WAYS
        found = None if self.is_text else _found(self._regex, keys)
        if found is not None:
            return found
        self._is_slow = self._is_slow or not self.is_text
        self.is_text = True
        return frozenset(key for key in keys if self._text.search(key))


def _found(regex: re.Pattern[str], keys: Iterable[str]) -> frozenset[str] | None:
    """The keys that match; None where that takes too long."""
    end, found = time.monotonic() + _PATIENCE_S, set[str]()
    for key in keys:
        if regex.search(key):
            found.add(key)
        if time.monotonic() > end:
            return None
    return frozenset(found)


class _Choices(NamedTuple):
    """What a part of an expression can be tried with: so many lengths that end with the text only,
    and so many others."""

    repeats: int = 0
    others: int = 1


_ENDLESS = _Choices(_MOST_REPEATS + 1)


def _ways(tree: Any, length: int) -> float:
    """At most so many ways lead through a text of that length, from each place in it."""
    repeats, others = _choices(tree, length)
    if repeats > _MOST_REPEATS or others > _MOST_WAYS:
        return math.inf
    return others * math.comb(length + 1 + repeats, repeats + 1)


def _choices(tree: Any, length: int) -> _Choices:
    """Of parts in a row, as `re` has parsed them."""
    repeats, others = 0, 1
    for name, value in tree:
        more = _choices_of(str(name), value, length)
        repeats, others = repeats + more.repeats, others * more.others
        if repeats > _MOST_REPEATS or others > _MOST_WAYS:
            return _ENDLESS
    return _Choices(repeats, others)


def _choices_of(name: str, value: Any, length: int) -> _Choices:
    if name in ("GROUPREF", "GROUPREF_EXISTS"):  # what they match is not known before
        return _ENDLESS
    if name.endswith("REPEAT"):
        least, most, body = value
        return _choices_of_repeat(least, most, body, length)
    if name == "BRANCH":
        return _of_either([_choices(one, length) for one in value[1]])
    if name in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        return _choices(value[-1], length)
    return _choices(value, length) if name == "ATOMIC_GROUP" else _Choices()


def _of_either(ways: Sequence[_Choices]) -> _Choices:
    return _Choices(max(one.repeats for one in ways), sum(one.others for one in ways))


def _choices_of_repeat(least: int, most: int, body: Any, length: int) -> _Choices:
    """A body of one way has a choice of how often; in any other each time has its own choices."""
    within = _choices(body, length)
    if within.repeats > _MOST_REPEATS or (least > length and body.getwidth()[0] == 0):
        return _ENDLESS
    if within == _Choices():
        if most > length:
            return _Choices(int(least < length))
        return _Choices(0, most - least + 1)
    times = min(most, length)
    if times * within.repeats > _MOST_REPEATS or times * math.log(within.others) > 20:
        return _ENDLESS
    return _Choices(times * within.repeats, within.others**times + (most - least))
