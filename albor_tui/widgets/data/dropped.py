"""What each step over the documents dropped, why, and the first of them by name."""

from __future__ import annotations

from textual.content import Content

from albor_core.feed.data.sheet import DataSheet, Dropped, StepView
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.data.source_list import share_words

_EXAMPLES = 3  # of each reason; the record has some more
_WIDEST_REASON = 0.34  # of the width


class DroppedSheet(ScrolledLines):
    """The steps from the first to the last."""

    def __init__(self, *, id: str) -> None:
        super().__init__("dropped", id=id)
        self._sheet: DataSheet | None = None
        self._excuse = Content("")

    def tell(self, sheet: DataSheet | None, excuse: Content) -> None:
        """Show the steps of a data set; where there are none, why."""
        is_other = sheet is None or self._sheet is None or sheet.path != self._sheet.path
        self._sheet, self._excuse = sheet, excuse
        lost = 0 if sheet is None else sum(step.lost for step in sheet.steps)
        amount = _amount(sheet, lost)
        self.border_title = Content.assemble(
            ("dropped", "bold $ink"),
            (f" {amount}" if amount else "", "$ink-muted"),
        )
        self.resized(self.room)
        if is_other and self.is_attached:
            self.scroll_home(animate=False)

    def resized(self, width: int) -> None:
        if self._sheet is None or width < 16:
            self.show(self._excuse.wrap(width) if width else [])
        else:
            self.show(lines_of(self._sheet, width))


def _amount(sheet: DataSheet | None, lost: int) -> str:
    if sheet is None or not sheet.steps:
        return ""
    return counted(lost, "document") if lost else "nothing"


def lines_of(sheet: DataSheet, width: int) -> list[Content]:
    """Lines of at most `width` cells."""
    if not sheet.steps:
        return [
            Content.styled("what was dropped is not recorded:", "$ink-muted"),
            Content.styled("it was made without a record, or by another program", "$ink-muted"),
        ]
    lines: list[Content] = []
    reasons = [one.reason for step in sheet.steps for one in step.dropped]
    names = min(max((len(r) for r in reasons), default=0), max(8, int(width * _WIDEST_REASON)))
    most = max((one.documents for step in sheet.steps for one in step.dropped), default=1)
    for step in sheet.steps:
        lines += [*([Content("")] if lines else []), _head(step, width)]
        for one in step.dropped:
            lines += _reason(one, names, most, width)
    return lines


def _head(step: StepView, width: int) -> Content:
    came, left = step.documents_in, step.documents
    flow = ""
    if came is not None and left is not None:
        flow = f"{quantity.count(came)} {glyphs.current.crumb} {quantity.count(left)}"
    elif left is not None:
        flow = counted(left, "document")
    lost = max(0, came - left - step.elsewhere) if came is not None and left is not None else 0
    if step.elsewhere:
        flow += f", {quantity.count(step.elsewhere)} in other splits"
    right = Content.assemble(
        (flow, "$ink"),
        (f"  -{share_words(lost / came)}" if lost and came else "", "$warning"),
    )
    told = "  ".join(f"{key}={value}" for key, value in step.settings)
    of_splits = f" of {', '.join(step.splits)}" if step.splits else ""
    left_end = Content.assemble(
        styled.text((step.name or "a step") + of_splits, "bold $secondary"),
        styled.text(f"  {told}", "$ink-faint"),
    )
    return styled.pair(left_end, right, width)


def _reason(one: Dropped, names: int, most: int, width: int) -> list[Content]:
    number = quantity.count(one.documents)
    room = min(40, width - names - 2 - 1 - 10)
    line = Content.assemble(
        "  ",
        styled.fit(styled.text(one.reason, "$ink"), names),
        " ",
        (number.rjust(9), "$ink"),
        " ",
        styled.bar(one.documents / (most or 1), room, "$line-val") if room >= 4 else "",
    )
    lines = [styled.fit(line, width)]
    for key in one.examples[:_EXAMPLES]:
        shown = styled.fit_middle(styled.text(key, "$ink-faint"), max(8, width - 4))
        lines.append(Content("    ") + shown)
    more = one.documents - min(len(one.examples), _EXAMPLES)
    if one.examples and more > 0:
        lines.append(Content("    ") + styled.left_out(more, "document"))
    return lines
