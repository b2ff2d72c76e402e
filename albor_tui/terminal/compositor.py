"""What a frame draws again: the widgets under the cells that changed.

Textual asks every widget on the screen for its lines whenever one cell of it changes, and watching
a run is made of such changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip


class SparingCompositor(Compositor):
    """A compositor whose partial updates leave alone what lies beside them."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: tuple[Region, ...] = ()

    def render_partial_update(self) -> ChopsUpdate | None:
        self._changed = tuple(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._changed = ()

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        changed = self._changed
        if not changed:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if any(seen.overlaps(cells) for cells in changed):
                yield region, clip, widget.render_lines(seen.translate(-region.offset))
