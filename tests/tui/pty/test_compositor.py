"""A frame that draws only what changed shows what one that draws everything shows."""

from __future__ import annotations

import random

from settled import settled
from textual._compositor import Compositor
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from albor_tui.terminal.textual_private import SparingCompositor


class Counter(Widget):
    """Draws its number and counts how often it is asked to."""

    DEFAULT_CSS = "Counter { height: 3; border: round white; }"

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number, self.asked = number, 0

    def render(self) -> str:
        return f"number {self.number}"

    def render_lines(self, crop: Region) -> list[Strip]:
        self.asked += 1
        return super().render_lines(crop)


class Sparing(Screen[None]):
    CSS = "#over { layer: above; offset: 6 4; width: 12; height: 4; background: red; }"
    LAYERS = ("below", "above")

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparingCompositor()

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            for number in range(12):
                yield Counter(number)
        yield Static("something on top", id="over")


class Stage(App[None]):
    def on_mount(self) -> None:
        self.push_screen(Sparing())


async def test_random_changes_are_drawn_as_textual_draws_them():
    rng = random.Random()
    app = Stage()
    async with app.run_test(size=(40, 24)) as pilot:
        screen = app.screen
        compositor = screen._compositor
        for scroll_y in (0, 7):
            screen.query_one(VerticalScroll).scroll_to(y=scroll_y, animate=False, force=True)
            await settled(pilot)
            for _ in range(50):
                regions = {
                    Region(rng.randrange(38), rng.randrange(23), rng.randint(1, 20), 1)
                    for _ in range(rng.randint(1, 5))
                }
                drawn = []
                for draw in (SparingCompositor, Compositor):
                    compositor._dirty_regions = set(regions)
                    update = draw.render_partial_update(compositor)
                    drawn.append(update.render_segments(app.console))
                assert drawn[0] == drawn[1], regions


async def test_what_lies_beside_a_change_is_left_alone():
    app = Stage()
    async with app.run_test(size=(40, 24)) as pilot:
        await settled(pilot)
        counters = list(app.screen.query(Counter))
        before = [counter.asked for counter in counters]
        counters[4].number = 77
        counters[4].refresh()
        await settled(pilot)
        asked = [counter.asked - was for counter, was in zip(counters, before, strict=True)]
        assert [i for i, times in enumerate(asked) if times] == [4]
        assert "number 77" in "".join(s.text for s in app.screen._compositor.render_strips())
