"""The processes that train together, as each of them sees the others.

Rank 0 decides, the others obey. It alone looks at clocks, signals, commands, rules and files, and
tells the rest what to do next (`Word`); what a step computes follows from the order, the config and
the data, so every rank goes through the same collectives and comes to the same bits of weights. An
order costs one small message on the host; no device waits for it.

Alone (world_size 1) nothing here does anything.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from albor_core.run.liveness import boot_id
from albor_core.train.ranks.launched import MEETING, meeting_store
from albor_core.train.ranks.rank_processes import STORE_FD

# A rank waits for orders as long as a pause lasts; if rank 0 dies, so does the rank.
_FOR_EVER = timedelta(days=365)
# Of a collective on the device: the guard, which knows phases, is meant to be faster.
_COLLECTIVE_LIMIT = timedelta(hours=1)


class Word(IntEnum):
    """What rank 0 orders."""

    STEP = 1
    """Take optimizer step `step`, with which the run has seen `sequences`, on the global batch of
    `batch` that begins at `at`."""
    CHOOSE = 2
    """Find the step to train with."""
    RESTORE = 3
    """Go to the checkpoint of step `step`."""
    START_OVER = 4
    """Go to the beginning."""
    VALIDATE = 5
    """Validation batches `at`, `at` + 1, ..., one each."""
    FORWARD = 6
    """`step` x `at` ids follow: take part in a forward of the model."""
    GATHER = 7
    """Take part in putting the whole state together."""
    COMPARE = 8
    """Say what the weights add up to."""
    END = 9
    """Leave."""
    PLAIN = 10
    """Go on by the plain model, without kernels."""


@dataclass(frozen=True)
class RankOrder:
    """See Word."""

    word: Word
    step: int
    at: int
    sequences: int = 0
    batch: int = 0


class Ranks:
    """One process of `world_size`. Collectives: every rank calls the same ones in one order."""

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        *,
        is_sharded: bool = False,
        control: dist.ProcessGroup | None = None,
    ) -> None:
        """`control`: a gloo group for messages between hosts."""
        self.rank, self.world_size, self.is_sharded = rank, world_size, is_sharded
        self._control: Any = control

    @property
    def is_alone(self) -> bool:
        return self.world_size == 1

    # -- on the host -----------------------------------------------------------------------------

    def send_order(
        self, word: Word, step: int = 0, at: int = 0, sequences: int = 0, batch: int = 0
    ) -> None:
        """Rank 0: what everybody does next."""
        if not self.is_alone:
            assert self.rank == 0
            dist.broadcast(torch.tensor([word, step, at, sequences, batch]), 0, group=self._control)

    def next_order(self) -> RankOrder:
        """The others: wait for it."""
        said = torch.zeros(5, dtype=torch.int64)
        dist.broadcast(said, 0, group=self._control)
        word, *numbers = said.tolist()
        return RankOrder(Word(word), *numbers)

    def hand_out(self, ids: Tensor) -> Tensor:
        """Rank 0's ids (B, T) on every rank; the others bring a tensor of that shape."""
        host = ids.cpu()
        dist.broadcast(host, 0, group=self._control)
        return host.to(ids.device)

    def add_up(self, *numbers: float) -> list[float]:
        """The sums over ranks, in fp64."""
        if self.is_alone:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values, group=self._control)
        return [float(value) for value in values]

    def first(self, text: str) -> str:
        """The text of the lowest rank that has one; "" if none has."""
        if self.is_alone:
            return text
        said: list[Any] = [None] * self.world_size
        dist.all_gather_object(said, text, group=self._control)
        return next((found for found in said if found), "")

    def is_one_host(self) -> bool:
        """Whether all ranks are processes of this machine. A collective."""
        if self.is_alone:
            return True
        hosts: list[Any] = [None] * self.world_size
        dist.all_gather_object(hosts, (socket.gethostname(), boot_id()), group=self._control)
        return len(set(hosts)) == 1

    def agree(self, number: int) -> bool:
        """Whether every rank has the same number."""
        if self.is_alone:
            return True
        values = torch.tensor([number, -number])
        dist.all_reduce(values, dist.ReduceOp.MAX, group=self._control)
        highest, lowest = values.tolist()
        return bool(highest == -lowest)

    # -- on the device ---------------------------------------------------------------------------

    def mean(self, value: Tensor) -> Tensor:
        """Over ranks, in place. No host sync."""
        return self.total(value).div_(self.world_size) if not self.is_alone else value

    def total(self, value: Tensor) -> Tensor:
        """The sum over ranks, in place. No host sync."""
        if not self.is_alone:
            dist.all_reduce(value, group=self.device_group)
        return value

    @property
    def device_group(self) -> Any:
        """The process group of collectives on the device."""
        return dist.group.WORLD

    def leave(self) -> None:
        """No collective follows."""
        if not self.is_alone:
            dist.destroy_process_group()


ALONE = Ranks()


def join(*, use_cpu: bool, is_sharded: bool) -> Ranks:
    """Meet the others, whom RankProcesses or a launcher has started. Waits for the last of them."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    listener = os.environ.pop(STORE_FD, None)
    store = dist.TCPStore(  # type: ignore[attr-defined]  # its stubs export it from C alone
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world_size,
        rank == 0 and MEETING not in os.environ,
        timeout=_COLLECTIVE_LIMIT,
        wait_for_workers=False,
        master_listen_fd=None if listener is None else int(listener),
    )
    device = None
    if not use_cpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(
        "gloo" if use_cpu else "nccl",
        store=meeting_store(store),
        rank=rank,
        world_size=world_size,
        timeout=_COLLECTIVE_LIMIT,
        device_id=device,
    )
    control = dist.new_group(backend="gloo", timeout=_FOR_EVER)
    return Ranks(rank, world_size, is_sharded=is_sharded, control=control)
