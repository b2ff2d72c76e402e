"""Runs a Gluon kernel's functions as plain Python, which Triton's interpreter does not.

Warps that differ take turns at random at whatever touches memory or a barrier, some more often than
others, copies arrive at random, and a product reads its operands at once or as late as it may. A
barrier that is not waited for shows as wrong numbers, one that nobody arrives at as `Stuck`. Not
shown: warps of one kind, registers, swizzles, what one unit writes and another reads (fences).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor


class Stuck(Exception):
    """Everybody waits and nothing is on its way."""


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes are there."""

    def __init__(self) -> None:
        self.ended, self.missing, self.count, self.bytes = 0, 0, 0, 0

    def move(self, arrivals: int = 0, size: int = 0) -> None:
        self.missing -= arrivals
        self.bytes += size
        if self.missing == 0 and self.bytes == 0:
            self.ended, self.missing = self.ended + 1, self.count


class Shared:
    """A tile in shared memory; views share it."""

    def __init__(self, data: Tensor, turns: Turns) -> None:
        self.data, self.turns, self.dtype = data, turns, data.dtype

    def index(self, at: int) -> Shared:
        return Shared(self.data[at], self.turns)

    def slice(self, start: int, length: int, dim: int = 0) -> Shared:
        return Shared(self.data.narrow(dim, start, length), self.turns)

    def permute(self, order: tuple[int, ...]) -> Shared:
        return Shared(self.data.permute(order), self.turns)

    def load(self, layout: object) -> Tensor:
        self.turns.switch()
        return self.data.clone()

    def store(self, value: Tensor) -> None:
        assert value.dtype is self.dtype
        self.turns.switch()
        self.data.copy_(value)


@dataclass
class Rows:
    """A descriptor of a matrix from which tiles are copied."""

    matrix: Tensor
    block: tuple[int, int]
    layout: None = None
    dtype: torch.dtype = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.matrix.dtype


@dataclass
class Pointer:
    flat: Tensor
    at: Any = 0

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.flat, self.at + offset)


class Turns:
    """Who may go on: one thread at a time, drawn at random."""

    def __init__(self, seed: int) -> None:
        self.source, self.changed = random.Random(seed), threading.Condition()
        self.waiting: dict[int, Callable[[], bool]] = {}
        self.alive: list[int] = []
        self.on_their_way: list[Callable[[], None]] = []
        self.pace: list[int] = []
        self.next, self.failure = -1, None

    def run(self, jobs: list[Callable[[], None]]) -> None:
        self.alive = list(range(len(jobs)))
        self.pace = [self.source.choice((1, 1, 8, 64)) for _ in jobs]
        threads = [
            threading.Thread(target=self._live, args=(i, job), name=str(i), daemon=True)
            for i, job in enumerate(jobs)
        ]
        for thread in threads:
            thread.start()
        with self.changed:
            self._draw()
        for thread in threads:
            thread.join(60)
            if thread.is_alive():
                self.failure = self.failure or Stuck()
        if self.failure is not None:
            raise self.failure

    def _live(self, me: int, job: Callable[[], None]) -> None:
        try:
            with self.changed:
                self._until_drawn(me)
            job()
        except BaseException as error:
            self.failure = self.failure or error
        with self.changed:
            self.alive.remove(me)
            self._draw()

    def switch(self, ready: Callable[[], bool] = lambda: True) -> None:
        """Let others go on; come back when `ready`."""
        me = int(threading.current_thread().name)
        with self.changed:
            self.waiting[me] = ready
            self._draw()
            self._until_drawn(me)
            del self.waiting[me]

    def _until_drawn(self, me: int) -> None:
        self.changed.wait_for(lambda: self.next == me or self.failure is not None)
        if self.failure is not None:
            raise self.failure

    def _draw(self) -> None:
        while self.on_their_way and self.source.random() < 0.3:
            self._deliver()
        while True:
            able = [i for i in self.alive if self.waiting.get(i, lambda: True)()]
            if able or not self.on_their_way:
                break
            self._deliver()
        if self.alive and not able:
            self.failure = self.failure or Stuck()
        paces = [self.pace[i] for i in able]
        self.next = self.source.choices(able, paces)[0] if able else -1
        self.changed.notify_all()

    def _deliver(self) -> None:
        self.on_their_way.pop(self.source.randrange(len(self.on_their_way)))()


def run(
    rooms: tuple[ModuleType, ...],
    kernel: str,
    programs: int,
    args: tuple[object, ...],
    flags: dict[str, int],
    *,
    seed: int = 0,
    never_waited_for: int | None = None,
) -> None:
    """`kernel` of the first of `rooms`; the others have what it calls. `never_waited_for`: a
    mistake, the so-manieth allocation of barriers.
    """
    turns, allocated = Turns(seed), []
    program = 0

    def allocate(kind: torch.dtype, shape: list[int], layout: object) -> Any:
        if kind is not torch.int64:
            return Shared(torch.full(shape, float("nan"), dtype=kind), turns)
        made = [Barrier() for _ in range(shape[0])]
        allocated.append(made)
        return SimpleNamespace(index=made.__getitem__) if len(shape) == 2 else made[0]

    def init(barrier: Barrier, count: int) -> None:
        barrier.missing = barrier.count = count

    def wait(barrier: Barrier, phase: int) -> None:
        skipped = never_waited_for is not None and barrier in allocated[never_waited_for]
        turns.switch(lambda: skipped or barrier.ended & 1 != phase)

    def arrive(barrier: Barrier, *, count: int = 1, pred: bool = True) -> None:
        turns.switch()
        if pred:
            barrier.move(arrivals=count)

    def expect(barrier: Barrier, size: int) -> None:
        turns.switch()
        barrier.bytes += size
        barrier.move(arrivals=1)

    def fetch(rows: Rows, place: list[int], barrier: Barrier, out: Shared) -> None:
        (row, col), (height, width) = place, rows.block

        def deliver() -> None:
            tile = rows.matrix[row : row + height, col : col + width]
            out.data.copy_(tile)  # fails if the tile is not whole
            barrier.move(size=-tile.numel() * tile.element_size())

        turns.on_their_way.append(deliver)
        turns.switch()

    products: list[Callable[[], None]] = []

    def multiply(a: Shared, b: Shared, total: Tensor, *, use_acc: bool, is_async: bool) -> Tensor:
        if not use_acc:
            total.zero_()
        product = cache(lambda: total.add_(a.data.float() @ b.data.float()))  # once
        products.append(product)
        if turns.source.random() < 0.5:
            product()
        turns.switch()
        return total

    def wait_for_products(left: int, deps: tuple[Tensor]) -> Tensor:
        turns.switch()
        while len(products) > left:
            products.pop(0)()
        return deps[0]

    def load(pointer: Pointer) -> Tensor:
        turns.switch()
        return pointer.flat[pointer.at].clone()

    def store(pointer: Pointer, value: Tensor) -> None:
        turns.switch()
        assert value.dtype is pointer.flat.dtype
        pointer.flat[pointer.at] = value

    def specialize(parts: list[tuple[Any, tuple[Any, ...]]], warps: Any, registers: Any) -> None:
        turns.run([lambda part=part: part[0](*part[1]) for part in parts])

    language = SimpleNamespace(
        program_id=lambda axis: program,
        num_programs=lambda axis: programs,
        num_warps=lambda: 4,
        arange=lambda start, end, layout: torch.arange(start, end),
        zeros=lambda shape, kind, layout: torch.zeros(shape, dtype=kind),
        static_range=range,
        minimum=lambda a, b: a.clamp(max=b) if isinstance(a, Tensor) else min(a, b),
        cast=lambda number, kind: number,
        load=load,
        where=torch.where,
        abs=torch.abs,
        exp=torch.exp,
        store=store,
        allocate_shared_memory=allocate,
        warp_specialize=specialize,
        float32=torch.float32,
        int64=torch.int64,
        **dict.fromkeys(
            ("NVMMADistributedLayout", "BlockedLayout", "SliceLayout"), lambda *args: None
        ),
    )
    fakes = {
        "gl": language,
        "mbarrier": SimpleNamespace(
            init=init, wait=wait, arrive=arrive, expect=expect, MBarrierLayout=lambda: None
        ),
        "hopper": SimpleNamespace(warpgroup_mma=multiply, warpgroup_mma_wait=wait_for_products),
        "fetch_tile": fetch,
    }
    before = [(room, name, value) for room in rooms for name, value in vars(room).items()]
    try:
        for room, name, value in before:
            if name in fakes or hasattr(value, "is_gluon"):
                setattr(room, name, fakes[name] if name in fakes else value.fn)  # noqa: SIM401 -- lazy
        for program in range(programs):  # noqa: B007 -- read by `program_id`
            allocated.clear()
            getattr(rooms[0], kernel)(*args, **flags)
    finally:
        for room, name, value in before:
            setattr(room, name, value)
