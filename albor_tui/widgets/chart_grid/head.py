"""The line over a grid of charts: which metrics it shows and how they are looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.cell_diff import changed_regions
from albor_tui.widgets.chart.data import SMOOTHINGS, Look
from albor_tui.widgets.chart_grid.key_search import NEVER_ENDS

_KEYS = (
    ("v", "cursor"),
    ("+ -", "zoom"),
    ("0", "whole"),
    (", .", "smooth"),
    ("y Y", "log, p1-p99"),
    ("e b", "spikes"),
    ("X", "axis"),
)


@dataclass(frozen=True)
class HeadFacts:
    """The contents of the line above the charts; metrics are counted from 1."""

    first: int = 0  # 0: no chart is on the screen
    last: int = 0
    found: int = 0
    total: int | None = None  # None: not read yet
    folded: int = 0
    words: str = ""
    problem: str = ""  # of the words as a regular expression
    is_text: bool = False  # whether the words are searched as text instead
    axis: str = "step"
    look: Look = field(default_factory=Look)
    window: tuple[float, float] | None = None


class ChartHead(Widget):
    """Draws `facts`; at the right, where there is room, the keys of a chart."""

    facts: reactive[HeadFacts] = reactive(HeadFacts(), init=False, repaint=False)

    def watch_facts(self, old: HeadFacts, new: HeadFacts) -> None:
        width = self.content_size.width
        if regions := changed_regions(line(old, width), line(new, width), width):
            self.refresh(*regions)

    def render(self) -> Content:
        return line(self.facts, self.content_size.width)


def line(facts: HeadFacts, width: int) -> Content:
    """The whole line in `width` cells; the keys give way first, one by one."""
    left = _left(facts)
    keys: list[Content] = []
    room = width - left.cell_length - 2
    for key, words in _KEYS:
        hint = Content.assemble((key, "$accent"), (f" {words}  ", "$ink-muted"))
        if hint.cell_length > room:
            break
        keys.append(hint)
        room -= hint.cell_length
    return styled.pair(left, Content("").join(keys), width)


def _left(facts: HeadFacts) -> Content:
    dot = f" {glyphs.current.dot} "
    shown = f"{facts.first}-{facts.last}" if facts.last > facts.first else f"{facts.first}"
    parts: list[Content | tuple[str, str]] = [
        (shown, "bold $ink"),
        (f" of {facts.found or facts.total}", "$ink-muted"),
    ]
    if facts.total is None:
        parts = [("loading", "$ink-muted")]
    if facts.folded and not facts.found:
        parts = [(f"{facts.folded} folded", "$ink-muted")]
    elif facts.folded:
        parts += [(f"{dot}{facts.folded} folded", "$ink-muted")]
    if facts.is_text:
        parts = [(NEVER_ENDS, "$warning"), (dot, "$ink-muted"), *parts]
    elif facts.words:
        parts += [(" with ", "$ink-muted"), styled.text(facts.words, "$warning")]
    if facts.problem:
        parts = [styled.text(f"not a regex: {facts.problem}", "$error")]
    parts += [(f"{dot}x ", "$ink-muted"), (facts.axis, "$ink")]
    parts += [(f"{dot}smooth ", "$ink-muted"), slider(facts.look.smoothing)]
    if facts.look.is_log:
        parts += [(dot, "$ink-muted"), ("log", "$ink")]
    if facts.look.is_robust:
        parts += [(dot, "$ink-muted"), ("y p1-p99", "$ink")]
    if facts.window is not None:
        low, high = facts.window
        parts += [
            (f"{dot}steps ", "$ink-muted"),
            (f"{quantity.si(round(low))}..{quantity.si(round(high))}", "$ink"),
        ]
    return Content.assemble(*parts)


def slider(place: int) -> Content:
    """How far smoothing goes, as a track with a filled part, and its weight."""
    g = glyphs.current
    rest = len(SMOOTHINGS) - 1 - place
    weight = f" {SMOOTHINGS[place]:g}" if place else " off"
    return Content.assemble(
        (g.bar_full * place, "$accent"), (g.bar_empty * rest, "$track"), (weight, "$ink")
    )
