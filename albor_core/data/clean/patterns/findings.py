"""Finds and masks the places of a text that must not be trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

MASKS = {
    "private-key": b"<PRIVATE_KEY>",
    "email": b"<EMAIL>",
    "phone": b"<PHONE>",
    "ip-address": b"<IP_ADDRESS>",
    "iban": b"<IBAN>",
    "card": b"<CARD>",
}
"""Kind -> what stands in its place; any other kind is a `SECRET`."""
SECRET = b"<SECRET>"


@dataclass(frozen=True, slots=True)  # a list of addresses may hold millions
class Finding:
    """Bytes `start` to `end` of a text, and the kind of finding."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Scanner:
    """A method to find something. `hints` are regular expressions of RE2: a text that does not
    match all of them contains nothing, and a whole column is tested at once, in linear time.
    """

    hints: tuple[str, ...]
    find: Callable[[bytes], Iterator[Finding]]


def findings(text: bytes, scanners: Iterable[Scanner]) -> list[Finding]:
    """The findings of `scanners`, in the order of the text; of two that overlap, that of the
    earlier scanner.
    """
    found: list[Finding] = []
    for scanner in scanners:
        found = _joined(found, sorted(scanner.find(text), key=lambda one: (one.start, -one.end)))
    return found


def _joined(first: Sequence[Finding], more: Sequence[Finding]) -> list[Finding]:
    """`first`, and those of `more` that overlap none of them; both in order."""
    joined: list[Finding] = []
    at, end = 0, 0
    for one in more:
        while at < len(first) and first[at].start < one.end:
            joined.append(first[at])
            end = max(end, first[at].end)
            at += 1
        if one.start >= end:
            joined.append(one)
            end = one.end
    joined.extend(first[at:])
    return sorted(joined, key=lambda one: one.start)


def masked(text: bytes, found: Sequence[Finding]) -> bytes:
    """`text` with each finding replaced by a fixed word."""
    pieces, at = [], 0
    for one in found:
        pieces += [text[at : one.start], MASKS.get(one.kind, SECRET)]
        at = one.end
    return b"".join([*pieces, text[at:]])
