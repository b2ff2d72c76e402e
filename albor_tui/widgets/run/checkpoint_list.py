"""The checkpoints of a run as a list."""

from __future__ import annotations

import time

from textual.content import Content
from textual.reactive import reactive

from albor_core.feed.archive.checkpoints import SavedView
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList

now_wall = time.time  # replaced in tests

STATE_TONE = {
    "verified": "$success",
    "whole": "$ink",
    "damaged": "$error",
    "writing": "$secondary",
}


class CheckpointList(LineList):
    """A table with a line per checkpoint below a line of headings, the newest step first."""

    saved: reactive[tuple[SavedView, ...]] = reactive((), init=False, repaint=False)

    @property
    def current(self) -> SavedView | None:
        at = self.cursor - 1
        return self.saved[at] if 0 <= at < len(self.saved) else None

    def count(self) -> int:
        return len(self.saved) + 1 if self.saved else 0

    def can_stand(self, index: int) -> bool:
        return index > 0

    def watch_saved(self, old: tuple[SavedView, ...], new: tuple[SavedView, ...]) -> None:
        """The cursor stays on its checkpoint when a newer one comes above it."""
        at = self.cursor - 1
        if 0 <= at < len(old) and at > 0:
            names = (i for i, one in enumerate(new) if one.name == old[at].name)
            self.set_reactive(LineList.cursor, next(names, at) + 1)
        self.lines_changed()

    def draw_line(self, index: int, width: int) -> Content:
        if index == 0:
            heads = ("step".rjust(12), "saved".rjust(8), "size".rjust(8), "val loss".rjust(10))
            return Content.styled("".join(heads) + "  state", "$ink-muted")
        one = self.saved[index - 1]
        tone = STATE_TONE.get(one.state, "$warning")
        dim = "$ink-faint" if one.state == "damaged" else "$ink"
        mark = {"damaged": glyphs.current.cross, "writing": glyphs.current.ellipsis}.get(
            one.state, glyphs.current.check
        )
        age = "" if one.wall is None else quantity.age(max(0.0, now_wall() - one.wall))
        return Content.assemble(
            (quantity.count(one.step).rjust(12), f"bold {dim}"),
            ((age or glyphs.current.missing).rjust(8), "$ink-muted"),
            (quantity.byte_cell(one.num_bytes).rjust(8), dim),
            (quantity.loss(one.val_loss).rjust(10), "bold $line-val" if one.is_best else dim),
            (f"  {mark} {one.state}", tone),
            ("  latest", "$accent") if one.is_latest else "",
            (f"  {glyphs.current.pin} best", "bold $line-val") if one.is_best else "",
            styled.text(f"  {one.reason}", "$ink-muted") if one.reason else "",
        )
