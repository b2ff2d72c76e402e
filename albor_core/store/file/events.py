"""The upgrade of a store whose events have colours for severities."""

from __future__ import annotations

import sqlite3

from albor_core.andon.severity import COLOURS

_WORDS = " ".join(f"WHEN '{colour}' THEN '{word}'" for colour, word in COLOURS.items())
_COLOURS = ", ".join(f"'{colour}'" for colour in COLOURS)


def name_severities(db: sqlite3.Connection) -> None:
    """Words for colours, in the column of every event and in the data of alerts."""
    db.execute(
        "UPDATE events SET data = json_set(data, '$.severity',"
        f" CASE json_extract(data, '$.severity') {_WORDS} END)"
        " WHERE name = 'andon.alert' AND json_valid(data)"
        f" AND json_extract(data, '$.severity') IN ({_COLOURS})"
    )
    db.execute(
        f"UPDATE events SET severity = CASE severity {_WORDS} END WHERE severity IN ({_COLOURS})"
    )
