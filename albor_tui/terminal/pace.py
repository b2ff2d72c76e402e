"""How much may be under way to a terminal.

Buffers hide a slow link from its writer: a pty holds 20 KB, sshd two megabytes, and whoever fills
them shows old news. So each difference ends with a question that terminals with synchronized output
answer at once (Textual asks it at the start; a terminal that stays silent then is never asked), and
what is not answered is under way. How long the answer took says what the link carries in half a
second, and that is all that may be sent before the next answer.
"""

from __future__ import annotations

import math
from collections import deque

from albor_tui.terminal.mirror import EVERYTHING

QUESTION = "\x1b[?2026$p"  # DECRQM: is output synchronized?
_SPAN_S = 0.5  # what may be under way, in time
_SLOW_S = 0.2  # a write or an answer this late met a queue
_SMALLEST = 256
_LARGEST = 1 << 16
_DEAF_S = 15.0  # an answer this late will not come


class Pace:
    """Counts bytes and answers; `now` is any clock in seconds. The owner locks."""

    def __init__(self) -> None:
        self.most = EVERYTHING  # bytes for one difference
        self.asks = False  # the terminal answers: a difference should end with the question
        self._open: deque[tuple[float, int]] = deque()  # asked when, after how many bytes
        self._quickest = 0.0  # what an answer takes where nothing is in its way

    @property
    def is_slow(self) -> bool:
        """Whether not everything fits."""
        return self.most < EVERYTHING

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is due."""
        return self.asks and bool(self._open)

    def wait_s(self, now: float) -> float:
        """Seconds without an answer after which more may be sent; 0 is at once."""
        if not self.is_waiting:
            return 0.0
        under_way = sum(size for _, size in self._open)
        is_late = now - self._open[0][0] > self._quickest + _SPAN_S
        if not is_late and under_way < min(self.most, _LARGEST):
            return 0.0
        left = self._open[-1][0] + _DEAF_S - now
        if left > 0:
            return left
        self._open.clear()
        self._learn(under_way, _DEAF_S)
        return 0.0

    def asked(self, size: int, now: float) -> None:
        """A difference of `size` bytes goes out with the question, or the question alone."""
        self._open.append((now, size))

    def wrote(self, size: int, seconds: float) -> None:
        """How long the write of so many bytes took."""
        if seconds > _SLOW_S or not self.asks:  # a quick write may have filled a buffer
            self._learn(size, seconds)

    def forget(self) -> None:
        """Stop expecting answers."""
        self._open.clear()

    def answered(self, now: float) -> None:
        """The terminal has read up to the oldest question."""
        self.asks = True
        if not self._open:
            return
        asked, size = self._open.popleft()
        self._quickest = min(self._quickest or math.inf, now - asked)
        self._learn(size, now - asked - self._quickest)

    def _learn(self, size: int, seconds: float) -> None:
        if seconds > _SLOW_S:
            self.most = max(_SMALLEST, int(size / seconds * _SPAN_S))
        elif size >= self.most:
            self.most *= 2
        if self.most > _LARGEST:
            self.most = EVERYTHING
