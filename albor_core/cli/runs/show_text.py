"""One run as text for people: its card, metrics, attempts, alerts, files, config."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albor_core.cli.common.output import (
    clean,
    cut,
    cut_middle,
    fold,
    screen_width,
    table,
    when,
)
from albor_core.feed.archive.card import Relative, RunCard
from albor_core.feed.archive.crashes import excerpt, words_of
from albor_core.feed.view.run_status import shown_word
from albor_core.guard.deaths.past_attempts import job_in
from albor_core.run.values.metrics import MAX_NAMES, NO_ROOM_EVENT
from albor_core.run.values.quantity import byte_size, counted, duration, figure
from albor_core.store.query.media import MediaRow
from albor_core.store.rows.rows import NoteRow

_NEWEST = 20  # of attempts, alerts, files and children: the rest is in --json
_FILES = 10  # of a patch
_LABEL = 12
_ORDER = ("train/", "val/", "", "optim/", "perf/", "brick/", "host/", "gpu")
_NO_BEST = ("brick/", "host/", "gpu", "optim/", "train/tokens", "train/epoch")
Document = Mapping[str, Any]


def render_show(made: Document, card: RunCard, unread: int = 0) -> str:
    """The albor.runs.show/1 document and the run's card as a page; `points` are not looked at.
    `unread`: lines of its files that its store has nothing or not all of.
    """
    limit = screen_width()
    parts = (
        _head(made, card, unread, limit),
        _metrics(made, limit),
        _attempts(made, limit),
        _crash(made, card, limit),
        _alerts(made["alerts"], limit),
        _media(card, limit),
        _artefacts(made["artifacts"], limit),
        _versions(made, card, limit),
        _children(made, card, limit),
        _config(made["params"], limit or 100),
    )
    return "\n\n".join(text for part in parts if (text := "\n".join(part)))


def _head(made: Document, card: RunCard, unread: int, limit: int | None) -> Iterator[str]:
    row = made["run"]
    silent = "" if made["silent_s"] is None else f", no news for {duration(made['silent_s'])}"
    yield f"{clean(row['id'])}  {clean(shown_word(made['status']))}{silent}"
    for item in made["attention"]:
        seen = f"albor attention ack {shlex.quote(item['id'])}"
        text = f"{item['word']}: {item['summary']}; next: {item['command']}; once seen: {seen}"
        yield from _labelled("needs you", clean(text), limit)
    left_out = ("left out", _names_left_out(made, unread))
    for label, fact in (*_facts(made, row), left_out, *_facts_of_card(made, card)):
        if fact:
            yield from _labelled(label, clean(fact), limit)
    for note in card.notes:
        yield from _note(note, limit)


def _labelled(label: str, fact: str, limit: int | None) -> Iterator[str]:
    """A fact broken over lines."""
    for line in fold(fact, None if limit is None else limit - _LABEL - 2):
        yield f"  {label:<{_LABEL}}{line}"
        label = ""


def _note(note: NoteRow, limit: int | None) -> Iterator[str]:
    """Whole, line by line, with who wrote it when."""
    label = "note" if note.number is None else f"note {note.number}"
    *lines, last = note.text.split("\n")
    for line in (*lines, f"{last}  ({note.by}, {when(note.wall)} UTC)"):
        yield from _labelled(label, clean(line.expandtabs(4)), limit)
        label = ""


def _facts(made: Document, row: Document) -> Iterator[tuple[str, str]]:
    if row["name"] != row["id"]:
        yield "name", row["name"]
    yield "experiment", row["experiment"]
    for key, label in (("group", "group"), ("job_type", "job type")):
        yield label, str(made["facts"].get(key) or "")
    host = f" on {row['host']}" if row["host"] else ""
    yield "created", f"{when(row['created'])} UTC{host}" + _lasted(row)
    yield "watched", made["watched"]
    for sink in made["sinks"]:
        if not sink["ok"]:
            since = "" if sink["since"] is None else f" since {when(sink['since'])} UTC"
            yield "sink", f"{sink['name']} is dead{since}: {sink['why']}"
        elif sink["why"]:
            yield "sink", f"{sink['name']}: {sink['why']}"
    yield "trace", _sent(made["trace"], row["id"])
    yield "progress", ", ".join(_progress(row))
    if row["ended_status"]:
        status, reason = row["ended_status"], row["ended_reason"] or ""
        how = reason if reason.startswith(status) else f"{status}: {reason}" if reason else status
        at = "" if row["ended_wall"] is None else f"{when(row['ended_wall'])} UTC, "
        yield "ended", f"{at}{how}"
    yield "journal", made["cut_short"]
    yield from _losses(made)


def _losses(made: Document) -> Iterator[tuple[str, str]]:
    if made["lines_lost"]:
        yield "lost", f"{counted(made['lines_lost'], 'line')} that it logged could not be written"
    if made["console_bytes_lost"]:
        yield "log", f"{counted(made['console_bytes_lost'], 'byte')} that it printed are in no log"


def _names_left_out(made: Document, unread: int) -> str:
    told = [one["data"] for one in made["events"] if one["name"] == NO_ROOM_EVENT]
    if told and isinstance(names := told[-1].get("names"), int):
        if not told[-1].get("left_out"):  # a goal gave each of them room
            return ""
        return f"its store has {MAX_NAMES:,} of {names:,} metric names; not {told[-1].get('first')}"
    if unread and len(made["summary"]) >= MAX_NAMES:  # of a run that did not say so
        lines = counted(unread, "line")
        return f"its store has {MAX_NAMES:,} metric names and room for no other: those of {lines}"
    return ""


def _sent(trace: Document | None, run_id: str) -> str:
    """How many of a run's spans arrived, and how to get the rest; "" if none were to be sent."""
    sent = None if trace is None else trace["sent"]
    if trace is None or sent is None:
        return ""
    refusal = f": {sent['refusal']}" if sent["refusal"] else ""
    lacking = [
        f"{counted(sent[key], 'span', 'was', 'were')} {word}"
        for key, word in (("dropped", f"refused{refusal}"), ("unsent", "not sent"))
        if sent[key]
    ]
    told = [
        f"{trace['trace_id']}: {sent['sent']:,} spans sent to {sent['place']}"
        if sent["place"]
        else f"{trace['trace_id']}: no span is sent",
        *lacking,
        "" if sent["why"] == sent["refusal"] else sent["why"],
        f"the collector warns: {sent['warning']}" if sent["warning"] else "",
    ]
    way = f"next: albor runs export {run_id} --format otlp -o FILE" if lacking else ""
    return "; ".join(filter(None, (*told, way)))


def _facts_of_card(made: Document, card: RunCard) -> Iterator[tuple[str, str]]:
    yield from _code(card)
    if card.parent is not None:
        yield "parent", f"began from a checkpoint of {_relative(card.parent)}"
    if card.child_ids:
        count = counted(len(card.child_ids), "run", "began", "began")
        yield "children", f"{count} from a checkpoint of it"
    yield "tags", shlex.join(card.tags)
    yield "command", shlex.join(card.command)
    yield "works in", card.cwd
    yield "folder", made["run"]["path"]
    if (pulled := made["pulled"]) is not None:
        yield "pulled", f"from {pulled['host']}, {when(pulled['wall'])}; read-only here"


def _code(card: RunCard) -> Iterator[tuple[str, str]]:
    code = card.code
    if code.commit:
        dirty = " with uncommitted changes" if code.is_dirty else ""
        yield "code", f"{code.commit[:12]}{dirty}"
    if code.patch is not None:
        files = [change.words for change in code.patch.files[:_FILES]]
        more = code.patch.num_files - len(files)
        listed = ", ".join([*files, *([f"{more} more"] if more else [])])
        yield "patch", f"{code.patch.words}: {listed}" if listed else code.patch.words
        if code.patch_path:
            yield "", f"albor runs show {card.id} --patch prints it, from {code.patch_path}"
    if code.untracked:
        yield "untracked", f"{counted(code.untracked, 'file')} that git does not track"
    if code.script:
        yield "script", code.script
        yield "", code.script_copy and f"as it was: {code.script_copy}"


def _relative(one: Relative) -> str:
    named = f"{one.name} ({one.id})" if one.name else one.id
    step = "" if one.step is None else f" at step {one.step:,}"
    return f"{named}, {one.status}{step}" if one.status else f"{named}, which no store here knows"


def _lasted(row: Document) -> str:
    first, last = row["first_wall"], row["last_wall"]
    if first is None or last is None or last < first:
        return ""
    return f", {duration(last - first)} from first to last record"


def _progress(row: Document) -> Iterator[str]:
    last, of = row["last_step"], row["max_steps"]
    word = ", past its" if of and last is not None and last > of else " of"
    yield "no step yet" if last is None else f"step {last:,}" + (f"{word} {of:,}" if of else "")
    if row["tokens"] is not None:
        yield f"{figure(row['tokens'])} tokens"
    if row["seed"] is not None:
        yield f"seed {row['seed']}"


def _metrics(made: Document, limit: int | None) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        (
            clean(key),
            figure(stat["last"], key),
            "" if key.startswith(_NO_BEST) else figure(stat["best"], key),
            figure(stat["minimum"], key),
            figure(stat["maximum"], key),
            f"{stat['count']:,}",
        )
        for key, stat in sorted(made["summary"].items(), key=lambda item: _family(item[0]))
    ]
    if not rows:
        return
    heads = ("metric", "last", "best", "min", "max", "points")
    if limit is not None:  # many a key differs from its neighbour at its end alone
        taken = sum(2 + max(map(len, column)) for column in [*zip(heads, *rows, strict=True)][1:])
        rows = [(cut_middle(key, max(16, limit - taken)), *figures) for key, *figures in rows]
    yield table(heads, rows, right="last best min max points", limit=limit)
    if any(stat.get("axis") == "seconds" for stat in made["summary"].values()):
        yield "figures of the machine are by time: the run logged no step"


def _family(key: str) -> tuple[int, str]:
    """The sort key of a metric: the subject of the run first, its machine last."""
    known = (i for i, prefix in enumerate(_ORDER) if prefix and key.startswith(prefix))
    return next(known, _ORDER.index("")), key


def _attempts(made: Document, limit: int | None) -> Iterator[str]:
    attempts: Sequence[Document] = made["attempts"]
    rows = [
        (
            str(one["attempt"]),
            when(one["started"]),
            _between(one["started"], one["last_wall"] if one["ended"] is None else one["ended"]),
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


def _jobs(events: Sequence[Document]) -> Iterator[str]:
    jobs = [event for event in events if event["name"] == "guard.job"]
    for event in jobs[-_NEWEST:]:
        data = event["data"]
        yield clean(f"job of {data.get('attempt')}: {job_in({'job': data})}")


def _crash(made: Document, card: RunCard, limit: int | None) -> Iterator[str]:
    """The newest death: what, the lines that say most about it, and where all of it is written."""
    for crash in card.crashes[:1]:
        of = "" if crash.attempt is None else f" of attempt {crash.attempt}"
        why, *more = words_of(crash)
        yield from fold(clean(f"crash{of}: {why}"), limit)
        for words in more:
            yield from (f"  {line}" for line in fold(clean(words), limit and limit - 2))
        yield from (cut(f"    {clean(line)}", limit) for line in excerpt(crash))
    reports = [crash for crash in card.crashes if crash.id]
    for crash in reports:
        yield clean(f"crash report: {crash.path}")
    if reports:
        yield f"to read the newest: albor guard report {clean(made['run']['id'])}"


def _children(made: Document, card: RunCard, limit: int | None) -> Iterator[str]:
    rows = [
        (one.id, one.name, one.status, "-" if one.step is None else f"{one.step:,}")
        for one in card.children[:_NEWEST]
    ]
    if rows:
        yield table(("child", "name", "status", "step"), rows, right="step", limit=limit)
        if (more := len(card.child_ids) - len(rows)) > 0:
            yield clean(f"and {more:,} earlier ones: albor runs ls parent:{made['run']['id']}")


def _between(start: float | None, end: float | None) -> str:
    return "-" if start is None or end is None else duration(max(0.0, end - start))


def _end(attempt: Document) -> str:
    """How an attempt ended: the guard's word for it, and the signal or exit code."""
    if attempt["ended"] is None:
        return "lost" if attempt["reason"] else "-"
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


def _media(card: RunCard, limit: int | None) -> Iterator[str]:
    """A line for each key, with where its newest lies."""
    rows = [
        (
            clean(one.key),
            one.kind,
            f"{one.count:,}",
            steps_between(one.first_step, one.last_step),
            byte_size(one.last.bytes),
            _newest(one.last, card.path),
        )
        for one in card.media[:_NEWEST]
    ]
    if rows:
        heads = ("media", "kind", "kept", "step", "size", "newest")
        yield table(heads, rows, right="kept step size", limit=limit)
        if (more := len(card.media) - len(rows)) > 0:
            yield f"and {more:,} other keys: --json shows all"


def steps_between(first: int | None, last: int | None) -> str:
    """The steps of a key that may have one step, many or none."""
    if first is None or last is None or first == last:
        return "-" if last is None else f"{last:,}"
    return f"{first:,}-{last:,}"


def _newest(one: MediaRow, folder: str) -> str:
    """The path of a medium's file in the run's folder, and its caption."""
    path = one.path
    where = str(path).removeprefix(f"{folder}/") if path is not None else ""
    if path is None:
        where = "in the journal" if one.data is not None else "its file is not here"
    return clean(f"{where}  {one.caption}".rstrip())


def _versions(made: Document, card: RunCard, limit: int | None) -> Iterator[str]:
    """Versions of artefacts that it made or used, and the other runs that did."""
    mine = made["run"]["id"]
    rows = []
    for one in card.artifact_versions[-_NEWEST:]:
        makers, users = (
            [run for run in runs if run != mine] for runs in (one.made_by, one.used_by)
        )
        said = [f"made by {' '.join(makers)}"] if makers else []
        said += [f"used by {' '.join(users)}"] if users else []
        rows.append((clean(one.reference), one.role, clean("; ".join(said)) or "-"))
    if rows:
        yield table(("version", "here", "other runs"), rows, limit=limit)
        yield from _earlier(card.artifact_versions)


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


def _earlier(rows: Sequence[object]) -> Iterator[str]:
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
