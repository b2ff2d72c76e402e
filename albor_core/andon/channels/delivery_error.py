"""The error of a notice that did not arrive."""

from __future__ import annotations


class DeliveryError(Exception):
    """A failed delivery. `why` repeats no part of an address. `is_final`: the same notice would be
    refused again. `retry_after_s`: the time that the receiver asked to wait.
    """

    def __init__(self, why: str, *, is_final: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.why, self.is_final, self.retry_after_s = why, is_final, retry_after_s
