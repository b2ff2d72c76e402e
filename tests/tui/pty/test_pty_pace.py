"""How much is under way on links with deep buffers: a simulated one, on a clock of its own."""

from __future__ import annotations

from collections import deque

import pytest

from albor_tui.terminal.mirror import EVERYTHING, Mirror
from albor_tui.terminal.pace import Pace


class DeepLink:
    """Takes everything at once, carries `rate` characters a second, answers `delay` s later."""

    def __init__(self, pace: Pace, rate: float, delay: float = 0.05) -> None:
        self.pace, self.rate, self.delay, self.now, self.free_at = pace, rate, delay, 0.0, 0.0
        self.due: deque[float] = deque()
        pace.asked(9, -delay)  # at the start
        pace.answered(0.0)

    def send(self, wanted: int) -> int:
        """Send a difference of `wanted` characters if the pace lets it; returns how many went."""
        if self.pace.wait_s(self.now) > 0:
            return 0
        size = min(wanted, self.pace.most)
        if self.pace.asks:
            self.pace.asked(size, self.now)
            self.free_at = max(self.free_at, self.now) + size / self.rate
            self.due.append(self.free_at + self.delay)
        self.pace.wrote(size, 0.0)
        return size

    def rest(self, seconds: float) -> None:
        """Time passes; answers arrive."""
        end = self.now + seconds
        while self.due and self.due[0] <= end:
            self.now = self.due.popleft()
            self.pace.answered(self.now)
        self.now = end

    @property
    def backlog_s(self) -> float:
        return max(0.0, self.free_at - self.now)


@pytest.mark.parametrize("rate", [300, 600, 2_400, 20_000])
@pytest.mark.parametrize("delay", [0.002, 0.3])
def test_no_more_than_about_a_second_is_under_way(rate, delay):
    link = DeepLink(Pace(), rate, delay)
    link.rest(1.0)
    link.send(12_000)  # the first screen goes out before anything is known
    link.rest(12_000 / rate + 1)
    worst = 0.0
    for _ in range(300):
        link.send(30_000)
        worst = max(worst, link.backlog_s)
        link.rest(0.1)
    assert 0 < worst < 1.5


def test_a_quick_link_is_never_held_back_however_far_away():
    link = DeepLink(Pace(), 1e7, delay=0.25)
    link.rest(1.0)
    link.send(30_000)
    link.rest(1.0)
    for _ in range(50):
        assert link.send(400) == 400
        link.rest(0.1)
    assert not link.pace.is_slow


def test_a_link_that_becomes_quick_again_carries_everything_again():
    link = DeepLink(Pace(), 500)
    for _ in range(100):
        link.send(2_000)
        link.rest(0.1)
    assert link.pace.is_slow
    link.rate, link.free_at = 1e7, link.now
    for _ in range(300):
        link.send(100_000)
        link.rest(0.1)
    assert link.pace.most == EVERYTHING


def test_a_terminal_that_never_answers_is_not_waited_for():
    pace = Pace()
    for now in range(100):
        assert pace.wait_s(float(now)) == 0
        assert not pace.asks
        pace.wrote(30_000, 0.001)
    pace.wrote(30_000, 10.0)  # but its pty can be full
    assert pace.most < 2_000


def test_an_answer_that_got_lost_costs_seconds_and_not_the_screen():
    pace = Pace()
    pace.answered(0.0)
    pace.asked(5_000, 1.0)
    assert 0 < pace.wait_s(5.0) < 15
    assert pace.wait_s(17.0) == 0
    assert not pace.is_waiting


def test_a_row_that_says_little_goes_first_and_a_long_one_is_not_forgotten():
    mirror = Mirror(80, 12)
    mirror.draw("\x1b[1;1H" + "\n".join("x" * 80 for _ in range(12)))
    mirror.next_difference()
    seen = {"short": 0, "long": 0}
    for turn in range(40):
        other = "ab"[turn % 2] * 80
        rows = "\n".join([other] * 11)
        mirror.draw(f"\x1b[1;1H{rows}\x1b[12;1H{turn:02}\x1b[1;1H")
        sent = mirror.next_difference(most=200)
        seen["short"] += "\x1b[12;" in sent
        seen["long"] += "\x1b[11;1H" in sent
    assert seen["short"] >= 15 and seen["long"] >= 2
