"""How fast a model writes, beside what its memory allows.

The bandwidth law: a step of decoding reads every weight that a token is multiplied with and every
key and value of the sequences, so it takes at least these bytes over the device's bandwidth.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from albor_core.model.generate.cache import cache_bytes
from albor_core.model.generate.engine import Engine
from albor_core.model.generate.sampling import Sampling
from albor_core.model.llama import Llama

_READ_BYTES = {"cpu": 256 << 20, "cuda": 2 << 30}
_READS = 5


@dataclass(frozen=True)
class Load:
    """The load of a measurement: `batch` texts of `new_tokens` after prompts of `context`
    tokens."""

    batch: int
    context: int
    new_tokens: int

    def prompts(self, vocab_size: int) -> Tensor:
        """(batch, context), the same for the same load."""
        source = torch.Generator().manual_seed(0)
        return torch.randint(vocab_size, (self.batch, self.context), generator=source)


@dataclass(frozen=True)
class Timing:
    """Times from the first forward to the last token."""

    prefill_s: float
    step_s: tuple[float, ...]
    """Of each step after it: a token of every text."""

    @property
    def total_s(self) -> float:
        return self.prefill_s + sum(self.step_s)


@dataclass(frozen=True)
class MeasuredLoad:
    """A load in some rounds; seconds are medians over them."""

    load: Load
    step_bytes: int
    """What the bandwidth law says a step reads, half way through."""
    rounds: tuple[Timing, ...]
    peer_s: float | None
    """What something else took for all of it."""

    @property
    def prefill_s(self) -> float:
        return median(one.prefill_s for one in self.rounds)

    @property
    def total_s(self) -> float:
        return median(one.total_s for one in self.rounds)

    def step_s(self, share: float) -> float:
        """The step time that the fraction `share` of all steps does not exceed."""
        steps = sorted(step for one in self.rounds for step in one.step_s)
        return steps[min(len(steps) - 1, int(share * len(steps)))]


def measure(
    model: Llama, load: Load, *, peer: Callable[[Load], float] | None = None, rounds: int = 3
) -> MeasuredLoad:
    """In turn with `peer`, which writes the same load and says in how many seconds, after a round
    of each that is not counted: a machine that slows down slows both.
    """
    engine = Engine(model, max_batch=load.batch, max_context=load.context + load.new_tokens)
    time_engine(engine, load, model.config.vocab_size)
    theirs = [] if peer is None else [peer(load)]
    ours = []
    for _ in range(rounds):
        ours.append(time_engine(engine, load, model.config.vocab_size))
        theirs += [] if peer is None else [peer(load)]
    peer_s = median(theirs[1:]) if theirs else None
    return MeasuredLoad(load, step_bytes(model, load), tuple(ours), peer_s)


def time_engine(engine: Engine, load: Load, vocab_size: int) -> Timing:
    """An idle engine; greedy, with no stop id."""
    for prompt in load.prompts(vocab_size).tolist():
        engine.submit(prompt, Sampling(max_new_tokens=load.new_tokens))
    begun, spent, steps = 0, 0.0, []
    while not engine.is_idle:
        began = time.perf_counter()
        events = engine.step()  # reads the tokens: the device has finished
        took = time.perf_counter() - began
        if begun < load.batch:
            begun, spent = begun + len(events), spent + took
        else:
            steps.append(took)
    return Timing(spent, tuple(steps))


def step_bytes(model: Llama, load: Load) -> int:
    """Weights once, and keys and values of half the texts' new tokens beside their prompts'."""
    weight, shape = model.head_weight, model.config
    vectors = shape.num_hidden_layers * shape.num_block_vector_parameters + shape.hidden_size
    weights = (shape.num_matmul_parameters + vectors) * weight.element_size()
    seen = load.context + load.new_tokens // 2
    each = cache_bytes(shape, weight.dtype) // shape.num_hidden_layers
    slid = min(seen, shape.window(seen) or seen)
    read = sum(slid if shape.slides(i) else seen for i in range(shape.num_hidden_layers))
    return weights + load.batch * read * each


def read_bandwidth(device: torch.device) -> float:
    """Bytes a second at which the device reads a large tensor, at best."""
    held = torch.ones(_READ_BYTES[device.type] // 4, device=device)
    best = float("inf")
    for _ in range(_READS):
        began = time.perf_counter()
        float(held.sum())
        best = min(best, time.perf_counter() - began)
    return held.numel() * 4 / best
