"""One data set in words: where it is, whether its bytes are known to be right, who read it, what it
may be used for, and whether what a model is to be examined with was searched for in it.
"""

from __future__ import annotations

from textual.content import Content

from albor_core.feed.data.folder import SEALED
from albor_core.feed.data.known import DataSetView
from albor_core.feed.data.sheet import Contamination, DataSheet, SplitView
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.data.labelled import LABEL, fact, folded
from albor_tui.widgets.data.set_list import SetRow, state_of
from albor_tui.widgets.data.source_list import share_words

_MOST_HITS, _MOST_LICENCES, _MOST_RUNS, _MOST_PROBLEMS = 200, 12, 6, 20
_HASH = 12  # of 64 digits: enough to tell two apart by eye


class AboutSheet(ScrolledLines):
    """Everything about a data set that is not a figure of its sources."""

    def __init__(self, *, id: str) -> None:
        super().__init__("about", id=id)
        self._row: SetRow | None = None
        self._excuse = Content("")
        self._offers_check = True

    def tell(self, row: SetRow | None, excuse: Content, *, offers_check: bool = True) -> None:
        """Show a data set; `excuse` stands for figures that are not there."""
        self._offers_check = offers_check
        is_other = self._row is None or row is None or row.view.path != self._row.view.path
        self._row, self._excuse = row, excuse
        name = styled.text("" if row is None else row.view.name, "$ink-muted")
        self.border_title = Content.assemble(("about ", "bold $ink"), name)
        self.resized(self.room)
        if is_other and self.is_attached:
            self.scroll_home(animate=False)

    def resized(self, width: int) -> None:
        if self._row is None or width < 16:
            self.show([])
            return
        self.show(lines_of(self._row, self._excuse, width, self._offers_check))


def lines_of(row: SetRow, excuse: Content, width: int, offers_check: bool) -> list[Content]:
    """Lines of at most `width` cells, the most urgent first."""
    sheet = row.sheet
    lines = [*_where(row, width), *_checked(row, width, offers_check)]
    lines += _users(row.view, width)
    if sheet is None:
        return [*lines, Content(""), *excuse.wrap(width)] if excuse.plain else lines
    lines += _holds(sheet, width)
    lines += [Content(""), *_contamination(sheet.contamination, width)]
    return [*lines, Content(""), *_licences(sheet, width)]


def _where(row: SetRow, width: int) -> list[Content]:
    view = row.view
    tone = "$ink" if view.folder.state == "here" else "$ink-muted"
    lines = folded("path", view.path, tone, width)
    if view.made is not None:
        lines.append(fact("made", Content.styled(quantity.clock(view.made), "$ink"), width))
    elif not view.is_registered:
        words = "not registered here: known from the runs that read it"
        lines += folded("made", words, "$ink-muted", width)
    return lines


def _checked(row: SetRow, width: int, offers_check: bool) -> list[Content]:
    """Lines on whether the data set exists, and whether its hashes were verified."""
    folder, check = row.view.folder, row.check
    word, tone = state_of(row)
    lines = [fact("state", Content.styled(word, f"bold {tone}"), width)]
    if folder.state != "here":
        lines += folded("", folder.why, tone, width)
        if folder.state == "gone":
            lines += folded("", "moved or removed: make it again, or put it back", "$ink", width)
        return lines
    if check is None:
        if folder.kind in SEALED and offers_check:
            lines += folded("", "v reads every byte against its hashes", "$ink-muted", width)
        return lines
    if check.why_not:
        lines += folded("", f"could not be verified: {check.why_not}", "$warning", width)
    shown = check.problems[:_MOST_PROBLEMS]
    lines += [part for words in shown for part in folded("", words, "$error", width)]
    if len(check.problems) > len(shown):
        lines.append(styled.left_out(len(check.problems) - len(shown), "problem"))
    return lines


def _users(view: DataSetView, width: int) -> list[Content]:
    if not view.num_users:
        return [fact("runs", Content.styled("no run of this home read it", "$ink-muted"), width)]
    names = [user.name or user.id for user in view.users[:_MOST_RUNS]]
    more = view.num_users - len(names)
    words = ", ".join(names) + (f" and {more} more" if more else "")
    lines = folded("runs", words, "$ink", width)
    if view.changed:
        words = f"{counted(view.changed, 'run')} read other bytes than lie here now"
        lines += folded("", words, "$warning", width)
    return lines


def _holds(sheet: DataSheet, width: int) -> list[Content]:
    amounts = [
        (quantity.count(sheet.documents), "documents", sheet.documents),
        (quantity.count(sheet.tokens), "tokens", sheet.tokens),
        (quantity.byte_size(sheet.num_bytes), "of text", sheet.num_bytes),
    ]
    words = ", ".join(f"{said} {what}" for said, what, value in amounts if value is not None)
    lines = folded("holds", words or "nothing that it says", "$ink", width)
    if sheet.vocab_size is not None or sheet.seq_len is not None:
        words = f"vocabulary {quantity.count(sheet.vocab_size)}"
        words += f", rows of {quantity.count(sheet.seq_len)} tokens" if sheet.seq_len else ""
        lines += folded("", words, "$ink-muted", width)
    return lines + [_split(one, width) for one in sheet.splits]


def _split(one: SplitView, width: int) -> Content:
    seal = one.data_hash[: _HASH if width >= 48 else _HASH - 4] or "no hash"
    left = Content.assemble(
        styled.fit(styled.text(one.name or "all", "$secondary"), LABEL),
        styled.text(f"{quantity.count(one.sequences)} rows", "$ink"),
        styled.text(f", {quantity.si(one.tokens)}", "$ink-muted"),
        styled.text(" tokens" if width >= 48 else "", "$ink-muted"),
    )
    return styled.pair(left, styled.text(seal, "$ink-faint"), width)


def _contamination(found: Contamination | None, width: int) -> list[Content]:
    heading = Content.styled("contamination", "bold $secondary")
    if found is None:
        words = "no search is recorded: albor data contamination --drop"
        return [heading, *_plain(words, "$warning", width)]
    against = ", ".join(found.against) or "nothing named"
    where = f"{quantity.count(found.checked)} documents" if found.checked is not None else "it"
    is_sound = bool(found.checked) and bool(found.against)
    tone = "$success" if is_sound else "$warning"
    if not found.hits:
        words = f"{glyphs.current.check} none in {where}, searched for {against}"
        return [heading, *_plain(words, tone, width)]
    left_out = counted(found.documents, "document", "was left out", "were left out")
    words = f"{glyphs.current.check} {left_out} of {where}, searched for {against}"
    lines = [heading, *_plain(words, tone, width)]
    task = min(24, max((len(hit.task) for hit in found.hits), default=0), width // 3)
    for hit in found.hits[:_MOST_HITS]:
        name = styled.fit_middle(styled.text(hit.document, "$ink-faint"), max(8, width - task - 8))
        line = Content.assemble(
            (share_words(hit.share).rjust(5), "$ink-muted"),
            " ",
            styled.fit(styled.text(hit.task, "$ink-muted"), task),
            " ",
            name,
        )
        lines.append(styled.fit(line, width))
    if len(found.hits) > _MOST_HITS:
        lines.append(styled.left_out(len(found.hits) - _MOST_HITS, "hit"))
    return lines


def _plain(words: str, tone: str, width: int) -> list[Content]:
    return Content.styled(clean(words), tone).wrap(max(8, width))


def _licences(sheet: DataSheet, width: int) -> list[Content]:
    heading = Content.styled("licences", "bold $secondary")
    if not sheet.licences:
        return [heading, Content.styled("not recorded", "$warning")]
    whole = sum(count for _, count in sheet.licences) or 1
    names = min(20, max(len(name) for name, _ in sheet.licences), width // 3)
    lines = [heading]
    for name, count in sheet.licences[:_MOST_LICENCES]:
        is_known = name.lower() not in ("unknown", "")
        label = styled.fit(styled.text(name, "$ink" if is_known else "$warning"), names)
        figure = Content.assemble(
            (quantity.si(count).rjust(6), "$ink"),
            (share_words(count / whole).rjust(6), "$ink-muted"),
        )
        room = width - names - 1 - 12 - 1
        tone = "$line-second" if is_known else "$warning"
        bar = styled.bar(count / whole, room, tone) if room >= 4 else Content("")
        lines.append(styled.fit(label + " " + bar + " " + figure, width))
    if len(sheet.licences) > _MOST_LICENCES:
        lines.append(styled.left_out(len(sheet.licences) - _MOST_LICENCES, "licence"))
    return lines
