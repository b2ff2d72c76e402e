"""The fast way over a long history says what the engine says."""

from __future__ import annotations

import math
import random

import pytest

from albor_core.andon.rules.columns import replay_columns
from albor_core.andon.rules.replay import replay
from albor_core.andon.rules.sources import rules_from

pytest.importorskip("numpy")

CONDITIONS = (
    "loss > 3.5",
    "loss <= 3 for 4",
    "loss > 3.2 for 25s",
    "loss is nan",
    "loss is not finite for 2",
    "loss rises 3",
    "loss falls 2",
    "loss < 0.9 * median(20)",
    "median(loss, 21) > 3.1",
    "loss > 1.1 * mean(30)",
    "loss > mean(loss, 10) + 0.4",
    "loss - min(loss, 40) > 0.7 for 2",
    "max(loss, 15) / 2 > 1.8",
    "plateau(loss, 60) < 0.5%",
    "plateau(loss, 7) > 1%",
    "ema(loss, 10) rises 5% over 50",
    "ema(loss, 25) > 3.1",
    "loss rises 0.4 over 12",
    "loss == 3",
)


def history(chance, count, every, odd):
    step, level, rows = chance.randrange(1, 50), 3.5, []
    for _ in range(count):
        level += chance.gauss(-0.002, 0.05) + (chance.random() < 0.01) * chance.choice((1, -1))
        level = min(max(level, 2.0), 4.5)
        value = 3.0 if chance.random() < 0.05 else level + chance.gauss(0, 0.1)
        if odd and chance.random() < 0.05:
            value = chance.choice((math.nan, math.inf, -math.inf, 0.0, 1e30))
        rows.append((step, value, 1000.0 + step * 1.5))
        step += every if chance.random() < 0.9 else every + chance.randrange(1, 9)
    return rows


def told(alerts):
    return [(a.id, a.state, a.step, repr(a.value), repr(a.threshold)) for a in alerts]


@pytest.mark.parametrize("odd", [False, True], ids=["finite", "odd"])
@pytest.mark.parametrize("text", CONDITIONS)
def test_columns_say_what_the_engine_says(text, odd):
    chance, compared = random.Random(f"{text} {odd}"), 0
    for every in (1, 1, 10):
        for more in ({}, {"cooldown_s": 60.0}, {"clear_at": 3.0}):
            is_plain = text == "loss > 3.5"
            if "clear_at" in more and not is_plain:
                continue
            (rule,) = rules_from({"alerts": [{"condition": text, **more}]}, warmup_steps=120)
            rows = history(chance, 500, every, odd)
            steps, values, walls = zip(*rows, strict=True)
            found = replay_columns(rule, steps, values, walls)
            if found is None:
                continue
            compared += 1
            key = rule.condition.metric
            assert told(found) == told(
                replay((rule,), ((step, {key: value}, wall) for step, value, wall in rows))
            )
    assert compared or odd
