"""Alerts of a run: from its store, and from the end of its files while the index lags."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from albor_core.feed.run.records import RecordTail, journal_events
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.run.errors import AlborError
from albor_core.run.home.folders import pointer_of
from albor_core.run.home.runs import run_at
from albor_core.run.journal import parse_json, parse_line
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import text
from albor_core.store.file.paths import local_store
from albor_core.store.index.catch_up import drain_index
from albor_core.store.rows.rows import AlertRow


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


def index_answers(rows: Iterable[AlertRow], *, timeout_s: float) -> bool:
    """Have what people said of the runs of these alerts indexed, where an acknowledgement of one
    that is open is written beside its run and no store has it; whether there was any. Only of ended
    runs of this home that are this user's. Raises nothing.
    """
    waiting: dict[str, set[str]] = {}
    for row in rows:
        if row.is_open:
            waiting.setdefault(row.run_id, set()).add(row.id)
    deadline, is_news = time.monotonic() + timeout_s, False
    for run_id, alerts in waiting.items():
        run = run_at(run_id, read_json(pointer_of(run_id)))
        if run is None or not alerts & _annotated(run):
            continue
        with contextlib.suppress(AlborError, OSError):
            left_s = max(0.0, deadline - time.monotonic())
            is_news |= drain_index(run, timeout_s=left_s)
    return is_news


def _annotated(run: RunDir) -> set[str]:
    """Ids acknowledged in the newest annotations, indexed or not."""
    return {
        str(record.get("value"))
        for record in RecordTail(run.annotations, parse_json).records()
        if record.get("t") == "ack"
    }
