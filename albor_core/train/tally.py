"""What a log interval adds up to, on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_FIELDS = (
    *("loss_sum", "finite", "odd_loss", "norm", "skipped", "in_a_row", "worst_row"),
    *("largest", "spikes"),
)


@dataclass(frozen=True)
class Readings:
    """One interval. `loss` is the mean of its sound losses in nats per token (finite and above 0:
    cross-entropy is), NaN or infinite if it had none; `grad_norm` the largest, NaN if one was, so
    that no spike hides in between.
    """

    loss: float
    grad_norm: float
    skipped: int
    worst_row: int
    """The most steps in a row that were skipped, counting from earlier intervals."""
    largest: float = 0.0
    """Largest sound loss, 0 if there was none."""
    spikes: int = 0
    """Steps whose gradient ZClip scaled down."""


def is_sound(loss: Tensor) -> Tensor:
    """Whether a loss can be one: finite, and not the zero of a kernel that never ran."""
    return torch.isfinite(loss) & (loss > 0)


def readings_of(values: Sequence[float]) -> Readings:
    """From what `Tally.take` gave."""
    loss_sum, finite, odd, norm, skipped, _, worst, largest, spikes = values
    loss = loss_sum / finite if finite else odd
    return Readings(loss, norm, int(skipped), int(worst), largest, int(spikes))


class Tally:
    """Accumulators of the interval. Part of a checkpoint, which may fall inside an interval."""

    def __init__(self, device: torch.device) -> None:
        self._values = torch.zeros(len(_FIELDS), dtype=torch.float64, device=device)
        passed_on = [float(name in ("in_a_row", "worst_row")) for name in _FIELDS]
        self._passed_on = torch.tensor(passed_on, dtype=torch.float64, device=device)

    def add(
        self,
        loss: Tensor,
        norm: Tensor,
        skip: Tensor,
        counts: Tensor,
        spike: Tensor | float = 0.0,
    ) -> None:
        """One step: its loss, gradient norm, whether its update was skipped (1 or 0), whether that
        counts against the run (an fp16 overflow while the scale is being found does not), and
        whether ZClip scaled the gradient down.
        """
        loss, norm = loss.double(), norm.double()
        loss_sum, finite, odd, norms, skipped, in_a_row, worst, largest, spikes = (
            self._values.unbind()
        )
        sound = is_sound(loss)
        in_a_row = torch.where(counts > 0, in_a_row + 1, torch.where(skip > 0, in_a_row, 0.0))
        self._values = torch.stack(
            (
                loss_sum + torch.where(sound, loss, 0.0),
                finite + sound,
                torch.where(sound, odd, torch.where(loss == 0, torch.nan, loss)),
                torch.maximum(norms, norm),
                skipped + skip,
                in_a_row,
                torch.maximum(worst, in_a_row),
                torch.maximum(largest, torch.where(sound, loss, 0.0)),
                spikes + spike,
            )
        )

    def take(self) -> Tensor:
        """What `readings_of` reads, on the device; the next interval starts. Nothing waits."""
        taken = self._values
        self._values = self._passed_on * taken[_FIELDS.index("in_a_row")]
        return taken

    def to_json(self) -> list[str]:
        """Exact, and NaN survives JSON. Waits for the device."""
        return [float(value).hex() for value in self._values.tolist()]

    def load(self, saved: list[str]) -> None:
        """What `to_json` gave; fields that came later begin at 0."""
        values = [float.fromhex(text) for text in saved]
        self._load(values + [0.0] * (len(_FIELDS) - len(values)))

    def forgive(self) -> None:
        """Begin a new row of skipped steps, after a rollback. Waits for the device."""
        values = self._values.tolist()
        values[_FIELDS.index("in_a_row")] = values[_FIELDS.index("worst_row")] = 0.0
        self._load(values)

    def reset(self) -> None:
        self._load([0.0] * len(_FIELDS))

    def _load(self, values: list[float]) -> None:
        self._values = torch.tensor(values, dtype=torch.float64, device=self._values.device)
