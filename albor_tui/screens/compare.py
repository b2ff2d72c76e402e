"""What differs in the params of any number of runs: a line per run, a column per param."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.message import Message

from albor_core.feed.workspace.compare import RunMatrix
from albor_core.feed.workspace.groups import MISSING
from albor_core.run.errors import AlborError
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean
from albor_core.run.values.directions import Direction
from albor_core.run.values.quantity import counted
from albor_tui.look import figures, glyphs, quantity
from albor_tui.look.run_colours import RunStyle
from albor_tui.screens.base.polling_screen import PollingScreen
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.status_bar import StatusBar, TopBar

_GAP, _NAME, _CELL, _FIGURE = 2, 28, 22, 10  # cells between columns; at most of a column


@dataclass
class MatrixRead(Message):
    """A matrix of runs, or why there is none."""

    matrix: RunMatrix | None
    problem: str = ""


class MatrixTable(LineList):
    """Draws `matrix`, its first line the names of the columns. A value that is not the first run's
    is lit.
    """

    BINDINGS = [
        Binding("left", "columns(-1)", "Left", show=False, tooltip="The columns on the left"),
        Binding("right", "columns(1)", "Right", show=False, tooltip="The columns on the right"),
    ]

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(id="matrix")
        self._names = names
        self._matrix: RunMatrix | None = None
        self._styles: Mapping[str, RunStyle] = {}
        self._figures: list[str] = []
        self._order: list[int] = []
        self._first = 0  # of the columns that are shown
        self.by: int | None = None
        """The column that the runs are sorted by; None: the metric."""

    @property
    def hidden(self) -> tuple[int, int]:
        """How many columns stand on the left and on the right of those that are shown."""
        if self._matrix is None:
            return 0, 0
        shown = len(self._fitting(self._width - 1))
        return self._first, len(self._matrix.columns) - self._first - shown

    def show(self, matrix: RunMatrix, styles: Mapping[str, RunStyle]) -> None:
        """Draw this one from now on."""
        self._matrix, self._styles = matrix, styles
        self._first = min(self._first, max(0, len(matrix.columns) - 1))
        if self.by is not None and self.by >= len(matrix.columns):
            self.by = None
        words = [quantity.metric(value, matrix.metric) for value in matrix.figures]
        self._figures = figures.apart(matrix.figures, words, _FIGURE)
        self.sort_rows()

    def sort_rows(self) -> None:
        """Sort the runs anew."""
        if self._matrix is not None:
            self._order = self._matrix.order(self.by)
        self.lines_changed()

    def count(self) -> int:
        return len(self._order) + 1 if self._matrix is not None else 0

    def can_stand(self, index: int) -> bool:
        return index > 0

    def action_columns(self, by: int) -> None:
        left, right = self.hidden
        if (by < 0 and left) or (by > 0 and right):
            self._first += by
            self.lines_changed()

    def draw_line(self, index: int, width: int) -> Content:
        matrix = self._matrix
        if matrix is None:
            return styled.loading()
        if index == 0:
            return self._head(matrix, width)
        at = self._order[index - 1]
        run = matrix.runs[at]
        style = self._styles[run]
        name = Content.assemble(
            (f"{style.letter} ", f"bold {style.colour}"),
            styled.text(self._names.get(run, run), style.colour),
        )
        room = self._name_width(matrix)
        cells = [styled.fit(styled.fit_middle(name, room), room)]
        if matrix.metric:
            figure = Content.styled(self._figures[at], "$ink")
            cells.append(styled.fit(figure, self._figure_width(matrix), "right"))
        for place in self._fitting(width):
            label, first = matrix.columns[place].labels[at], matrix.columns[place].labels[0]
            tone = "$ink-muted" if label in (first, "", MISSING) else "bold $ink"
            said = styled.text(label or glyphs.current.missing, tone)
            cells.append(styled.fit(said, self._cell_width(matrix, place)))
        return Content(" " * _GAP).join(cells)

    def _head(self, matrix: RunMatrix, width: int) -> Content:
        cells = [styled.fit(Content.styled("run", "$ink-muted"), self._name_width(matrix))]
        if matrix.metric:
            cells.append(self._title(matrix.metric, self._figure_width(matrix), self.by is None))
        for place in self._fitting(width):
            key, room = matrix.columns[place].key, self._cell_width(matrix, place)
            cells.append(self._title(key, room, self.by == place))
        return Content(" " * _GAP).join(cells)

    def _title(self, key: str, room: int, is_sorted: bool) -> Content:
        mark = f" {glyphs.current.arrow_down}" if is_sorted else ""
        name = styled.text(key, "$ink" if is_sorted else "$ink-muted")
        return styled.fit(styled.fit_middle(name, room - cell_len(mark)) + mark, room)

    def _fitting(self, width: int) -> range:
        """The columns that are shown, at least one."""
        assert self._matrix is not None
        matrix, first = self._matrix, self._first
        left = width - self._name_width(matrix)
        left -= _GAP + self._figure_width(matrix) if matrix.metric else 0
        stop = first
        while stop < len(matrix.columns):
            left -= _GAP + self._cell_width(matrix, stop)
            if left < 0 and stop > first:
                break
            stop += 1
        return range(first, stop)

    def _name_width(self, matrix: RunMatrix) -> int:
        longest = max(
            (cell_len(clean(self._names.get(run, run))) for run in matrix.runs), default=0
        )
        return min(longest + 2, _NAME, max(8, self._width // 3))

    def _figure_width(self, matrix: RunMatrix) -> int:
        return max(_FIGURE, min(cell_len(clean(matrix.metric)) + 2, _CELL))

    def _cell_width(self, matrix: RunMatrix, place: int) -> int:
        column = matrix.columns[place]
        longest = max(map(cell_len, (*column.labels, f"{column.key} v")))
        return min(longest, _CELL)


class CompareScreen(PollingScreen):
    """Compares the params of any number of runs."""

    PERIOD_S = 5.0
    BINDINGS = [
        Binding("escape,q,backspace,p", "back", "Back", tooltip="Back to the comparison"),
        Binding("s", "sort", "Sort", tooltip="Sort by the metric, then by each column"),
    ]

    def __init__(
        self,
        runs: Sequence[str],
        names: Mapping[str, str],
        metric: str,
        better: Direction | None,
    ) -> None:
        """`runs` are ids; the values that are not those of the first are lit."""
        super().__init__()
        self._runs, self._names = tuple(runs), names
        self._metric, self._better = metric, better
        self._matrix: RunMatrix | None = None

    def compose(self) -> ComposeResult:
        yield TopBar("runs", "diff", "params")
        with Container(id="list"):
            yield MatrixTable(self._names)
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(MatrixTable).focus()
        self._title("loading")
        super().on_mount()

    def follow(self) -> None:
        seen: RunMatrix | None = None
        for _ in self.ticking():
            try:
                found = self.source.matrix(self._runs, self._metric, self._better)
            except AlborError as error:
                self.post_message(MatrixRead(None, error.message))
                continue
            if found != seen:
                seen = found
                self.post_message(MatrixRead(found))

    @on(MatrixRead)
    def show_matrix(self, message: MatrixRead) -> None:
        if message.matrix is None:
            self.show_message(message.problem, "$error")
            return
        self._matrix = message.matrix
        found = zip(message.matrix.runs, message.matrix.experiments, strict=True)
        styles = self.cockpit.colours.styles([*found])
        self.query_one(MatrixTable).show(message.matrix, styles)
        self._tell()

    @on(LineList.Moved)
    def show_place(self) -> None:
        self._tell()

    def on_resize(self) -> None:
        self.call_after_refresh(self._tell)

    def _tell(self) -> None:
        matrix = self._matrix
        if matrix is None:
            return
        shown = counted(len(matrix.runs), "run")
        if matrix.left_out:
            shown += f" of {len(self._runs):,}"
        differing = counted(len(matrix.columns), "param", "differs", "differ")
        left, right = self.query_one(MatrixTable).hidden
        more = [f"{left} to the left"] if left else []
        more += [f"{right} to the right"] if right else []
        self._title(
            f"{shown}   {differing}, {matrix.alike} the same in all",
            "   ".join(("lit: not as the first run", *more)),
        )

    def _title(self, words: str, below: str = "") -> None:
        frame = self.query_one("#list")
        frame.border_title = Content.assemble(("params ", "bold $ink"), (words, "$ink-muted"))
        frame.border_subtitle = Content.styled(below, "$ink-muted")

    def action_sort(self) -> None:
        table = self.query_one(MatrixTable)
        columns = 0 if self._matrix is None else len(self._matrix.columns)
        following = 0 if table.by is None else table.by + 1
        table.by = following if following < columns else None
        table.sort_rows()
