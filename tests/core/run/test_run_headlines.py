"""One table says what the headline figures are called: what follows it, and what must keep up."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from albor_core.feed.view.run_view import RunView
from albor_core.run.headlines import (
    COLUMNS,
    HEADLINES,
    HOUSE_NAMES,
    LIVE,
    STORED,
    recorded_names,
    unit_of,
)
from albor_core.run.state import StateWriter
from albor_core.run.tracked_state import LiveState
from albor_core.run.values.metrics import Odd, tidy
from albor_core.store.file.schema import expected_columns
from albor_core.store.query.conditions import NUMBERS
from albor_core.store.rows import rows
from albor_core.store.rows.run_row import RunRow


def test_what_the_store_keeps_has_a_column_a_field_and_a_place_in_filters():
    names = {one.name for one in STORED}
    assert names <= {field.name for field in fields(RunRow)}
    assert names <= NUMBERS.keys()
    assert {one.name for one in COLUMNS} <= {*expected_columns()["runs"]}


def test_every_figure_has_a_field_in_the_view_that_may_be_unknown():
    hints = get_type_hints(RunView, None, vars(rows))
    assert {one.name: hints.get(one.name) for one in HEADLINES if one.name != "tokens"} == {
        one.name: float | None for one in HEADLINES if one.name != "tokens"
    }
    assert {one.history for one in HEADLINES if one.history} <= hints.keys()


def test_no_name_means_two_figures():
    said = [(one.name, one.state) for one in HEADLINES]
    assert len({name for name, _ in said}) == len(said)
    states = [state for _, state in said if state]
    assert len(set(states)) == len(states)
    aliases = [alias for one in HEADLINES for alias in one.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not HOUSE_NAMES.keys() & {one.key for one in HEADLINES}


@pytest.mark.parametrize("said", ["Loss/train", "loss/train", "train_loss", "Train/Loss", "loss"])
def test_a_loss_is_known_by_what_other_trackers_call_it(said):
    assert recorded_names((said, "x")) == ("train/loss", "x")


def test_two_names_of_one_figure_in_one_call_lose_neither():
    assert recorded_names(("loss", "Loss/train")) == ("train/loss", "Loss/train")
    assert recorded_names(("loss", "train/loss")) == ("loss", "train/loss")
    assert tidy({"eval_loss": 1.0, "val_loss": 2.0}, Odd()) == {"val/loss": 1.0, "val_loss": 2.0}


@pytest.mark.parametrize("one", LIVE, ids=lambda one: one.name)
def test_what_a_foreign_loop_logs_is_in_its_state_file(tmp_path, one):
    state = StateWriter(tmp_path / "training_state.json", run_id="r", attempt=1, nonce="n")
    live = LiveState(state, max_steps=None)
    live.take({one.key: 0.25}, step=3)
    assert live.refresh(3)
    assert state.fields[one.state] == 0.25
    if one.history:
        assert state.fields[one.history] == [0.25]


def test_a_metric_is_written_by_its_key_or_by_its_last_part():
    assert unit_of("perf/mfu") == unit_of("eval/mfu") == "share"
    assert unit_of("val/loss") == "loss"
    assert unit_of("val/accuracy") == ""
