"""A run, or all runs, as one JSON document: what the screens show, for programs.

Strict JSON: unknown and non-finite numbers are null. Texts are as the run wrote them, escaped by
JSON alone; log lines are already clean text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from albor_core.feed.attention.watch import entries_of
from albor_core.feed.run.detail import RunFeed
from albor_core.feed.run.tail import last_lines
from albor_core.feed.view.run_view import RunsView, RunView, plain
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import strict_json

if TYPE_CHECKING:
    from albor_core.documents.monitor import MonitorDocument, MonitorRunsDocument

SCHEMA: Final = "albor.monitor/1"
RUNS_SCHEMA: Final = "albor.monitor.runs/1"
LOG_LINES = 50

_DETAIL = ("alerts", "attempts", "events", "guard")  # have their own place in the document


def snapshot(run: RunDir, *, feed: RunFeed | None = None) -> MonitorDocument:
    """The whole of one run now. A caller that asks again passes the same `feed`, whose clock then
    measures silence. Raises NotFoundError if there is no such run.
    """
    own = feed is None
    feed = feed or RunFeed(run)
    try:
        view = feed.poll()
        if view is None:
            raise NotFoundError(f"{run.path}: no run directory", hint="albor runs ls")
        return document(view, feed)
    finally:
        if own:
            feed.close()


def document(view: RunView, feed: RunFeed) -> MonitorDocument:
    """The document of a view that `feed` gave."""
    meta = dict(feed.files.about)
    git = meta.get("git")
    if isinstance(git, dict):  # its patch is up to 256 KiB of raw source: not for a feed
        meta["git"] = {key: git.get(key) for key in ("commit", "dirty")}
    shown: Any = view.to_json()
    now: Any = {key: value for key, value in shown.items() if key not in _DETAIL}
    return {
        "schema": SCHEMA,
        "run": strict_json({**meta, "id": view.id, "path": view.path, "name": view.name}),
        "status": {
            "word": view.status,
            "detail": view.detail,
            "is_active": view.is_active,
            "is_live": view.is_live,
            "trainer_pid": view.trainer_pid,
            "guard_pid": view.guard_pid,
        },
        "age_s": view.age_s,
        "attention": [item.to_json() for item in entries_of(view)],
        "watched": view.diagnostics.watched.words if view.is_active else "",
        "now": now,
        "state": strict_json(feed.files.state.get()),
        "guard": strict_json(view.guard),
        "alerts": shown["alerts"],
        "attempts": shown["attempts"],
        "events": shown["events"],
        "log_tail": [*last_lines(feed.run.logs, LOG_LINES)],
    }


def runs_document(view: RunsView) -> MonitorRunsDocument:
    """All runs of a view as one document: every field that the Runs screen shows."""
    rows: Any = [
        {key: value for key, value in row.to_json().items() if key not in _DETAIL}
        for row in view.rows
    ]
    return {
        "schema": RUNS_SCHEMA,
        "gpus": plain(view.gpus),
        "gpus_why_none": view.gpus_why_none,
        "problem": view.problem,
        "total": view.total,
        "active": len(view.active),
        "runs": rows,
    }
