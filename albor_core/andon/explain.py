"""What would pull the cord, in sentences: part of every plan, so that no stop is a surprise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from albor_core.andon.bricks import FACTOR, brick_name
from albor_core.andon.budgets import WARN_AT, Budgets
from albor_core.andon.rules import WARMUP_FREE_STEPS, Rule, arming_step


def explain(
    rules: Sequence[Rule],
    *,
    warmup_steps: int,
    budgets: Budgets | None = None,
    bricks_ms: Mapping[str, float | None] | None = None,
) -> tuple[str, ...]:
    """One sentence per rule, budget and brick."""
    sentences = [_rule(rule, warmup_steps) for rule in rules]
    if budgets is not None:
        sentences += _budgets(budgets)
    for key, budget in (bricks_ms or {}).items():
        if budget is not None:
            sentences.append(
                f"brick {brick_name(key)} above {FACTOR * budget:g} ms "
                f"({FACTOR:g}x its budget of {budget:g} ms) -> pause"
            )
    return tuple(sentences)


def _rule(rule: Rule, warmup_steps: int) -> str:
    words = str(rule.condition).split()
    step = arming_step(warmup_steps)
    latest = "end of warm-up" if warmup_steps > 0 else f"no warm-up: {WARMUP_FREE_STEPS} steps"
    return (
        f"{rule.condition} -> {rule.action}; arms once {words[0]} has been "
        f"{rule.condition.good_side}, or at step {step} ({latest})"
    )


def _budgets(budgets: Budgets) -> list[str]:
    limits = (("tokens", budgets.tokens), ("wall hours", budgets.wall_hours))
    return [
        f"{limit:,} {name} -> {budgets.action}; warns at {WARN_AT:.0%}"
        for name, limit in limits
        if limit is not None
    ]
