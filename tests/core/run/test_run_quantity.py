"""One value reads alike wherever it is shown."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.cli.common.follow import progress_line
from albor_core.cli.runs.show_text import _artefacts
from albor_core.config.load import parse_config
from albor_core.plan.estimates import Disk, Duration
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.plan.plan import Plan, plan
from albor_core.plan.text import render
from albor_core.run.values import quantity
from albor_tui.look import quantity as cockpit
from albor_tui.widgets.plan_panel import plan_lines

GIB = 1 << 30


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "key", "2 keys"),
        (0, "run", "0 runs"),
    ],
)
def test_the_plural_of_a_noun_is_regular(number, noun, text):
    assert quantity.counted(number, noun) == text


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (quantity.byte_size, 999, "999 B"),
        (quantity.byte_size, 1023, "1.00 KiB"),
        (quantity.byte_size, 9.27 * GIB, "9.27 GiB"),
        (quantity.byte_size, 1000 << 20, "0.98 GiB"),
        (quantity.byte_size, -(80 << 30), "-80.0 GiB"),
        (quantity.byte_size, 10**400, "inf"),
        (quantity.duration, 125, "2m 05s"),
        (quantity.duration, 11_400, "3h 10m"),
        (quantity.duration, 4 * 86_400, "4d"),
        (quantity.duration, 4 * 86_400 + 6 * 3600, "4d 06h"),
        (quantity.duration, 250 * 86_400 + 3600, "250d"),
        (quantity.duration, -5, "-"),
        (quantity.age, 47 * 3600, "1d"),
        (quantity.milliseconds, 12_500, "12.5 s"),
        (quantity.milliseconds, 0.4, "0.4 ms"),
        (quantity.milliseconds, 0.02, "0.02 ms"),
        (quantity.milliseconds, 0.0049, "0.0049 ms"),
        (quantity.milliseconds, 1e-7, "<0.001 ms"),
        (quantity.milliseconds, 0, "0.0 ms"),
        (quantity.short_count, 1_200_000, "1.20M"),
        (quantity.short_count, 7_241_000_000, "7.24B"),
        (quantity.percent, 0.413, "41%"),
        (quantity.count, math.nan, "NaN"),
        (quantity.count, None, "-"),
    ],
)
def test_a_quantity_has_one_text(write, value, text):
    assert write(value) == text


@given(st.floats(5e-324, 1e6), st.integers(0, 3))
def test_no_number_above_0_reads_as_0(value, decimals):
    said = quantity.fine(value, decimals)
    assert float(said) == pytest.approx(value, rel=0.05, abs=0.5 * 10**-decimals)
    assert float(said) > 0
    assert len(said) < 340


def test_a_rate_is_a_short_count_in_a_second():
    assert quantity.rate(845_123.4, "tokens") == "845k tokens/s"


@given(st.none() | st.integers(0, 10**18) | st.floats(0, 1e18))
def test_a_cell_of_the_cockpit_has_the_number_and_the_unit_of_the_cli(value):
    for full, cell in (
        (quantity.byte_size, cockpit.byte_cell),
        (quantity.duration, cockpit.duration),
        (quantity.milliseconds, cockpit.milliseconds),
    ):
        told = full(value).replace(" ", "").replace("iB", "i")
        assert cell(value) == (cockpit.count(None) if value is None else told)
    assert value is None or cockpit.byte_size(value) == quantity.byte_size(value)


@cache
def a_plan() -> Plan:
    raw = (Path(__file__).parents[1] / "config" / "pretrain-350m-v2.yaml").read_bytes()
    facts = PlanFacts(
        config_path=Path("c.yaml"), train=SplitFacts(Path("train")), val=None, tokenizer=None,
        device="cpu", device_name="", device_memory_bytes=None, peak_flops=None, cpu_count=8,
        disk_free_bytes=None, git_commit="", git_dirty=False,
    )  # fmt: skip
    return plan(parse_config(raw, file="c.yaml"), facts)


@given(st.integers(0, 10**16), st.floats(0, 1e9))
def test_plan_cli_and_cockpit_tell_the_same_bytes_and_time(size, seconds):
    disk, took = Disk(size, 1, size), Duration(seconds, "a rate", 100.0, 1e6, seconds, seconds)
    made = replace(a_plan(), disk=disk, duration=took)
    told, panel = render(made), [line.plain for line in plan_lines(made.to_json(), 200)]
    size_words, took_words = quantity.byte_size(size), quantity.duration(seconds)
    assert f"(1 checkpoints of {size_words} at once), {size_words} free" in told
    assert f"about {took_words}, between {took_words} and {took_words}" in told
    artefact = {"name": "a", "kind": "b", "is_gone": False, "step": 1, "wall": 0, "hash": ""}
    assert f"  {size_words}  " in next(_artefacts([artefact | {"bytes": size}], None))
    state = {"phase": "training", "eta_seconds": seconds}
    assert progress_line(state, None).endswith(f"eta {took_words}")
    assert any(f"{size_words} at most, {size_words} free" in line for line in panel)
    assert any(f"about {took_words.replace(' ', '')}, assuming a rate" in line for line in panel)
