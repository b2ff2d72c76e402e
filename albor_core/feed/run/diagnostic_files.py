"""The diagnostics of one run read from its files, cheaply again and again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from albor_core.feed.run.diagnostic_lines import DiagnosticLines
from albor_core.feed.run.files import CachedJson
from albor_core.feed.run.records import RecordTail, attempts_of
from albor_core.feed.run.watched import watching
from albor_core.feed.view.diagnostics import RunDiagnostics, Watched
from albor_core.feed.view.run_view import RunView
from albor_core.run.control import ANDON
from albor_core.run.exit import exit_reason
from albor_core.run.files.watch_file import Watch, is_watched, watch_of
from albor_core.run.journal import parse_json
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import (
    NOTHING,
    Document,
    finite,
    integer,
    mapping,
    text,
)
from albor_core.store.rows.rows import AlertRow, AttemptRow


class DiagnosticFiles:
    """What a run's files tell beyond its figures. Keep the object between reads: then one costs
    a few `stat`, and what was appended. Belongs to one thread; raises nothing.
    """

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._resolved = CachedJson(run.config_resolved)
        self._exit, self._watch = CachedJson(run.exit), CachedJson(run.watch)
        self._ledger = RecordTail(run.attempts, parse_json)
        self._annotations = RecordTail(run.annotations, parse_json)
        self._lines = tuple(DiagnosticLines(path, run.id) for path in (run.journal, run.system))

    def _last_words(self, view: RunView) -> Document:
        """exit.json, unless an attempt before the newest wrote it."""
        found = self._exit.get() or NOTHING
        is_old = (integer(found, "attempt") or 0) < (view.attempt or 0)
        return NOTHING if is_old else found

    def read(self, view: RunView) -> RunDiagnostics:
        """The diagnostics now of the run that `view` shows."""
        for lines in self._lines:
            lines.update()
        resolved = self._resolved.get() or NOTHING
        last_words = self._last_words(view)
        attempts = attempts_of(self._ledger.records())
        newest = attempts[-1] if attempts else None
        ended = newest if newest is not None and newest.ended is not None else None
        reported = next((one.report for one in reversed(attempts) if one.report), None)
        watched = self._watched(view)
        acked, muted, seen = _marks(self._annotations.records())
        training = mapping(resolved, "training")
        return RunDiagnostics(
            watched=watched,
            attempts=attempts,
            exit_class="" if ended is None else ended.exit_class or "",
            exit_code=integer(last_words, "code"),
            error=_error(last_words, view, ended),
            report=reported or "",
            non_finite=tuple(found for lines in self._lines for found in lines.non_finite),
            lines_lost=max(integer(last_words, "lines_lost") or 0, watched.lines_lost),
            console_bytes_lost=max(0, integer(last_words, "console_bytes_lost") or 0),
            alerts=self._alerts(seen),
            settled=seen.union(*(lines.cleared for lines in self._lines)),
            acked=acked,
            muted=muted,
            save_every=integer(training, "save_interval"),
            ranks=_ranks(resolved),
            stopped_by_rule=_was_stopped_by_rule(self._ledger.records()),
        )

    def _alerts(self, seen: frozenset[str]) -> tuple[AlertRow, ...]:
        found = (alert for lines in self._lines for alert in lines.alerts)
        return tuple(alert for alert in found if alert.id not in seen)

    def _watched(self, view: RunView) -> Watched:
        """What evaluates its rules. The loop of `albor train` does while it lives; of all others
        the index process, which says so in its file for as long as it holds its lock.
        """
        document = self._watch.get() or NOTHING
        rules, budgets = watching(view.kind, self._resolved.get() or NOTHING, document)
        said = watch_of(document) if view.is_active else None
        is_told = said is not None and is_watched(self.run, said)
        if said is None or not is_told:
            said = Watch(pid=0, wall=0.0)
        dead = tuple(f"{sink.name}: {sink.why}" for sink in said.sinks if not sink.ok)
        if view.kind == "train" and view.is_active and (rules or budgets):
            by, acts, why = "loop", True, ""
        elif not is_told:
            return Watched(rules, budgets)
        else:
            by, acts, why = said.by, said.acts, said.why_tells_only
        return Watched(rules, budgets, by, acts, why, dead, said.lines_lost, said.problems)


def _marks(
    records: Iterable[Document],
) -> tuple[Mapping[str, str], Mapping[str, float], frozenset[str]]:
    """Entries that were seen, entries that are muted, alerts that were acknowledged."""
    acked: dict[str, str] = {}
    muted: dict[str, float] = {}
    alerts = set()
    for record in records:
        value = record.get("value")
        if record.get("t") == "ack" and isinstance(value, str):
            alerts.add(value)
        elif record.get("t") == "attention.ack" and isinstance(value, str):
            acked[value] = text(record, "by") or "unknown"
        elif record.get("t") == "attention.mute" and isinstance(value, dict):
            until = finite(value, "until")
            if until is not None:
                muted[text(value, "id")] = until
    return acked, muted, frozenset(alerts)


def _error(last_words: Document, view: RunView, ended: AttemptRow | None) -> str:
    """Why the newest attempt ended: the program's own words before the guard's, and those before
    what the list says.
    """
    said = mapping(last_words, "error")
    if text(said, "message") or text(said, "type"):
        where = text(said, "where")
        return exit_reason(last_words) + (f" ({where})" if where else "")
    own = text(last_words, "message")
    return own or (ended.reason if ended is not None and ended.reason else view.detail)


def _was_stopped_by_rule(ledger: Iterable[Document]) -> bool:
    """Whether the newest attempt was ended because a rule, and no person, asked the guard to."""
    by = ""
    for record in ledger:
        if record.get("t") == "attempt.start":
            by = ""
        elif record.get("name") == "guard.command":
            said = mapping(record, "data")
            by = text(said, "sender") if text(said, "cmd") == "stop" and not by else by
    return by == ANDON


def _ranks(resolved: Document) -> int | None:
    """How many processes a config asks for; old ones say it within `training`."""
    asked = integer(mapping(resolved, "distributed"), "world_size")
    within = mapping(mapping(resolved, "training"), "distributed")
    return asked or integer(within, "world_size")
