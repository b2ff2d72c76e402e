"""Texts that people write for numbers: `85%`, `1,234`, `1.2k`. What had to be decided is told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

SHARE = "percent as a share"
THOUSANDS = "comma of thousands"
ROUNDED = "rounded to k, M, B or T"

_PERCENT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)) ?%")
_LETTER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)) ?([kKMBGT])")
_POWERS = {"k": 3, "K": 3, "M": 6, "B": 9, "G": 9, "T": 12}
_COMMA = re.compile(r"[+-]?\d+,\d+")
_GROUP = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_MAX_CHARS = 40


@dataclass
class Notation:
    """How the columns of a table write their numbers; `see` all of it before `number` is asked."""

    _decimal: set[str] = field(default_factory=set)  # columns with a decimal comma

    def see(self, column: str, said: str) -> None:
        word = said.strip()
        if _COMMA.fullmatch(word) and not _GROUP.fullmatch(word):
            self._decimal.add(column)

    def number(self, column: str, said: str) -> tuple[float | int, str] | None:
        """The number that a text means, and what was decided; None for any other text, and
        for one like `1,234` in a column with decimal commas.
        """
        word = said.strip()
        if len(word) > _MAX_CHARS:
            return None
        if found := _PERCENT.fullmatch(word):
            return float(Decimal(found[1]).scaleb(-2)), SHARE
        if found := _LETTER.fullmatch(word):
            number = Decimal(found[1]).scaleb(_POWERS[found[2]])
            return (int(number) if number == number.to_integral_value() else float(number)), ROUNDED
        if _GROUP.fullmatch(word) and column not in self._decimal:
            return int(word.replace(",", "")), THOUSANDS
        return None
