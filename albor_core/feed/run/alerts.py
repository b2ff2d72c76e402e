"""Alerts of a run: from its store, and from the end of its journal while the index lags."""

from __future__ import annotations

from albor_core.feed.archive.records import RecordTail, journal_events, parse_json
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.run.journal import parse_line
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import integer, number, text
from albor_core.store.file.paths import local_store
from albor_core.store.rows.rows import AlertRow, EventRow


def open_alerts(run: RunDir) -> tuple[str, ...]:
    """Ids of the alerts that nobody acknowledged yet, oldest first. Needs no index process."""
    store = StoreWatch(local_store(run))
    try:
        rows = store.ask(lambda reader: reader.alerts(run.id, open_only=False)) or ()
    finally:
        store.close()
    recent = journal_events(RecordTail(run.journal, parse_line).records())
    ids = dict.fromkeys(row.id for row in rows)
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


def alert_of_event(event: EventRow, run_id: str) -> AlertRow:
    """An `andon.alert` event of the journal."""
    data = event.data
    return AlertRow(
        id=text(data, "id"),
        run_id=run_id,
        rule=text(data, "rule"),
        severity=event.severity,
        action=text(data, "action"),
        metric=text(data, "metric"),
        value=number(data, "value"),
        threshold=number(data, "threshold"),
        message=text(data, "message"),
        step=event.step if event.step is not None else integer(data, "step"),
        attempt=event.attempt,
        wall=event.wall,
    )
