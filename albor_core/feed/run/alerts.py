"""Alerts of a run: from its store, and from the end of its files while the index lags."""

from __future__ import annotations

from albor_core.feed.run.records import RecordTail, journal_events
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.run.journal import parse_json, parse_line
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import text
from albor_core.store.file.paths import local_store


def open_alerts(run: RunDir) -> tuple[str, ...]:
    """Ids of the unacknowledged alerts, oldest first. Needs no index process."""
    store = StoreWatch(local_store(run))
    try:
        rows = store.ask(lambda reader: reader.alerts(run.id, open_only=False)) or ()
    finally:
        store.close()
    ids = dict.fromkeys(row.id for row in rows)
    for path in (run.journal, run.system):
        recent = journal_events(RecordTail(path, parse_line).records(), run.id)
        ids |= dict.fromkeys(text(e.data, "id") for e in recent if e.name == "andon.alert")
    acknowledged = {row.id for row in rows if row.acked_by is not None} | _annotated(run)
    return tuple(name for name in ids if name and name not in acknowledged)


def _annotated(run: RunDir) -> set[str]:
    """Ids acknowledged in the newest annotations, indexed or not."""
    return {
        str(record.get("value"))
        for record in RecordTail(run.annotations, parse_json).records()
        if record.get("t") == "ack"
    }
