"""The panels of one run beside its charts: head, vitals, bricks, guard, alerts.

Each draws one RunView; none asks for anything.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive

from albor_core.feed.attention.item import AttentionItem
from albor_core.feed.view.run_view import BrickView, RunView
from albor_core.run.headlines import HEADLINES, Headline
from albor_core.run.values.clean import clean
from albor_tui.look import figures, glyphs, quantity
from albor_tui.look.naming import said_of
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.panel import Panel
from albor_tui.widgets.run.brick_table import limit_words

if TYPE_CHECKING:
    from albor_core.store.rows.rows import AlertRow

_TONES = {"loss": "bold $line-main", "val_loss": "bold $line-val", "val_ppl": "$line-val"}
_TONES["val_bpb"] = _TONES["val_ppl"]
_IF_KNOWN = frozenset(one.key for one in HEADLINES if not one.is_always)
OVER = ("completed", "stopped", "failed")
_SHORT = {"expected loss": "expected", "learning rate": "lr", "gradient noise": "noise"}
_WELL = ("running", "paused", "unguarded")
_TILE, _TILE_MOST = 10, 26  # cells of a figure and its name
_Tile = tuple[str, str, str]  # name, value, tone
_NAMES = 13  # cells of the name of a fact
_MOST_FOLDED = 3  # lines of how an attempt ended
_LEAST_BAR = 30  # cells of the progress bar: what is said beside it gives way


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
    """What is used of each limit, and of a run at work what will be at its end."""
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
    """What stands behind the step of a run: how many it takes, or that it is past them."""
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
    tone = styled.STATE_TONE.get(view.status, "$ink-muted")
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
        """Those that the config names or that stand for the run, then the house's: of a run that
        is not Albor's own as far as it has them.
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
    """As many as fit, each as wide as its words; a long name gives way."""
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
    """Where the loss is of an earlier step than what stands beside it, that step."""
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


def is_guarded(view: RunView) -> bool:
    """Whether a guard keeps a run, or kept it."""
    was_guarded = any(one.exit_class for one in view.attempts)
    return view.guard_pid is not None or bool(view.guard) or was_guarded


class GuardPanel(RunPanel):
    """What keeps the run alive: guard, attempts, checkpoints."""

    HEADING = "guard"

    def show(self, view: RunView, width: int, height: int) -> Content:
        is_house, has_guard = view.kind == "train", is_guarded(view)
        lines = [self._guard(view)] if is_house or has_guard else []
        if view.is_active:
            lines.append(_fact("watch", watched_words(view)))
        if is_house or has_guard or (view.attempts_total or 1) > 1:
            lines.append(self._attempts(view))
        heads = len(lines)
        if is_house or view.checkpoint.last_step is not None or view.checkpoint.in_flight:
            lines += self._checkpoint(view, width)
        lines += self._health(view)
        lines += [_fact("budget", words) for words in budget_words(view)]
        lines += self._stability(view)
        end = self._last_end(view, width)
        if end and view.status in OVER:  # then how it ended is what is asked for
            lines = _beside_end(lines, heads, max(0, height - len(end)))
        return styled.rows([styled.fit(line, width) for line in [*lines, *end][:height]])

    def _guard(self, view: RunView) -> Content:
        if view.guard_pid is not None:
            word = str((view.guard or {}).get("state") or "watching")
            pid = f"  pid {view.guard_pid}" if view.guard_pid else ""
            return _fact(
                "guard", Content.assemble(styled.text(word, "$success"), (pid, "$ink-muted"))
            )
        is_over = view.status in OVER
        if view.status == "queued":
            word, tone = "none yet", "$warning"
        elif view.guard is None and not any(one.exit_class for one in view.attempts):
            word, tone = "none", "$warning" if view.is_active else "$ink-muted"
        else:
            word, tone = ("ended", "$ink-muted") if is_over else ("gone", "$warning")
        return _fact("guard", Content.styled(word, tone))

    def _attempts(self, view: RunView) -> Content:
        number = view.attempt or view.attempts_total
        restarts = max(0, (view.attempts_total or view.attempt or 1) - 1)
        tone = "$warning" if restarts else "$ink-muted"
        word = "restart" if restarts == 1 else "restarts"
        return _fact(
            "attempt",
            Content.assemble((quantity.count(number), "$ink"), (f"   {restarts} {word}", tone)),
        )

    def _checkpoint(self, view: RunView, width: int) -> list[Content]:
        point = view.checkpoint
        if point.last_step is None:
            none = "writing the first one" if point.in_flight else f"none{yet(view)}"
            return [_fact("checkpoint", Content.styled(none, "$ink-muted"))]
        # Its age is a wall-clock difference across a restart: good enough for people.
        since = ""
        if point.last_wall and view.is_live:
            since = f"  {quantity.age(max(0.0, now_wall() - point.last_wall))} ago"
        busy = "  writing" if point.in_flight else ""
        lines = [
            _fact(
                "checkpoint",
                Content.assemble(
                    (f"step {quantity.count(point.last_step)}", "$ink"),
                    (since, "$ink-muted"),
                    (busy, "$secondary"),
                ),
            )
        ]
        if risk := _at_risk(view):
            lines.append(_fact("at risk", Content.styled(risk, "$ink")))
        if point.best_step is not None:
            best = Content.assemble(
                (f"step {quantity.count(point.best_step)}", "$ink"),
                (f"  {quantity.loss(point.best_value)}", "$ink-muted"),
            )
            lines.append(_fact("best", best))
        if point.failures:
            lines.append(_fact("failed saves", Content.styled(str(point.failures), "$error")))
        return lines

    def _health(self, view: RunView) -> Iterator[Content]:
        for title, words in view.health.items():
            tone = "$warning" if words.startswith("above") else "$ink"
            name = _SHORT.get(title, clean(title, limit=12))
            yield _fact(name, styled.text(words, tone))

    def _stability(self, view: RunView) -> Iterator[Content]:
        counts = {k: v for k, v in view.guards.items() if isinstance(v, int | float) and v}
        if counts:
            words = "  ".join(f"{k.replace('_', ' ')} {v:g}" for k, v in counts.items())
            yield _fact("stability", styled.text(words, "$warning"))

    def _last_end(self, view: RunView, width: int) -> list[Content]:
        """How the last attempt ended, where one has, in lines of `width` cells."""
        last = next((a for a in reversed(view.attempts) if a.ended is not None), None)
        if last is None:
            return []
        kind, why = last.exit_class or "", last.reason or ""
        if not (kind or why or view.kind == "train"):
            return []
        # "crash: exited with code 3" has its kind in it; a plain exit is an exception of none
        if not why.startswith(kind) and (kind != "exception" or not why):
            why = f"{kind} {why}"
        tone = "$ink-muted" if kind in ("", "clean", "done") else "$warning"
        folded = textwrap.wrap(clean(why or "ended"), max(8, width - _NAMES)) or [""]
        if len(folded) > _MOST_FOLDED:
            folded[_MOST_FOLDED - 1 :] = [" ".join(folded[_MOST_FOLDED - 1 :])]
        names = (f"attempt {last.attempt}", *[""] * (len(folded) - 1))
        words = zip(names, folded, strict=True)
        return [_fact(name, styled.text(line, tone)) for name, line in words]


def _beside_end(lines: list[Content], heads: int, most: int) -> list[Content]:
    """At most `most` lines of an ended run. Those of guard and attempts, its `heads`, go first: the
    end has the number of its attempt.
    """
    if len(lines) > most and heads == 2:
        lines = [lines[0], *lines[2:]]
    return lines[1:2] if most == 1 and heads else lines[:most]


def _at_risk(view: RunView) -> str:
    """What would be lost if it died now; "" where that is little or not known."""
    saved = view.checkpoint.last_wall
    if not (view.is_live and saved and view.gpu):
        return ""
    hours = (view.diagnostics.ranks or 1) * max(0.0, now_wall() - saved) / 3600
    return f"{hours:.1f} GPU-h" if hours >= 0.05 else ""


def watched_words(view: RunView) -> Content:
    """What watches a run at work: "3 rules", "2 budgets, tells only: no guard", "not watched"."""
    watched = view.diagnostics.watched
    if not watched.is_watched:
        return Content.styled("not watched: no rule is evaluated", "$warning")
    line = Content.styled(watched.counts, "$ink")
    if not watched.acts:
        line += styled.text(f", tells only: {watched.why_tells_only or 'no guard'}", "$ink-muted")
    for sink in watched.dead_sinks[:1]:
        line += styled.text(f", cannot send: {sink}", "$warning")
    return line


def yet(view: RunView, *, is_house: bool = True) -> str:
    """What is missing may come only while the run is not over; what `is_house` only of Albor's own
    training.
    """
    comes = view.status not in OVER and (view.kind == "train" or not is_house)
    return " yet" if comes else ""


def now_wall() -> float:
    """The wall clock, in one place so that a frozen screen can freeze it."""
    return time.time()


def _fact(name: str, value: Content) -> Content:
    return Content.assemble((name.ljust(_NAMES), "$ink-muted"), value)


class Alerts(RunPanel):
    """What needs a person about one run, then its alerts: open ones first, newest first."""

    HEADING = "alerts"
    troubles: reactive[tuple[AttentionItem, ...]] = reactive((), init=False, repaint=False)

    def watch_troubles(self) -> None:
        self.changed()

    def show(self, view: RunView, width: int, height: int) -> Content:
        opened = [item for item in self.troubles if item.is_open]
        told = {alert for item in opened for alert in item.alert_ids}
        lines = [trouble_line(item, width) for item in opened]
        rest = ordered(view.alerts)
        lines += [alert_line(alert, width) for alert in rest if alert.id not in told]
        if not lines:
            return styled.fit(no_alert_listed(view), width)
        return styled.rows(styled.cut(lines, height, "alert"))


def trouble_line(item: AttentionItem, width: int) -> Content:
    """One entry of attention on one line."""
    tone = styled.SEVERITY_TONE.get(item.severity, "$warning")
    line = Content.assemble(
        (f"{glyphs.current.alert} ", tone),
        styled.text(f"{item.word}  ", f"bold {tone}"),
        styled.text(said_of(item), "$ink"),
    )
    return styled.fit(line, width)


def no_alert_listed(view: RunView) -> Content:
    """Why the list of alerts is empty. Green only for a run at work that is watched and well: one
    that is hung, silent or over may be anything."""
    if view.alerts_open:
        tone = styled.SEVERITY_TONE.get(view.severity, "$warning")
        return Content.styled(f"{view.alerts_open} open", tone)
    watched = view.diagnostics.watched
    if view.is_active and not watched.is_watched:
        is_bare = watched.rules == 0 and not watched.budgets
        why = ": no rules" if is_bare else ": no rule is evaluated"
        return Content.styled(f"not watched{why}", "$warning")
    if view.is_active:
        return _watched_by(view)
    if watched.rules is None:
        return Content.styled("no alerts", "$ink-muted")
    if not (rules := watched.counts):
        return Content.styled("not watched: no rules", "$ink-muted")
    if view.status == "queued":
        return Content.styled(f"{rules} will watch", "$ink-muted")
    tone = "$success" if view.status == "completed" else "$ink-muted"
    check = f"{glyphs.current.check} " if view.status == "completed" else ""
    return Content.styled(f"{check}no alerts: {rules} watched", tone)


def _watched_by(view: RunView) -> Content:
    """Of a run at work without an open alert."""
    is_well = view.status in _WELL and not view.is_silent
    words = view.diagnostics.watched.words.removeprefix("watched by ")
    calm, by, tells = (
        "quiet: watched by " if is_well else "watched by ",
        *words.partition(", ")[::2],
    )
    line = Content.styled(f"{calm}{by}", "$success" if is_well else "$ink")
    mark = Content.styled(f"{glyphs.current.check} ", "$success") if is_well else Content("")
    return Content.assemble(mark, line, styled.text(f", {tells}" if tells else "", "$ink-muted"))


def ordered(alerts: tuple[AlertRow, ...]) -> list[AlertRow]:
    """Open before acknowledged, red before yellow, newest first."""
    rank = {"critical": 0, "error": 1, "warning": 2}
    return sorted(
        alerts,
        key=lambda a: (a.acked_by is not None, rank.get(a.severity, 3), -(a.step or 0), a.id),
    )


def alert_line(alert: AlertRow, width: int) -> Content:
    """One alert on one line."""
    done = alert.acked_by is not None
    tone = "$ink-faint" if done else styled.SEVERITY_TONE.get(alert.severity, "$warning")
    symbol = glyphs.current.check if done else glyphs.current.alert
    step = f"step {quantity.count(alert.step)} " if alert.step is not None else ""
    words = alert.message or alert.rule
    line = Content.assemble(
        (f"{symbol} ", tone),
        (step, "$ink-muted"),
        styled.text(words, "$ink-faint" if done else "$ink"),
    )
    return styled.fit(line, width)


class AlertBanner(RunPanel):
    """The worst open alert, as one line that is only there when there is one."""

    SHOWS_UNREAD = True

    def watch_view(self) -> None:
        self.display = self.view is not None and self.view.alerts_open > 0
        super().watch_view()

    def show(self, view: RunView, width: int, height: int) -> Content:
        opened = [a for a in ordered(view.alerts) if a.acked_by is None]
        words = opened[0].message or opened[0].rule if opened else view.last_alert
        words = words or quantity.counted(view.alerts_open, "open alert")
        tone = styled.SEVERITY_TONE.get(opened[0].severity if opened else view.severity, "$warning")
        more = f"  +{view.alerts_open - 1}" if view.alerts_open > 1 else ""
        left = Content.assemble(
            (f"{glyphs.current.alert} ", tone), styled.text(words, f"bold {tone}")
        )
        return styled.pair(
            left, Content.assemble((more, tone), ("  a acknowledge", "$ink-muted")), width
        )
