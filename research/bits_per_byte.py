"""Bits per byte of any causal model on texts, by the rule of `albor eval`'s kind text.

Each text stands behind one token that begins it; windows are as long as the model's context, and
each but the first of a text scores the half that follows what it has read. Every token is scored
once, so the sum of nats is that of all bytes: bpb = nats / (ln 2 * bytes of UTF-8). For a model
that never read a row without that token each window begins with it, and has the same length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from albor_core.eval.kinds.windows import windows

UNSCORED = -1
Nats = Callable[[Tensor, Tensor], Tensor]
"""(ids (B, T), targets (B, T), UNSCORED where nothing counts) -> their nats, (B T,); 0 there."""


def rows_of(
    texts: Sequence[Sequence[int]], first: int, context: int, *, always: bool = False
) -> Iterator[tuple[list[int], list[int]]]:
    """(ids, targets) of at most `context` tokens; each token of `texts` is a target once. `always`:
    `first` begins each row, not those alone that a text begins with.
    """
    stride = (context + 1) // 2
    for ids in texts:
        pairs = windows(ids, first=first, window=context - always, stride=stride)
        for number, (before, scored) in enumerate(pairs):
            whole = [*([first] if always and number else []), *before, *scored]
            yield whole[:-1], [UNSCORED] * (len(whole) - len(scored) - 1) + scored


@torch.no_grad()
def bits_per_byte(
    nats: Nats,
    texts: Sequence[Sequence[int]],
    num_bytes: int,
    *,
    first: int,
    context: int,
    batch: int,
    device: torch.device,
    always: bool = False,
) -> float:
    """`texts` are token ids; `num_bytes` what all of them stand for. Batches have one shape,
    (batch, context), filled up at the right, where a causal model does not look.
    `always` as in rows_of.
    """
    ids = torch.zeros(batch, context, dtype=torch.int64)
    targets = torch.full((batch, context), UNSCORED, dtype=torch.int64)
    total = torch.zeros((), dtype=torch.float64, device=device)
    row = 0

    def score() -> None:
        nonlocal row, total
        total += nats(ids.to(device), targets.to(device)).double().sum()
        targets.fill_(UNSCORED)
        row = 0

    for read, wanted in rows_of(texts, first, context, always=always):
        ids[row, : len(read)] = torch.tensor(read)
        targets[row, : len(wanted)] = torch.tensor(wanted)
        row += 1
        if row == batch:
            score()
    if row:
        score()
    return total.item() / (math.log(2) * num_bytes)
