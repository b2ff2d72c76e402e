"""What needs a person: how many, the list, one entry in full, and what stands behind it."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from albor_core.feed.attention.item import AttentionItem, AttentionList
from albor_core.feed.view.run_view import LOADING, RunView
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs, quantity
from albor_tui.look.naming import said_of, tails_of_items
from albor_tui.look.themes import SEVERITY_TONE
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.base.panel import Panel
from albor_tui.widgets.base.scrolled_lines import ScrolledLines

now_wall = time.time  # replaced in tests
KEY_WORD = {"R": "retry", "x": "stop", "c": "save", "p": "pause", "a": "seen", "enter": "open"}
_STATE = {  # entries that are a state of a run have its symbol
    **{"died": "failed", "failed": "failed", "lost": "lost", "hung": "stalled"},
    **{"silent": "stalled", "restarted": "restarting", "unguarded": "unguarded"},
}
_TROUBLE, _OLD = 4, 5  # cells of "42m" and of what is before it


def glyph_of(item: AttentionItem) -> str:
    """The symbol of an entry."""
    return str(getattr(glyphs.current, _STATE.get(item.kind, "alert")))


def tone_of(item: AttentionItem) -> str:
    """The colour of how bad it is; faint where it was seen or muted."""
    return SEVERITY_TONE.get(item.severity, "$warning") if item.is_open else "$ink-faint"


def whose(item: AttentionItem, tails: Mapping[str, str] | None = None) -> str:
    """The run, or the machine where it is of none; `tails` by id what stands behind a name that is
    not unique.
    """
    name, tail = item.run_name or item.run_id or item.host, (tails or {}).get(item.run_id, "")
    return f"{name} {tail}" if tail else name


def since(item: AttentionItem) -> str:
    """How long it has been so: 12m; "now" for what has no known beginning."""
    if item.since_wall is None:
        return "now"
    return quantity.age(max(0.0, now_wall() - item.since_wall))


def gpu_hours(hours: float | None, is_of_gpus: bool = True) -> str:
    """ "1.6 GPU-h", "1.6 h" of runs that name no GPU; "" where nothing is known to be lost."""
    if hours is None or hours < 0.05:
        return ""
    number = f"{hours:.1f}" if hours < 100 else quantity.si(hours)
    return f"{number} GPU-h" if is_of_gpus else f"{number} h"


def notice(items: Sequence[AttentionItem]) -> Content:
    """A line about new entries: the worst, and how many more there are."""
    worst = min(items, key=lambda item: item.rank)
    more = f"  and {len(items) - 1} more" if len(items) > 1 else ""
    return Content.assemble(
        (f"{glyph_of(worst)} ", tone_of(worst)),
        styled.text(f"{worst.word} ", f"bold {tone_of(worst)}"),
        styled.text(whose(worst), "bold $ink"),
        styled.text(f": {said_of(worst)}" if worst.summary else "", "$ink"),
        (f"{more}", "$ink-muted"),
    )


class AttentionHead(Widget):
    """How it stands with all runs, in one line."""

    found: reactive[AttentionList] = reactive(AttentionList(is_complete=False), init=False)

    def render(self) -> Content:
        return styled.fit(head(self.found, self.content_size.width), self.content_size.width)


def head(found: AttentionList, width: int) -> Content:
    """ "4 need you, 3 running fine, 1 not watched ...", as much as fits; the least first left."""
    are_of_gpus = all(item.is_of_gpus for item in found.open if item.cost_gpu_hours)
    count, hours = len(found.open), gpu_hours(found.gpu_hours, are_of_gpus)
    needs = _needs(found)
    tone = SEVERITY_TONE.get(found.severity, "$ink")
    parts = [(needs or _calm(found), f"bold {tone}" if count else f"bold {_calm_tone(found)}")]
    if found.fine and (count or not found.is_quiet):
        parts.append((f"{len(found.fine)} running fine", "$success"))
    if found.not_watched:
        parts.append((f"{len(found.not_watched)} not watched", "$warning"))
    if found.tells_only:
        parts.append((f"{len(found.tells_only)} only told of", "$ink-muted"))
    if hours:
        parts.append((f"{hours} lost or at risk", "$ink"))
    looked = found.since_last_looked.wall
    if looked is not None:
        ago = quantity.age(max(0.0, now_wall() - looked))
        parts.append((f"last looked {ago} ago", "$ink-muted"))
    wide = f"  {glyphs.current.dot}  "
    for gap, skips in ((wide, 0), ("   ", 0), ("  ", 0), ("  ", 1), ("  ", 2)):
        kept = parts[: len(parts) - skips] if len(parts) > skips else parts[:1]
        line = Content.styled(gap, "$ink-faint").join([Content.styled(*part) for part in kept])
        if line.cell_length <= width:
            return line
    return line


def _needs(found: AttentionList) -> str:
    """ "4 need you", "1 needs you so far" while runs are still read; "" where none does."""
    count = len(found.open)
    words = f"{count} needs you" if count == 1 else f"{count} need you"
    return (words if found.is_complete else f"{words} so far") if count else ""


def _calm(found: AttentionList) -> str:
    if not found.is_complete:
        return LOADING
    if found.is_quiet and found.fine:
        count = quantity.counted(len(found.fine), "run")
        return f"quiet: {count} watched, nothing is wrong"
    is_sure = not (found.problem or found.being_read)
    return "nothing needs you" if is_sure else "nothing that could be read needs you"


def _calm_tone(found: AttentionList) -> str:
    return "$success" if found.is_quiet and found.fine else "$ink"


def nothing(found: AttentionList, names: dict[str, str], hidden: int) -> Content:
    """The text for an empty list, which claims no more than is known."""
    if not found.is_complete:
        return styled.loading()
    calm = Content.styled(_calm(found), f"bold {_calm_tone(found)}")
    lines = [calm if calm.plain.startswith("quiet") else Content.styled(_calm(found), "bold $ink")]
    if not (found.fine or found.not_watched):
        lines.append(Content.styled("no run is active", "$ink-muted"))
    for word, ids in (("not watched", found.not_watched), ("tells only", found.tells_only)):
        if ids:
            tone = "$warning" if word == "not watched" else "$ink-muted"
            named = ", ".join(clean(names.get(one, one), limit=40) for one in ids[:3])
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            lines.append(styled.text(f"{word}: {named}{more}", tone))
    if found.being_read:
        count = quantity.counted(len(found.being_read), "run")
        lines.append(Content.styled(f"{count} ended just now: not read to the end", "$ink-muted"))
    if found.problem:
        lines.append(styled.text(f"not everything could be read: {found.problem}", "$warning"))
    if hidden:
        lines.append(Content.styled(f"{hidden} seen or muted: o shows them", "$ink-muted"))
    return styled.rows(lines)


class AttentionTable(LineList):
    """A table with a line per entry, the worst first; seen ones are faint."""

    items: reactive[tuple[AttentionItem, ...]] = reactive((), init=False, repaint=False)
    _tails: Mapping[str, str] = MappingProxyType({})

    @property
    def current(self) -> AttentionItem | None:
        return self.items[self.cursor] if self.cursor < len(self.items) else None

    def count(self) -> int:
        return len(self.items)

    def watch_items(self, old: tuple[AttentionItem, ...], new: tuple[AttentionItem, ...]) -> None:
        self._tails = tails_of_items(new)
        if [item.id for item in old] == [item.id for item in new]:
            self.redraw(range(len(new)))
            self.post_message(self.Moved(self))
            return
        if old and self.cursor < len(old):
            known = old[self.cursor].id
            at = next((i for i, item in enumerate(new) if item.id == known), self.cursor)
            self.set_reactive(AttentionTable.cursor, at)
        self.lines_changed()

    def draw_line(self, index: int, width: int) -> Content:
        item, tone = self.items[index], tone_of(self.items[index])
        ink, dim = ("$ink", "$ink-muted") if item.is_open else ("$ink-muted", "$ink-faint")
        mark = glyph_of(item) if item.is_open else glyphs.current.check
        word = max(_TROUBLE, min(max(len(one.word) for one in self.items), 19, width // 4))
        longest = max(len(whose(one, self._tails)) for one in self.items)
        name, run = max(8, min(longest, 30, width // 5)), whose(item, self._tails)
        left = Content.assemble(
            (f"{mark} ", tone),
            styled.fit(styled.text(item.word, f"bold {tone}"), word),
            styled.fit(Content.styled(since(item), dim), _OLD, "right"),
            "  ",
            styled.fit_middle(styled.text(run, ink), name).pad_right(
                max(0, name - min(name, styled.text(run).cell_length))
            ),
            "  ",
            styled.text(said_of(item), ink),
        )
        return styled.pair(left, self._right(item, width), width)

    def _right(self, item: AttentionItem, width: int) -> Content:
        """The cost of an entry and its key, in columns."""
        key = Content.assemble(
            (f"{item.key} ", "bold $accent"), (KEY_WORD.get(item.key, ""), "$ink-muted")
        )
        is_offered = item.key not in ("", "enter") and not getattr(self.app, "is_read_only", False)
        said = key if is_offered else Content("")
        if not item.is_open:
            said = Content.styled(_seen(item), "$ink-faint")
        if width < 110:  # a summary has the place of a key that there is not
            return styled.fit(said, 7) if said.plain else said
        cost = Content.styled(gpu_hours(item.cost_gpu_hours, item.is_of_gpus), "$ink-muted")
        return styled.fit(cost, 12, "right") + "  " + styled.fit(said, 8)


def _seen(item: AttentionItem) -> str:
    if item.acked_by:
        return "seen"
    left = (item.muted_until or 0.0) - now_wall()
    return f"mute {quantity.age(max(0.0, left))}"


class AttentionDetail(Panel):
    """The detail of one entry: what it is, since when, why, what it costs, what helps."""

    HEADING = "detail"
    item: reactive[AttentionItem | None] = reactive(None, init=False, layout=False, repaint=False)
    run: reactive[RunView | None] = reactive(None, init=False, layout=False, repaint=False)
    past: reactive[tuple[str, tuple[float, ...]]] = reactive(
        ("", ()), init=False, layout=False, repaint=False
    )
    """A metric behind it, and its newest values."""
    helps: reactive[str] = reactive("", init=False, layout=False, repaint=False)
    """What its key would do, in words."""

    def watch_item(self) -> None:
        item = self.item
        words = "" if item is None else f"{item.word} {whose(item)}"
        title = styled.text(words, f"bold {tone_of(item)}") if item else Content(self.HEADING)
        self.entitle(title)
        self.changed()

    def watch_run(self) -> None:
        self.changed()

    def watch_past(self) -> None:
        self.changed()

    def watch_helps(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        item = self.item
        if item is None:
            return Content("")
        tone = tone_of(item)
        said = _wrapped(said_of(item), width, f"bold {tone}", 2 if height < 8 else 4)
        lines = [*said]
        for is_needed, label, words, word_tone in self._facts(item):
            room = height - len(lines)
            if not words or room < 1:
                continue
            most = 3 if is_needed and height >= 8 else 1
            value = _wrapped(words, width - 8, word_tone, min(most, room))
            heads = [label, *[""] * (len(value) - 1)]
            lines += [
                Content.assemble((f"{head:<8}", "$ink-muted"), line)
                for head, line in zip(heads, value, strict=True)
            ]
        return styled.rows([styled.fit(line, width) for line in lines[:height]])

    def _facts(self, item: AttentionItem) -> list[tuple[bool, str, str, str]]:
        """Whether it is needed, its name, its value, how that looks."""
        began = ""
        if item.since_wall is not None:
            began = f"{since(item)} ago, {quantity.clock(item.since_wall)}"
        step = self._now(item)
        name = f"{item.run_name}  {item.run_id}" if item.run_name else item.run_id or item.host
        host = f" on {item.host}" if item.host and item.run_id else ""
        key = f"{item.key}: {self.helps}" if self.helps and item.key else ""
        return [
            (True, "likely", item.cause, "$ink"),
            (True, "cost", item.cost, "$ink"),
            (True, "helps", key, "$ink"),
            (False, "curve", self._curve() if self.past[1] else "", "$line-main"),
            (False, "since", began, "$ink"),
            (False, "run" if item.run_id else "host", f"{name}{host}", "$ink"),
            (False, "now", step, "$ink"),
            (False, "seen", _marked(item), "$ink"),
            (False, "shell", item.command, "$ink-muted"),
        ]

    def _now(self, item: AttentionItem) -> str:
        """The run's present activity and step: not those at which the trouble began."""
        run = self.run
        at = item.step if run is None or run.step is None else run.step
        step = "" if at is None else f"step {quantity.count(at)}"
        if run is None:
            return step
        return f"{run.shown_status}, {step}" if step else run.shown_status

    def _curve(self) -> str:
        return glyphs.spark(self.past[1][-400:], max(1, self.content_size.width - 8))


def _wrapped(words: str, width: int, tone: str, most: int) -> list[Content]:
    """Text wrapped to at most `most` lines; a mark shows that there is more."""
    more = f" {glyphs.current.ellipsis}"
    found = textwrap.wrap(
        clean(words), max(8, width), break_on_hyphens=False, max_lines=most, placeholder=more
    ) or [""]
    return [styled.text(line, tone) for line in found]


class EvidenceView(ScrolledLines):
    """The last lines, the stacks, the report: as they were read, folded to the width."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("evidence", id=id)
        self._raw: tuple[str, ...] = ()
        self._excuse = ""

    def tell(self, lines: Sequence[str], excuse: str = "") -> None:
        """Show these; where there are none, why."""
        if (tuple(lines), excuse) == (self._raw, self._excuse):
            return
        self._raw, self._excuse = tuple(lines), excuse
        self.resized(self.room)
        if self.is_attached:
            self.scroll_home(animate=False)

    def resized(self, width: int) -> None:
        if not self._raw:
            self.show([Content.styled(self._excuse, "$ink-muted")])
            return
        folded = [part for line in self._raw for part in _folded(line, width)]
        self.show([styled.text(part, _line_tone(part)) for part in folded])


def _folded(line: str, width: int) -> list[str]:
    text = clean(line)
    return textwrap.wrap(text, max(8, width), subsequent_indent="  ", drop_whitespace=False) or [""]


def _line_tone(line: str) -> str:
    low = line.lower()
    if "error" in low or "traceback" in low or "exception" in low:
        return "$error"
    return "$ink-muted" if line.startswith(("report:", "stacks:", "  ")) else "$ink"


def _marked(item: AttentionItem) -> str:
    """Who has seen it, or until when it is muted."""
    if item.acked_by:
        return f"by {item.acked_by}"
    return "" if item.muted_until is None else f"muted until {quantity.clock(item.muted_until)}"
