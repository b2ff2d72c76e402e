"""Many sequences written at once: new ones take the places of those that have ended while the rest
goes on.

Sequences lie in the first slots of the cache, so a step reads no others: where one ends, the last
takes its slot. What a sequence becomes follows from its prompt and its Sampling, whatever is beside
it, up to the rounding of a product with more or fewer rows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from albor_core.model.generate.cache import Cache
from albor_core.model.generate.draw import NOT_FINITE, Knobs, draw, knobs_of
from albor_core.model.generate.forward import CHUNK, decode, prefill
from albor_core.model.generate.fused import FusedDecode, obstacle
from albor_core.model.generate.graphs import DecodeGraphs
from albor_core.model.generate.sampling import Finish, Sampling
from albor_core.model.llama import Llama
from albor_core.run.errors import AlborError, UsageError

MAX_BATCH = 32
GRAPH_STEPS = 2048  # from here on a call of generate() is longer than the check of their kernels
log = logging.getLogger(__name__)


class NotFiniteError(AlborError):
    """A token cannot be drawn: the largest logit is NaN or infinite."""

    def __init__(self) -> None:
        super().__init__(
            "cannot draw a token: the model's logits are not finite",
            hint="albor model verify says whether its weights are; name an earlier checkpoint",
        )


@dataclass(frozen=True)
class Completion:
    """The tokens generated after a prompt."""

    ids: tuple[int, ...]
    """New tokens; a stop id is left out."""
    finish: Finish


class Event(NamedTuple):
    """One step of one sequence."""

    ticket: int
    token: int | None
    """None where a stop id ended it."""
    finish: Finish | None
    """With the last event of a sequence."""


@dataclass(slots=True)
class _Sequence:
    ticket: int
    prompt: tuple[int, ...]
    sampling: Sampling
    most: int
    """Tokens, the prompt's included."""
    length: int = 0
    last: int = 0

    def append(self, token: int) -> Event:
        """The next token, which is not in the cache yet."""
        if token in self.sampling.stop_ids:
            return Event(self.ticket, None, "stop")
        self.length, self.last = self.length + 1, token
        return Event(self.ticket, token, "length" if self.length == self.most else None)


class Engine:
    """Of one model on its device; not thread-safe. Under the autocast it is used in, if any.

    Its cache has `max_batch` slots of `max_context` tokens, by default as many as the model can
    take. `graphs`: on a GPU, steps are CUDA graphs of fused kernels where they can be; a process
    that asks for them first checks the kernels, which takes seconds.
    """

    def __init__(
        self,
        model: Llama,
        *,
        max_batch: int = MAX_BATCH,
        max_context: int | None = None,
        graphs: bool = True,
    ) -> None:
        longest = model.config.max_position_embeddings
        self.max_batch, self.max_context = max_batch, min(max_context or longest, longest)
        weight = model.head_weight
        self._model, self.device = model, weight.device
        kind = self.device.type
        halves = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if halves else weight.dtype
        with torch.inference_mode(False):  # whoever made it: it may be used elsewhere
            self._cache = Cache(
                model.config, max_batch, self.max_context, dtype=dtype, device=self.device
            )
            self._graphs = _graphs(model, self._cache) if graphs and not halves else None
        self._tickets = count()
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []

    @property
    def is_idle(self) -> bool:
        """Whether every sequence has ended."""
        return not (self._waiting or self._running)

    def submit(self, prompt_ids: Sequence[int], sampling: Sampling) -> int:
        """A ticket for one more sequence, which begins when a slot is free.

        Raises UsageError for a prompt that is empty, leaves no room in the context, or holds an id
        that the model does not know.
        """
        prompt = tuple(prompt_ids)
        self._check_prompt(prompt)
        most = min(len(prompt) + sampling.max_new_tokens, self.max_context)
        one = _Sequence(next(self._tickets), prompt, sampling, most, length=len(prompt))
        self._waiting.append(one)
        return one.ticket

    def cancel(self, ticket: int) -> None:
        """End a sequence without an event; one that has ended stays so."""
        for slot, one in enumerate(self._running):
            if one.ticket == ticket:
                self._leave([slot])
                return
        self._waiting = deque(one for one in self._waiting if one.ticket != ticket)

    def step(self) -> list[Event]:
        """The first tokens of waiting prompts if there is room for some, else one more token of
        each sequence; one event a sequence, in the order of slots.

        Raises NotFiniteError.
        """
        free = self.max_batch - len(self._running)
        with torch.no_grad():
            if self._waiting and free:
                begun = self._next_prompts(free)
                self._running += begun
                return self._advance(begun, self._begin(begun))
            return self._advance(self._running, self._go_on()) if self._running else []

    def _check_prompt(self, prompt: tuple[int, ...]) -> None:
        rows = self._model.config.vocab_size
        if not prompt:
            raise UsageError("the prompt has no tokens", hint="begin it with at least one")
        if len(prompt) >= self.max_context:
            tokens = f"{len(prompt):,} tokens of a prompt leave no room for a new one"
            hint = f"shorten it to at most {self.max_context - 1:,} tokens"
            raise UsageError(f"{tokens} in a context of {self.max_context:,}", hint=hint)
        if not 0 <= min(prompt) <= max(prompt) < rows:
            one = min(prompt) if min(prompt) < 0 else max(prompt)
            what = f"the prompt has token {one:,}, outside the model's vocab_size {rows:,}"
            raise UsageError(what, hint="use the tokenizer that the model was trained with")

    def _next_prompts(self, free: int) -> list[_Sequence]:
        """As many as one forward takes, in the order of arrival but for those whose prompt another
        one has, which come last; one that is much longer goes in a forward of its own.
        """
        distinct: set[tuple[int, ...]] = set()
        first: list[_Sequence] = []
        again: list[_Sequence] = []
        longest = tokens = 0
        while self._waiting and len(first) + len(again) < free:
            prompt = self._waiting[0].prompt
            is_new = prompt not in distinct
            if is_new:
                longest, tokens = max(longest, len(prompt)), tokens + len(prompt)
            padded = longest * (len(distinct) + is_new)
            if first and padded > min(CHUNK, 2 * tokens):
                break
            distinct.add(prompt)
            (first if is_new else again).append(self._waiting.popleft())
        return first + again

    def _begin(self, begun: list[_Sequence]) -> Tensor:
        """Each prompt goes through the model once, whoever shares it."""
        distinct = dict.fromkeys(one.prompt for one in begun)
        numbers = {prompt: number for number, prompt in enumerate(distinct)}
        slot, lengths = len(self._running) - len(begun), [len(prompt) for prompt in numbers]
        rows = [[*prompt, *[0] * (max(lengths) - len(prompt))] for prompt in numbers]
        ids = torch.tensor(rows, device=self.device)
        ends = torch.tensor(lengths, device=self.device)
        logits = prefill(self._model, self._cache, ids, ends, slot)
        source = [numbers[one.prompt] for one in begun]
        for at in range(len(numbers), len(begun)):
            here = slice(slot + at, slot + at + 1)
            self._cache.copy(slot + source[at], here, len(begun[at].prompt))
        if len(numbers) < len(begun):
            logits = logits[torch.tensor(source, device=self.device)]
        return draw(logits, self._knobs(begun))

    def _go_on(self) -> Tensor:
        running = self._running
        tokens, at = [one.last for one in running], [one.length - 1 for one in running]
        knobs = self._knobs(running)
        if self._graphs is not None:
            found = self._graphs(tokens, at, greedy=knobs is None)
            return found if knobs is None else draw(found, knobs)
        fed = torch.tensor([tokens, at], device=self.device)
        reach = max(at) + 1
        even = min(at) + 1 == reach
        logits = decode(self._model, self._cache, fed[0], fed[1], reach, is_even=even)
        return draw(logits, knobs)

    def _knobs(self, sequences: list[_Sequence]) -> Knobs | None:
        samplings = [one.sampling for one in sequences]
        return knobs_of(samplings, [one.length for one in sequences], self.device)

    def _advance(self, sequences: list[_Sequence], tokens: Tensor) -> list[Event]:
        drawn = tokens.tolist()
        if NOT_FINITE in drawn:
            raise NotFiniteError
        events = [one.append(token) for one, token in zip(sequences, drawn, strict=True)]
        first = len(self._running) - len(sequences)
        self._leave([first + i for i, event in enumerate(events) if event.finish is not None])
        return events

    def _leave(self, slots: list[int]) -> None:
        """Free slots, given from the first to the last; those beyond move into them."""
        for slot in reversed(slots):
            last = self._running.pop()
            if slot < len(self._running):
                number = len(self._running)
                self._cache.copy(number, slice(slot, slot + 1), last.length)
                self._running[slot] = last


def _graphs(model: Llama, cache: Cache) -> DecodeGraphs | None:
    """The graphs that make a step one launch: on a GPU, with fused kernels, which need frozen
    weights; None if each operation is launched by itself.
    """
    device = cache.keys.device
    if device.type != "cuda":
        return None
    if why := obstacle(model):
        log.info("decoding is not one CUDA graph: %s", why)
        return None
    return DecodeGraphs(FusedDecode(model, cache), cache.keys.shape[1], device)


def generate(
    model: Llama,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling | Sequence[Sampling],
    *,
    max_batch: int = MAX_BATCH,
    goes_on: Callable[[int, int], bool] | None = None,
    engine: Engine | None = None,
) -> list[Completion]:
    """What comes after each prompt, in their order. `goes_on(number of the prompt, token)` is
    called with every token; where it returns False, the sequence ends with that token, as "stop".
    `engine`: an idle one of this model, for frequent calls: a new one takes memory, and on a GPU
    captures its graphs. Raises as Engine.submit and Engine.step.
    """
    each = [sampling] * len(prompts) if isinstance(sampling, Sampling) else [*sampling]
    if not prompts:
        return []
    pairs = [*zip(prompts, each, strict=True)]
    longest = max(len(prompt) + one.max_new_tokens for prompt, one in pairs)
    if engine is None:
        slots = min(max_batch, len(prompts))
        steps = sum(one.max_new_tokens for one in each) // slots
        graphs = steps >= GRAPH_STEPS
        engine = Engine(model, max_batch=slots, max_context=longest, graphs=graphs)
    tickets = {engine.submit(prompt, one): at for at, (prompt, one) in enumerate(pairs)}
    written: list[list[int]] = [[] for _ in prompts]
    finish: list[Finish] = ["length"] * len(prompts)
    while not engine.is_idle:
        for event in engine.step():
            at, end = tickets[event.ticket], event.finish
            if event.token is not None:
                written[at].append(event.token)
                if goes_on is not None and not goes_on(at, event.token):
                    engine.cancel(event.ticket)
                    end = "stop"
            finish[at] = end or finish[at]
    return [Completion(tuple(ids), end) for ids, end in zip(written, finish, strict=True)]
