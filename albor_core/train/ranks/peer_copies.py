"""Gradients of two GPUs of one host, added up beside a backward: copied by the copy engines.

NCCL adds up on multiprocessors, which a product that fills the card in one wave has to wait for.
Copy engines take none: each rank copies its gradients into the other's memory as layers are done,
and adds what came at the end. Both add the same two numbers, so both get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from albor_core.train.ranks.group import Ranks

RANKS = 2
"""Each of more would have to take in the gradients of all others."""


class PeerCopies:
    """The sum over two ranks of one buffer, in place."""

    def __init__(
        self, gradient: Tensor, arrived: Tensor, theirs: Tensor, meet: Callable[[], object]
    ) -> None:
        """`arrived` is as `gradient`, written to by the other rank as `theirs` is by this one.
        `meet` lets the device wait until the other's has come as far.
        """
        self._gradient, self._arrived, self._theirs, self._meet = gradient, arrived, theirs, meet
        self._aside: Any = None
        if gradient.is_cuda:
            self._aside = torch.cuda.Stream(gradient.device)  # type: ignore[no-untyped-call]

    def send(self, begin: int, end: int) -> None:
        """Copy a finished part to the other rank, in parallel with the device's next work."""
        if self._aside is not None:
            self._aside.wait_stream(torch.cuda.current_stream())
        with nullcontext() if self._aside is None else torch.cuda.stream(self._aside):
            self._theirs[begin:end].copy_(self._gradient[begin:end], non_blocking=True)

    def add(self) -> None:
        """Every part was sent: wait for the other's, and add them."""
        if self._aside is not None:
            torch.cuda.current_stream().wait_stream(self._aside)
        self._meet()
        self._gradient.add_(self._arrived)
        self._meet()  # before the next step's are written over these


def peer_copies(ranks: Ranks, gradient: Tensor) -> tuple[PeerCopies | None, str]:
    """For all of `gradient`, as large as it besides; or why there are none. A collective."""
    faults = ranks.first(_hindrance(ranks, gradient))
    if faults or not ranks.is_one_host():
        return None, faults or "ranks are on several hosts"
    made = None
    try:
        made = _mapped(ranks, gradient)
    except (RuntimeError, ImportError) as error:
        faults = f"{type(error).__name__}: {str(error)[:300]}"
    faults = ranks.first(faults)
    return (None if faults else made), faults


def _hindrance(ranks: Ranks, gradient: Tensor) -> str:
    if not gradient.is_cuda:
        return "no GPU"
    if ranks.world_size != RANKS:
        return f"{ranks.world_size} ranks, not {RANKS}"
    mine = torch.cuda.current_device()
    others = [card for card in range(torch.cuda.device_count()) if card != mine]
    if not any(torch.cuda.can_device_access_peer(mine, card) for card in others):
        return "no GPU here reaches another's memory"
    return ""


def _mapped(ranks: Ranks, gradient: Tensor) -> PeerCopies:
    from torch.distributed import _symmetric_memory as symmetric  # noqa: PLC0415  only here

    arrived = symmetric.empty(gradient.shape, dtype=gradient.dtype, device=gradient.device)
    memory = symmetric.rendezvous(arrived, ranks.device_group)
    other = 1 - ranks.rank
    theirs = memory.get_buffer(other, gradient.shape, gradient.dtype)
    return PeerCopies(gradient, arrived, theirs, lambda: memory.barrier(0))
