"""What reached a terminal besides text, held against a list of what the cockpit may send.

An allow-list: whatever it does not name is foreign, however harmless it looks.
"""

from __future__ import annotations

import re
from collections import Counter

_SENT = re.compile(
    r"""\x1b\[[\d;]*m                                                        # colours
      | \x1b\[\d+;\d+H | \x1b\[\d+C                                          # where to write
      | \x1b\[\?(?:7|25|1000|1003|1004|1006|1015|1016|1049|2004|2026|2048)[hl]  # modes
      | \x1b\[\?(?:2026|2048)\$p                                             # what can you do?
      | \x1b\[>\d+u | \x1b\[<u                                               # keyboard
      | \x1b\]22;[a-z-]+\x07                                                 # shape of the pointer
      | \r\n                                                                 # after the screen
    """,
    re.VERBOSE,
)
_FOREIGN = re.compile(
    "\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # OSC: clipboard, title, link, notification
    "|\x1b[PX^_][^\x1b]*(?:\x1b\\\\)?"  # DCS, SOS, PM, APC
    "|\x1b\\[[0-?]*[ -/]*[@-~]"  # any other CSI
    "|\x1b.?"
    "|[\x00-\x1f\x7f-\x9f]"  # controls, C1 among them
    "|[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]",  # order and invisible
    re.DOTALL,
)


def foreign(raw: bytes) -> list[str]:
    """Each sequence or control that is not on the list, with its count."""
    rest = _SENT.sub("", raw.decode("utf-8", "surrogateescape"))
    found = Counter(match[0] for match in _FOREIGN.finditer(rest))
    found.update(c for c in rest if "\udc80" <= c <= "\udcff")  # bytes that are not UTF-8
    return [f"{sequence!r} x{count}" for sequence, count in found.items()]


def has_flood(text: str, most: int = 8) -> bool:
    """Whether a character carries more combining marks than a cell should hold."""
    return re.search(f"[\u0300-\u036f]{{{most},}}", text) is not None
