"""One run at a glance, beside the list's preview chart."""

from __future__ import annotations

import math

from rich.cells import cell_len
from textual.content import Content

from albor_core.feed.view.run_view import RunView
from albor_core.run.headlines import LOSSES
from albor_core.run.values.main_metrics import MainMetric
from albor_tui.look import figures, glyphs, quantity
from albor_tui.look.themes import SEVERITY_TONE
from albor_tui.widgets.base import styled
from albor_tui.widgets.run.panels import RunPanel, end_words

_NAMES = 9  # cells of a name: longer ones move all values


class RunPreview(RunPanel):
    """The facts that the table has no room for."""

    HEADING = "at a glance"

    def show(self, view: RunView, width: int, height: int) -> Content:
        most = max(_NAMES, width * 2 // 5)
        rows = [
            ("state", styled.state_of(view) + _why(view)),
            ("step", _step(view)),
            *_own(view, most - 1),
            *_figures(view),
            ("attempt", _plain(quantity.count(view.attempt or view.attempts_total))),
            ("elapsed", _plain(quantity.duration(view.elapsed_s))),
        ]
        is_house, missing = view.kind == "train", glyphs.current.missing
        if view.last_alert and view.alerts_open:
            tone = SEVERITY_TONE.get(view.severity, "$warning")
            rows.insert(1, ("alert", styled.text(view.last_alert, tone)))
        if is_house or view.checkpoint.last_step is not None:
            rows.append(("saved", _saved(view)))
        if is_house or view.device:
            rows.append(("device", styled.text(view.device or missing, "$ink")))
        rows.append(("folder", styled.text(view.path or missing, "$ink-muted")))
        longest = max(cell_len(name) for name, _ in rows[:height]) if height else 0
        names = max(_NAMES, min(longest + 1, most))
        lines = [styled.fit(_row(name, value, names), width) for name, value in rows[:height]]
        return styled.rows(lines)


def _row(name: str, value: Content, width: int) -> Content:
    shown = styled.fit_middle(Content(name), width - 1)
    return Content.styled(styled.fit(shown, width).plain, "$ink-muted") + value


def _own(view: RunView, room: int) -> list[tuple[str, Content]]:
    """The metrics that stand for a run besides the house's, their names in `room` cells where their
    first parts can give way; of Albor's own those that the user pinned.
    """
    wanted = (one for one in view.metrics if one.is_pinned or view.kind != "train")
    return [
        (figures.name_in(one.name, room), _value(one)) for one in wanted if one.name not in LOSSES
    ]


def _value(one: MainMetric) -> Content:
    tone = "$ink" if one.last is None or math.isfinite(one.last) else "bold $error"
    value = Content.styled(quantity.metric(one.last, one.name), tone)
    return value + Content.styled(figures.way(one), "$ink-muted")


def _figures(view: RunView) -> list[tuple[str, Content]]:
    """The house's figures: of another's program those that it has."""
    found = [
        ("tokens", _plain(quantity.si(view.tokens)), view.tokens),
        ("loss", _losses(view), view.loss),
        ("val", _validation(view), view.val_loss if view.val_ppl is None else view.val_ppl),
        ("speed", _speed(view), view.step_ms if view.tokens_per_s is None else view.tokens_per_s),
        ("lr", _plain(quantity.exponent(view.lr)), view.lr),
    ]
    is_house = view.kind == "train"
    return [(name, said) for name, said, known in found if is_house or known is not None]


def _plain(value: str) -> Content:
    return Content.styled(value, "$ink")


def _why(view: RunView) -> Content:
    return styled.text(f"  {view.detail}", "$ink-muted") if view.detail else Content("")


def _step(view: RunView) -> Content:
    share = f"   {quantity.percent(view.progress, 1)}" if view.progress is not None else ""
    return Content.assemble(
        (quantity.count(view.step), "$ink"), (end_words(view), "$ink-muted"), (share, "$ink-muted")
    )


def _losses(view: RunView) -> Content:
    ema = f"   ema {quantity.loss(view.loss_ema)}" if _comes(view, view.loss_ema) else ""
    return Content.assemble((quantity.loss(view.loss), "$line-main"), (ema, "$ink-muted"))


def _comes(view: RunView, value: float | None) -> bool:
    """Whether a figure is known, or is one that Albor's own training tells of sooner or later."""
    return value is not None or view.kind == "train"


def _validation(view: RunView) -> Content:
    ppl = f"   ppl {quantity.ratio(view.val_ppl)}" if _comes(view, view.val_ppl) else ""
    bpb = "" if view.val_bpb is None else f"   bpb {quantity.loss(view.val_bpb)}"
    return Content.assemble(
        (quantity.loss(view.val_loss), "$line-val"),
        (ppl + bpb, "$ink-muted"),
        (f"   at step {quantity.count(view.val_step)}" if view.is_val_older else "", "$ink-muted"),
    )


def _speed(view: RunView) -> Content:
    rate = f"{quantity.si(view.tokens_per_s)} tok/s" if _comes(view, view.tokens_per_s) else ""
    step = f"{quantity.milliseconds(view.step_ms)} a step" if _comes(view, view.step_ms) else ""
    gap = "   " if rate and step else ""
    return Content.assemble((rate, "$ink"), (gap + step, "$ink-muted"))


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
