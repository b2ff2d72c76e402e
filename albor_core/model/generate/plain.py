"""The oracle of the engine: each token from a forward over everything before it, without a cache.

Slow, and for any model: training samples with it where a forward needs every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from albor_core.model.generate.draw import NOT_FINITE, draw, knobs_of
from albor_core.model.generate.engine import Completion, NotFiniteError
from albor_core.model.generate.sampling import Sampling


@torch.no_grad()
def generate_plainly(
    logits_of: Callable[[Tensor], Tensor],
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    max_context: int,
    device: torch.device | None = None,
) -> Completion:
    """Generate tokens after `prompt` without a key/value cache: each step reads all ids anew.

    `logits_of` maps ids (1, T) to logits (1, T, V). Raises NotFiniteError.
    """
    ids = [*prompt]
    where = torch.device("cpu") if device is None else device
    for _ in range(min(sampling.max_new_tokens, max_context - len(prompt))):
        logits = logits_of(torch.tensor([ids], device=where))[:, -1]
        token = int(draw(logits, knobs_of([sampling], [len(ids)], where)))
        if token == NOT_FINITE:
            raise NotFiniteError
        if token in sampling.stop_ids:
            return Completion(tuple(ids[len(prompt) :]), "stop")
        ids.append(token)
    return Completion(tuple(ids[len(prompt) :]), "length")
