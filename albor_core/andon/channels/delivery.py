"""Why a notice did not arrive."""

from __future__ import annotations


class DeliveryError(Exception):
    """`why` repeats nothing of an address. `is_final`: the same notice would be refused again.
    `retry_after_s`: how long the receiver asked to be left alone.
    """

    def __init__(self, why: str, *, is_final: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.why, self.is_final, self.retry_after_s = why, is_final, retry_after_s
