"""The curve of the learning rate in a plan is the one that the trainer follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from albor_core.config.load import parse_config
from albor_core.plan.curve import ROWS, drawn, marks, points, promise_of
from albor_core.train.optim.schedules import DECAYS, Schedule

RAW = (Path(__file__).parents[1] / "config" / "pretrain-350m-v2.yaml").read_bytes()
STEPS = 5000


def told(*overrides, steps=STEPS):
    config = parse_config(RAW, file="c.yaml", overrides=overrides)
    promise = promise_of(config, steps)
    assert promise is not None
    return config, promise


@pytest.mark.parametrize("name", sorted(DECAYS))
@pytest.mark.parametrize("fall", ["null", "1000"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_every_column_is_as_high_as_the_rate_of_its_step(name, fall, is_ascii):
    if name == "constant" and fall != "null":
        return  # refused with the config
    config, promise = told(f"training.lr_scheduler={name}", f"training.decay_steps={fall}")
    decay = None if fall == "null" else int(fall)
    truth = Schedule(3e-4, 3e-5, 500, STEPS, name, decay)
    assert [rate for _, rate in points(promise)] == pytest.approx(
        [truth.lr_at(step) for step, _ in points(promise)]
    )
    lines = list(drawn(config, promise, 78, is_ascii=is_ascii))[:ROWS]
    columns = [line.partition("|")[2].ljust(63) for line in lines]
    assert max(map(len, columns)) <= 63
    heights = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
    for index in range(63):
        step = 1 + (STEPS - 1) * index / 62
        cells = "".join(column[index] for column in columns)
        height = (
            cells.count("#") + 0.5 * cells.count(".")
            if is_ascii
            else sum(heights.index(cell) / 8 for cell in cells)
        )
        wanted = ROWS * truth.lr_at(step) / 3e-4
        assert height == pytest.approx(wanted, abs=0.51 if is_ascii else 1 / 16 + 1e-9)


def test_what_changes_on_the_way_is_marked_in_steps_of_the_clock():
    config, promise = told(
        *("training.gradient_accumulation=8", "training.decay_steps=1000"),
        "training.batch_ramp=[{until: 800, gradient_accumulation: 2}]",
        "training.seq_len_ramp=[{until: 1200, seq_len: 512}]",
    )
    wanted = [(500, "peak"), (800, "batch"), (1200, "length"), (4000, "decay")]
    assert marks(config, promise) == wanted
    lines = list(drawn(config, promise, 78, is_ascii=True))
    assert "step 1, peak 500, batch 800, length 1,200," in "\n".join(lines)
    ticks = lines[ROWS + 1].partition("  ")[2].strip()
    assert ticks.count("^") == 4


def test_lines_fit_the_width_and_a_length_that_is_unknown_draws_nothing():
    config, promise = told()
    for width in (40, 78, 120):
        assert max(map(len, drawn(config, promise, width, is_ascii=True))) <= width
    assert promise_of(config, None) is None
