"""One table says what the headline figures are called: what follows it, and what must keep up."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from albor_core.feed.view import RunView
from albor_core.run.headlines import HEADLINES, LIVE, STORED, unit_of
from albor_core.run.state import StateWriter
from albor_core.run.tracked_state import LiveState
from albor_core.store.file.schema import expected_columns
from albor_core.store.query.conditions import NUMBERS
from albor_core.store.rows import rows
from albor_core.store.rows.run_row import RunRow


def test_what_the_store_keeps_has_a_column_a_field_and_a_place_in_filters():
    names = {one.name for one in STORED}
    assert names <= {field.name for field in fields(RunRow)}
    assert names <= NUMBERS.keys()
    assert names <= {*expected_columns()["runs"]}


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
