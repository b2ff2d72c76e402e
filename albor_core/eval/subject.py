"""A loaded model under evaluation: it scores texts and continues them.

`logprobs` is one forward a batch, right-padded, by fused kernels where they can be
(model/token_scores.py), and takes logits of scored positions alone; sums are in fp64 whatever the
model computes in. `complete` generates with a key/value cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from albor_core.data.pack.special_tokens import SpecialIds
from albor_core.eval.result import Likelihood
from albor_core.eval.target import Target
from albor_core.model.generate.engine import generate
from albor_core.model.generate.infill import infill_ends
from albor_core.model.generate.sampling import Sampling
from albor_core.model.generate.text import text_after
from albor_core.model.generate.text_model import TextModel, stop_ids
from albor_core.model.hf.tensors import load_model
from albor_core.model.llama import Llama
from albor_core.model.token_scores import TokenScorer
from albor_core.run.errors import DataError, UsageError

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.half}
Pair = tuple[Sequence[int], Sequence[int]]


def _seed(seed: int, number: int, prompt: str) -> int:
    key = hashlib.blake2b(f"{seed} {number} {prompt}".encode(), digest_size=4).digest()
    return int.from_bytes(key, "little")


@dataclass
class EvaluatedModel:
    """A loaded model, with everything its answers depend on."""

    model: Llama
    tokenizer: Tokenizer
    weights: str
    """Hash of the weights."""
    dtype: str
    device: torch.device
    batch_size: int
    ids: SpecialIds
    max_context: int
    stop_ids: frozenset[int]
    """Tokens that end a text."""
    path: Path
    """Its folder."""
    scorer: TokenScorer = field(init=False)

    def __post_init__(self) -> None:
        self.scorer = TokenScorer(self.model)

    def facts(self) -> dict[str, Any]:
        """Facts of the model for every result; with the origin of likelihoods once there are
        any."""
        return {
            "batch_size": self.batch_size,
            "dtype": self.dtype,
            "device": self.device.type,
            "backend": f"pytorch {torch.__version__}",
            "path": self.scorer.path,
            "path_reason": self.scorer.reason,
        }

    def encode(self, text: str) -> list[int]:
        """The ids of a text, as of `Target.encode`."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    @torch.inference_mode()
    def logprobs(self, pairs: Sequence[Pair]) -> list[Likelihood]:
        """ln p of each continuation after its context, in the order given. A context has at least
        one token, such as the begin token; too long ones lose their beginning.

        Raises DataError for a continuation that does not fit into the context of the model.
        """
        found = {i: Likelihood(0.0, 0, True) for i, pair in enumerate(pairs) if not pair[1]}
        left = (i for i in range(len(pairs)) if i not in found)
        by_length = sorted(left, key=lambda i: -len(pairs[i][0]) - len(pairs[i][1]))
        for start in range(0, len(by_length), self.batch_size):
            numbers = by_length[start : start + self.batch_size]
            rows = [self._row(pairs[number]) for number in numbers]
            found |= dict(zip(numbers, self._score(rows), strict=True))
        return [found[number] for number in range(len(pairs))]

    def _row(self, pair: Pair) -> tuple[list[int], int]:
        """The tokens to read, the last one only a target, and the number of scored ones."""
        context, continuation = [*pair[0]], [*pair[1]]
        if len(continuation) > self.max_context:
            what = f"a continuation of {len(continuation):,} tokens is longer than the context of "
            raise DataError(f"{what}{self.max_context:,}", hint="shorten it, or leave it out")
        assert context, "nothing says how likely a first token is"
        whole = [*context, *continuation]
        return whole[-(self.max_context + 1) :], len(continuation)

    def _score(self, rows: Sequence[tuple[list[int], int]]) -> list[Likelihood]:
        width = max(len(ids) - 1 for ids, _ in rows)
        read = torch.zeros(len(rows), width, dtype=torch.int64)
        for row, (ids, _) in enumerate(rows):
            read[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        at = [(row, len(ids) - 1 - n + i) for row, (ids, n) in enumerate(rows) for i in range(n)]
        targets = [token for ids, n in rows for token in ids[len(ids) - n :]]
        where = torch.tensor(at, dtype=torch.int64, device=self.device).view(-1, 2)
        wanted = torch.tensor(targets, dtype=torch.int64, device=self.device)
        logs, hits = self.scorer(read.to(self.device), where, wanted)
        counts = [n for _, n in rows]
        parts = zip(logs.split(counts), hits.split(counts), counts, strict=True)  # type: ignore[no-untyped-call]
        return [Likelihood(float(p.sum()), n, bool(hit.all())) for p, hit, n in parts]

    def complete(
        self,
        prompts: Sequence[str],
        *,
        n: int = 1,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> list[list[str]]:
        """`n` texts after each prompt, cut where the first of `stop` begins or the text ends. Each
        depends only on its own prompt, its number and `seed`. Temperature 0 uses the most likely
        token. A prompt gets no token before its own.

        Raises DataError for a prompt that fills the whole context.
        """
        whole = TextModel(self.model, self.tokenizer, self.ids, self.stop_ids)
        asked = [prompt for prompt in prompts for _ in range(n)]
        ways = [
            Sampling(max_new_tokens, temperature, top_p, seed=_seed(seed, at % n, prompt))
            for at, prompt in enumerate(asked)
        ]
        self._refuse_long(whole.encode(prompt) for prompt in prompts)
        found = whole.write(asked, ways, stops=stop, max_batch=self.batch_size)
        return [[one.text for one in found[at : at + n]] for at in range(0, len(found), n)]

    def complete_ids(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int) -> list[str]:
        """The most likely filling after each prompt, given as token ids. Raises DataError."""
        self._refuse_long(prompts)
        way = Sampling(
            max_new_tokens, stop_ids=self.stop_ids | infill_ends(self.tokenizer, self.path)
        )
        found = generate(self.model, prompts, way, max_batch=self.batch_size)
        pairs = zip(prompts, found, strict=True)
        return [text_after(self.tokenizer, prompt, one.ids) for prompt, one in pairs]

    def _refuse_long(self, prompts: Iterable[Sequence[int]]) -> None:
        longest = max(map(len, prompts), default=0)
        if longest >= self.max_context:
            what = f"a prompt of {longest:,} tokens leaves no room in the context of "
            raise DataError(f"{what}{self.max_context:,}", hint="shorten the prompt")


def load_subject(
    target: Target, *, weights: str, device: str, dtype: str, batch_size: int
) -> EvaluatedModel:
    """Load the weights of a target, whose hash is `weights`; `dtype` is one of DTYPES. Raises
    UsageError for a missing device, DataError if weights, tokenizer and config.json do not
    match.
    """
    place = find_device(device)
    model = load_model(target.folder, device=place, dtype=DTYPES[dtype])
    return EvaluatedModel(
        model,
        target.tokenizer,
        weights,
        dtype,
        place,
        batch_size,
        target.ids,
        target.max_context,
        stop_ids(target.path, target.ids),
        target.path,
    )


def find_device(word: str) -> torch.device:
    """The device of a word: auto, cpu or cuda. Raises UsageError."""
    if word not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device {word!r}: one of auto, cpu, cuda")
    has_gpu = torch.cuda.is_available()
    if word == "cuda" and not has_gpu:
        raise UsageError("device 'cuda': no GPU is visible here", hint="albor gpu")
    return torch.device("cuda" if has_gpu and word != "cpu" else "cpu")
