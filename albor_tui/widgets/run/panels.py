"""The panels of one run beside its charts: head, vitals, bricks, guard, alerts.

Each draws one RunView; none asks for anything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.content import Content
from textual.reactive import reactive

from albor_core.feed.view import BrickView, RunView
from albor_core.run.headlines import HEADLINES, Headline
from albor_core.run.values.clean import clean
from albor_tui.look import figures, glyphs, quantity
from albor_tui.widgets.base import meters
from albor_tui.widgets.base.panel import Panel

if TYPE_CHECKING:
    from albor_core.store.rows.rows import AlertRow

_TONES = {"loss": "bold $line-main", "val_loss": "bold $line-val", "val_ppl": "$line-val"}
_OVER = ("completed", "stopped", "failed")


class RunPanel(Panel):
    """A panel that draws `view`."""

    view: reactive[RunView | None] = reactive(None, init=False, repaint=False)

    def watch_view(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        return Content("") if self.view is None else self.show(self.view, width, height)

    def show(self, view: RunView, width: int, height: int) -> Content:
        """The content for a known run."""
        raise NotImplementedError


class Head(RunPanel):
    """Who the run is, how far it is and when it will be done."""

    def show(self, view: RunView, width: int, height: int) -> Content:
        left = Content.assemble(
            meters.state_of(view),
            "  ",
            meters.text(view.name or view.id, "bold $ink"),
        )
        if view.experiment and width >= 100:
            left += meters.text(f"  {view.experiment}", "$ink-muted")
        if view.detail not in ("", view.phase):
            left += meters.text(f"  {view.detail}", "$ink-muted")
        return meters.rows([meters.pair(left, self._times(view), width), _progress(view, width)])

    def _times(self, view: RunView) -> Content:
        parts: list[Content | tuple[str, str] | str] = []
        if view.is_live:
            parts += [("eta ", "$ink-muted"), (quantity.duration(view.eta_s), "bold $ink")]
        elif view.age_s is not None:
            is_over = view.status in _OVER
            word, tone = ("ended ", "$ink") if is_over else ("last news ", "$warning")
            parts += [(word, "$ink-muted"), (f"{quantity.age(view.age_s)} ago", tone)]
        else:
            waits = view.is_active or view.status == "queued"
            never = "no news yet" if waits else "no news"
            words = never if view.step is None else "age of its news unknown"
            parts += [(words, "$ink-muted")]
        parts += [("  elapsed ", "$ink-muted"), (quantity.duration(view.elapsed_s), "$ink")]
        return Content.assemble(*parts)


def _progress(view: RunView, width: int) -> Content:
    of = f" / {quantity.count(view.max_steps)}" if view.max_steps else ""
    tail = Content.assemble(
        (f" {quantity.percent(view.progress, 1):>6}", "bold $ink"),
        ("  step ", "$ink-muted"),
        (quantity.count(view.step), "$ink"),
        (of, "$ink-muted"),
        ("  tokens ", "$ink-muted"),
        (quantity.si(view.tokens), "$ink"),
    )
    tone = meters.STATE_TONE.get(view.status, "$ink-muted")
    return meters.bar(view.progress, max(4, width - tail.cell_length), tone) + tail


class Vitals(RunPanel):
    """The numbers people look for first, as tiles; as many as fit."""

    latest: reactive[Mapping[str, float]] = reactive({}, init=False, repaint=False)
    """The newest value of each curve, for metrics that no tile of the house shows."""

    def watch_latest(self) -> None:
        self.changed()

    def show(self, view: RunView, width: int, height: int) -> Content:
        house = {
            **{one.key: _tile(one, view) for one in HEADLINES if one.chart},
            "epoch": ("epoch", quantity.ratio(view.epoch), "$ink"),
            "batch": ("batch", quantity.count(view.batch_size), "$ink"),
        }
        wanted = () if view.terminal is None else view.terminal.metrics
        tiles = [
            house.get(key) or (clean(key), quantity.ratio(self.latest.get(key)), "$ink")
            for key in dict.fromkeys((*wanted, *house))
        ]
        columns = max(1, min(len(tiles), width // 10))
        cell, spare = divmod(width, columns)
        shown = [(cell + (i < spare), tile) for i, tile in enumerate(tiles[:columns])]
        stale = "" if view.is_live else "$ink-muted"
        names = [
            meters.fit(Content.styled(n, "$ink-muted"), w - 1).pad_right(1)
            for w, (n, _, _) in shown
        ]
        values = [
            meters.fit(_value(v, stale or tone), w - 1).pad_right(1) for w, (_, v, tone) in shown
        ]
        return meters.rows([Content("").join(names), Content("").join(values)])


def _tile(one: Headline, view: RunView) -> tuple[str, str, str]:
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
            words = "loading" if self.is_loading else f"no timings{_yet(view)}"
            return Content.styled(words, "$ink-muted")
        scale = max(max(b.measured_ms or 0, b.budget_ms or 0) for b in known) or 1.0
        bars = max(4, width - 10 - 8 - 9)
        lines: list[Content] = []
        hidden = max(0, len(known) - height + 1) if len(known) > height else 0
        least = sorted(known, key=lambda b: (b.is_over, b.measured_ms or 0.0))[:hidden]
        lines += [_brick_line(b, bars, scale) for b in known if b not in least]
        if hidden:
            lines.append(meters.left_out(hidden, "part"))
        return meters.rows(lines)


def _brick_line(brick: BrickView, bars: int, scale: float) -> Content:
    """Name, bar with the budget marked, time and budget."""
    over = brick.is_over
    mark = brick.budget_ms / scale if brick.budget_ms else None
    limit = f" / {quantity.milliseconds(brick.budget_ms)}" if brick.budget_ms else ""
    share = (brick.measured_ms or 0) / scale
    return Content.assemble(
        meters.fit(meters.text(brick.name, "$ink-muted"), 10),
        meters.bar(share, bars, "$error" if over else "$line-second", mark=mark),
        (quantity.milliseconds(brick.measured_ms).rjust(8), "$error" if over else "$ink"),
        (limit.ljust(9), "$ink-muted"),
    )


class GuardPanel(RunPanel):
    """What keeps the run alive: guard, attempts, checkpoints."""

    HEADING = "guard"

    def show(self, view: RunView, width: int, height: int) -> Content:
        lines = [self._guard(view), self._attempts(view), *self._checkpoint(view, width)]
        skipped = {k: v for k, v in view.guards.items() if isinstance(v, int | float) and v}
        if skipped:
            words = "  ".join(f"{k.replace('_', ' ')} {v:g}" for k, v in skipped.items())
            lines.append(_fact("stability", meters.text(words, "$warning")))
        last = next((a for a in reversed(view.attempts) if a.ended is not None), None)
        if last is not None:
            kind, why = last.exit_class or "", last.reason or ""
            tone = "$ink-muted" if kind in ("", "clean", "done") else "$warning"
            # "crash: exited with code 3" has its kind in it; a plain exit is an exception of none
            if not why.startswith(kind) and (kind != "exception" or not why):
                why = f"{kind} {why}"
            lines.append(_fact(f"attempt {last.attempt}", meters.text(why or "ended", tone)))
        return meters.rows([meters.fit(line, width) for line in lines[:height]])

    def _guard(self, view: RunView) -> Content:
        if view.guard_pid is not None:
            word = str((view.guard or {}).get("state") or "watching")
            pid = f"  pid {view.guard_pid}" if view.guard_pid else ""
            return _fact(
                "guard", Content.assemble(meters.text(word, "$success"), (pid, "$ink-muted"))
            )
        is_over = view.status in _OVER
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
            none = "writing the first one" if point.in_flight else f"none{_yet(view)}"
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
        if point.best_step is not None:
            best = Content.assemble(
                (f"step {quantity.count(point.best_step)}", "$ink"),
                (f"  {quantity.loss(point.best_value)}", "$ink-muted"),
            )
            lines.append(_fact("best", best))
        if point.failures:
            lines.append(_fact("failed saves", Content.styled(str(point.failures), "$error")))
        return lines


def _yet(view: RunView) -> str:
    """What is missing may come only while the run is not over, and is Albor's own to write."""
    return "" if view.status in _OVER or view.kind != "train" else " yet"


def now_wall() -> float:
    """The wall clock, in one place so that a frozen screen can freeze it."""
    return time.time()


def _fact(name: str, value: Content) -> Content:
    return Content.assemble((f"{name:<13}", "$ink-muted"), value)


class Alerts(RunPanel):
    """Alerts of one run, open ones first, newest first."""

    HEADING = "alerts"

    def show(self, view: RunView, width: int, height: int) -> Content:
        if not view.alerts:
            return meters.fit(no_alert_listed(view), width)
        lines = [alert_line(alert, width) for alert in ordered(view.alerts)]
        return meters.rows(meters.cut(lines, height, "alert"))


def no_alert_listed(view: RunView) -> Content:
    """Why the list of alerts is empty. Green only where rules watch, or watched, the run."""
    if view.alerts_open:
        tone = meters.SEVERITY_TONE.get(view.severity, "$warning")
        return Content.styled(f"{view.alerts_open} open", tone)
    count = view.rules_watching
    if count is None:
        return Content.styled("no alerts", "$ink-muted")
    if not count:
        return Content.styled("not watched: no rules", "$ink-muted")
    rules = f"{count} rule{'s' * (count != 1)}"
    if view.status == "queued":
        return Content.styled(f"{rules} will watch", "$ink-muted")
    if view.is_active:
        words = f"quiet: {rules} watch{'es' * (count == 1)}"
    else:
        words = f"no alerts: {rules} watched"
    return Content.styled(f"{glyphs.current.check} {words}", "$success")


def ordered(alerts: tuple[AlertRow, ...]) -> list[AlertRow]:
    """Open before acknowledged, red before yellow, newest first."""
    rank = {"red": 0, "yellow": 1}
    return sorted(
        alerts,
        key=lambda a: (a.acked_by is not None, rank.get(a.severity, 2), -(a.step or 0), a.id),
    )


def alert_line(alert: AlertRow, width: int) -> Content:
    """One alert on one line."""
    done = alert.acked_by is not None
    tone = "$ink-faint" if done else meters.SEVERITY_TONE.get(alert.severity, "$warning")
    symbol = glyphs.current.check if done else glyphs.current.alert
    step = f"step {quantity.count(alert.step)} " if alert.step is not None else ""
    words = alert.message or alert.rule
    line = Content.assemble(
        (f"{symbol} ", tone),
        (step, "$ink-muted"),
        meters.text(words, "$ink-faint" if done else "$ink"),
    )
    return meters.fit(line, width)


class AlertBanner(RunPanel):
    """The worst open alert, as one line that is only there when there is one."""

    def watch_view(self) -> None:
        self.display = self.view is not None and self.view.alerts_open > 0
        super().watch_view()

    def show(self, view: RunView, width: int, height: int) -> Content:
        opened = [a for a in ordered(view.alerts) if a.acked_by is None]
        words = opened[0].message or opened[0].rule if opened else view.last_alert
        tone = meters.SEVERITY_TONE.get(opened[0].severity if opened else view.severity, "$warning")
        more = f"  +{view.alerts_open - 1}" if view.alerts_open > 1 else ""
        left = Content.assemble(
            (f"{glyphs.current.alert} ", tone), meters.text(words, f"bold {tone}")
        )
        return meters.pair(
            left, Content.assemble((more, tone), ("  a acknowledge", "$ink-muted")), width
        )
