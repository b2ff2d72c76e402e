"""The line over a section of a grid of charts, which folds it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart_grid.sections import ChartSection

MOST_NAMED = 40  # keys that a line could have room for
MOST_CHARS = 32  # of a section's name


@dataclass(frozen=True)
class HeadingFacts:
    """The contents of a heading: names of keys are told of what is folded."""

    section: ChartSection | None = None
    is_open: bool = False
    named: tuple[str, ...] = ()


class SectionHeading(Widget, can_focus=True):
    """Draws `facts`; a click asks for the other state."""

    facts: reactive[HeadingFacts] = reactive(HeadingFacts(), init=False, repaint=False)

    @dataclass
    class ToggleAsked(Message):
        """The section is to be opened or folded."""

        section: ChartSection

    def watch_facts(self, old: HeadingFacts, new: HeadingFacts) -> None:
        if old != new or counts(old) != counts(new):
            self.refresh()

    def render(self) -> Content:
        return heading_line(self.facts, self.content_size.width, is_chosen=self.has_focus)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if self.facts.section is not None:
            self.post_message(self.ToggleAsked(self.facts.section))


def counts(facts: HeadingFacts) -> int:
    return 0 if facts.section is None else len(facts.section.keys)


def heading_facts(section: ChartSection, *, is_open: bool) -> HeadingFacts:
    """The facts of a section, with the names that tell its keys apart."""
    names = [] if is_open else [cell.name for cell in section.cells[:MOST_NAMED]]
    low, high = min(names, default=""), max(names, default="")
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False)))
    start = low.rfind("/", 0, alike) + 1
    return HeadingFacts(section, is_open, tuple(name[start:] for name in names))


def heading_line(facts: HeadingFacts, width: int, *, is_chosen: bool) -> Content:
    """The whole line in `width` cells."""
    section = facts.section
    if section is None:
        return Content("")
    g = glyphs.current
    ink = "bold $accent" if is_chosen else "bold $ink"
    left = Content.assemble(
        ((g.cursor if is_chosen else " "), "$accent"),
        ("  " if section.is_family else "", ""),
        (f"{g.fold_open if facts.is_open else g.fold_shut} ", "$accent"),
        styled.text(clean(section.name, limit=MOST_CHARS), ink),
        (f" {len(section.keys)} ", "$ink-muted"),
    )
    room = width - left.cell_length - 1
    if facts.is_open:
        rest = Content.styled(g.rule * max(0, room), "$frame")
    else:
        rest = styled.text(" " + ", ".join(facts.named), "$ink-faint")
    return styled.fit(left + rest, max(0, width - 1)) + " "
