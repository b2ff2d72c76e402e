"""One run as text for people: facts, metrics, attempts, alerts, files, config."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albor_core.cli.common.output import (
    clean,
    cut,
    screen_width,
    table,
    when,
)
from albor_core.guard.deaths.past_attempts import job_in
from albor_core.run.values.quantity import byte_size, duration, figure

_NEWEST = 20  # of attempts, alerts and files: the rest is in --json
_LABEL = 12
_FIGURES = 56  # cells that five figures need beside the name of a metric
_ORDER = ("train/", "val/", "", "optim/", "perf/", "brick/", "host/", "gpu")
_NO_BEST = ("brick/", "host/", "gpu", "optim/", "train/tokens", "train/epoch")
Document = Mapping[str, Any]


def render_show(made: Document) -> str:
    """The albor.runs.show/1 document as a page; `points` are not looked at."""
    limit = screen_width()
    parts = (
        _head(made, limit),
        _metrics(made, limit),
        _attempts(made, limit),
        _alerts(made["alerts"], limit),
        _artefacts(made["artifacts"], limit),
        _config(made["params"], limit or 100),
    )
    return "\n\n".join(text for part in parts if (text := "\n".join(part)))


def _head(made: Document, limit: int | None) -> Iterator[str]:
    row = made["run"]
    silent = "" if made["silent_s"] is None else f", no news for {duration(made['silent_s'])}"
    yield f"{clean(row['id'])}  {clean(made['status'])}{silent}"
    for label, fact in _facts(made, row):
        if fact:
            yield from _labelled(label, clean(fact), limit)


def _labelled(label: str, fact: str, limit: int | None) -> Iterator[str]:
    """Broken over lines; a text beyond ASCII, whose cells are not its letters, is cut instead."""
    room = None if limit is None else limit - _LABEL - 2
    lines = textwrap.wrap(fact, room) if room is not None and fact.isascii() else [cut(fact, room)]
    for line in lines:
        yield f"  {label:<{_LABEL}}{line}"
        label = ""


def _facts(made: Document, row: Document) -> Iterator[tuple[str, str]]:
    if row["name"] != row["id"]:
        yield "name", row["name"]
    yield "experiment", row["experiment"]
    host = f" on {row['host']}" if row["host"] else ""
    yield "created", f"{when(row['created'])} UTC{host}" + _lasted(row)
    yield "progress", ", ".join(_progress(row))
    if row["ended_status"]:
        status, reason = row["ended_status"], row["ended_reason"] or ""
        how = reason if reason.startswith(status) else f"{status}: {reason}" if reason else status
        at = "" if row["ended_wall"] is None else f"{when(row['ended_wall'])} UTC, "
        yield "ended", f"{at}{how}"
    if made["lines_lost"]:
        yield "lost", f"{made['lines_lost']:,} line(s) that it logged could not be written"
    if row["git_commit"]:
        dirty = " with uncommitted changes" if row["git_dirty"] else ""
        yield "code", f"{row['git_commit'][:12]}{dirty}"
    if made["parent"]:
        yield "parent", f"began from a checkpoint of {made['parent']}"
    if made["children"]:
        yield "children", f"runs that began from it: {' '.join(made['children'])}"
    yield "tags", " ".join(made["tags"])
    yield "command", shlex.join(map(str, made["argv"]))
    yield "folder", row["path"]
    for note in made["notes"]:
        yield "note", f"{note['text']}  ({note['by']}, {when(note['wall'])})"


def _lasted(row: Document) -> str:
    first, last = row["first_wall"], row["last_wall"]
    if first is None or last is None or last < first:
        return ""
    return f", {duration(last - first)} from first to last record"


def _progress(row: Document) -> Iterator[str]:
    last, of = row["last_step"], row["max_steps"]
    yield "no step yet" if last is None else f"step {last:,}" + (f" of {of:,}" if of else "")
    if row["tokens"] is not None:
        yield f"{figure(row['tokens'])} tokens"
    if row["seed"] is not None:
        yield f"seed {row['seed']}"


def _metrics(made: Document, limit: int | None) -> Iterator[str]:
    rows = [
        (
            cut(clean(key), None if limit is None else max(16, limit - _FIGURES)),
            figure(stat["last"], key),
            "" if key.startswith(_NO_BEST) else figure(stat["best"], key),
            figure(stat["minimum"], key),
            figure(stat["maximum"], key),
            f"{stat['count']:,}",
        )
        for key, stat in sorted(made["summary"].items(), key=lambda item: _family(item[0]))
    ]
    if rows:
        heads = ("metric", "last", "best", "min", "max", "points")
        yield table(heads, rows, right="last best min max points", limit=limit)


def _family(key: str) -> tuple[int, str]:
    """What a run is about first, what it ran on last, the rest in between."""
    known = (i for i, prefix in enumerate(_ORDER) if prefix and key.startswith(prefix))
    return next(known, _ORDER.index("")), key


def _attempts(made: Document, limit: int | None) -> Iterator[str]:
    attempts: Sequence[Document] = made["attempts"]
    rows = [
        (
            str(one["attempt"]),
            when(one["started"]),
            _between(one["started"], one["ended"]),
            _end(one),
            "-" if one["step"] is None else f"{one['step']:,}",
            one["reason"] or "",
        )
        for one in attempts[-_NEWEST:]
    ]
    if rows:
        heads = ("attempt", "started (UTC)", "lasted", "end", "step", "reason")
        yield table(heads, rows, right="attempt lasted step", limit=limit)
        yield from _earlier(attempts)
        yield from _jobs(made["events"])
        yield from _reports(made, attempts[-_NEWEST:])


def _jobs(events: Sequence[Document]) -> Iterator[str]:
    jobs = [event for event in events if event["name"] == "guard.job"]
    for event in jobs[-_NEWEST:]:
        data = event["data"]
        yield clean(f"job of {data.get('attempt')}: {job_in({'job': data})}")


def _reports(made: Document, attempts: Sequence[Document]) -> Iterator[str]:
    """The crash reports' folder, and the command that shows the newest."""
    ids = [one["report"] for one in attempts if one["report"]]
    for name in ids:
        yield clean(f"crash report: {made['run']['path']}/crash-reports/{name}.json")
    if ids:
        yield f"to read the newest: albor guard report {clean(made['run']['id'])}"


def _between(start: float | None, end: float | None) -> str:
    return "-" if start is None or end is None else duration(max(0.0, end - start))


def _end(attempt: Document) -> str:
    """How a life ended: the guard's word for it, and the signal or exit code."""
    if attempt["ended"] is None:
        return "-"
    code = "" if attempt["code"] is None else f"exit {attempt['code']}"
    how = attempt["signal"] or (code if attempt["code"] or not attempt["exit_class"] else "")
    return f"{attempt['exit_class'] or ''} {how}".strip() or "over"


def _alerts(alerts: Sequence[Document], limit: int | None) -> Iterator[str]:
    rows = [
        (
            when(alert["wall"]),
            "-" if alert["step"] is None else f"{alert['step']:,}",
            alert["severity"],
            alert["action"] or "-",
            alert["acked_by"] or "open",
            alert["message"],
        )
        for alert in alerts[-_NEWEST:]
    ]
    if rows:
        heads = ("alert (UTC)", "step", "severity", "action", "seen by", "message")
        yield table(heads, rows, right="step", limit=limit)
        yield from _earlier(alerts)


def _artefacts(files: Sequence[Document], limit: int | None) -> Iterator[str]:
    rows = [
        (
            one["name"] or one["path"],
            f"{one['kind']}, gone" if one["is_gone"] else one["kind"],
            "-" if one["step"] is None else f"{one['step']:,}",
            byte_size(one["bytes"]),
            when(one["wall"]),
            (one["hash"] or "-").rpartition(":")[2][:12],
        )
        for one in files[-_NEWEST:]
    ]
    if rows:
        heads = ("artefact", "kind", "step", "size", "written (UTC)", "hash")
        yield table(heads, rows, right="step size", limit=limit)
        yield from _earlier(files)


def _earlier(rows: Sequence[Document]) -> Iterator[str]:
    if len(rows) > _NEWEST:
        yield f"and {len(rows) - _NEWEST:,} earlier ones: --json shows all"


def _config(params: Mapping[str, Any], width: int) -> Iterator[str]:
    """A paragraph a section; what stands alone comes first."""
    sections: dict[str, list[str]] = {}
    for key, value in params.items():
        if value is None:
            continue
        section, _, name = key.partition(".") if "." in key else ("", "", key)
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        # a space inside a word keeps its pair together when lines are broken
        sections.setdefault(section, []).append(clean(f"{name}={shown}").replace(" ", "\xa0"))
    if sections:
        yield "config"
    label = max((len(clean(section)) for section in sections), default=0) + 4
    for section in sorted(sections):
        text = textwrap.fill(
            "  ".join(sections[section]),
            width=max(width, label + 20),
            initial_indent=f"  {clean(section)}".ljust(label),
            subsequent_indent=" " * label,
            break_on_hyphens=False,
        )
        yield text.replace("\xa0", " ")
