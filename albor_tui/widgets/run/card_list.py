"""The card of a run as lines to stand on: each knows what it is of, so that a key can change it,
open it or copy it."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from textual.content import Content
from textual.message import Message

from albor_core.feed.archive.card import CodeCard, Relative, RunCard
from albor_core.feed.archive.crashes import CrashView, excerpt, words_of
from albor_core.run.values.clean import clean
from albor_core.store.query.media import MediaKey
from albor_core.store.rows.rows import ArtifactRow, NoteRow
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList

now_wall = time.time  # replaced in tests

LABEL = 11  # cells of what stands before a value
_FILES = 12  # of a patch
_LEFT = 20  # artefacts: the newest ones
_STACK = 10  # lines of a death
_SHORT = 200  # characters of a note that stands out


@dataclass(frozen=True)
class CardEntry:
    """The content of a line. `copies` is the text for the clipboard; "" for none."""

    kind: Literal["fact", "note", "tags", "relative", "crash", "media"]
    copies: str = ""
    note: NoteRow | None = None
    relative: Relative | None = None
    medium: tuple[str, str] | None = None  # key and kind of media


@dataclass(frozen=True)
class CardLine:
    """A line of the card; the cursor skips one without an entry."""

    content: Content
    entry: CardEntry | None = None


NEW_NOTE = CardEntry("note")
TAGS = CardEntry("tags")
_GAP = CardLine(Content(""))


def made_of(card: RunCard, width: int, draft: CardEntry | None = None) -> list[CardLine]:
    """What people say of the run and what it was made of. `draft` is something that is being
    written and is not there yet.
    """
    return _sections(_said(card, width, draft), _recipe(card, width), _place(card, width))


def came_of(card: RunCard, width: int) -> list[CardLine]:
    """How it died, which runs it is related to, and what it left behind."""
    parts = (_death(card.crashes, width), _family(card, width), _files(card, width))
    return _sections(*parts)


def all_of(card: RunCard, width: int, draft: CardEntry | None = None) -> list[CardLine]:
    """Both in one column: a death comes right behind what people say."""
    return _sections(
        _said(card, width, draft),
        _death(card.crashes, width),
        _recipe(card, width),
        _place(card, width),
        _family(card, width),
        _files(card, width),
    )


def _sections(*parts: Iterator[CardLine]) -> list[CardLine]:
    """The lines of all non-empty sections, with a line between sections."""
    lines: list[CardLine] = []
    for part in parts:
        if found := [*part]:
            lines += [_GAP, *found] if lines else found
    return lines


# -- what people say -----------------------------------------------------------------------------


def _said(card: RunCard, width: int, draft: CardEntry | None) -> Iterator[CardLine]:
    for note in card.notes:
        yield from _note(note, width)
    if draft == NEW_NOTE:
        yield _line("note", Content(""), NEW_NOTE)
    if card.tags:
        words = Content("  ").join(styled.text(tag, "$secondary") for tag in card.tags)
        entry = CardEntry("tags", shlex.join(card.tags))
        yield from _rows("tags", words.wrap(_room(width)), entry)
    elif draft == TAGS:
        yield _line("tags", Content(""), TAGS)
    if card.group:
        yield from _fact("group", card.group, width)
    if card.job_type:
        yield from _fact("job", card.job_type, width)


def _note(note: NoteRow, width: int) -> Iterator[CardLine]:
    entry, room = CardEntry("note", note.text, note=note), _room(width)
    tone = "bold $ink" if len(note.text) < _SHORT else "$ink"
    rows = [
        row
        for line in note.text.split("\n")
        for row in styled.text(line.expandtabs(4), tone).wrap(room)
    ]
    signed = styled.text(f"{note.by}, {quantity.clock(note.wall)[:16]}", "$ink-muted")
    if rows and rows[-1].cell_length + 2 + signed.cell_length <= room:
        rows[-1] = styled.pair(rows[-1], signed, room)
    else:
        rows.append(styled.fit(signed, room, "right"))
    label = "note" if note.number is None else f"note {note.number}"
    yield from _rows(label, rows, entry)


# -- what it was made of -------------------------------------------------------------------------


def _recipe(card: RunCard, width: int) -> Iterator[CardLine]:
    if card.command:
        yield from _fact("command", shlex.join(card.command), width)
    if card.cwd:
        yield from _fact("works in", card.cwd, width)
    yield from _code(card.code, card.id, width)


def _code(code: CodeCard, run_id: str, width: int) -> Iterator[CardLine]:
    if code.commit:
        dirty = "  with uncommitted changes" if code.is_dirty else ""
        words = Content.assemble(styled.text(code.commit[:12], "$ink"), (dirty, "$warning"))
        yield _line("commit", words, CardEntry("fact", code.commit))
    if code.patch is not None:
        yield from _patch(code, run_id, width)
    if code.untracked:
        told = f"{quantity.counted(code.untracked, 'file')} that git does not track"
        yield _line("", Content.styled(told, "$warning"), CardEntry("fact"))
    if code.script:
        yield from _fact("script", code.script, width)
    if code.script_copy:
        yield from _fact("as it was", code.script_copy, width)


def _patch(code: CodeCard, run_id: str, width: int) -> Iterator[CardLine]:
    patch = code.patch
    assert patch is not None
    whole = f"albor runs show {run_id} --patch"
    entry = CardEntry("fact", whole if code.patch_path else "")
    total = Content.assemble(
        ("at least " if patch.is_cut else "", "$warning"),
        _counts(patch.added, patch.removed),
        (f"  in {quantity.counted(patch.num_files, 'file')}", "$ink-muted"),
    )
    yield _line("patch", total, entry)
    shown = patch.files[:_FILES]
    names = max((len(one.name) for one in shown), default=0)
    plus = max((len(f"{one.added or 0:,}") for one in shown), default=0)
    minus = max((len(f"{one.removed or 0:,}") for one in shown), default=0)
    room = min(names, _room(width) - 20)
    for one in shown:
        name = styled.fit(styled.fit_middle(styled.text(one.name, "$ink"), room), room)
        counts = (
            Content.styled("binary", "$ink-muted")
            if one.added is None or one.removed is None
            else _counts(one.added, one.removed, plus, minus)
        )
        yield _line("", Content.assemble("  ", name, "  ", counts), CardEntry("fact", one.name))
    if (more := patch.num_files - _FILES) > 0:
        yield _line("", styled.left_out(more, "file"), entry)
    if code.patch_path:
        yield from _fact("", f"whole: {whole}", width, "$ink-muted", copies=whole)
        yield from _fact("", f"kept in {code.patch_path}", width, "$ink-muted",
                         copies=code.patch_path)  # fmt: skip


def _counts(added: int, removed: int, plus: int = 0, minus: int = 0) -> Content:
    """Lines that came and went, in columns of so many digits."""
    return Content.assemble(
        (f"+{added:,}".rjust(plus + 1), "$success"),
        " ",
        (f"-{removed:,}".rjust(minus + 1), "$error"),
    )


def _place(card: RunCard, width: int) -> Iterator[CardLine]:
    if card.created is not None:
        yield from _fact("created", quantity.clock(card.created), width)
    if card.host:
        yield from _fact("host", card.host, width)
    if card.pulled:
        words = f"pulled from {card.pulled}, read-only here"
        yield from _fact("", words, width, "$warning")
    if card.seed is not None:
        yield from _fact("seed", str(card.seed), width)
    if card.versions:
        named = [f"{name} {version}" for name, version in card.versions.items()]
        yield from _fact("versions", "  ".join(named), width)
    yield from _fact("folder", card.path, width)


# -- what came of it -----------------------------------------------------------------------------


def _death(crashes: Sequence[CrashView], width: int) -> Iterator[CardLine]:
    """The newest in a few lines; all of it is behind them."""
    if not crashes:
        return
    crash = crashes[0]
    label = "crash" if crash.attempt is None else f"crash {crash.attempt}"
    entry = CardEntry("crash", crash.path)
    why, *more = words_of(crash)
    yield from _rows(label, styled.text(why, "bold $error").wrap(_room(width)), entry)
    for words in more:
        yield from _rows("", styled.text(words, "$ink").wrap(_room(width)), entry)
    for told in excerpt(crash, _STACK):  # from the edge: tracebacks are wide
        yield from (CardLine(row, entry) for row in _hanging(told, width))
    yield from _fact("", crash.path, width, "$ink-muted", entry=entry)
    if len(crashes) > 1:
        words = f"enter opens it, and {quantity.counted(len(crashes) - 1, 'earlier one')}"
        yield _line("", Content.styled(words, "$ink-muted"), entry)


def _hanging(told: str, width: int) -> Iterator[Content]:
    """A line of a traceback; where it is folded, its rest stands further in."""
    words = told.lstrip(" ")
    indent = 2 + min(len(told) - len(words), 16)
    first, *rest = styled.text(words, "$ink").wrap(max(10, width - indent - 2)) or [Content("")]
    yield Content(" " * indent) + first
    for row in rest:
        yield Content(" " * (indent + 2)) + row


def _family(card: RunCard, width: int) -> Iterator[CardLine]:
    if card.parent is not None:
        yield _relative("parent", card.parent, width)
    total = len(card.child_ids)
    label = "child" if total == 1 else "children"
    for one in card.children:
        yield _relative(label, one, width)
        label = f"{total:,}" if label == "children" else ""
    if (more := total - len(card.children)) > 0:
        command = f"albor runs ls parent:{card.id}"
        words = f"{glyphs.current.ellipsis} {more:,} more: {command}"
        yield _line("", styled.text(words, "$ink-muted"), CardEntry("fact", command))


def _relative(label: str, one: Relative, width: int) -> CardLine:
    name = styled.text(one.name or one.id, "$ink")
    if one.status:
        step = quantity.count(one.step)
        left = Content.assemble(styled.fit(styled.state(one.status), 13), " ", name)
        words = styled.pair(left, Content.styled(step, "$ink-muted"), _room(width))
    else:
        words = Content.assemble(name, ("  no store here knows it", "$ink-muted"))
    return _line(label, words, CardEntry("relative", one.id, relative=one))


def _files(card: RunCard, width: int) -> Iterator[CardLine]:
    """Lines of the files that the run left."""
    yield from _artifacts(card.artifacts, width)
    yield from _versions(card, width)
    yield from _media(card.media, width)


def _artifacts(artifacts: Sequence[ArtifactRow], width: int) -> Iterator[CardLine]:
    """The newest first; checkpoints, which have a tab of their own, in one line."""
    saved = [one for one in artifacts if one.kind == "checkpoint"]
    others = [one for one in reversed(artifacts) if one.kind != "checkpoint"]
    label = "files" if len(others) > 1 else "file"
    for one in others[:_LEFT]:
        yield _file(label, one, width)
        label = ""
    if (more := len(others) - _LEFT) > 0:
        yield _line("", styled.left_out(more, "file"), CardEntry("fact"))
    if saved:
        newest = max((one.step for one in saved if one.step is not None), default=None)
        step = "" if newest is None else f"newest of step {quantity.count(newest)}"
        words = Content.assemble(
            (quantity.counted(len(saved), "checkpoint"), "$ink"), (f"  {step}", "$ink-muted")
        )
        yield _line("saved", words, CardEntry("fact", saved[-1].path))


def _versions(card: RunCard, width: int) -> Iterator[CardLine]:
    """Artefacts that it made or used, and the other runs that did."""
    for one in card.artifact_versions[: -_LEFT - 1 : -1]:
        others = one.used_by if one.role == "made" else one.made_by
        named = [run for run in others if run != card.id]
        told = f"{'used' if one.role == 'made' else 'made'} by {' '.join(named)}" if named else ""
        words = Content.assemble(
            styled.text(one.reference, "$ink"), styled.text(f"  {told}", "$ink-muted")
        )
        yield _line(one.role, words, CardEntry("fact", one.reference))
    if (more := len(card.artifact_versions) - _LEFT) > 0:
        yield _line("", styled.left_out(more, "version"), CardEntry("fact"))


def _media(media: Sequence[MediaKey], width: int) -> Iterator[CardLine]:
    """A line for each key; the path of its newest is what is copied."""
    label = "media"
    for one in media[:_LEFT]:
        step = "" if one.last_step is None else f"step {quantity.count(one.last_step)}"
        right = Content.styled(step, "$ink-muted")
        key = styled.fit_middle(styled.text(one.key, "$ink"), max(8, _room(width) - 36))
        kept = f"  {one.kind}  {quantity.count(one.count)}"
        left = Content.assemble(key, styled.text(kept, "$ink-muted"))
        entry = CardEntry("media", str(one.last.path or ""), medium=(one.key, one.kind))
        yield _line(label, styled.pair(left, right, _room(width)), entry)
        label = ""
    if (more := len(media) - _LEFT) > 0:
        yield _line("", styled.left_out(more, "key"), CardEntry("fact"))


def _file(label: str, one: ArtifactRow, width: int) -> CardLine:
    age = "" if one.wall is None else quantity.age(max(0.0, now_wall() - one.wall))
    right = Content.assemble(
        (quantity.byte_cell(one.bytes).rjust(8), "$ink"), (age.rjust(5), "$ink-muted")
    )
    room = _room(width) - right.cell_length - 2
    name = styled.fit_middle(styled.text(one.name or one.path, "$ink"), max(8, room - 12))
    left = Content.assemble(name, styled.text(f"  {one.kind}", "$ink-muted"))
    return _line(label, styled.pair(left, right, _room(width)), CardEntry("fact", one.path))


# -- lines ---------------------------------------------------------------------------------------


def _room(width: int) -> int:
    return max(10, width - LABEL)


def _line(label: str, words: Content, entry: CardEntry) -> CardLine:
    return CardLine(Content.assemble((f"{label:<{LABEL}}", "$ink-muted"), words), entry)


def _rows(label: str, rows: Sequence[Content], entry: CardEntry) -> Iterator[CardLine]:
    for row in rows:
        yield _line(label, row, entry)
        label = ""


def _fact(
    label: str,
    words: str,
    width: int,
    tone: str = "$ink",
    *,
    copies: str | None = None,
    entry: CardEntry | None = None,
) -> Iterator[CardLine]:
    """A value over as many lines as it needs, so that all of it can be read."""
    entry = entry or CardEntry("fact", words if copies is None else copies)
    rows = [styled.text(line, tone) for line in _broken(clean(words), _room(width))]
    yield from _rows(label, [part for row in rows for part in row.wrap(_room(width))], entry)


def _broken(words: str, room: int) -> list[str]:
    """Text broken between words and, if one is too long for a line, between the parts of a path."""
    lines = [""]
    for word in words.split(" "):
        wider = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(wider) <= room:
            lines[-1] = wider
            continue
        if lines[-1]:
            lines.append("")
        for part in re.split("(?<=/)", word):
            if lines[-1] and cell_len(lines[-1] + part) > room:
                lines.append("")
            lines[-1] += part
    return lines


class CardList(LineList):
    """Lines of the card; the cursor stays on its entry when others come and go."""

    class Scrolled(Message):
        """Other lines are on the screen."""

    class Widened(Message):
        """A line has room for more or fewer cells: what is shown was made for another width."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: list[CardLine] = []
        self._made_for = 0

    def on_resize(self) -> None:
        super().on_resize()
        if self.room != self._made_for:
            self._made_for = self.room
            self.post_message(self.Widened())

    @property
    def room(self) -> int:
        """Cells in a line, beside the cursor's edge."""
        return self._width - 1

    @property
    def current(self) -> CardEntry | None:
        return self.lines[self.cursor].entry if self.cursor < len(self.lines) else None

    def show(self, lines: list[CardLine]) -> None:
        """Replace the lines."""
        if lines == self.lines:
            return
        stood = self.current
        nth = 0 if stood is None else self.cursor - self.first_of(stood)
        self.lines = lines
        if stood is not None and (at := self.first_of(stood)) >= 0:
            last = max(i for i, line in enumerate(lines) if line.entry == stood)
            self.set_reactive(LineList.cursor, min(at + nth, last))
        self.lines_changed()

    def first_of(self, entry: CardEntry) -> int:
        """The first line of an entry, -1 where it has none."""
        return next((i for i, line in enumerate(self.lines) if line.entry == entry), -1)

    def stand_on_line(self, at: int) -> None:
        """Move to a line and the line onto the screen."""
        self.cursor = at
        top, page = round(self.scroll_y), max(1, self.content_size.height)
        if not top <= at < top + page:
            self.scroll_to(y=max(0, at - page // 2), animate=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Scrolled())

    def count(self) -> int:
        return len(self.lines)

    @property
    def shows_cursor(self) -> bool:
        return self.has_focus  # of two lists the one that keys act on

    def can_stand(self, index: int) -> bool:
        return self.lines[index].entry is not None

    def draw_line(self, index: int, width: int) -> Content:
        return self.lines[index].content
