"""A long series in few of its own points: which ones stand for it."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albor_core.store.file.connect import open_writer, transaction
from albor_core.store.index.write import RunWriter
from albor_core.store.query.reader import Reader


def stored(path, values):
    """A store of one run with the series `x`, given as {step: value}."""
    with transaction(db := open_writer(path)):
        writer = RunWriter(db, "run")
        for at, (step, value) in enumerate(sorted(values.items())):
            writer.take_journal({"t": "m", "step": step, "wall": 1e9 + step, "v": {"x": value}}, at)
        writer.finish()
    db.close()
    return path


@given(
    st.integers(0, 2**32),
    st.integers(1, 3000),
    st.sampled_from((1, 7, 100, 5000)),
    st.integers(1, 400),
)
@settings(max_examples=60, deadline=None)
def test_an_outline_is_made_of_points_of_the_series_and_keeps_its_extremes(
    tmp_path_factory, seed, count, gap, most
):
    rnd = random.Random(seed)
    start = rnd.randrange(10_000)
    values = {start + gap * n + rnd.randrange(gap): rnd.gauss(0, 1) for n in range(count)}
    path = stored(tmp_path_factory.mktemp("outline") / "s.db", values)
    with Reader(path) as reader:
        found = reader.outline("run", "x", most)
    steps = [step for step, _, _ in found]
    assert len(found) <= most
    assert steps == sorted(set(steps))
    assert all(values[step] == value for step, value, _ in found)
    assert all(wall == 1e9 + step for step, _, wall in found)
    if count <= most:
        assert steps == sorted(values)
    if most >= 4:
        shown = [value for _, value, _ in found]
        assert (min(shown), max(shown)) == (min(values.values()), max(values.values()))
        assert (steps[0], steps[-1]) == (min(values), max(values))


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_an_odd_value_among_two_hundred_thousand_is_in_the_outline(tmp_path, odd):
    rnd = random.Random(5)
    values = {step: 2 + rnd.random() for step in range(1, 200_001)}
    values[123_457], values[61_003] = 99.0, odd
    with Reader(stored(tmp_path / "s.db", values)) as reader:
        found = {step: value for step, value, _ in reader.outline("run", "x", 300)}
    assert len(found) <= 300
    assert found[123_457] == 99.0
    assert repr(found[61_003]) == repr(odd)


def test_an_outline_of_nothing_is_empty(tmp_path):
    with Reader(stored(tmp_path / "s.db", {1: 0.5})) as reader:
        assert reader.outline("run", "x", 0) == ()
        assert reader.outline("run", "unheard", 10) == ()
