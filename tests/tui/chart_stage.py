"""A cockpit of charts alone: the app's look, one widget, curves of a made-up long run.

The stage answers `ChartGrid.Wanted` as the Charts tab does, from values, so that what a chart shows
depends on nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import fake_feed
from textual import on
from textual.app import App, ComposeResult
from textual.widget import Widget

from albor_core.feed.view.run_view import RunView
from albor_core.run.values.main_metrics import MainMetric
from albor_core.store.rows.rows import EventRow
from albor_core.store.rows.series import Series
from albor_tui.app import AlborApp
from albor_tui.look import glyphs, themes
from albor_tui.messages import PinAsked
from albor_tui.widgets.chart.curves import RULER_KEYS
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.chart_grid.picture import RunPicture

LAST = 15_280
EVERY = 40  # steps between two points
KEYS = (
    "train/loss",
    "val/loss",
    "optim/lr",
    "optim/grad_norm",
    "perf/tokens_per_s",
    "perf/mfu",
    "perf/step_ms",
    "rollout/reward",
    "rollout/length",
    "eval/acc",
    "moe/a_router_with_a_name_that_is_much_longer_than_any_box/load_balance_loss",
    "\u6ce8\u610f\u529b/\u71b5",
)


def points(key: str, last: int = LAST) -> tuple[list[float], list[float]]:
    """All steps and values of a metric."""
    rng = random.Random(key)
    steps = [float(s) for s in range(EVERY, last + 1, 400 if key.startswith("val/") else EVERY)]
    share = [s / 40_000 for s in steps]
    if key.endswith("loss"):
        noise = 0.02 if key.startswith("val/") else 0.12
        ys = [2.1 + 8.7 / (1 + s / 400) ** 0.9 + rng.gauss(0, noise) for s in steps]
        if key == "train/loss":
            ys[120], ys[220] = 9.5, math.nan
    elif key == "optim/lr":
        ys = [3e-4 * min(1, s / 0.02) * (0.55 + 0.45 * math.cos(s * math.pi)) for s in share]
    elif key == "optim/grad_norm":
        ys = [0.4 + abs(rng.gauss(0, 0.15)) + (6 if i == 300 else 0) for i in range(len(steps))]
    else:
        middle = 100 * (1 + len(key) % 7)
        ys = [middle + rng.gauss(0, middle / 60) for _ in steps]
    return steps, ys


def curve(key: str, lo: int | None, hi: int | None, most: int, last: int = LAST) -> Series:
    """A window of a metric as a store answers it: its points, or buckets of a power of two."""
    if key == "_wall":
        steps = [float(s) for s in range(EVERY, last + 1, EVERY)]
        ys = [fake_feed.WALL - 12_000 + s * 0.7 + (900 if s > 4112 else 0) for s in steps]
    elif key == "train/tokens":
        steps = [float(s) for s in range(EVERY, last + 1, EVERY)]
        ys = [s * 65_536 for s in steps]
    else:
        steps, ys = points(key, last)
    low, high = lo or 0, last if hi is None else hi
    kept = [(s, y) for s, y in zip(steps, ys, strict=True) if low <= s <= high]
    width = 1
    while len({s // width for s, _ in kept}) > most:
        width *= 2
    groups: dict[float, list[tuple[float, float]]] = {}
    for s, y in kept:
        groups.setdefault(s // width, []).append((s, y))
    finite = [[y for _, y in g if math.isfinite(y)] for g in groups.values()]
    return Series(
        key,
        tuple(g[0][0] for g in groups.values()),
        tuple(min(ys, default=math.nan) for ys in finite),
        tuple(max(ys, default=math.nan) for ys in finite),
        tuple(sum(ys) / len(ys) if ys else math.nan for ys in finite),
        is_raw=width == 1,
        nonfinite=tuple(len(g) - len(ys) for g, ys in zip(groups.values(), finite, strict=True)),
    )


def view(**changes: object) -> RunView:
    """The run of the stage: two alerts, a restart, checkpoints."""
    red = replace(fake_feed.ALERT, id="2", severity="error", step=8_800, message="loss is NaN")
    saved = tuple(EventRow(name="checkpoint.saved", step=s) for s in range(1000, LAST, 1000))
    made = fake_feed.training(alerts=(fake_feed.ALERT, red), events=saved)
    return replace(made, **changes)


class Stage(App[None]):
    """Shows `widget` alone; a grid gets its curves."""

    CSS_PATH = AlborApp.CSS_PATH
    HORIZONTAL_BREAKPOINTS = AlborApp.HORIZONTAL_BREAKPOINTS
    VERTICAL_BREAKPOINTS = AlborApp.VERTICAL_BREAKPOINTS

    def __init__(
        self,
        *widgets: Widget,
        theme: str = "dark",
        run: RunView | None = None,
        keys: Sequence[str] = KEYS,
    ) -> None:
        import albor_tui.app

        folder = albor_tui.app.__file__.removesuffix("app.py")
        super().__init__(css_path=f"{folder}albor.tcss")
        for look in themes.ALL:
            self.register_theme(look)
        self.theme = themes.NAMES[theme].name
        self._widgets, self._run, self._keys = widgets, run or view(), tuple(keys)
        self._picture = RunPicture(self._run, self._keys, is_read=True)
        self.asked: list[ChartGrid.Wanted] = []
        self.last = LAST

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(themes.DARK.variables)

    def compose(self) -> ComposeResult:
        yield from self._widgets

    def on_mount(self) -> None:
        self.screen.set_class(glyphs.current.is_ascii, "-ascii")
        for grid in self.query(ChartGrid):
            grid.picture = self._picture
            grid.focus()

    @on(PinAsked)
    def pin(self, asked: PinAsked) -> None:
        """A pin as a feed tells it: the last one comes last."""
        held = [one.name for one in self._run.metrics]
        left = [name for name in held if name != asked.metric]
        names = left if asked.metric in held else [*held, asked.metric]
        pins = tuple(MainMetric(name, is_pinned=True) for name in names)
        self._run = replace(self._run, metrics=pins)
        self.show(self._picture.with_view(self._run))

    def show(self, picture: RunPicture) -> None:
        self._picture = self.query_one(ChartGrid).picture = picture

    @on(ChartGrid.Wanted)
    def bring(self, wanted: ChartGrid.Wanted) -> None:
        self.asked.append(wanted)
        self.bring_keys(self._keys)

    def bring_keys(self, keys: Sequence[str]) -> None:
        """The curves that were asked for last, of a run with these keys."""
        self._keys = tuple(keys)
        self.show(self._picture.with_curves(self._run, self._keys, self.answer(self.asked[-1])))

    def answer(self, wanted: ChartGrid.Wanted) -> Mapping[str, Series]:
        """The curves that were asked for; keys without points are left out."""
        found = {
            k: curve(k, wanted.lo, wanted.hi, wanted.points, self.last)
            for k in (*wanted.keys, *RULER_KEYS)
        }
        return {key: c for key, c in found.items() if not c.is_empty}
