"""What a config may choose, and what there is to choose from, are the same names."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from inspect import getmodule
from pathlib import Path
from typing import get_args

import pytest

from albor_core.andon.actions import ACTIONS
from albor_core.andon.health.facts import CHECKS
from albor_core.cli.runs.transfer.imports import import_runs
from albor_core.config.choices import (
    FUSED_OPTIMIZERS,
    AlertAction,
    HealthCheck,
    OptimizerName,
    PackingName,
    ScheduleName,
    SinkKind,
    SinkSeverity,
    WebhookFormat,
)
from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.data.pack.work.pieces import PACKINGS
from albor_core.documents.json_schema import schema_of
from albor_core.integrations.importers.find import ALBOR, IMPORTERS, SOURCES
from albor_core.kernels.dispatch import OPS
from albor_core.run.values.sink_fields import FORMATS, SINK_KINDS, THRESHOLDS
from albor_core.train.alert_actions import RESPONSES
from albor_core.train.optim.registry import OPTIMIZERS
from albor_core.train.optim.schedules import DECAYS
from albor_tui import main
from albor_tui.model.run_tabs import TABS
from albor_tui.screens.charts import overview_layout
from albor_tui.screens.tabs import overview
from albor_tui.screens.tabs.page import Page

ROOT = Path(__file__).resolve().parents[2]


def test_every_optimizer_of_a_config_can_be_built_and_no_other():
    assert tuple(OPTIMIZERS) == get_args(OptimizerName)
    flat = {name for name, entry in OPTIMIZERS.items() if entry.flat is not None}
    assert flat == FUSED_OPTIMIZERS


def test_every_packing_of_a_config_is_known_and_no_other():
    assert tuple(PACKINGS) == get_args(PackingName)


def test_every_schedule_of_a_config_has_a_decay_and_no_other():
    assert tuple(DECAYS) == get_args(ScheduleName)


def test_every_action_of_a_config_has_an_effect_and_no_other():
    assert tuple(ACTIONS) == get_args(AlertAction)


def test_every_check_of_health_that_a_config_may_ignore_is_made_and_no_other():
    assert get_args(HealthCheck) == CHECKS


def test_every_sink_of_a_config_is_one_that_alerts_can_be_sent_to_and_no_other():
    assert get_args(SinkKind) == SINK_KINDS
    assert get_args(WebhookFormat) == FORMATS
    assert get_args(SinkSeverity) == THRESHOLDS


def test_the_trainer_answers_every_action_and_no_other():
    assert tuple(RESPONSES) == tuple(ACTIONS)


def test_every_importer_is_asked_for_published_and_documented_by_its_entry_alone():
    (kind,) = (option for option in import_runs.params if option.name == "kind")
    assert tuple(kind.type.choices) == SOURCES == (*IMPORTERS, ALBOR)
    run = schema_of("albor.runs.import")["properties"]["runs"]["items"]["properties"]
    assert run["source"]["enum"] == list(SOURCES)
    page = (ROOT / "docs" / "how-to" / "import-your-history.md").read_text()
    for name, importer in IMPORTERS.items():
        assert importer.name == name
        assert importer.title.partition(" (")[0] in page


def test_every_file_that_makes_an_importer_is_in_the_registry():
    folder = ROOT / "albor_core" / "integrations" / "importers"
    makes = {path.stem for path in folder.rglob("*.py") if "Importer(" in path.read_text()}
    files = {module.__name__.rpartition(".")[2] for module in map(getmodule, readers())}
    assert makes - {"foreign"} == files


def readers():
    for importer in IMPORTERS.values():
        yield importer.read.func if isinstance(importer.read, partial) else importer.read


def test_what_any_program_writes_is_asked_last():
    assert [one.only_asked for one in IMPORTERS.values()] == sorted(
        one.only_asked for one in IMPORTERS.values()
    )


def test_every_tab_has_a_page_of_its_own_a_key_and_can_be_asked_for():
    pages = {getattr(import_module(f"albor_tui.screens.tabs.{tab.key}"), tab.page) for tab in TABS}
    assert len(pages) == len(TABS) == len({tab.stroke for tab in TABS})
    assert all(issubclass(page, Page) for page in pages)
    for tab in TABS:
        assert main.parsed(["--tab", tab.key]).tab == tab.key


def test_every_page_of_a_file_is_in_the_registry_of_tabs():
    folder = ROOT / "albor_tui" / "screens" / "tabs"
    text = "\n".join(path.read_text() for path in folder.glob("*.py"))
    found = re.findall(r"^class (\w+)\((?:Paced)?Page\)", text, re.M)
    assert sorted({*found} - {"PacedPage"}) == sorted(tab.page for tab in TABS)


def test_the_names_of_tabs_load_no_widget():
    code = "import sys, albor_tui.main; print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"


def test_a_narrow_overview_shows_the_same_panels_in_another_order():
    assert sorted(overview_layout.NARROW) == sorted(overview.PANELS)


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
