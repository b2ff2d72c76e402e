"""What is known of one data set: its sources, what was dropped, how long its documents are, and
what is known of its bytes."""

from __future__ import annotations

from collections.abc import Collection

from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from albor_core.feed.data.sheet import DataSheet, Lengths
from albor_tui.look import quantity
from albor_tui.model.command import CommandFailed
from albor_tui.model.run_tabs import RunTab
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.data.about import AboutSheet
from albor_tui.widgets.data.columns import Headed
from albor_tui.widgets.data.dropped import DroppedSheet
from albor_tui.widgets.data.set_list import SetRow
from albor_tui.widgets.data.source_list import SourceList, about_all, about_source
from albor_tui.widgets.distribution.histogram import Histogram, HistogramData

PARTS = (
    RunTab("sources", "Sources", "Sources", "", "1"),
    RunTab("dropped", "Dropped", "Dropped", "", "2"),
    RunTab("lengths", "Lengths", "Lengths", "", "3"),
    RunTab("about", "About", "About", "", "4"),
)
PART_KEYS = tuple(part.key for part in PARTS)
_SIDES = {"#data-left": ("sources", "dropped"), "#data-right": ("about", "lengths")}
_LEAST_ROWS = 6  # of the sources with their frame and what is said of one


class SetParts(Container):
    """Four parts, of which as many are shown as the screen has room for."""

    def __init__(self) -> None:
        super().__init__(id="data-body")
        self._row: SetRow | None = None
        self._found: DataSheet | CommandFailed | None = None

    def compose(self) -> ComposeResult:
        with Container(id="data-left"):
            with Container(id="data-sources"):
                yield Headed(SourceList(id="source-list"), id="source-frame")
                yield Static(id="source-about", markup=False)
            yield DroppedSheet(id="data-dropped")
        with Container(id="data-right"):
            yield AboutSheet(id="data-about")
            yield Histogram("document lengths", id="data-lengths")

    def show(
        self, row: SetRow, found: DataSheet | CommandFailed | None, *, offers_check: bool
    ) -> None:
        """Draw a data set; `found` is what was counted of it, or why nothing was."""
        self._row, self._found = row, found
        sheet = found if isinstance(found, DataSheet) else None
        excuse = _excuse(row, found)
        self.query_one(AboutSheet).tell(row, excuse, offers_check=offers_check)
        self.query_one(DroppedSheet).tell(sheet, excuse)
        self.query_one(SourceList).show_sheet(sheet or DataSheet())
        self._show_lengths(sheet, excuse)
        self._entitle_sources(sheet)
        self.show_source()

    def inside(self, part: str) -> Widget:
        """The widget of a part that gets the focus."""
        return self.query_one("#source-list" if part == "sources" else f"#data-{part}")

    def show_parts(self, parts: Collection[str]) -> None:
        """Show these parts alone."""
        for key in PART_KEYS:
            self.query_one(f"#data-{key}").display = key in parts
        for side, both in _SIDES.items():
            self.query_one(side).display = any(key in parts for key in both)

    def fit_sources(self, most: int | None) -> None:
        """Set the height of the source list to its length, up to `most` lines; None: fill its
        place."""
        rows = len(self.query_one(SourceList).rows) + 5
        height = None if most is None else min(max(rows, _LEAST_ROWS), most)
        self.query_one("#data-sources").styles.height = height

    def _entitle_sources(self, sheet: DataSheet | None) -> None:
        frame = self.query_one("#source-frame", Headed)
        count = "" if sheet is None else f"{len(sheet.sources)}"
        order = self.query_one(SourceList).order
        frame.border_title = styled.heading("sources", count)
        by = f"by {order}" if sheet is not None and len(sheet.sources) > 1 else ""
        frame.border_subtitle = Content.styled(by, "$ink-muted")
        frame.tell_heads()

    @on(LineList.Moved)
    def source_moved(self, message: LineList.Moved) -> None:
        message.stop()
        self.show_source()

    def show_source(self) -> None:
        """Show facts of the source under the cursor, or of all of them, below their list."""
        if self._row is None:
            return
        sources, found = self.query_one(SourceList), self._found
        if not isinstance(found, DataSheet):
            words = _excuse(self._row, found)
        elif sources.current is not None and sources.has_focus:
            words = about_source(sources.current)
        else:
            words = about_all(found)
        self.query_one("#source-about", Static).update(words)

    def _show_lengths(self, sheet: DataSheet | None, excuse: Content) -> None:
        figure = self.query_one(Histogram)
        lengths = Lengths() if sheet is None else sheet.lengths
        words = excuse.plain.split("\n")[0] if sheet is None else "lengths are not recorded"
        figure.data = histogram_of(lengths, words)
        unit = f"in {lengths.unit}" if lengths.counts else ""
        figure.border_title = styled.heading("document lengths", unit)
        figure.border_subtitle = Content.styled(middle_of(lengths), "$ink-muted")


def histogram_of(lengths: Lengths, words: str = "lengths are not recorded") -> HistogramData:
    """The histogram of lengths without the empty bins at both ends."""
    counts = lengths.counts
    filled = [i for i, count in enumerate(counts) if count > 0]
    if not filled:
        return HistogramData(empty=words)
    first, last = filled[0], filled[-1]
    return HistogramData(
        lengths.edges[first : last + 2], counts[first : last + 1], is_doubling=True, empty=words
    )


def middle_of(lengths: Lengths) -> str:
    """The bin of the median, as a range of lengths."""
    half, below = sum(lengths.counts) / 2, 0.0
    for count, low, high in zip(lengths.counts, lengths.edges, lengths.edges[1:], strict=False):
        below += count
        if half and below >= half:
            return f"median {quantity.count(low)} to {quantity.count(high)}"
    return ""


def _excuse(row: SetRow, found: DataSheet | CommandFailed | None) -> Content:
    """Why there are no figures yet, or at all."""
    folder = row.view.folder
    if folder.state == "gone":
        return Content.styled(f"{folder.why}: what it held is not known", "$error")
    if isinstance(found, CommandFailed):
        lines = [styled.text(f"cannot read it: {found.message}", "$error")]
        if found.hint:
            lines.append(styled.text(found.hint, "$ink-muted"))
        return styled.rows(lines)
    if found is None:
        return styled.loading()
    return Content("")
