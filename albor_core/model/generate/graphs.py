"""Steps of decoding as CUDA graphs: one for each number of slots, replayed at every position.

The host says which tokens stand where; a graph reads that from buffers of its own. Slots beyond the
sequences get a token at position 0, in a part of the cache that no sequence reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from albor_core.model.generate.draw import draw

Step = Callable[[Tensor, Tensor], Tensor]
"""(tokens, positions) of the first slots to logits; launches only."""


class DecodeGraphs:
    """Captured when they are first asked for; a capture runs the step twice."""

    def __init__(self, step: Step, slots: int, device: torch.device) -> None:
        self._step, self._slots = step, slots
        self._host = torch.zeros(2, slots, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._fed = torch.zeros(2, slots, dtype=torch.int64, device=device)
        self._graphs: dict[tuple[int, bool], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._pool: Any = None

    def __call__(self, tokens: Sequence[int], positions: Sequence[int], *, greedy: bool) -> Tensor:
        """For each sequence the most likely token, as of `draw`, or its logits. The result is
        overwritten by the next call.
        """
        number = len(tokens)
        self._host.zero_()
        self._host[0, :number] = torch.tensor(tokens)
        self._host[1, :number] = torch.tensor(positions)
        self._fed.copy_(self._host, non_blocking=True)
        key = rows_of(number, self._slots), greedy
        if key not in self._graphs:
            self._graphs[key] = self._captured(partial(self._work, *key))
        graph, found = self._graphs[key]
        graph.replay()
        return found[:number]

    def _work(self, rows: int, greedy: bool) -> Tensor:
        logits = self._step(self._fed[0, :rows], self._fed[1, :rows])
        return draw(logits, None) if greedy else logits

    def _captured(self, work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # what is compiled or allocated once must not be captured
            work()
            work()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            found = work()
        self._pool = graph.pool()
        return graph, found


def rows_of(number: int, slots: int) -> int:
    """Slots of the graph for `number` sequences: the next power of two, or all."""
    return min(slots, 1 << (number - 1).bit_length())
