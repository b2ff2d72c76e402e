"""What `start` is told of a run: in people's words (tags, notes, group, job type), and of one that
was there before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from albor_core.run.errors import AlborError, UsageError
from albor_core.run.rundir import RunDir
from albor_core.run.values.metrics import printable
from albor_core.track.last_words import tell

if TYPE_CHECKING:
    from albor_core.store.index.annotations import Note
    from albor_core.track.tracked_run import Run


Folder = str | os.PathLike[str] | None


BY = "its program"  # who said it, beside what people say


class RunWords(NamedTuple):
    """Of these, kinds of annotation, each may have several texts."""

    tag: tuple[str, ...] = ()
    note: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    job_type: tuple[str, ...] = ()


def check_words(
    tags: Iterable[str], notes: str, group: str | None, job_type: str | None
) -> RunWords:
    """Raises UsageError for what is not text, is empty or too long."""
    if isinstance(tags, str | Mapping) or not isinstance(tags, Iterable):
        given = (
            [f"{key}:{value}" for key, value in tags.items()]
            if isinstance(tags, Mapping)
            else [tags]
        )
        raise UsageError(f"tags {tags!r}: give a list of words", hint=f"tags={given!r}")
    single = {"note": notes or None, "group": group, "job_type": job_type}
    found = RunWords(
        tuple(dict.fromkeys(map(_plain, tags))),
        **{kind: () if text is None else (_plain(text),) for kind, text in single.items()},
    )
    if any(found):
        from albor_core.store.index.annotations import check_text  # noqa: PLC0415  for who says any

        for kind, texts in found._asdict().items():
            for text in texts:
                check_text(kind, text)
    return found


def _plain(text: object) -> Any:
    """Without what would change a terminal; a note keeps its lines."""
    return "\n".join(map(printable, text.splitlines())) if isinstance(text, str) else text


def say(run: RunDir, words: RunWords) -> None:
    """Write down what is not said yet; a tag that a user removed stays removed. Where that cannot
    be, as on a full disk, the run goes on without.
    """
    if not any(words):
        return
    try:
        _say(run, words)
    except (AlborError, OSError) as error:
        tell(f"what {run.id} is called by its program is not written down: {error}")


def _say(run: RunDir, words: RunWords) -> None:
    from albor_core.store.index import annotations  # noqa: PLC0415  for who says any

    known = annotations.read_annotations(run)
    for kind, texts in words._asdict().items():
        said = [one.value for one in known if one.kind == kind]
        for text in texts:
            if kind == "note":
                _note(run, text, annotations.notes_in(known))
            elif text not in (said if kind == "tag" else said[-1:]):
                annotations.annotate(run, kind, text, by=BY)


def _note(run: RunDir, text: str, notes: tuple[Note, ...]) -> None:
    """A program has one note: what it says now stands in the place of what it said before. One that
    a person has edited is the person's.
    """
    from albor_core.store.index.annotations import annotate  # noqa: PLC0415

    own = next((note for note in reversed(notes) if note.by == BY), None)
    if own is None and all(note.text != text for note in notes):
        annotate(run, "note", text, by=BY)
    elif own is not None and own.text != text:
        annotate(run, "note.edit", {"at": own.at, "text": text}, by=BY)


def describe(run: Run, told: Mapping[str, Any], folder: Folder, *, is_resumed: bool) -> None:
    """A guard's run is filled in with it: run.json is the guard's, so the journal has it. What was
    decided otherwise before is said.
    """
    about = run.dir.metadata()
    decided = told.keys() if is_resumed else {*(about.get("given") or ()), "id"}
    unused = {key: told[key] for key in told if key in decided and told[key] != about.get(key)}
    if folder is not None:
        where = Path(folder).expanduser().absolute()
        if where != run.path.parent:
            unused["dir"] = str(where)
    new = {key: value for key, value in told.items() if key != "id"}
    if new and not is_resumed:
        run.journal_append("e", None, name="run.described", severity="info", data=new)
    if unused:
        run.journal_append("e", None, name="track.unused", severity="warning", data=unused)
        what = ", ".join(f"{key} {value!r}" for key, value in unused.items())
        by = f"{run.id} began otherwise" if is_resumed else f"the guard of {run.id} decided"
        tell(f"{what} is not used: {by}{'' if is_resumed else ' otherwise'}")
