"""Describes in sentences what can raise an alert or stop a run: part of every plan."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from albor_core.andon.bricks.budgets import FACTOR
from albor_core.andon.bricks.learned import ROOM
from albor_core.andon.bricks.names import budgets_of, joined
from albor_core.andon.budgets.limits import BudgetLimits
from albor_core.andon.rules.engine import STEADY
from albor_core.andon.rules.sources import Rule, rules_from
from albor_core.run.errors import ConfigError, Problem

JOINS = {"forward": ("loss",), "optimizer": ("clip",)}
"""What is one brick with a part on a GPU, as a rule, and takes over its budget."""
_LOSSES = ("train/loss", "train/loss_ema", "val/loss")


def explain(
    rules: Sequence[Rule],
    *,
    budgets: BudgetLimits | None = None,
    bricks: Mapping[str, object] | None = None,
) -> tuple[str, ...]:
    """One sentence per rule, budget and brick; `bricks` is a `monitoring.bricks` section."""
    sentences = [_rule(rule) for rule in rules]
    if budgets is not None:
        sentences += _budgets(budgets)
    return (*sentences, *_bricks(bricks or {}))


def _bricks(section: Mapping[str, object]) -> list[str]:
    budgets = budgets_of(section)
    said = []
    for brick, budget in budgets.items():
        partners = [name for name in JOINS.get(brick, ()) if name not in budgets]
        where = f"; of {joined((brick, *partners))} where they are one" if partners else ""
        said.append(
            f"brick {brick} above {FACTOR * budget:g} ms "
            f"({FACTOR:g}x its budget of {budget:g} ms) -> pause{where}"
        )
    if section.get("learn") is True:
        said.append(
            f"brick without a budget above {FACTOR * ROOM:g}x what it took at first, while the rest"
            " of the step is not slower -> warn"
        )
    return said


def _rule(rule: Rule) -> str:
    condition = rule.condition
    sentence = f"{condition} -> {rule.action}"
    if rule.argv:
        sentence += f" {shlex.join(rule.argv)[:80]}"
    if condition.arms:
        latest = "end of warm-up" if rule.warmup_steps > 0 else "no warm-up"
        sentence += (
            f"; arms once {condition.left} begins or stays {condition.good_side} "
            f"({STEADY} values), or at step {rule.arm_step} ({latest})"
        )
    if rule.clear_at is not None:
        sentence += f"; cleared at {rule.clear_at:g}"
    if rule.cooldown_s:
        sentence += f"; at most once in {rule.cooldown_s:g} s"
    return sentence


def _budgets(limits: BudgetLimits) -> list[str]:
    return [
        f"{limit:,.10g} {limits.unit(amount)} -> {limits.action}; warns at {limits.soft:.0%}"
        for amount, limit in limits.items()
    ]


def andon_sentences(
    monitoring: Mapping[str, Any],
    *,
    warmup_steps: int,
    vocab_size: int | None = None,
    first_gradients: float = 0.0,
) -> tuple[str, ...]:
    """`explain` for a resolved `monitoring` section; bad rules are reported by `andon_problems`.

    With `vocab_size`, the sentence of a loss rule that a new model violates (its loss starts at ln
    V) says so; likewise a rule that would stop or pause the run at a gradient norm of
    `first_gradients`, if that is not 0.
    """
    try:
        rules = rules_from(monitoring, warmup_steps=warmup_steps)
    except ConfigError:
        rules = ()
    sentences = explain(
        rules,
        budgets=BudgetLimits.from_config(monitoring),
        bricks=monitoring.get("bricks") or {},
    )
    sentences += tuple(
        f"a healthy run's first gradients may reach {first_gradients:g}, where {rule.condition} "
        f"holds: leave them room, or it may {rule.action} one"
        for rule in rules
        if rule.condition.metric == "optim/grad_norm"
        and rule.action in ("pause", "rollback", "stop")
        if first_gradients > 0 and rule.condition.is_plain
        if rule.condition.is_bad(first_gradients)
    )
    if vocab_size is None or vocab_size < 2:
        return sentences
    start = math.log(vocab_size)
    asleep = tuple(
        f"a fresh model starts at loss ln({vocab_size:,}) = {start:.2f}, where {rule.condition} "
        "holds: the rule sleeps until it arms"
        for rule in rules
        if rule.condition.metric in _LOSSES and rule.condition.is_plain
        if rule.condition.is_bad(start)
    )
    return sentences + asleep


def andon_problems(monitoring: Mapping[str, Any], *, file: str = "") -> tuple[Problem, ...]:
    """The unusable rules of a `monitoring` section, each with the file it stands in."""
    try:
        rules_from(monitoring, warmup_steps=0)
    except ConfigError as error:
        return tuple(replace(problem, file=file) for problem in error.problems)
    return ()
