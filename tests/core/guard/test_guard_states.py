"""Which state of a guard may follow which; conftest.py holds every guard of these tests to it."""

from __future__ import annotations

import json

import pytest
from guard_harness import OPTIONS, Bench

from albor_core.guard.launch import read_launch
from albor_core.guard.loop import Guard
from albor_core.run.guard_state import GUARD_ENDS, MOVES, GuardState, read_guard
from albor_core.run.status import ENDS


@pytest.fixture
def guard(box: Bench, monkeypatch) -> Guard:
    """One that has not begun, in this process."""
    box.prepare(**OPTIONS)
    monkeypatch.setattr("albor_core.guard.loop.become_subreaper", lambda: None)
    monkeypatch.setattr("albor_core.guard.loop.SignalPipe", lambda: None)
    made = Guard(box.run, read_launch(box.run))
    yield made
    made.ledger.close()


def test_a_guard_refuses_a_state_that_may_not_follow(guard: Guard) -> None:
    for state in (GuardState.INIT, GuardState.PAUSED, GuardState.DONE):
        with pytest.raises(AssertionError, match=f"from init to {state}"):
            guard.status.enter(state)
    assert read_guard(guard.run) is None  # nobody was told
    guard.status.enter(GuardState.PREFLIGHT)
    assert (read_guard(guard.run) or {})["state"] == "preflight"


def test_a_guard_has_a_turn_for_every_state_that_lasts(guard: Guard) -> None:
    passing = {GuardState.INIT, GuardState.COLLECTING, *map(GuardState, GUARD_ENDS)}
    assert guard._turns().keys() == set(GuardState) - passing


def test_every_state_is_reached_and_only_an_end_leads_nowhere() -> None:
    assert MOVES.keys() == set(GuardState)
    reached = {state for following in MOVES.values() for state in following}
    assert reached == set(GuardState) - {GuardState.INIT}
    assert {state for state in MOVES if not MOVES[state]} == set(GUARD_ENDS)
    assert set(GUARD_ENDS.values()) == set(ENDS)


def test_a_state_is_its_word_in_json() -> None:
    assert json.dumps({"state": GuardState.BACKOFF}) == '{"state": "backoff"}'
    assert f"{GuardState.BACKOFF}" == "backoff"
