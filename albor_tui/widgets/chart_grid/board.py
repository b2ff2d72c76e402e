"""The room of a grid: charts, panels and headings at their places, made once and used again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from textual import on
from textual.containers import Container
from textual.content import Content
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import Layout, WidgetPlacement
from textual.widget import Widget

from albor_tui.look import glyphs
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.data import ChartData
from albor_tui.widgets.chart_grid.heading import SectionHeading, heading_facts
from albor_tui.widgets.chart_grid.layers import highest, layer_table
from albor_tui.widgets.chart_grid.looks import Looks
from albor_tui.widgets.chart_grid.pages import GridPages, Item, Place
from albor_tui.widgets.chart_grid.picture import GridPicture
from albor_tui.widgets.chart_grid.sections import Cell, ChartSection
from albor_tui.widgets.distribution.heat_map import HeatMap


class _PlacedLayout(Layout):
    """Each child at its place."""

    name = "placed"

    def __init__(self) -> None:
        self.places: dict[Widget, Region] = {}

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> list[WidgetPlacement]:
        return [
            WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if (region := self.places.get(child)) is not None
        ]


class ChartBoard(Container):
    """Draws the items of a page; widgets that have no place on it are hidden."""

    def __init__(self, pages: GridPages, looks: Looks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.looks = looks
        self._pages = pages
        self._placed = _PlacedLayout()
        self._made: dict[Callable[[], Widget], list[Widget]] = {}
        self._shown: list[tuple[Widget, Item | None]] = []
        self._titles: dict[Widget, Content] = {}  # of panels
        self._picture: GridPicture | None = None

    @property
    def layout(self) -> Layout:
        return self._placed

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The charts and panels on the screen."""
        return tuple(item for _, item in self._shown if isinstance(item, Cell))

    @property
    def charts(self) -> list[Chart]:
        return [widget for widget, _ in self._shown if isinstance(widget, Chart)]

    @property
    def widest(self) -> int:
        """Cells across the widest chart."""
        widths = (w.content_size.width for w, item in self._shown if isinstance(item, Cell))
        return max(widths, default=0)

    @property
    def window(self) -> tuple[float, float] | None:
        """First and last step of the window; None for the whole."""
        if charts := [chart for chart in self.charts if chart.data.has_points]:
            return charts[0].steps_shown
        look = self.looks.shared
        if look.window is None or look.axis != "step":
            return None
        return look.window.low, look.window.high

    @on(Chart.PictureAsked)
    def _add_finer(self, message: Chart.PictureAsked) -> None:
        """A picture of a chart has more points than its place on the screen."""
        item = self.item_at(message.chart)
        if item is not None and self._picture is not None:
            lo, hi = margins(message.chart.steps_shown)
            message.finer = self._picture.finer(item.name, lo, hi)

    def item_at(self, widget: Widget | None) -> Item | None:
        """What a widget on the screen shows."""
        return next((item for one, item in self._shown if one is widget), None)

    def focus_chosen(self) -> None:
        chosen = (widget for widget, item in self._shown if item == self._pages.chosen)
        if self._shown:
            next(chosen, self._shown[0][0]).focus()

    def arrange_page(self) -> bool:
        """Place the items of the page, whether widgets of it are new and have no size yet."""
        width, height = self.size
        self._pages.fit(width, height)
        wanted: list[tuple[Item | None, Place]] = [*self._pages.places(width, height)]
        wanted = wanted or [(None, (0, 0, width, height))]
        self._shown = [(widget, item) for widget, (item, _) in zip(
            self._widgets([item for item, _ in wanted]), wanted, strict=True
        )]  # fmt: skip
        found = [widget for widget, _ in self._shown]
        for made in self._made.values():
            for widget in made:
                widget.display = widget in found
        if fresh := [widget for widget in found if not widget.is_attached]:
            self.mount(*fresh)
        places = {one: Region(*place) for one, (_, place) in zip(found, wanted, strict=True)}
        if places != self._placed.places:
            self._placed.places = places
            found[0].refresh(layout=True)  # of what holds it
        return bool(fresh)

    def _widgets(self, items: Sequence[Item | None]) -> Iterator[Widget]:
        """A widget for each item, of those that there are."""
        counts: dict[Callable[[], Widget], int] = {}
        for item in items:
            make = _maker(item)
            made, i = self._made.setdefault(make, []), counts.get(make, 0)
            if i == len(made):
                made.append(make())
            yield made[i]
            counts[make] = i + 1

    def fill(self, picture: GridPicture | None) -> None:
        """Give every widget its key, its curve and the look of its chart."""
        self._picture = picture
        if picture is None:
            return
        opened = self._pages.opened
        for widget, item in self._shown:
            if isinstance(widget, SectionHeading) and isinstance(item, ChartSection):
                widget.facts = heading_facts(item, is_open=item.name in opened)
            elif isinstance(widget, HeatMap) and isinstance(item, Cell):
                self._fill_panel(widget, item, picture)
            elif isinstance(widget, Chart) and isinstance(item, Cell):
                pin = f"{glyphs.current.pin} " if item.name in self._pages.pins else ""
                widget.entitle(Content.styled(pin, "$warning") + picture.title(item.name))
                widget.look = self.looks.appearance(item.name)
                widget.data = picture.chart(item.name)
            elif isinstance(widget, Chart):
                widget.entitle(Content(""))
                widget.data = ChartData(empty=picture.why_empty(self._pages.words))

    def share_looks(self, picture: GridPicture | None) -> None:
        """Look at all charts and panels as their looks say now."""
        for widget, item in self._shown:
            if isinstance(widget, Chart) and isinstance(item, Cell):
                widget.look = self.looks.appearance(item.name)
            elif isinstance(widget, HeatMap) and isinstance(item, Cell) and picture is not None:
                self._fill_panel(widget, item, picture)

    def _fill_panel(self, panel: HeatMap, cell: Cell, picture: GridPicture) -> None:
        curves = [picture.key_curves(key) for key in cell.keys]
        title = styled.text(cell.name) + Content.styled(f"  {len(cell.keys)}", "$ink-muted")
        if (top := highest(cell, curves)) is not None:
            row, value = top
            title += Content.assemble(
                ("  highest ", "$ink-muted"), styled.text(f"{row} {value:.3g}")
            )
        if not title.is_same(self._titles.get(panel, Content(""))):
            self._titles[panel] = title
            panel.border_title = Content.assemble(title)  # setting it repaints all of it
        gutter = max(map(len, cell.rows)) + 1
        columns = max(1, panel.content_size.width - gutter)
        panel.data = layer_table(cell, curves, columns, self.window)


def _new_chart() -> Widget:
    chart = Chart(classes="-keys")
    chart.brings_finer = True
    return chart


def _maker(item: Item | None) -> Callable[[], Widget]:
    """Who makes the widget of an item."""
    if isinstance(item, ChartSection):
        return SectionHeading
    return HeatMap if item is not None and item.is_panel else _new_chart


def margins(window: tuple[float, float] | None) -> tuple[int | None, int | None]:
    """The window and half of it on either side, so that panning finds something there."""
    if window is None:
        return None, None
    low, high = window
    room = (high - low) / 2
    return max(0, math.floor(low - room)), math.ceil(high + room)
