"""The fused step: forward, backward, update; small batches are replayed as CUDA graphs.

A small batch's kernels end sooner than a host can launch the next; a replay launches all at once.
Shapes hardly change in a run, so one capture of each serves all its steps. The graphs share one
pool of memory, because what the forward keeps is what the backward frees. Large batches are
launched one kernel at a time: nothing waits there, and a pool would keep their memory from
everybody else.

Two GPUs of one host exchange the gradients of some layers while those before them are still
computed (`train/ranks/peer_copies.py`): the backward is cut into parts, each a graph. Where
micro-batches are added up it is not: only the last has something to send, and that is a smaller
share of the step. Other ranks add up all gradients behind the backward, in one message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from albor_core.andon.bricks.names import Brick
from albor_core.model.fused import FusedLlama
from albor_core.recipes.batch import Batch
from albor_core.recipes.head_loss import HeadLoss
from albor_core.train.build import BatchWeight
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip
from albor_core.train.optim.gradients import Updated
from albor_core.train.ranks.group import ALONE, Ranks
from albor_core.train.ranks.peer_copies import PeerCopies

GRAPHED_TOKENS = 32768  # of a micro-batch, at most
SENT_IN = 8  # parts of a backward; what the last waits for is an eighth, and the embedding
WARM_UP = 2  # runs before a capture: Triton compiles, cuBLAS and cuDNN choose and allocate


@dataclass
class _Shaped:
    """What runs for batches of one shape, and where these lie."""

    batch: Batch
    run: list[Callable[[], None]]
    loss: Tensor
    named: Tensor
    """(n,) the means of the head loss's columns."""


def _empty(like: Batch | None, B: int, T: int, device: torch.device) -> Batch:
    """Room for batches (B, T) that have what `like` has."""
    ids = torch.zeros((B, T), dtype=torch.int64, device=device)
    room = (like or Batch(ids)).each(lambda one: torch.zeros_like(one, device=device))
    return replace(room, ids=ids, labels=torch.zeros_like(ids))


def _copy_in(room: Batch, batch: Batch) -> None:
    assert room.labels is not None
    room.ids.copy_(batch.ids, non_blocking=True)
    room.labels.copy_(batch.targets, non_blocking=True)
    if room.document is not None:
        assert batch.document is not None
        room.document.copy_(batch.document, non_blocking=True)
    for name, tensor in room.extra.items():
        tensor.copy_(batch.extra[name], non_blocking=True)


class GraphedStep:
    """Loss, gradients and update of (B, T) micro-batches, `accumulation` of them a step."""

    clips_in = "clip+optimizer"
    """The brick in which gradients are clipped: here one graph, or one kernel a buffer."""

    def __init__(
        self,
        model: FusedLlama,
        optimizer: FlatAdamW,
        *,
        batch: tuple[int, int],
        accumulation: int,
        clip: Clip,
        ranks: Ranks = ALONE,
        copies: PeerCopies | None = None,
        like: Batch | None = None,
        head: HeadLoss | None = None,
        cuts: Sequence[int] = (),
    ) -> None:
        """Compiles, warms up and captures; changes neither weights nor optimizer. `like`: a batch
        with what all of them have beside ids and labels; `head`: what is trained for, if not the
        next token; `cuts`: pieces that some batches have their rows cut into. Without `copies`,
        which are of the matrices' gradients, ranks add these up by one message.

        ValueError where the optimizer would keep the last of several micro-batches only, or where
        micro-batches are added up and `copies` would send the last.
        """
        if accumulation > 1 and copies is not None:
            raise ValueError(f"{accumulation} micro-batches, and each would be sent")
        if accumulation > 1 and not optimizer.accumulates:
            raise ValueError(f"{accumulation} micro-batches, and the optimizer adds up none")
        self.model, self.optimizer = model, optimizer
        self.accumulation, self.clip, self.ranks, self.head = accumulation, clip, ranks, head
        self._is_last, self._divisor = True, 1.0
        device = optimizer.flat.matrices.master.device
        self._upstream = torch.full((), 1 / accumulation, device=device)
        self._total = torch.full((), torch.nan, device=device)  # of a step: warm-up skips
        self._norm = self._skip = self._spike = self._total
        self._copies = copies
        self._layers = model.last_first(1 if copies is None else SENT_IN)
        self._passing: Generator[int] | None = None
        B, T = batch
        self._is_graphed = device.type == "cuda" and B * T <= GRAPHED_TOKENS
        self._pool = torch.cuda.graph_pool_handle() if self._is_graphed else None
        self._shapes: dict[tuple[int, int], _Shaped] = {}
        whole = _empty(like, B, T, device)
        for pieces in (1, *cuts):
            shape = B * pieces, T // pieces
            room = whole if pieces == 1 else _empty(whole.cut(pieces), *shape, device)
            loss = torch.full_like(self._total, torch.nan)
            named = loss.new_zeros(0 if head is None else len(head.columns))
            self._now = _Shaped(room, [], loss, named)
            self._now.run = self._ready_to_run(
                self._forward,
                *(partial(self._backward, number) for number in range(len(self._layers))),
            )
            self._shapes[shape] = self._now
        (self._run_update,) = self._ready_to_run(self._update)

    def _ready_to_run(self, *work: Callable[[], None]) -> list[Callable[[], None]]:
        """The same, as graphs where those pay."""
        if not self._is_graphed:
            return list(work)
        self._warm_up(work)
        return [self._capture(one) for one in work]

    def _warm_up(self, run: Sequence[Callable[[], None]]) -> None:
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                for work in run:
                    work()
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # the graphs have a pool of their own

    def _capture(self, work: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        # thread_local: NCCL's watchdog may look at its events meanwhile
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return graph.replay

    def _forward(self) -> None:
        now, batch = self._now, self._now.batch
        score = None if self.head is None else self.head.bind(batch)
        now.loss = self.model.forward(
            batch.ids, self._upstream, batch.labels, batch.document, score=score
        )
        if self.head is not None and self.head.columns:
            now.named = torch.stack([self.model.sums[name] for name in self.head.columns])

    def _backward(self, part: int) -> None:
        if part == 0:
            self._passing = self.model.backward_parts(self._now.batch.ids, len(self._layers))
        assert self._passing is not None
        next(self._passing)
        if part == len(self._layers) - 1:
            self._passing.close()  # what it held is free

    def _update(self) -> None:
        self._norm, self._skip, self._spike = self.optimizer.step(self._total, self.clip)

    def forward(
        self,
        batch: Batch,
        loss_factor: float = 1.0,
        grad_factor: float = 1.0,
        *,
        weight: BatchWeight | None = None,
        is_last: bool = True,
        brick: Brick = nullcontext,
    ) -> Tensor:
        """Run the forward pass, as `PlainStep.forward`."""
        with brick("forward+loss"):
            return self._take_in(batch, loss_factor, grad_factor, weight, is_last)

    def _take_in(
        self,
        batch: Batch,
        loss_factor: float,
        grad_factor: float,
        weight: BatchWeight | None,
        is_last: bool,
    ) -> Tensor:
        divisor = self.accumulation if weight is None else weight.divisor
        now = self._now = self._shapes[(batch.ids.shape[0], batch.ids.shape[1])]
        _copy_in(now.batch, batch)
        self._divisor = divisor
        self._is_last = is_last
        shares = divisor * self.ranks.world_size  # so the sum over ranks is their mean
        self._upstream.fill_(loss_factor * grad_factor / shares)
        now.loss.fill_(torch.nan)  # which stays if nothing runs
        now.run[0]()
        return now.loss * (loss_factor / divisor)

    def named(self) -> Tensor:
        """The recipe's own figures of a micro-batch, as `PlainStep.named`."""
        return self._now.named / self._divisor

    def backward(self, micro: int, brick: Brick = nullcontext) -> None:
        """Run the backward pass of a micro-batch; gradients add up over a step's micro-batches."""
        with brick("backward"):
            for run, (begin, end) in zip(self._now.run[1:], self._ready(), strict=True):
                run()
                if self._copies is not None and begin < end:
                    self._copies.send(begin, end)
            self.optimizer.accumulate(micro)
            if not self._is_last:
                return
            matrices, vectors = self.optimizer.gradients()
            if self._copies is None:
                self.ranks.total(matrices)
            else:
                self._copies.add()
            self.ranks.total(vectors)

    def _ready(self) -> Iterator[tuple[int, int]]:
        """What of the matrices' gradients is there after each part of the backward, from, to."""
        matrices = self.optimizer.flat.matrices
        end = len(matrices.gradient)
        for first in self._layers:
            found = matrices.begin_of(f"model.layers.{first}.") if first else 0
            begin = end if found is None else found  # none of that layer is trained
            yield begin, end
            end = begin

    def norm(self) -> Tensor:
        """The norm of the gradients so far, on the device."""
        return self.optimizer.norm()

    def first_norm(self, divisor: float) -> Tensor:
        """The norm of the first of several micro-batches, by itself, on this rank."""
        return self.norm() * (divisor * self.ranks.world_size)

    def drop(self) -> None:
        """Forget the gradients so far: the next micro-batch 0 writes over them."""

    def norms(self) -> dict[str, Tensor]:
        """Gradient norm () of each parameter in the last update, before clipping."""
        return self.optimizer.norms()

    def update(self, total: Tensor, brick: Brick = nullcontext) -> Updated:
        """Clip and apply, unless `total` (the step's loss) or the norm is not finite."""
        with brick(self.clips_in):
            self._total.copy_(total)
            self._run_update()
        return Updated(self._norm, self._skip, self._skip, self._spike)
