"""Jidoka, the automatic stop: a part of the step (brick) that takes over twice its time budget
pauses the run. Pure.

A budget is per brick, so the alert names the slow part and not just "slow".
"""

from __future__ import annotations

from collections.abc import Mapping

from albor_core.andon.alert import Alert, make_alert
from albor_core.andon.bricks.names import BRICKS, brick_key, brick_name, is_brick
from albor_core.run.errors import UsageError
from albor_core.run.values.numbers import parse_real

FACTOR = 2.0  # one log interval may be off by this much before the line stops
WORDS = ("learn", "mute")
MAX_MS = 1e9


def read_overrules(text: str) -> dict[str, float | str]:
    """Parse new budgets that a person gave, `forward=180,data=mute`: ms or one of WORDS by brick.

    `learn` is the time that the brick takes now, `mute` means that it never pauses the run. Raises
    UsageError.
    """
    found: dict[str, float | str] = {}
    for part in filter(None, text.split(",")):
        brick, _, word = (piece.strip() for piece in part.partition("="))
        if not is_brick(brick_name(brick)):
            raise UsageError(
                f"{brick!r} is not a brick",
                hint=f"one of {', '.join(BRICKS)}, or several joined by +",
            )
        found[brick_name(brick)] = word if word in WORDS else _budget(word)
    return found


def overrule_command(run_id: str, brick: str) -> str:
    """The command that permanently resumes a run that `brick` has paused."""
    return f"albor guard resume {run_id} --brick {brick} --budget learn"


def _budget(word: str) -> float:
    try:
        number = parse_real(word)
    except ValueError:
        number = 0.0
    if not 0 < number <= MAX_MS:
        raise UsageError(
            f"{word!r} is not a step-time budget", hint="a number of ms, learn or mute"
        )
    return number


def check_bricks(
    budgets_ms: Mapping[str, float | None],
    measured_ms: Mapping[str, float | None],
    *,
    factor: float = FACTOR,
    already: frozenset[str] = frozenset(),
    step: int = 0,
    attempt: int = 1,
) -> tuple[Alert, ...]:
    """A pause alert for each brick above `factor` times its budget, the worst first.

    Bricks without budget or measurement (None, NaN) are skipped, and so are rules in `already`, so
    that a caller whose run was resumed by hand is not paused again in every interval.
    """
    measured = {brick_name(key): value for key, value in measured_ms.items()}
    found = []
    for key, budget in budgets_ms.items():
        brick = brick_name(key)
        value, rule = measured.get(brick), f"brick-{brick}"
        if budget is None or value is None or rule in already or not value > factor * budget:
            continue
        alert = make_alert(
            rule,
            "brick",
            "pause",
            metric=brick_key(brick),
            value=float(value),
            threshold=factor * budget,
            message=f"{brick} takes {value:.4g} ms, over {factor:g}x its budget of {budget:g} ms",
            step=step,
            attempt=attempt,
        )
        found.append((value / budget if budget else float("inf"), alert))
    return tuple(alert for _, alert in sorted(found, key=lambda pair: -pair[0]))
