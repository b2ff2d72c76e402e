"""Checks whether a document's licence, an SPDX expression, is among the allowed ones.

SPDX 2.3, annex D: `OR` leaves a choice, `AND` requires both and binds more tightly, `WITH` adds an
exception, which removes no permission, and identifiers do not depend on case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from albor_core.run.errors import UsageError

_COMMON = (
    "MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense", "CC0-1.0", "0BSD",
    "MPL-2.0", "GPL-2.0-only", "GPL-2.0-or-later", "GPL-3.0-only", "GPL-3.0-or-later",
    "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later", "AGPL-3.0-only",
    "AGPL-3.0-or-later", "CC-BY-4.0", "CC-BY-SA-4.0", "PSF-2.0", "Python-2.0", "BSL-1.0", "Zlib",
    "EPL-2.0", "Artistic-2.0", "WTFPL", "EUPL-1.2", "MIT-0",
)  # fmt: skip
_ID = re.compile(r"[A-Za-z0-9.+-]{1,64}")
_WORD = re.compile(r"[()]|[A-Za-z0-9.+:-]+|\S")
_LONGEST = 1000  # characters of an expression; a longer one is a licence's text
_RANK = {"OR": 1, "AND": 2}


def allowed_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """The identifiers in lower case and sorted. Raises UsageError for an invalid SPDX identifier,
    or another spelling of a common one.
    """
    spellings = {_letters(one): one for one in _COMMON}
    for one in ids:
        common = spellings.get(_letters(one))
        if not _ID.fullmatch(one) or (common is not None and common.lower() != one.lower()):
            raise UsageError(
                f"--licence {one!r}: not an SPDX identifier",
                hint=f"did you mean {common}?" if common else "such as: --licence Apache-2.0",
            )
    return tuple(sorted({one.lower() for one in ids}))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def is_allowed(expression: str, ids: Collection[str]) -> bool:
    """Whether one of the choices in the expression is covered by `ids`, in lower case. Invalid
    expressions are not allowed.
    """
    return len(expression) <= _LONGEST and _is_allowed(expression, frozenset(ids))


@lru_cache(maxsize=4096)  # a corpus has many documents of few licences
def _is_allowed(expression: str, ids: frozenset[str]) -> bool:
    values: list[bool] = []
    operators: list[str] = []
    expects_id = True
    words = iter(_WORD.findall(expression))
    for word in words:
        upper = word.upper()
        if expects_id:
            if word == "(":
                operators.append(word)
            elif _is_id(word):
                values.append(word.lower() in ids)
                expects_id = False
            else:
                return False
        elif upper in _RANK:
            _apply(operators, values, _RANK[upper])
            operators.append(upper)
            expects_id = True
        elif upper == "WITH":
            next(words, None)
        elif word == ")":
            _apply(operators, values, 0)
            if not operators:
                return False
            operators.pop()
        else:
            return False
    if expects_id:
        return False
    _apply(operators, values, 0)
    return not operators and values[0]


def _is_id(word: str) -> bool:
    return _ID.fullmatch(word) is not None and word.upper() not in (*_RANK, "WITH")


def _apply(operators: list[str], values: list[bool], rank: int) -> None:
    """Apply operators on top of the stack that bind at least as tightly as `rank`, down to a
    parenthesis."""
    while operators and _RANK.get(operators[-1], -1) >= max(rank, 1):
        right, left = values.pop(), values.pop()
        values.append(left or right if operators.pop() == "OR" else left and right)
