from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from guard_harness import Bench, bench

from albor_core.guard.deaths.past_attempts import ledger_tail
from albor_core.run.guard_state import MOVES, GuardState


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A run with nothing in it yet; whatever a test leaves running is killed."""
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    with bench(tmp_path) as made:
        yield made
    refused = [pair for pair in steps_of(made) if pair[1] not in MOVES[pair[0]]]
    assert refused == []


def steps_of(box: Bench) -> Iterator[tuple[GuardState, GuardState]]:
    """Each state that a guard of this run was in with the next one; a new guard starts anew."""
    records = ledger_tail(box.run)  # without lines that are torn
    states = [GuardState(record["state"]) for record in records if record["t"] == "state"]
    return ((a, b) for a, b in pairwise(states) if b is not GuardState.INIT)
