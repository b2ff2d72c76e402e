"""When silence is a hang: a made-up clock and made-up state files."""

from __future__ import annotations

from typing import Any

import pytest

from albor_core.guard.deaths.hang import HangWatch, find_hang, observe, watch
from albor_core.run.guard_options import Options

OPTIONS = Options(poll_s=15.0, stale_s=300.0)


def state(number: int, /, **changes: Any) -> dict[str, Any]:
    body = {"run_id": "r", "nonce": "n", "seq": number, "alive_seq": 0, "phase": "training"}
    return {**body, "phase_limit_s": None, **changes}


def polls(seen: HangWatch, document: Any, start_s: float, seconds: float) -> HangWatch:
    """Look every 15 s at the same document."""
    for turn in range(1, int(seconds / OPTIONS.poll_s) + 1):
        seen = observe(seen, document, start_s + turn * OPTIONS.poll_s, OPTIONS)
    return seen


def running(now_s: float = 0.0) -> HangWatch:
    return observe(watch("r", "n", now_s), state(1), now_s, OPTIONS)


def test_silence_up_to_the_limit_is_no_hang_and_one_poll_more_is() -> None:
    assert find_hang(polls(running(), state(1), 0.0, 300.0), OPTIONS) is None
    found = find_hang(polls(running(), state(1), 0.0, 315.0), OPTIONS)
    assert found is not None
    assert (found.phase, found.limit_s) == ("training", 300.0)


def test_every_new_seq_starts_the_clock_again() -> None:
    seen = polls(running(), state(1), 0.0, 290.0)
    seen = observe(seen, state(2), 290.0, OPTIONS)
    assert find_hang(polls(seen, state(2), 290.0, 300.0), OPTIONS) is None


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        {},
        state(99, nonce="other"),
        state(99, run_id="other"),
        state(99, seq="99"),
        state(99, seq=True),
        state(99, seq=None),
    ],
)
def test_garbage_is_no_news_and_kills_nothing_by_itself(garbage: Any) -> None:
    seen = polls(running(), garbage, 0.0, 285.0)
    assert find_hang(seen, OPTIONS) is None
    assert find_hang(polls(seen, garbage, 285.0, 45.0), OPTIONS) is not None


@pytest.mark.parametrize(
    ("phase", "announced", "limit"),
    [
        ("initializing", None, 900.0),
        ("preparing", None, 900.0),
        ("compiling", None, 900.0),
        ("evaluating", 200.0, 200.0),
        ("checkpointing", 5000.0, 600.0),
        ("training", 100.0, 100.0),
        ("training", 5000.0, 300.0),
        ("training", "soon", 300.0),
        ("training", -1, 300.0),
        ("training", 10**400, 300.0),
        ("nonsense", None, 300.0),
    ],
)
def test_a_phase_may_announce_its_patience_but_not_beyond_the_option(
    phase: str, announced: Any, limit: float
) -> None:
    seen = observe(running(), state(2, phase=phase, phase_limit_s=announced), 1.0, OPTIONS)
    found = find_hang(polls(seen, None, 1.0, 2000.0), OPTIONS)
    assert found is not None
    assert found.limit_s == limit


def test_a_paused_trainer_only_has_to_say_that_it_is_alive() -> None:
    seen = observe(running(), state(2, phase="paused"), 0.0, OPTIONS)
    for turn in range(1, 100):
        document = state(2, phase="paused", alive_seq=turn)
        seen = observe(seen, document, turn * 15.0, OPTIONS)
        assert find_hang(seen, OPTIONS) is None
    assert find_hang(polls(seen, document, 99 * 15.0, 315.0), OPTIONS) is not None


def test_a_live_heartbeat_thread_does_not_hide_a_loop_that_stands() -> None:
    seen = running()
    for turn in range(1, 22):
        seen = observe(seen, state(1, alive_seq=turn), turn * 15.0, OPTIONS)
    assert find_hang(seen, OPTIONS) is not None


def test_time_in_which_the_guard_slept_is_not_held_against_the_trainer() -> None:
    seen = polls(running(), state(1), 0.0, 150.0)
    seen = observe(seen, state(1), 150.0 + 36_000.0, OPTIONS)
    assert find_hang(seen, OPTIONS) is None
    woke = 150.0 + 36_000.0
    assert find_hang(polls(seen, state(1), woke, 150.0), OPTIONS) is None
    assert find_hang(polls(seen, state(1), woke, 165.0), OPTIONS) is not None
