"""Facts that the health of a run is judged against, known when an attempt begins. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from albor_core.andon.health.curve import Curve
from albor_core.andon.health.schedule import Promise

CHECKS = ("gpu", "plateau", "expected_loss", "gradients", "noise", "schedule", "drift", "speed")
"""What monitoring.health.ignore may name: words are still given, alerts are not."""


@dataclass(frozen=True)
class HealthFacts:
    """Facts of a run; checks that need an unknown (None) one are skipped."""

    attempt: int = 1
    own_gpus: Collection[int] | None = None
    """Indexes, as NVML counts, of the GPUs that the run uses."""
    num_steps: int | None = None
    """The planned last step."""
    tokens_per_step: int | None = None
    tokens_per_planned_step: int | None = None
    """Of a step as the schedule counts them, where a run went on with another batch."""
    parameters: int | None = None
    """Trainable numbers of the model."""
    promise: Promise | None = None
    """What the config says of the learning rate."""
    earlier: Sequence[Curve] = ()
    """Losses of earlier runs of the same config."""
    ignore: Collection[str] = ()
    """Of CHECKS."""
    same_lr: bool = True
    """Whether `earlier` holds only runs of the same optimizer.lr."""
    may_be_zero: bool = False
    """Whether a loss of exactly 0 is sound."""
    is_enabled: bool = True

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        attempt: int = 1,
        num_steps: int | None = None,
        own_gpus: Collection[int] | None = None,
        parameters: int | None = None,
        earlier: Sequence[Curve] = (),
    ) -> Self:
        """The facts in a resolved config, or in what a tracked program calls its config; missing
        ones are unknown. `num_steps` comes from the data if the config does not have it.
        """
        training, data = _section(config, "training"), _section(config, "data")
        health = _section(_section(config, "monitoring"), "health")
        steps = num_steps or _whole(training.get("max_steps"))
        sizes = [
            _whole(one)
            for one in (
                data.get("batch_size"),
                data.get("seq_len"),
                training.get("gradient_accumulation"),
            )
        ]
        tokens = None
        if None not in sizes:
            tokens = 1
            for size in sizes:
                tokens *= size or 1
        ignore = health.get("ignore")
        return cls(
            attempt=attempt,
            own_gpus=own_gpus,
            num_steps=steps,
            tokens_per_step=tokens,
            parameters=parameters,
            promise=Promise.from_config(config, steps),
            earlier=earlier,
            ignore=tuple(ignore) if isinstance(ignore, list | tuple) else (),
            same_lr=health.get("same_lr") is not False,
            is_enabled=health.get("enabled") is not False,
        )

    def on_clock(self, *, num_steps: int, tokens_per_planned_step: int) -> Self:
        """The facts of a resumed run: its planned steps count batches of the size with which it
        began."""
        promise = self.promise
        if promise is not None:
            promise = replace(promise, num_steps=float(num_steps))
        return replace(
            self,
            num_steps=num_steps,
            promise=promise,
            tokens_per_planned_step=tokens_per_planned_step,
        )


def _section(config: Any, name: str) -> Mapping[str, Any]:
    found = config.get(name) if isinstance(config, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _whole(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if is_whole else None
