"""The legend of many runs, or of groups of them: the mark of each line of the charts, its name, its
figure and how far that is from the best, its state."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.message import Message

from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.widgets.base import styled
from albor_tui.widgets.data.columns import CellColumn, ColumnList

METRIC = 14  # cells of a metric's name, where its figures are not wider
MARK = 4  # cells of what a curve looks like
NAME = 10, 60  # cells of a name: the least and the most
_STATE = 12


@dataclass(frozen=True)
class LegendLine:
    """A line of the charts and of the legend: a run, or a group of runs under the value that they
    share. `mark` is what its curve looks like; without a `figure` it is still to be read.
    """

    key: str
    members: frozenset[str]
    label: str
    mark: str = ""
    tone: str = "$ink"
    is_shown: bool = True
    is_group: bool = False
    n: int | None = None  # runs that have the figure
    figure: str | None = None
    is_odd: bool = False  # NaN or infinite
    spread: str = ""  # sd of a group
    odd: str = ""  # of how many of its runs it is NaN or infinite
    gap: str = ""
    state: Content = Content("")


class Legend(ColumnList):
    """`rows` are LegendLines, of which `metric` is the figure; keys hide and solo them."""

    BINDINGS = [
        Binding("space", "hide", "Hide", tooltip="Hide the run or group, or show it again"),
        Binding("enter", "solo", "Solo", tooltip="This run or group alone; again: all as before"),
    ]

    @dataclass
    class HideAsked(Message):
        """A line is to be hidden, or shown again."""

        line: LegendLine

    @dataclass
    class SoloAsked(Message):
        """A line is to be shown alone, or no longer."""

        line: LegendLine

    class PointerMoved(Message):
        """The mouse or the cursor stands on another line."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.add_class("-keys")
        self.metric = ""
        self.way = ""  # the mark of the direction in which it is better
        self.group = ""
        self._under_mouse: int | None = None
        self._has_moved = False

    @property
    def current(self) -> LegendLine | None:
        row = super().current
        return row if isinstance(row, LegendLine) else None

    @property
    def pointed(self) -> LegendLine | None:
        """The line under the mouse, else the one that the cursor was moved to."""
        if self._under_mouse is not None and self._under_mouse < len(self.rows):
            line: LegendLine = self.rows[self._under_mouse]
            return line
        return self.current if self._has_moved else None

    def reset_pointer(self) -> None:
        """The cursor points at nothing until it is moved."""
        self._has_moved = False

    def begin_at_top(self) -> None:
        """The cursor on the first line, unless the user moved it."""
        if not self._has_moved and self.cursor:
            self.set_reactive(ColumnList.cursor, 0)
            self.lines_changed()

    def columns(self) -> Sequence[CellColumn]:
        rows: tuple[LegendLine, ...] = self.rows
        longest = max((cell_len(clean(one.label)) for one in rows), default=0)
        name = CellColumn(
            _short(self.group or "run", 24), NAME[0], 0, _name, "left", 2, min(longest, NAME[1])
        )
        found = [CellColumn("", MARK, 0, _mark, "left"), name]
        if any(one.is_group for one in rows):
            found.append(CellColumn("n", 3, 2, _count))
        if self.metric:
            width = max(6, *(len(_figure(one)) for one in rows), 0)
            title = styled.fit_middle(_titled(self.metric, self.way), max(width, METRIC)).plain
            found.append(CellColumn(title, max(width, cell_len(title)), 1, figure_cell))
        if any(one.gap for one in rows):
            gap = max(len(one.gap) for one in rows)
            found.append(CellColumn("to best", max(gap, 7), 4, _gap))
        words = max((one.state.cell_length for one in rows), default=1)
        taken = sum(one.width + 2 for one in found)
        is_whole = taken + words < self._width
        width = min(max(words, 5), _STATE) if is_whole else 1
        found.append(CellColumn("state" if is_whole else " ", width, 3, _state, "left"))
        return found

    def action_hide(self) -> None:
        if (line := self.current) is not None:
            self.post_message(self.HideAsked(line))

    def action_solo(self) -> None:
        if (line := self.current) is not None:
            self.post_message(self.SoloAsked(line))

    def watch_cursor(self, old: int, new: int) -> None:
        super().watch_cursor(old, new)
        self._has_moved = True
        self.post_message(self.PointerMoved())

    def on_mouse_move(self, event: events.MouseMove) -> None:
        index = event.y - self.gutter.top + round(self.scroll_y)
        self._point(index if 0 <= index < self.count() else None)

    def on_leave(self) -> None:
        self._point(None)

    def _point(self, index: int | None) -> None:
        if index != self._under_mouse:
            self._under_mouse = index
            self.post_message(self.PointerMoved())


def _titled(metric: str, way: str) -> Content:
    return styled.text(f"{metric} {way}" if way else metric)


def _short(words: str, room: int) -> str:
    """The end of a key, which tells it from others, in so many cells."""
    return styled.fit_middle(styled.text(words.rpartition("/")[2] or words), room).plain


def _tone(line: LegendLine, tone: str = "$ink") -> str:
    return tone if line.is_shown else "$ink-faint"


def _mark(line: LegendLine, width: int) -> Content:
    if not line.is_shown:
        return Content.styled(glyphs.current.queued, "$ink-faint")
    return Content.styled(line.mark, line.tone)


def _name(line: LegendLine, width: int) -> Content:
    return styled.fit_middle(styled.text(line.label, _tone(line)), width)


def _count(line: LegendLine, width: int) -> Content:
    words = glyphs.current.missing if line.n is None else str(line.n)
    return Content.styled(words, _tone(line, "$ink-muted"))


def _figure(line: LegendLine) -> str:
    return " ".join(part for part in (line.figure, line.spread, line.odd) if part)


def figure_cell(line: LegendLine, width: int) -> Content:
    """The figure of a line, red where a value of it is not finite."""
    if line.figure is None:
        return Content("")
    tone = "$error" if line.is_odd else _tone(line)
    parts = ((line.figure, tone), (line.spread, _tone(line, "$ink-muted")), (line.odd, "$error"))
    return Content(" ").join(Content.styled(words, style) for words, style in parts if words)


def _gap(line: LegendLine, width: int) -> Content:
    return Content.styled(line.gap, _tone(line, "$success" if line.gap == BEST else "$ink-muted"))


def _state(line: LegendLine, width: int) -> Content:
    return line.state if width > 1 else line.state[:1]


BEST = "best"
