"""The language in which people and scripts pick runs. Pure: text in, terms out.

Its words and what a filter becomes are in terms.py; what a term asks of SQL is in conditions.py.

    status:running train/loss<3 tag:ablation lr>=1e-4 since:2d "gradient spikes" -host:old

Terms are joined by "and". A term is a word or a quoted phrase to look up in names, notes, tags and
params; `field:value` with `a,b` meaning either; or `name<number` about a metric, a param or a
number of the run table. `-` or `!` in front of a term means "not". Quotes, double or single, hold
blanks and commas together. There are no brackets, patterns or regular expressions: every filter
costs one pass over the runs at most. Names that are not fields are metrics (`val/loss`, also
`val/loss:min`) or params, in full (`optimizer.lr`) or by their end (`lr`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from albor_core.run.errors import UsageError
from albor_core.run.status import GROUPS, SILENT, STATUSES
from albor_core.run.values.lenient import parsed
from albor_core.store.query.terms import FIELDS, HAS, MAX_CHARS, STATS, Filter, Term

__all__ = ["Filter", "FilterError", "Term", "parse_filter"]

OPERATORS = ("<=", ">=", "!=", "==", "<", ">", "=")

_HINT = "albor runs ls --help"
_NAME = re.compile(r"""[^\s:<>=!"',]+""")
_OPERATOR = re.compile("|".join(OPERATORS))
_STAT = re.compile(rf":({'|'.join(STATS)})(?=[<>=!])")
_VALUE = re.compile(r"""[^\s,"']+""")
_REST = re.compile(r"""[^\s"']+""")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_ALSO = {"died": "failed"}  # what lists of troubles call it
_SPAN_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def meant_status(word: str) -> str:
    """The term that asks for a state, where a bare word is its name; else ""."""
    known = {*STATUSES, *GROUPS, *_ALSO, SILENT, *(one.shown for one in STATUSES.values())}
    quoted = f'"{word.lower()}"' if " " in word else word.lower()
    return f"status:{quoted}" if word and word.lower() in known else ""


class FilterError(UsageError):
    """A filter that cannot be understood. `column` counts characters from 1."""

    def __init__(self, column: int, message: str, *, hint: str = _HINT) -> None:
        super().__init__(f"filter, column {column}: {message}", hint=hint)
        self.column = column


def parse_filter(text: str, *, now: float | None = None) -> Filter:
    """Understand a filter. `now` (UTC seconds) is what `since:2d` counts back from.

    Raises FilterError, which names the column of the mistake and what may stand there.
    """
    if len(text) > MAX_CHARS:
        raise FilterError(MAX_CHARS + 1, f"a filter has at most {MAX_CHARS} characters")
    reader = _Scanner(text)
    terms: list[Term] = []
    while not reader.is_at_end():
        terms.append(_term(reader, time.time() if now is None else now))
    return Filter(tuple(terms))


class _Scanner:
    """A place in the text of a filter."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    @property
    def column(self) -> int:
        return self.at + 1

    def is_at_end(self) -> bool:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at >= len(self.text)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def quoted(self) -> str:
        """The text between the quotes that begin here; a doubled quote stands for itself."""
        quote, start = self.peek(), self.column
        parts: list[str] = []
        self.at += 1
        while True:
            end = self.text.find(quote, self.at)
            if end < 0:
                raise FilterError(start, f"the quote {quote} is not closed")
            parts.append(self.text[self.at : end])
            self.at = end + 1
            if self.peek() != quote:
                return "".join(parts)
            parts.append(quote)
            self.at += 1

    def must_end(self) -> None:
        """A term ends at a blank, so that a forgotten one is an error and not another meaning."""
        if self.peek() and not self.peek().isspace():
            raise FilterError(self.column, f"a blank is missing before {self.text[self.at :]!r}")


def _term(reader: _Scanner, now: float) -> Term:
    start = reader.column
    negated = reader.peek() in ("-", "!") and len(reader.text) > reader.at + 1
    if negated:
        reader.at += 1
        if reader.peek().isspace():
            raise FilterError(start, f"{reader.text[reader.at - 1]!r} needs a term right after it")
    term = _after_sign(reader, start, now)
    return term._replace(negated=term.negated != negated)


def _after_sign(reader: _Scanner, start: int, now: float) -> Term:
    was_quoted = reader.peek() in ('"', "'")
    if was_quoted:
        name = reader.quoted()
    else:
        found = reader.take(_NAME)
        if found is None:
            what = reader.peek()
            raise FilterError(reader.column, f"{what!r} cannot begin a term", hint=_HINT)
        name = found[0]
    stat = reader.take(_STAT)
    if operator := reader.take(_OPERATOR):
        return _comparison(reader, name, stat[1] if stat else "", operator[0], start)
    if reader.peek() == ":":
        reader.at += 1
        return _labelled(reader, name, start, now)
    if not was_quoted:
        rest = reader.take(_REST)  # of a word with a comma inside
        name += rest[0] if rest else ""
    reader.must_end()
    if name == "pinned" and not was_quoted:
        return Term("flag", "pinned", "=", (), start)
    if not any(char.isalnum() for char in name):
        raise FilterError(start, f"{name!r} has neither letters nor digits to look up")
    return Term("words", "", "=", (name,), start)


def _comparison(reader: _Scanner, name: str, stat: str, operator: str, start: int) -> Term:
    column = reader.column
    values = _values(reader, name, operator)
    operator = "=" if operator == "==" else operator
    if name in FIELDS:
        if operator not in ("=", "!="):
            message = f"{name} is compared by ':' only, as in {name}:{values[0][0]}"
            raise FilterError(column - len(operator), message)
        term = _field(name, values, start, time.time())
        return term._replace(negated=operator == "!=")
    numbers = [parsed(value) for value, _ in values]
    if all(number is not None for number in numbers):
        if operator not in ("=", "!=") and len(numbers) > 1:
            raise FilterError(values[1][1], f"{operator} takes one number")
        known = tuple(number for number in numbers if number is not None)
        negated = operator == "!="
        return Term("number", name, "=" if negated else operator, known, start, negated, stat)
    if operator not in ("=", "!=") or stat:
        value, at = next(pair for pair, n in zip(values, numbers, strict=True) if n is None)
        raise FilterError(at, f"{value!r} is not a number", hint=f"{name}{operator}0.1")
    return Term("param", name, "=", tuple(v for v, _ in values), start, operator == "!=")


def _labelled(reader: _Scanner, name: str, start: int, now: float) -> Term:
    values = _values(reader, name, ":")
    if name in FIELDS:
        return _field(name, values, start, now)
    return Term("param", name, "=", tuple(value for value, _ in values), start)


def _values(reader: _Scanner, name: str, operator: str) -> list[tuple[str, int]]:
    """`a,"b c",d` with the column of each."""
    found: list[tuple[str, int]] = []
    while True:
        at = reader.column
        if reader.peek() in ('"', "'"):
            value = reader.quoted()
        else:
            bare = reader.take(_VALUE)
            value = bare[0] if bare else ""
        if not value.strip():
            raise FilterError(at, f"a value is missing after {name}{operator}")
        found.append((value, at))
        if reader.peek() != ",":
            reader.must_end()
            return found
        reader.at += 1


def _field(name: str, values: list[tuple[str, int]], start: int, now: float) -> Term:
    kind = _KINDS.get(name, "text")
    read = _READERS.get(kind)
    taken: list[str | float] = []
    for value, at in values:
        taken += [value] if read is None else read(value, at, now)
    if kind == "time" and len(taken) > 1:
        raise FilterError(values[1][1], f"{name} takes one time")
    return Term(kind, name, ">=" if name == "since" else "<" if kind == "time" else "=",
                tuple(taken), start)  # fmt: skip


def _status(value: str, at: int, _now: float) -> tuple[str, ...]:
    shown = {one.shown or word: word for word, one in STATUSES.items()}
    asked = value.lower()
    word = shown.get(asked, _ALSO.get(asked, asked))
    if word not in (*STATUSES, SILENT, *GROUPS):
        _must_be(word, (*shown, SILENT, *GROUPS), "status", at)
    words = GROUPS.get(word, (word,))
    return (*words, SILENT) if "running" in words else words


def _has(value: str, at: int, _now: float) -> tuple[str, ...]:
    word = {"alerts": "alert", "notes": "note", "tags": "tag"}.get(value.lower(), value.lower())
    _must_be(word, HAS, "has", at)
    return (word,)


def _must_be(word: str, allowed: tuple[str, ...], field: str, at: int) -> None:
    if word not in allowed:
        raise FilterError(at, f"{field}: {word!r} is not one of {', '.join(allowed)}")


def _time(value: str, at: int, now: float) -> tuple[float, ...]:
    if span := _SPAN.fullmatch(value):
        return (now - float(span[1]) * _SPAN_S[span[2]],)
    try:
        then = datetime.fromisoformat(value)
        return ((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp(),)
    except (ValueError, OverflowError) as error:
        message = f"{value!r} is not a time: 30m, 12h, 2d, 1w, or in UTC 2026-01-31T08:00"
        raise FilterError(at, message, hint="since:2d") from error


_KINDS = {"status": "status", "has": "has", "since": "time", "before": "time"}
_READERS: Mapping[str, Callable[[str, int, float], tuple[str | float, ...]]] = {
    "status": _status,
    "has": _has,
    "time": _time,
}
