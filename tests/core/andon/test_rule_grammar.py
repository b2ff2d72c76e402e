"""No text crashes the grammar, and no rule that it takes crashes the engine."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albor_core.andon.rules.engine import RuleEngine
from albor_core.andon.rules.grammar import parse_condition
from albor_core.andon.rules.sources import Rule
from albor_core.run.errors import ConfigError

COUNT = 1000
NAMES = (
    "loss",
    "val_loss",
    "gradient_norm",
    "train/loss",
    "Loss/train",
    '"a b @ 1"',
    "mfu",
    "step_ms",
)
MACHINE = (
    "gpu.temperature",
    "gpu1.utilization",
    "gpu.memory",
    "disk_free",
    "memory_free",
    "host.cpu",
)
VALUES = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, 2.5, 1e30)
EXAMPLES = (
    "loss > 10",
    "gradient_norm > 100 for 3",
    "loss is nan",
    "val_loss rises 3",
    "tokens_per_second < 0.7 * median(200)",
    "gpu.temperature > 85 for 60s",
    "gpu.utilization < 70% for 10m",
    "no step for 120s",
    "plateau(loss, 2000) < 0.5%",
    "ema(loss, 100) rises 5% over 500",
    "disk_free < 20GB",
    "memory_free < 4GiB",
    "Loss/train > 3",
    '"recall @ 5" < 0.5',
    "gpu3.temperature >= 85",
    "gpu.memory > 90%",
    "gpu.power > 300",
    "(loss - val_loss) / 2 > 1 for 2",
    "loss is not finite for 2",
)


def number(chance):
    text = chance.choice(("0", "1", "85", "0.5", "1e9", "1e999", "32_768", ".5", "7.", "-3"))
    return text + chance.choice(("", "", "", "%", "GB", "s", "m", "K", "GiB", "xx"))


def expression(chance, names, depth=0):
    kind = chance.random()
    if kind < 0.45 or depth > 4:
        return chance.choice(names)
    if kind < 0.6:
        return number(chance)
    if kind < 0.8:
        function = chance.choice(("median", "mean", "min", "max", "ema", "plateau", "sum"))
        of = chance.choice((f"{chance.choice(names)}, ", ""))
        return f"{function}({of}{chance.choice(('1', '2', '7', '60s', '0', '100000', '1e9'))})"
    sides = (expression(chance, names, depth + 1) for _ in range(2))
    return f"({chance.choice((' + ', ' - ', ' * ', ' / ')).join(sides)})"


def random_rule(chance):
    names = chance.choice((NAMES, MACHINE, NAMES, NAMES + MACHINE))
    left, kind = expression(chance, names), chance.random()
    if kind < 0.5:
        op = chance.choice((">", "<", ">=", "<=", "==", "!=", "=>", ">>"))
        text = f"{left} {op} {expression(chance, names)}"
    elif kind < 0.65:
        text = f"{left} is {chance.choice(('nan', 'inf', 'finite', 'not nan', 'odd'))}"
    elif kind < 0.9:
        over = chance.choice(("", " over 5", " over 60s", " over"))
        text = f"{left} {chance.choice(('rises', 'falls'))} {number(chance)}{over}"
    else:
        text = f"no step for {number(chance)}"
    text += chance.choice(("", "", " for 3", " for 60s", " for 0", " for ever"))
    if chance.random() < 0.1:  # damaged
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice("()\"'%\\\0 >$\u00e9") + text[at + chance.randrange(2) :]
    return text


def rule_of(text):
    condition = parse_condition(text)
    return Rule(condition.slug, condition, "notify", "warning", text)


def test_a_thousand_random_rules_crash_neither_the_grammar_nor_the_engine():
    chance, taken = random.Random(27), 0
    for nth in range(COUNT):
        text = random_rule(chance)
        try:
            rule = rule_of(text)
        except ConfigError as error:
            assert error.hint and ("column" in error.message or "empty" in error.message), text
            continue
        taken += 1
        assert parse_condition(str(rule.condition)) == rule.condition, text
        engine = RuleEngine((rule,))
        for step in range(40):
            value = chance.choice(VALUES) if chance.random() < 0.5 else chance.gauss(3, 1)
            at = step if chance.random() < 0.9 else max(0, step - 9)
            names = [figure.key for figure in rule.condition.figures]
            engine.take_step(at, dict.fromkeys(names, value), float(nth))
            figures = {name.replace("gpu.", f"gpu{at % 2}."): value for name in names}
            engine.take_clock(1000.0 + step, figures)
            if not step % 9:
                saved = json.loads(json.dumps(engine.to_json(), allow_nan=False))
                engine = RuleEngine((rule,))
                engine.load(saved)
    assert taken > COUNT / 10  # or it would be a test of errors alone


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"[a-z_ .0-9><=%()*/+\"'-]{0,60}"))
def test_any_text_is_a_condition_or_an_error_that_a_user_can_act_on(text):
    try:
        condition = parse_condition(text)
    except ConfigError as error:
        assert error.message.startswith("alert condition ")
    else:
        assert parse_condition(str(condition)) == condition


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_reads_back_as_itself(text):
    condition = parse_condition(text)
    assert parse_condition(str(condition)) == condition
    assert condition.reads == ("machine" if condition.figures[0].is_machine else "steps")
    assert condition.slug and not set(condition.slug) - set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
    )
