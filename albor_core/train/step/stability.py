"""Verdicts on a run's path: a loss spike, a row of NaN, parameters without a gradient.

Pure functions of numbers that a log interval reads anyway.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from albor_core.config.sections.training import StabilityConfig
from albor_core.train.step.interval_totals import Readings

FLOW_STEPS = 2
LAYERS = 12  # whose gradient norms are kept as series
LAYER_EVERY = 10  # log intervals between two values of those
_LAYER = re.compile(r"\blayers\.(\d+)\.")


def group_of(parameter: str) -> str:
    """embedding, head, attention, mlp or norm: a few words that stay readable at any depth."""
    for part, group in (
        ("embed_tokens", "embedding"),
        ("lm_head", "head"),
        ("norm", "norm"),
        ("self_attn", "attention"),
        ("mlp", "mlp"),
    ):
        if part in parameter:
            return group
    return "other"


def group_norms(norms: Mapping[str, float]) -> dict[str, float]:
    """Gradient norm of each group of parameters, from the norm of each parameter."""
    squares: dict[str, float] = {}
    for name, norm in norms.items():
        group = group_of(name)
        squares[group] = squares.get(group, 0.0) + norm * norm
    return {group: math.sqrt(square) for group, square in squares.items()}


def layer_norms(norms: Mapping[str, float]) -> dict[str, float]:
    """Gradient norm of each layer under its journal key, of at most LAYERS, the first and the last
    among them, evenly spread: a deep model has no more series than a shallow one.
    """
    squares: dict[int, float] = {}
    for name, norm in norms.items():
        if found := _LAYER.search(name):
            layer = int(found[1])
            squares[layer] = squares.get(layer, 0.0) + norm * norm
    layers = sorted(squares)
    if len(layers) > LAYERS:
        layers = [layers[round(i * (len(layers) - 1) / (LAYERS - 1))] for i in range(LAYERS)]
    return {f"optim/grad_norm_layer_{layer:02d}": math.sqrt(squares[layer]) for layer in layers}


class GradientFlow:
    """Whether every trainable parameter gets a gradient in the first steps of an attempt.

    Two steps and not one: behind a weight that begins at zero there is none in the first. Steps
    that are skipped or have nothing to learn are not evidence.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.without: frozenset[str] = frozenset()
        """Parameters that have had no gradient so far."""

    @property
    def is_open(self) -> bool:
        return self.steps < FLOW_STEPS

    @property
    def is_broken(self) -> bool:
        return not self.is_open and bool(self.without)

    def see(self, norms: Mapping[str, float], loss: float = math.nan) -> None:
        """The gradient norm of each trainable parameter after a step of that loss; 0.0 where there
        was none, as there need not be at a loss of 0.
        """
        if loss == 0.0 or not all(math.isfinite(norm) for norm in norms.values()):
            return
        silent = frozenset(name for name, norm in norms.items() if norm == 0.0)
        self.without = silent if self.steps == 0 else self.without & silent
        self.steps += 1


@dataclass(frozen=True)
class Trouble:
    """Why the path since `step` (its first bad one) should not be gone on with."""

    reason: str
    """nan_limit, loss_spike, or andon: asked for."""
    step: int
    message: str


def find_trouble(readings: Readings, *, step: int, sound: int, nan_limit: int) -> Trouble | None:
    """The verdict on the log interval that ended with `step`; `sound` as in Progress, before it."""
    if readings.worst_row >= nan_limit:
        first = min(sound, step - readings.worst_row) + 1
        row = f"{readings.worst_row} steps in a row without a finite loss and gradient"
        return Trouble("nan_limit", first, row)
    if (spike := readings.spike) is None:
        return None
    message = f"loss {spike.loss:.4g}, {spike.times:.1f} times its mean, high for some steps"
    return Trouble("loss_spike", min(sound, step - spike.steps) + 1, message)


def times_in_a_row(before: int, last_trouble: int | None, target: int) -> int:
    """How many rollbacks in a row one to `target` makes: a checkpoint beyond the last trouble is
    proof that the run had got over it.
    """
    return 1 if last_trouble is None or target > last_trouble else before + 1


def may_go_back(times: int, stability: StabilityConfig) -> bool:
    """Whether rollback number `times` in a row is still allowed."""
    return times <= stability.max_rollbacks
