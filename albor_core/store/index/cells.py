"""Values of anybody's files as SQLite can hold them."""

from __future__ import annotations

import json
from typing import Any

from albor_core.run.values.lenient import strict_json, whole_of

_MAX_TEXT_CHARS = 64 << 10


def whole_number(value: Any) -> int | None:
    """An integer that SQLite can hold, or None."""
    whole = whole_of(value)
    return whole if whole is not None and -(2**63) <= whole < 2**63 else None


def text(value: Any) -> str:
    """Any text as SQLite can hold it: lone surrogates escaped, bounded."""
    return str(value)[:_MAX_TEXT_CHARS].encode("utf-8", "backslashreplace").decode()


def optional_text(value: Any) -> str | None:
    return None if value is None else text(value)


def dump(value: Any) -> str:
    """Strict JSON; NaN and Inf become null."""
    return json.dumps(strict_json(value), separators=(",", ":"), allow_nan=False)
