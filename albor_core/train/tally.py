"""What a log interval adds up to, on the device: reading it is the interval's one host sync."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_FIELDS = ("loss_sum", "finite", "odd_loss", "norm", "skipped", "in_a_row", "worst_row")


@dataclass(frozen=True)
class Readings:
    """One interval. `loss` is the mean of its finite losses in nats per token, NaN or infinite if
    it had none; `grad_norm` the largest, NaN if one was, so that no spike hides in between.
    """

    loss: float
    grad_norm: float
    skipped: int
    worst_row: int
    """The most steps in a row that were skipped, counting from earlier intervals."""


class Tally:
    """Accumulators of the interval. Part of a checkpoint, which may fall inside an interval."""

    def __init__(self, device: torch.device) -> None:
        self._values = torch.zeros(len(_FIELDS), dtype=torch.float64, device=device)

    def add(self, loss: Tensor, norm: Tensor, skip: Tensor, counts: Tensor) -> None:
        """One step: its loss, gradient norm, whether its update was skipped (1 or 0), and whether
        that counts against the run (an fp16 overflow while the scale is being found does not).
        """
        loss, norm = loss.double(), norm.double()
        loss_sum, finite, odd, largest, skipped, in_a_row, worst = self._values.unbind()
        is_finite = torch.isfinite(loss)
        in_a_row = torch.where(counts > 0, in_a_row + 1, torch.where(skip > 0, in_a_row, 0.0))
        self._values = torch.stack(
            (
                loss_sum + torch.where(is_finite, loss, 0.0),
                finite + is_finite,
                torch.where(is_finite, odd, loss),
                torch.maximum(largest, norm),
                skipped + skip,
                in_a_row,
                torch.maximum(worst, in_a_row),
            )
        )

    def take(self) -> Readings:
        """Read and start the next interval. Waits for the device."""
        values = self._values.tolist()
        loss_sum, finite, odd, norm, skipped, in_a_row, worst = values
        self._load([0.0, 0.0, 0.0, 0.0, 0.0, in_a_row, in_a_row])
        loss = loss_sum / finite if finite else odd
        return Readings(loss, norm, int(skipped), int(worst))

    def to_json(self) -> list[str]:
        """Exact, and NaN survives JSON. Waits for the device."""
        return [float(value).hex() for value in self._values.tolist()]

    def load(self, saved: list[str]) -> None:
        self._load([float.fromhex(text) for text in saved])

    def _load(self, values: list[float]) -> None:
        self._values = torch.tensor(values, dtype=torch.float64, device=self._values.device)
