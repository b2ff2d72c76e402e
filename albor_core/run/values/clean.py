"""Hostile text made visible: what a run wrote may be printed, but never obeyed by a terminal.

Names, messages and log lines come from programs that may be anything. Control characters (C0, DEL,
8-bit C1), bidirectional and zero-width controls and lone surrogates are replaced by visible forms,
and a flood of combining marks is cut, so that no escape sequence starts, no line forges another
and no cell is wider than it looks. Output of the CLI and of the cockpit passes through here, piped
or not; `--json` keeps the raw text, escaped by JSON.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

MARK = "[redacted]"
"""What stands for a secret that was taken out of a text (values/redact.py)."""
MAX_COMBINING = 4  # marks per base character; more is a flood over the neighbouring rows
_CONTROL_PICTURES = 0x2400  # U+2400..U+241F picture the C0 controls, U+2421 DEL

_INVISIBLE = (
    r"\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb"  # formats
    "\U000e0000-\U000e007f"  # tags: invisible text
    "\ud800-\udfff"  # half of a pair: cannot be encoded
)
_SUSPECT = re.compile(f"[{_INVISIBLE}]")
# A cheap test: no combining mark lies below. Said as what it is not, since to compile a range `re`
# walks over each of its characters.
_BEYOND_LATIN = re.compile("[^\\x00-\u02ff]")


_NUMBERS = re.compile(r"([0-9]{1,18})")


def clean(text: str, *, limit: int | None = None, keep: str = "") -> str:
    """`text` as one line that a terminal only prints.

    Characters in `keep` (say a tab or a newline) pass. `limit` cuts to that many characters, the
    last one an ellipsis. Idempotent; plain printable text comes back unchanged.
    """
    if limit is not None and len(text) > 4 * limit + 64:
        text = text[: 4 * limit + 64]  # enough for any cut below, so that 10 MB cost nothing
        cut = True
    else:
        cut = False
    if _SUSPECT.search(text):
        text = _SUSPECT.sub(lambda m: m[0] if m[0] in keep else visible(m[0]), text)
    if _BEYOND_LATIN.search(text):
        text = _without_floods(text)
    if limit is not None and (cut or len(text) > limit):
        text = text[: max(0, limit - 1)] + "\u2026"
    return text


def natural_place(name: str) -> tuple[Any, ...]:
    """Where a name stands among others, its numbers by their value: m2 before m10."""
    parts = _NUMBERS.split(name)
    return tuple(int(part) if at % 2 else part for at, part in enumerate(parts)), name


def visible(character: str) -> str:
    """A printable form of one control character: U+241B for ESC, <U+202E> for a bidi override."""
    code = ord(character)
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0:
        return f"<{code:02X}>"
    return f"<U+{code:04X}>"


def _without_floods(text: str) -> str:
    kept: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks <= MAX_COMBINING:
            kept.append(character)
    return "".join(kept)
