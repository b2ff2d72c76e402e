"""What keeps a run alive, as a panel: its guard, what watches it, its attempts and checkpoints."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator

from textual.content import Content

from albor_core.feed.view.run_view import RunView
from albor_core.run.values.clean import clean
from albor_tui.look import quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.run.panels import OVER, RunPanel, budget_words, yet

_SHORT = {"expected loss": "expected", "learning rate": "lr", "gradient noise": "noise"}
_NAMES = 13  # cells of the name of a fact
_MOST_FOLDED = 3  # lines of how an attempt ended
now_wall = time.time  # replaced in tests


def is_guarded(view: RunView) -> bool:
    """Whether a guard keeps a run, or kept it."""
    was_guarded = any(one.exit_class for one in view.attempts)
    return view.guard_pid is not None or bool(view.guard) or was_guarded


class GuardPanel(RunPanel):
    """A panel of what keeps the run alive: guard, attempts, checkpoints."""

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
    """At most `most` lines for an ended run. The `heads` about guard and attempts are dropped
    first: the end has the number of its attempt.
    """
    if len(lines) > most and heads == 2:
        lines = [lines[0], *lines[2:]]
    return lines[1:2] if most == 1 and heads else lines[:most]


def _at_risk(view: RunView) -> str:
    """The work that a death now would lose; "" if it is little or unknown."""
    saved = view.checkpoint.last_wall
    if not (view.is_live and saved and view.gpu):
        return ""
    hours = (view.diagnostics.ranks or 1) * max(0.0, now_wall() - saved) / 3600
    return f"{hours:.1f} GPU-h" if hours >= 0.05 else ""


def watched_words(view: RunView) -> Content:
    """What watches an active run: "3 rules", "2 budgets, tells only: no guard", "not watched"."""
    watched = view.diagnostics.watched
    if not watched.is_watched:
        return Content.styled("not watched: no rule is evaluated", "$warning")
    line = Content.styled(watched.counts, "$ink")
    if not watched.acts:
        line += styled.text(f", tells only: {watched.why_tells_only or 'no guard'}", "$ink-muted")
    for sink in watched.dead_sinks[:1]:
        line += styled.text(f", cannot send: {sink}", "$warning")
    return line


def _fact(name: str, value: Content) -> Content:
    return Content.assemble((name.ljust(_NAMES), "$ink-muted"), value)
