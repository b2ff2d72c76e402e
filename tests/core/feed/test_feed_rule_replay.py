"""Rules against a preview: buckets whose extremes are known and not their order."""

from __future__ import annotations

import pytest

from albor_core.andon.rules.engine import STEADY
from albor_core.andon.rules.replay import replay
from albor_core.andon.rules.sources import rules_from
from albor_core.feed.archive.rule_replay import _unfolded
from albor_core.store.rows.series import Series


def folded(values, width):
    """A series from step 1 on in buckets of `width` values."""
    parts = [values[i : i + width] for i in range(0, len(values), width)]
    steps = [1 + i * width for i in range(len(parts))]
    low, high = [min(part) for part in parts], [max(part) for part in parts]
    counts, none = [len(part) for part in parts], [0] * len(parts)
    return Series("train/loss", steps, low, high, low, low, counts, none, is_raw=width == 1)


def fired(condition, values, *, width=None, warmup_steps=2000):
    (rule,) = rules_from({"alerts": [{"condition": condition}]}, warmup_steps=warmup_steps)
    pairs = enumerate(values, 1) if width is None else _unfolded(folded(values, width), rule)
    found = replay((rule,), ((s, {"train/loss": v}) for s, v in pairs))
    return [alert.step for alert in found if alert.state == "fired"]


WILD = [10.4, 9.0, 10.2, 9.8, 9.7, 9.9, 10.1] + [9.0] * 60
BROKEN = WILD + [11.0] * 40 + [9.0] * 60


@pytest.mark.parametrize("width", [1, 2, 7, 25])
@pytest.mark.parametrize("sign", [1, -1], ids=["above", "below"])
def test_a_preview_fires_where_the_values_do_but_for_a_bucket(width, sign):
    condition = "loss > 10" if sign == 1 else "loss < -10"
    healthy, broken = ([sign * value for value in values] for values in (WILD, BROKEN))
    assert fired(condition, healthy) == fired(condition, healthy, width=width) == []
    (exact,) = fired(condition, broken)
    (coarse,) = fired(condition, broken, width=width)
    assert exact == len(WILD) + 1
    assert exact - width < coarse <= exact


def test_a_bucket_of_one_value_counts_once():
    few = [10.4] + [9.0] * (STEADY - 1) + [11.0]
    assert fired("loss > 10", few) == fired("loss > 10", few, width=1) == []


def test_a_bucket_with_an_infinite_value_fires():
    values = [9.0] * 20 + [float("inf")] + [9.0] * 9
    assert fired("loss > 10", values, width=10) == [21]
