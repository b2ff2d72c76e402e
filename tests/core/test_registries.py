"""What a config may choose, and what there is to choose from, are the same names."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from albor_core.andon.actions import ACTIONS
from albor_core.cli.runs.imports import KINDS
from albor_core.config.choices import FUSED_OPTIMIZERS, AlertAction, OptimizerName, ScheduleName
from albor_core.config.sections import OptimizerConfig
from albor_core.integrations.importers.find import READERS
from albor_core.kernels.dispatch import OPS
from albor_core.train.optim.registry import OPTIMIZERS
from albor_core.train.optim.schedules import DECAYS
from albor_tui import main
from albor_tui.screens import run

ROOT = Path(__file__).resolve().parents[2]


def test_every_optimizer_of_a_config_can_be_built_and_no_other():
    assert tuple(OPTIMIZERS) == get_args(OptimizerName)
    flat = {name for name, entry in OPTIMIZERS.items() if entry.flat is not None}
    assert flat == FUSED_OPTIMIZERS


def test_every_schedule_of_a_config_has_a_decay_and_no_other():
    assert tuple(DECAYS) == get_args(ScheduleName)


def test_every_action_of_a_config_has_an_effect_and_no_other():
    assert tuple(ACTIONS) == get_args(AlertAction)


def test_every_history_that_can_be_asked_for_has_a_reader_and_no_other():
    assert tuple(READERS) == KINDS


def test_every_tab_that_can_be_asked_for_has_a_page_and_no_other():
    assert tuple(tab.key for tab in run.TABS) == main.TABS
    for key in main.TABS:
        assert (ROOT / "albor_tui" / "screens" / "tabs" / f"{key}.py").is_file()


def test_every_kernel_of_an_optimizer_is_an_operation_with_a_parity_check():
    assert {op for entry in OPTIMIZERS.values() for op in entry.kernels} <= set(OPS)


@pytest.mark.parametrize("name", DECAYS)
def test_a_decay_begins_at_the_peak_and_never_leaves_the_span(name):
    rates = [DECAYS[name](1.0, 0.1, done / 100) for done in range(101)]
    assert rates[0] == pytest.approx(1.0)
    assert min(rates) >= 0.1 - 1e-12
    assert max(rates) <= 1.0 + 1e-12
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_says_of_every_group_which_rate_it_takes(name):
    expected = OPTIMIZERS[name].expected(OptimizerConfig(name=name, lr=0.01))
    assert all(values["lr"] == 0.01 for values in expected.values())
