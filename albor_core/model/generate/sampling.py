"""How tokens are chosen and where a sequence ends. No torch: the command line reads it, too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from albor_core.run.errors import UsageError

Finish = Literal["stop", "length"]
"""Why a sequence ended: a stop id, or its number of new tokens (or the context) was reached."""


@dataclass(frozen=True)
class Sampling:
    """What is drawn at a position depends on `seed`, the position and the logits there, and on no
    other sequence. Raises UsageError for values that mean nothing.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    """0: the likeliest token, always."""
    top_p: float = 1.0
    """Draw from the fewest tokens that together have this probability, after `top_k`."""
    top_k: int = 0
    """Draw from this many likeliest tokens; 0: from all."""
    seed: int = 0
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end a sequence; they do not belong to it."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise _refusal("max_new_tokens", self.max_new_tokens, "at least 1")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise _refusal("temperature", self.temperature, "0 or more")
        if not 0 < self.top_p <= 1:
            raise _refusal("top_p", self.top_p, "above 0 and at most 1")
        if self.top_k < 0:
            raise _refusal("top_k", self.top_k, "0 or more")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    @property
    def is_filtered(self) -> bool:
        """Whether some tokens are never drawn."""
        return self.top_p < 1 or self.top_k > 0


def _refusal(name: str, value: float, wanted: str) -> UsageError:
    return UsageError(f"{name} must be {wanted}, is {value}", hint="albor generate --help")
