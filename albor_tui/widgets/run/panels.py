"""The panels of one run beside its charts: head, vitals, bricks.

Each draws one RunView; none asks for anything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive

from albor_core.feed.view.run_view import BrickView, RunView
from albor_core.run.headlines import HEADLINES, Headline
from albor_core.run.values.clean import clean
from albor_tui.look import figures, glyphs, quantity
from albor_tui.look.themes import STATE_TONE
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.panel import Panel
from albor_tui.widgets.run.brick_table import limit_words

_TONES = {"loss": "bold $line-main", "val_loss": "bold $line-val", "val_ppl": "$line-val"}
_TONES["val_bpb"] = _TONES["val_ppl"]
_IF_KNOWN = frozenset(one.key for one in HEADLINES if not one.is_always)
OVER = ("completed", "stopped", "failed")
_TILE, _TILE_MOST = 10, 26  # cells of a figure and its name
_Tile = tuple[str, str, str]  # name, value, tone
_LEAST_BAR = 30  # cells of the progress bar: what is said beside it gives way
now_wall = time.time  # replaced in tests


class RunPanel(Panel):
    """A panel that draws `view`."""

    SHOWS_UNREAD = False  # whether it has something to say of a run whose files are unread
    view: reactive[RunView | None] = reactive(None, init=False, repaint=False)

    def watch_view(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        if self.view is None:
            return Content("")
        if self.view.is_loading and not self.SHOWS_UNREAD:
            return styled.loading()
        return self.show(self.view, width, height)

    def show(self, view: RunView, width: int, height: int) -> Content:
        """The content for a known run."""
        raise NotImplementedError


class Head(RunPanel):
    """Who the run is, how far it is and when it will be done."""

    SHOWS_UNREAD = True
    is_read: reactive[bool] = reactive(True, init=False, repaint=False)
    """Whether the run was read, and is not only what a list knows of it."""

    def watch_is_read(self) -> None:
        self.changed()

    def show(self, view: RunView, width: int, height: int) -> Content:
        left = Content.assemble(
            styled.state_of(view),
            "  ",
            styled.text(view.name or view.id, "bold $ink"),
        )
        if view.experiment and width >= 100:
            left += styled.text(f"  {view.experiment}", "$ink-muted")
        if view.detail not in ("", view.phase):
            left += styled.text(f"  {view.detail}", "$ink-muted")
        if view.is_loading or (not self.is_read and view.age_s is None):
            word = Content("") if view.is_loading else "  " + styled.loading()
            return styled.fit(left + word, width)
        return styled.rows([styled.pair(left, self._times(view), width), _progress(view, width)])

    def _times(self, view: RunView) -> Content:
        parts: list[Content | tuple[str, str] | str] = []
        if view.is_live:
            has_end = view.max_steps and not view.is_past_end
            if view.eta_s is not None or has_end or view.kind == "train":
                parts += [("eta ", "$ink-muted"), (quantity.duration(view.eta_s), "bold $ink")]
            parts += [(f"  done {_finish(view)}", "$ink-muted")] if view.eta_s is not None else []
        elif view.age_s is not None:
            is_over = view.status in OVER
            word, tone = ("ended ", "$ink") if is_over else ("last news ", "$warning")
            parts += [(word, "$ink-muted"), (f"{quantity.age(view.age_s)} ago", tone)]
        else:
            waits = view.is_active or view.status == "queued"
            never = "no news yet" if waits else "no news"
            words = never if view.step is None else "age of its news unknown"
            parts += [(words, "$ink-muted")]
        gap = "  " if parts else ""
        parts += [(f"{gap}elapsed ", "$ink-muted"), (quantity.duration(view.elapsed_s), "$ink")]
        return Content.assemble(*parts)


def _finish(view: RunView) -> str:
    """When it will be done by the clock, with a 90 % interval where that is known."""
    now = now_wall()
    assert view.eta_s is not None
    at = view.finish_wall if view.finish_wall is not None else now + view.eta_s
    low, high = view.finish_low_wall, view.finish_high_wall
    if low is None or high is None or high - low < 60:
        return quantity.moment(at, now)
    return f"{quantity.moment(at, now)} ({quantity.moment(low, now)}-{quantity.moment(high, now)})"


def budget_words(view: RunView) -> list[Content]:
    """The use of each limit, with the expected use at the end of an active run."""
    found = []
    for use in view.budgets:
        if use.used is None or use.limit is None:
            continue
        ends = use.at_completion if view.is_active else None
        is_short = (ends is not None and ends > use.limit) or use.used > use.limit
        at_end = "" if ends is None else f", {quantity.amount(ends)} at its end"
        words = f" {quantity.amount(use.used)} of {quantity.amount(use.limit)}{at_end}"
        name = (use.unit or use.amount.replace("_", " ")).strip()
        tone = "$warning" if is_short else "$ink"
        line = Content.assemble((name, "$ink-muted"), styled.text(words, tone))
        if is_short and view.is_active and use.exhausted_wall is not None:
            when = quantity.moment(use.exhausted_wall, now_wall())
            line += Content.styled(f", gone {when}", "$warning")
        found.append(line)
    return found


def end_words(view: RunView) -> str:
    """The text behind the step of a run: the planned steps, or that it is past them."""
    if not view.max_steps:
        return ""
    number = quantity.count(view.max_steps)
    return f", past its {number}" if view.is_past_end else f" / {number}"


def _progress(view: RunView, width: int) -> Content:
    has_end = view.progress is not None or view.kind == "train"
    share = f" {quantity.percent(view.progress, 1):>6}" if has_end else ""
    tail = Content.assemble(
        (share, "bold $ink"),
        ("  step " if has_end else "step ", "$ink-muted"),
        (quantity.count(view.step), "$ink"),
        (end_words(view), "$ink-muted"),
    )
    if view.tokens is not None or view.kind == "train":
        tail += Content.assemble(("  tokens ", "$ink-muted"), (quantity.si(view.tokens), "$ink"))
    for words in budget_words(view):  # the word tells its tokens from those beside it
        told = Content.styled("  budget ", "$ink-muted") + words
        if tail.cell_length + told.cell_length <= width - _LEAST_BAR:
            tail += told
    if not has_end:
        return styled.fit(tail, width)
    tone = STATE_TONE.get(view.status, "$ink-muted")
    return styled.bar(view.progress, max(4, width - tail.cell_length), tone) + tail


class Vitals(RunPanel):
    """The numbers people look for first, as tiles; as many as fit."""

    latest: reactive[Mapping[str, float]] = reactive({}, init=False, repaint=False)
    """The newest value of each curve, for metrics that no tile of the house shows."""

    def watch_latest(self) -> None:
        self.changed()

    def show(self, view: RunView, width: int, height: int) -> Content:
        tiles = self._tiles(view)
        if view.kind == "train":
            columns = max(1, min(len(tiles), width // _TILE))
            cell, spare = divmod(width, columns)
            shown = [(cell + (i < spare), tile) for i, tile in enumerate(tiles[:columns])]
        else:
            shown = _as_wide_as_said(tiles, width)
        stale = "" if view.is_live else "$ink-muted"
        names = [
            styled.fit(Content.styled(n, "$ink-muted"), w - 1).pad_right(1)
            for w, (n, _, _) in shown
        ]
        values = [
            styled.fit(_value(v, stale or tone), w - 1).pad_right(1) for w, (_, v, tone) in shown
        ]
        return styled.rows([Content("").join(names), Content("").join(values)])

    def _tiles(self, view: RunView) -> list[_Tile]:
        """The tiles: metrics that the config names or that are the run's main ones, then Albor's
        standard ones; for other programs only those that exist.
        """
        house = {
            **{one.key: _tile(one, view) for one in HEADLINES if one.chart},
            "epoch": ("epoch", quantity.ratio(view.epoch), "$ink"),
            "batch": ("batch", quantity.count(view.batch_size), "$ink"),
        }
        missing, is_ours = glyphs.current.missing, view.kind == "train"
        house = {
            key: tile
            for key, tile in house.items()
            if tile[1] != missing or (is_ours and key not in _IF_KNOWN)
        }
        last = {**self.latest, **{one.name: one.last for one in view.metrics}}
        wanted = () if view.terminal is None else view.terminal.metrics
        return [
            house.get(key) or (clean(key), quantity.metric(last.get(key), key), "$ink")
            for key in dict.fromkeys((*wanted, *house))
        ]


def _as_wide_as_said(tiles: list[_Tile], width: int) -> list[tuple[int, _Tile]]:
    """As many tiles as fit, each as wide as its text; a long name is shortened."""
    shown: list[tuple[int, _Tile]] = []
    left = width
    for tile in tiles:
        name = figures.name_in(tile[0], _TILE_MOST - 2)
        cells = max(_TILE, min(_TILE_MOST, max(cell_len(name), cell_len(tile[1])) + 2))
        if cells > left and shown:
            break
        shown.append((min(cells, left), (name, *tile[1:])))
        left -= cells
    return shown


def _tile(one: Headline, view: RunView) -> _Tile:
    title = _val_name(view) if one.name == "val_loss" else one.title
    tone = _TONES.get(one.name, "$ink")
    return title, figures.text_of(one.unit, getattr(view, one.name)), tone


def _val_name(view: RunView) -> str:
    """The label of the validation loss, with its step if that is earlier than the values beside
    it."""
    return f"val @{quantity.si(view.val_step)}" if view.is_val_older else "val loss"


def _value(value: str, tone: str) -> Content:
    if value in ("NaN", "inf", "-inf"):
        return Content.styled(value, "bold $error")
    return Content.styled(value, "$ink-faint" if value == glyphs.current.missing else tone)


class BricksPanel(RunPanel):
    """The timed parts of a step, each against its budget."""

    HEADING = "bricks"
    is_loading: reactive[bool] = reactive(True, init=False, repaint=False)

    def watch_is_loading(self) -> None:
        self.changed()

    def show(self, view: RunView, width: int, height: int) -> Content:
        known = [b for b in view.bricks if b.measured_ms is not None]
        if not known:
            words = "loading" if self.is_loading else f"no timings{yet(view)}"
            return Content.styled(words, "$ink-muted")
        scale = max(max(b.measured_ms or 0, _limit(b) or 0) for b in known) or 1.0
        names = min(15, max(10, *(len(b.name) + 1 for b in known)))
        bars = max(4, width - names - 8 - 10)
        lines: list[Content] = []
        hidden = max(0, len(known) - height + 1) if len(known) > height else 0
        least = sorted(known, key=lambda b: (b.is_over, b.measured_ms or 0.0))[:hidden]
        lines += [_brick_line(b, names, bars, scale) for b in known if b not in least]
        if hidden:
            lines.append(styled.left_out(hidden, "part"))
        return styled.rows(lines)


def _limit(brick: BrickView) -> float | None:
    return brick.budget_ms if brick.budget_ms is not None else brick.learned_ms


def _brick_line(brick: BrickView, names: int, bars: int, scale: float) -> Content:
    """Name, bar with the budget marked, time and budget; a ~ before one that was learned."""
    over, limit = brick.is_over, _limit(brick)
    mark = limit / scale if limit else None
    said = f" / {limit_words(brick.budget_ms, brick.learned_ms)}" if limit else ""
    share = (brick.measured_ms or 0) / scale
    return Content.assemble(
        styled.fit(styled.text(brick.name, "$ink-muted"), names),
        styled.bar(share, bars, "$error" if over else "$line-second", mark=mark),
        (quantity.milliseconds(brick.measured_ms).rjust(8), "$error" if over else "$ink"),
        (said.ljust(10), "$ink-muted"),
    )


def yet(view: RunView, *, is_house: bool = True) -> str:
    """ " yet" if missing data may still come: while the run is active; with `is_house` only in
    Albor's own training.
    """
    comes = view.status not in OVER and (view.kind == "train" or not is_house)
    return " yet" if comes else ""
