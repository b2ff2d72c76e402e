"""One run at a glance, beside the list's preview chart."""

from __future__ import annotations

from textual.content import Content

from albor_core.feed.view import RunView
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import meters
from albor_tui.widgets.run.panels import RunPanel


class RunPreview(RunPanel):
    """The facts that the table has no room for."""

    HEADING = "at a glance"

    def show(self, view: RunView, width: int, height: int) -> Content:
        rows = [
            ("state", meters.state_of(view) + _why(view)),
            ("step", _step(view)),
            ("tokens", _plain(quantity.si(view.tokens))),
            ("loss", _losses(view)),
            ("val", _validation(view)),
            ("speed", _speed(view)),
            ("lr", _plain(quantity.exponent(view.lr))),
            ("attempt", _plain(quantity.count(view.attempt or view.attempts_total))),
            ("elapsed", _plain(quantity.duration(view.elapsed_s))),
            ("saved", _saved(view)),
        ]
        if view.last_alert and view.alerts_open:
            tone = meters.SEVERITY_TONE.get(view.severity, "$warning")
            rows.insert(1, ("alert", meters.text(view.last_alert, tone)))
        rows += [("device", meters.text(view.device or glyphs.current.missing, "$ink"))]
        rows += [("folder", meters.text(view.path or glyphs.current.missing, "$ink-muted"))]
        lines = [
            meters.fit(Content.assemble((f"{name:<9}", "$ink-muted"), value), width)
            for name, value in rows[:height]
        ]
        return meters.rows(lines)


def _plain(value: str) -> Content:
    return Content.styled(value, "$ink")


def _why(view: RunView) -> Content:
    return meters.text(f"  {view.detail}", "$ink-muted") if view.detail else Content("")


def _step(view: RunView) -> Content:
    of = f" / {quantity.count(view.max_steps)}" if view.max_steps else ""
    share = f"   {quantity.percent(view.progress, 1)}" if view.progress is not None else ""
    return Content.assemble(
        (quantity.count(view.step), "$ink"), (of, "$ink-muted"), (share, "$ink-muted")
    )


def _losses(view: RunView) -> Content:
    return Content.assemble(
        (quantity.loss(view.loss), "$line-main"),
        (f"   ema {quantity.loss(view.loss_ema)}", "$ink-muted"),
    )


def _validation(view: RunView) -> Content:
    return Content.assemble(
        (quantity.loss(view.val_loss), "$line-val"),
        (f"   ppl {quantity.ratio(view.val_ppl)}", "$ink-muted"),
        (f"   at step {quantity.count(view.val_step)}" if view.is_val_older else "", "$ink-muted"),
    )


def _speed(view: RunView) -> Content:
    return Content.assemble(
        (f"{quantity.si(view.tokens_per_s)} tok/s", "$ink"),
        (f"   {quantity.milliseconds(view.step_ms)} a step", "$ink-muted"),
    )


def _saved(view: RunView) -> Content:
    step = view.checkpoint.last_step
    if step is None and view.is_active:
        return Content.styled("no checkpoint yet", "$ink-muted")
    if step is None:  # of a run that is over the list does not know
        return Content.styled(glyphs.current.missing, "$ink-muted")
    best = view.checkpoint.best_step
    told = "" if best is None else f"   best {quantity.count(best)}"
    if best is not None and view.checkpoint.best_value is not None:
        told += f"  {quantity.loss(view.checkpoint.best_value)}"
    return Content.assemble((f"step {quantity.count(step)}", "$ink"), (told, "$ink-muted"))
