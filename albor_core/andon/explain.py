"""What would pull the cord, in sentences: part of every plan, so that no stop is a surprise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from albor_core.andon.bricks import FACTOR, brick_name
from albor_core.andon.budgets import WARN_AT, Budgets
from albor_core.andon.rules import STEADY, Rule, rules_from
from albor_core.run.errors import ConfigError, Problem

_LOSSES = ("train/loss", "train/loss_ema", "val/loss")


def explain(
    rules: Sequence[Rule],
    *,
    budgets: Budgets | None = None,
    bricks_ms: Mapping[str, float | None] | None = None,
) -> tuple[str, ...]:
    """One sentence per rule, budget and brick."""
    sentences = [_rule(rule) for rule in rules]
    if budgets is not None:
        sentences += _budgets(budgets)
    for key, budget in (bricks_ms or {}).items():
        if budget is not None:
            sentences.append(
                f"brick {brick_name(key)} above {FACTOR * budget:g} ms "
                f"({FACTOR:g}x its budget of {budget:g} ms) -> pause"
            )
    return tuple(sentences)


def _rule(rule: Rule) -> str:
    words, step = str(rule.condition).split(), rule.arm_step
    latest = "end of warm-up" if rule.warmup_steps > 0 else "no warm-up"
    return (
        f"{rule.condition} -> {rule.action}; arms once {words[0]} begins or stays "
        f"{rule.condition.good_side} ({STEADY} values), or at step {step} ({latest})"
    )


def _budgets(budgets: Budgets) -> list[str]:
    limits = (("tokens", budgets.tokens), ("wall hours", budgets.wall_hours))
    return [
        f"{limit:,} {name} -> {budgets.action}; warns at {WARN_AT:.0%}"
        for name, limit in limits
        if limit is not None
    ]


def andon_sentences(
    monitoring: Mapping[str, Any],
    *,
    warmup_steps: int,
    vocab_size: int | None = None,
    first_gradients: float = 0.0,
) -> tuple[str, ...]:
    """`explain` for a resolved `monitoring` section; bad rules are left to `andon_problems`.

    With `vocab_size`, a loss rule that a fresh model violates (it starts at ln V) says so; so does
    one that would stop or pause it for a gradient's norm of `first_gradients`, if that is not 0.
    """
    try:
        rules = rules_from(monitoring, warmup_steps=warmup_steps)
    except ConfigError:
        rules = ()
    sentences = explain(
        rules,
        budgets=Budgets.from_config(monitoring),
        bricks_ms=monitoring.get("bricks") or {},
    )
    sentences += tuple(
        f"a healthy run's first gradients may reach {first_gradients:g}, where {rule.condition} "
        f"holds: leave them room, or it may {rule.action} one"
        for rule in rules
        if rule.condition.metric == "optim/grad_norm" and rule.action != "warn"
        if first_gradients > 0 and rule.condition.is_bad(first_gradients)
    )
    if vocab_size is None or vocab_size < 2:
        return sentences
    start = math.log(vocab_size)
    asleep = tuple(
        f"a fresh model starts at loss ln({vocab_size:,}) = {start:.2f}, where {rule.condition} "
        "holds: the rule sleeps until it arms"
        for rule in rules
        if rule.condition.metric in _LOSSES and rule.condition.is_bad(start)
    )
    return sentences + asleep


def andon_problems(monitoring: Mapping[str, Any], *, file: str = "") -> tuple[Problem, ...]:
    """Every rule of a `monitoring` section that cannot be used, with the file it stands in."""
    try:
        rules_from(monitoring, warmup_steps=0)
    except ConfigError as error:
        return tuple(replace(problem, file=file) for problem in error.problems)
    return ()
