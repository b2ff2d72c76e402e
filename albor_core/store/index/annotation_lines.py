"""Rows of what people say about a run: lines of annotations.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albor_core.run.values.lenient import finite_of, text_of, whole_of
from albor_core.store.index.cells import text
from albor_core.store.index.series.run_series import MAX_STEP
from albor_core.store.index.write import SCORES_EVENT, RunWriter

WORD_EVENTS = {"group": "run.group", "job_type": "run.job_type"}  # facts that annotations say
_SAYINGS = {  # of an annotation: the event that it becomes, and the name that its value has there
    "ack": ("andon.ack", "id"),
    "attention.ack": ("attention.ack", "id"),
    "metric.pin": ("metric.pin", "metric"),
    "metric.unpin": ("metric.unpin", "metric"),
    **{kind: (event, "word") for kind, event in WORD_EVENTS.items()},
}
_TAG_SQL = {
    "tag": "INSERT OR IGNORE INTO tags VALUES (?,?)",
    "untag": "DELETE FROM tags WHERE run_id = ? AND tag = ?",
}


class AnnotationLines:
    """Brings annotations into the rows of a writer."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer

    def add(self, record: Mapping[str, Any], at: int) -> bool:
        """Index one line; False if it has no known form."""
        kind, value = record.get("t"), record.get("value")
        by, wall = text(record.get("by") or ""), finite_of(record.get("wall"))
        said = text_of(value)
        self._writer.touched |= {"tags", "notes"}
        match kind:
            case "tag" | "untag" if said:
                self._writer.db.execute(_TAG_SQL[kind], (self._writer.run_id, text(said)))
            case "note" if said:
                self._writer.db.execute(
                    "INSERT OR REPLACE INTO notes (run_id, at, wall, by, text) VALUES (?,?,?,?,?)",
                    (self._writer.run_id, at, wall, by, text(said)),
                )
            case "note.edit" if isinstance(value, dict):
                return self._edit_note(value, by, wall)
            case "pin" | "unpin":
                self._writer.update({"pinned": int(kind == "pin")})
            case "name" if said:
                self._writer.update({"name": text(said)})
                self._note_event("run.renamed", {"name": said, "by": by}, wall, at)
            case str() if said and kind in _SAYINGS:
                if kind == "metric.pin":
                    self._writer.make_room([said])
                name, key = _SAYINGS[kind]
                self._note_event(name, {key: said, "by": by}, wall, at)
                self._writer.is_described |= kind in WORD_EVENTS
            case "attention.mute" if isinstance(value, dict):
                until = finite_of(value.get("until"))
                data = {"id": text(value.get("id") or ""), "until": until, "by": by}
                self._note_event("attention.mute", data, wall, at)
            case "scores" if isinstance(value, dict):
                return self._take_scores(value, wall, at)
            case "event" if isinstance(value, dict):
                return self._writer.write_event({**value, "wall": wall}, "annotations", at)
            case _:
                return self._restore(kind, value, by, wall, at)
        return True

    def _restore(self, kind: Any, value: Any, by: str, wall: float | None, at: int) -> bool:
        """The rewind at a byte of the journal counts no more, as if it were not there."""
        rewind = whole_of(value)
        if kind != "restore" or rewind is None:
            return False
        if rewind not in self._writer.restored:
            self._writer.restored.add(rewind)
            self._writer.again = "what a rewind took back is restored"
        self._note_event("run.restored", {"rewind": rewind, "by": by}, wall, at)
        return True

    def _take_scores(self, value: Mapping[str, Any], wall: float | None, at: int) -> bool:
        """What an evaluation found of a checkpoint: metrics of its step."""
        step, found = whole_of(value.get("step")), value.get("v")
        if step is None or not 0 <= step < MAX_STEP or not isinstance(found, dict):
            return False
        known = self._writer.series.add_scores(step, found)
        self._writer.goals(value.get("better"), if_new=True)
        data = {"id": text(value.get("id") or ""), "v": known, "stderr": value.get("stderr") or {}}
        data["interval"] = value.get("interval") or {}
        event = {"name": SCORES_EVENT, "data": data, "wall": wall, "step": step}
        return self._writer.write_event(event, "annotations", at) and len(known) == len(found)

    def _edit_note(self, value: Mapping[str, Any], by: str, wall: float | None) -> bool:
        """Another text of a note; none takes it back. A note that is not there stays so."""
        at, said = whole_of(value.get("at")), value.get("text")
        if at is None or not isinstance(said, str):
            return False
        if said:
            self._writer.db.execute(
                'UPDATE notes SET wall = ?, "by" = ?, text = ? WHERE run_id = ? AND at = ?',
                (wall, by, text(said), self._writer.run_id, at),
            )
        else:
            self._writer.db.execute(
                "DELETE FROM notes WHERE run_id = ? AND at = ?", (self._writer.run_id, at)
            )
        return True

    def _note_event(self, name: str, data: dict[str, Any], wall: float | None, at: int) -> None:
        self._writer.write_event({"name": name, "data": data, "wall": wall}, "annotations", at)
