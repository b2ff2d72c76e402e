"""A folder of weights with its tokenizer: text in, text out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from albor_core.config.hf_config import ids_said
from albor_core.data.pack.special_tokens import SpecialIds, special_ids, tokenizer_file
from albor_core.data.pack.tokenizer import load_tokenizer, vocabulary_size
from albor_core.model.generate.engine import MAX_BATCH, generate
from albor_core.model.generate.infill import Order, infill_prompt, needed_sentinels
from albor_core.model.generate.sampling import Finish, Sampling
from albor_core.model.generate.text import TextStream
from albor_core.model.hf.folder import open_model, read_about, read_generation
from albor_core.model.hf.tensors import load_model
from albor_core.model.llama import Llama
from albor_core.run.errors import DataError, NotFoundError, UsageError


@dataclass(frozen=True)
class WrittenText:
    """The text generated after a prompt."""

    text: str
    """Up to a stop text; without bytes that only begin a character."""
    ids: tuple[int, ...]
    """The tokens it was read from, a stop id left out: of a stop text they are part."""
    finish: Finish


@dataclass(frozen=True)
class TextModel:
    """A model, and what turns texts into its tokens and back."""

    model: Llama
    tokenizer: Tokenizer
    special: SpecialIds
    stop_ids: frozenset[int]
    """Tokens that end a text, by the files beside the weights."""
    said_bos: int | None = None
    """What begins a text by those files; the tokenizer's own word comes first."""
    begins: bool = False
    """Whether a prompt has before it what a text begins with."""
    place: Path = Path()
    """The folder or file of the tokenizer."""

    def encode(self, prompt: str) -> list[int]:
        """The ids of a prompt; an empty one gets the begin token. Raises UsageError if the
        tokenizer has none.
        """
        ids: list[int] = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        if ids and not self.begins:
            return ids
        known = (self.special.bos, self.said_bos, self.special.eos)
        first = next((one for one in known if one is not None), None)
        if first is None:
            if ids:
                what = "--bos: no token is known to begin a text"
                raise UsageError(what, hint="leave it out: albor model show DIR")
            what = "the prompt is empty, and no token is known to begin a text"
            raise UsageError(what, hint="give it at least one character")
        return [first, *ids]

    def infill(self, before: str, after: str, order: Order) -> list[int]:
        """The prompt for what stands between two texts, in which nothing is a special token.
        Raises DataError where the tokenizer has no sentinels, UsageError as `encode`.
        """
        marks = needed_sentinels(self.tokenizer, self.place, self.model.config.vocab_size)
        reads, self.tokenizer.encode_special_tokens = self.tokenizer.encode_special_tokens, True
        try:
            first = self.tokenizer.encode(before, add_special_tokens=False).ids
            last = self.tokenizer.encode(after, add_special_tokens=False).ids
        finally:
            self.tokenizer.encode_special_tokens = reads
        begin = self.encode("") if self.begins else []
        return [*begin, *infill_prompt(marks, first, last, order)]

    def write(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: Sampling | Sequence[Sampling],
        *,
        stops: Sequence[str] = (),
        max_batch: int = MAX_BATCH,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[WrittenText]:
        """What comes after each prompt, text or tokens, in order; `stop_ids` end it, too.
        `on_text(number of the prompt, text)` gets every piece as it comes. Raises as Engine.
        """
        each = [sampling] * len(prompts) if isinstance(sampling, Sampling) else [*sampling]
        each = [replace(one, stop_ids=one.stop_ids | self.stop_ids) for one in each]
        encoded = [self.encode(one) if isinstance(one, str) else [*one] for one in prompts]
        streams = [TextStream(self.tokenizer, ids, stops) for ids in encoded]
        pieces: list[list[str]] = [[] for _ in encoded]

        def show(at: int, text: str) -> None:
            pieces[at].append(text)
            if text and on_text is not None:
                on_text(at, text)

        def goes_on(at: int, token: int) -> bool:
            show(at, streams[at].push(token))
            return not streams[at].is_stopped

        found = generate(self.model, encoded, each, max_batch=max_batch, goes_on=goes_on)
        for at, stream in enumerate(streams):
            show(at, stream.end())
        return [
            WrittenText("".join(text), one.ids, one.finish)
            for text, one in zip(pieces, found, strict=True)
        ]


def load_text_model(
    folder: Path, *, device: torch.device, dtype: torch.dtype, tokenizer: Path | None = None
) -> TextModel:
    """`tokenizer`: another than the folder's. Raises NotFoundError and DataError, before a weight
    is read where it can.
    """
    found = open_model(folder)
    place = folder if tokenizer is None else tokenizer
    if not tokenizer_file(place).exists():
        what = f"{place}: no tokenizer.json, which turns a prompt into tokens"
        hint = "name the one that the model was trained with: --tokenizer FILE"
        raise NotFoundError(what, hint=hint)
    loaded = load_tokenizer(place)
    size, rows = vocabulary_size(loaded), found.shape.vocab_size
    if tokenizer is not None and size > rows:
        what = f"{tokenizer_file(place)} has {size:,} tokens, above vocab_size {rows:,}"
        raise DataError(what, hint="name the tokenizer that the model was trained with")
    special = special_ids(loaded, place)
    model = load_model(found, device=device, dtype=dtype)
    said_bos = next(iter(_said(folder, "bos_token_id")), None)
    return TextModel(model, loaded, special, stop_ids(folder, special), said_bos, place=place)


def stop_ids(folder: Path, special: SpecialIds) -> frozenset[int]:
    """Tokens that end a text: eos of generation_config.json, or else of config.json, and the
    tokenizer's.
    """
    ids = frozenset(_said(folder, "eos_token_id"))
    return ids if special.eos is None else ids | {special.eos}


def _said(folder: Path, role: str) -> tuple[int, ...]:
    return ids_said(read_generation(folder), role) or ids_said(read_about(folder), role)
