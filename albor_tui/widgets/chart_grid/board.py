"""The room of a grid: widgets where they are told to be, made once and used again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.containers import Container
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import Layout, WidgetPlacement
from textual.widget import Widget

from albor_tui.widgets.chart_grid.pages import Place


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


class Board(Container):
    """Holds charts, panels and headings; those that have no place now are hidden."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._placed = _PlacedLayout()
        self._made: dict[Callable[[], Widget], list[Widget]] = {}

    @property
    def layout(self) -> Layout:
        return self._placed

    def lay(self, wanted: Sequence[tuple[Callable[[], Widget], Place]]) -> list[Widget]:
        """The widgets of these makers, each at its place; whether any is new shows in its size."""
        counts: dict[Callable[[], Widget], int] = {}
        fresh, found = [], []
        for make, _ in wanted:
            made, i = self._made.setdefault(make, []), counts.get(make, 0)
            if i == len(made):
                made.append(make())
                fresh.append(made[-1])
            found.append(made[i])
            counts[make] = i + 1
        places = {widget: Region(*place) for widget, (_, place) in zip(found, wanted, strict=True)}
        for make, made in self._made.items():
            for i, widget in enumerate(made):
                widget.display = i < counts.get(make, 0)
        if fresh:
            self.mount(*fresh)
        if places != self._placed.places:
            self._placed.places = places
            for widget in found[:1]:
                widget.refresh(layout=True)  # of what holds it
        return found
