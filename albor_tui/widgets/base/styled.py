"""Small drawings as text: bars, sparklines, states, rows of label and value.

Pure functions from values to Content; colours are names of the theme. Nothing here parses markup.
"""

from __future__ import annotations

import math
from typing import Any

from textual.content import Content

from albor_core.feed.view.run_status import shown_word
from albor_core.run.status import LOADING
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs, quantity
from albor_tui.look.themes import STATE_TONE

_MINUTE_S, _YEAR_S = 60.0, 365 * 86400.0
PHASE_WORD = {
    "initializing": "starting",
    "preparing": "preparing",
    "compiling": "compiling",
    "evaluating": "evaluating",
    "checkpointing": "saving",
}


def loading() -> Content:
    """The placeholder of content that is being read."""
    return Content.styled(LOADING, "$ink-muted")


def text(data: object, style: str = "") -> Content:
    """Data of any origin as one harmless line."""
    line = clean(str(data))
    return Content.styled(line, style) if style else Content(line)


def state(word: str, phase: str | None = None) -> Content:
    """Symbol and word of a run's state; a running run shows a phase that is not plain training."""
    if word == LOADING:
        return Content.styled(f"{glyphs.current.queued} {LOADING}", "$ink-muted")
    tone = STATE_TONE.get(word, "$ink-muted")
    shown = PHASE_WORD.get(phase or "", word) if word == "running" else shown_word(word)
    return Content.assemble((f"{state_glyph(word)} ", tone), text(shown, tone))


def state_of(view: Any) -> Content:
    """The state of a run; one that gives no news says so before it is called stalled."""
    if view.is_silent and view.age_s is not None and view.status == "running":
        return Content.assemble(
            (f"{state_glyph('stalled')} ", "$warning"),
            (f"silent {quantity.age(view.age_s)}", "$warning"),
        )
    return state(view.status, view.phase)


def state_glyph(word: str) -> str:
    """The symbol of a state word; an unknown word has the mark of a lost run."""
    return str(getattr(glyphs.current, word, glyphs.current.lost)) if word in STATE_TONE else "?"


def bar(share: float | None, width: int, tone: str, *, mark: float | None = None) -> Content:
    """A bar of `width` cells filled to `share` (0..1; None is an empty track); `mark` is a limit
    drawn across it."""
    g = glyphs.current
    if width < 1:
        return Content("")
    full = 0.0 if share is None or not math.isfinite(share) else min(max(share, 0.0), 1.0)
    halves = round(full * width * 2) if g.bar_parts else round(full * width) * 2
    if full > 0 and halves == 0:
        halves = 1
    filled, half = halves // 2, bool(halves % 2 and g.bar_parts)
    drawn = g.bar_full * filled + (g.bar_parts if half else "")
    rest = g.bar_empty * (width - len(drawn))
    line = Content.assemble((drawn, tone), (rest, "$track"))
    if mark is None or not math.isfinite(mark):
        return line
    at = min(max(round(mark * width), 0), width - 1)
    return line[:at] + Content.styled(g.budget, "$ink") + line[at + 1 :]


def load_tone(share: float | None, warm: float = 0.85, hot: float = 0.95) -> str:
    """The colour of a resource by how full it is."""
    if share is None or not math.isfinite(share):
        return "$ink-faint"
    return "$error" if share >= hot else "$warning" if share >= warm else "$success"


def spark(values: tuple[float, ...], width: int, tone: str) -> Content:
    """A sparkline exactly `width` cells wide, newest at the right with a tip of `tone`.

    Positive values are drawn by their logarithm: a loss falls like a power of the step, and all
    but its first columns would look flat.
    """
    if all(v > 0 for v in values if math.isfinite(v)):
        values = tuple(math.log(v) if math.isfinite(v) else v for v in values)
    drawn = glyphs.spark(values, width)
    return Content.assemble(
        " " * (width - len(drawn)), (drawn[:-1], "$line-spark"), (drawn[-1:], tone)
    )


def fit(content: Content, width: int, align: str = "left") -> Content:
    """Exactly `width` cells: cut with an ellipsis or padded; numbers align right."""
    if content.cell_length > width:
        cut = content.truncate(max(0, width - 1)) + glyphs.current.ellipsis
        return cut if width else Content("")
    room = width - content.cell_length
    return content.pad_left(room) if align == "right" else content.pad_right(room)


def fit_middle(content: Content, width: int) -> Content:
    """Content shortened to `width` cells in its middle, since names of a series differ at their
    ends."""
    if content.cell_length <= width or width < 5:
        return content if content.cell_length <= width else fit(content, width)
    back = (width - 1) // 2
    start = len(content)
    while content[start - 1 :].cell_length <= back:
        start -= 1
    front = content.truncate(width - 1 - content[start:].cell_length)
    return front + glyphs.current.ellipsis + content[start:]


def heading(name: str, more: str = "") -> Content:
    """The title of a frame: its name, and what it holds where there is something to say."""
    return Content.assemble((f"{name} " if more else name, "bold $ink"), (more, "$ink-muted"))


def pair(left: Content, right: Content, width: int) -> Content:
    """Left and right ends of one line of `width` cells; the left one gives way."""
    room = width - right.cell_length - 1
    if room < 1:
        return fit(left, width)
    return fit(left, room) + " " + right


def first_lines(text: Content, width: int, height: int) -> list[Content]:
    """A text wrapped to `width`, at most `height` lines; a mark says that more would follow."""
    lines = text.wrap(width)
    if len(lines) <= height:
        return lines
    last = lines[height - 1].rstrip().truncate(width - 1)
    return [*lines[: height - 1], last + glyphs.current.ellipsis]


def cut(lines: list[Content], height: int, noun: str) -> list[Content]:
    """At most `height` lines; the last one says how many lines were cut."""
    if len(lines) <= height:
        return lines
    kept = max(0, height - 1)
    return [*lines[:kept], left_out(len(lines) - kept, noun)][:height]


def left_out(hidden: int, noun: str) -> Content:
    """How many of what there is no room for."""
    words = f"{glyphs.current.ellipsis} {quantity.counted(hidden, f'more {noun}')}"
    return Content.styled(words, "$ink-muted")


def rows(lines: list[Content]) -> Content:
    """Lines joined to one block."""
    return Content("\n").join(lines)


def ends(view: Any, width: int) -> Content:
    """When a run ends, `in 26m05s`, or ended, `4d ago`; in few cells to the minute, `in 26m`."""
    if view.is_live and view.eta_s is not None:
        words = f"in {quantity.duration(view.eta_s)}"
        if len(words) > width:
            words = f"in {quantity.age(view.eta_s)}"
        return Content.styled(words, "$ink")
    if view.is_active or view.status in (LOADING, "queued") or view.age_s is None:
        return Content.styled(glyphs.current.missing, "$ink-faint")
    # to the minute: ages in a list are looked at no more often
    words = f"{quantity.age(view.age_s) if view.age_s >= _MINUTE_S else '<1m'} ago"
    if len(words) > width:
        words = f"{min(99, int(view.age_s / _YEAR_S))}y ago"
    return Content.styled(words, "$ink-muted")
