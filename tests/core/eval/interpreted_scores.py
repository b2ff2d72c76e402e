"""Run by test_token_scores.py under TRITON_INTERPRET=1: one JSON line per claim."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from eval_models import TEXTS, make_model, subject_of, write_jsonl
from hf_folder import write_model

from albor_core.eval.kinds.perplexity import TextSection, TextTask
from albor_core.eval.task import ItemWriter
from albor_core.kernels.ops import cross_entropy
from albor_core.model import token_scores
from albor_core.model.generate.engine import generate
from albor_core.model.generate.sampling import Sampling
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.model.token_scores import FusedScorer, PlainScorer, TokenScorer, violation

TINY = LlamaConfig(64, 2, 4, 2, 128, 96, 80)
SHAPES: dict[str, LlamaConfig] = {
    "llama, tied": TINY,
    "llama, untied": replace(TINY, tie_word_embeddings=False),
    "qwen3, tied": replace(TINY, model_type="qwen3", head_dim=32),
    "qwen3, untied": replace(TINY, model_type="qwen3", head_dim=32, tie_word_embeddings=False),
}
LENGTHS = (71, 17, 1)  # of rows: the widest is not filled up beyond the context of 80


def say(name: str, holds: bool, detail: object = "") -> None:
    sys.stdout.write(json.dumps({"name": name, "holds": bool(holds), "detail": str(detail)}) + "\n")


def made(config: LlamaConfig, dtype: torch.dtype) -> Llama:
    model = Llama(replace(config, initializer_range=0.3))  # logits that are worth scoring
    init_weights(model, 0)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.1 * torch.arange(len(parameter)) / len(parameter)
    return model.to(dtype).eval().requires_grad_(False)


def padded(lengths: tuple[int, ...] = LENGTHS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `EvaluatedModel` asks: zeros behind each row, the last half of which is scored."""
    source = torch.Generator().manual_seed(1)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    where = []
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(1, 96, (length,), generator=source)
        where += [(row, place) for place in range(length // 2, length)]
    return ids, torch.tensor(where), torch.randint(96, (len(where),), generator=source)


def nats_are_the_plain_models(name: str) -> None:
    model = made(SHAPES[name], torch.float32)
    asked = padded()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    truth, likeliest = PlainScorer(made(SHAPES[name], torch.float64))(*asked)
    largest: list[int] = []
    honest, limit = cross_entropy.nats, token_scores.SCORED_BYTES

    def spied(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        largest.append(len(logits))
        return honest(logits, labels)

    cross_entropy.nats, token_scores.SCORED_BYTES = spied, 96 * 4 * 10
    with torch.inference_mode():
        found, hits = FusedScorer(model)(*asked)
    cross_entropy.nats, token_scores.SCORED_BYTES = honest, limit
    plainly, _ = PlainScorer(made(SHAPES[name], torch.float32))(*asked)
    error, usual = (float((one - truth).norm() / truth.norm()) for one in (found, plainly))
    same = found.dtype is torch.float64 and bool((hits == likeliest).all())
    say(f"nats: {name}", error < 2 * max(usual, 1e-7) and same, (error, usual))
    say(f"ten rows of logits at most: {name}", max(largest) == 10, largest)
    moved = [
        key for key, value in model.state_dict().items() if not torch.equal(value, before[key])
    ]
    say(f"the weights stay: {name}", not moved, moved)


def halves_err_as_the_plain_model_does(name: str) -> None:
    model = made(SHAPES[name], torch.float16)
    ids, *_ = padded()
    say(f"fp16: {name}", not (fault := violation(model, FusedScorer(model), ids)), fault)


def a_wrong_one_is_rejected() -> None:
    for dtype in (torch.float16, torch.float32):
        model = made(TINY, dtype)
        other = made(TINY, dtype)
        other.model.layers[1].self_attn.o_proj.weight.mul_(1.05)
        fault = violation(model, FusedScorer(other), padded()[0])
        say(f"gate: other weights in {dtype}", "plainly" in fault, fault)
    honest, obstacle = token_scores.FusedScorer, token_scores.obstacle
    token_scores.FusedScorer, token_scores.obstacle = lambda model: honest(other), lambda model: ""
    scorer = TokenScorer(made(TINY, torch.float32))
    asked = padded()
    found, _ = scorer(*asked)
    token_scores.FusedScorer, token_scores.obstacle = honest, obstacle
    wanted, _ = PlainScorer(made(TINY, torch.float32))(*asked)
    holds = scorer.path == "plain" and "rejected: likelihoods" in str(scorer.reason)
    say("gate: the plain one scores instead", holds and torch.equal(found, wanted), scorer.reason)


def text_goes_on_as_before() -> None:
    """Whoever generates reads the same weights, joined or not."""
    model = made(SHAPES["qwen3, untied"], torch.float32)
    how = Sampling(8)
    before = generate(model, [[1, 2, 3]], how)[0].ids
    with torch.inference_mode():
        FusedScorer(model)(*padded())
    say("generated after it", generate(model, [[1, 2, 3]], how)[0].ids == before)


def scores_of(folder: Path, texts: Path, items: Path) -> tuple[dict[str, float], dict[str, Any]]:
    subject = subject_of(folder, dtype="fp32", batch_size=3)
    task = TextTask(TextSection(data=texts, window=24, stride=10))
    with ItemWriter(items) as writer:
        found = task.run(subject, writer, lambda done, total: None)
    return {one.name: one.value for one in found.scores}, subject.facts()


def totals_agree(kind: str, **more: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folder = make_model(place / "m", "qwen2")
        write_model(folder, kind, vocab_size=400, **more)
        texts = write_jsonl(place / "texts.jsonl", [{"text": text} for text in TEXTS])
        plain, said = scores_of(folder, texts, place / "plain.jsonl")
        honest, token_scores.obstacle = token_scores.obstacle, lambda model: ""
        fused, told = scores_of(folder, texts, place / "fused.jsonl")
        token_scores.obstacle = honest
    error = max(abs(fused[key] / plain[key] - 1) for key in plain)
    paths = said["path"], told["path"]
    holds = error < 1e-5 and plain.keys() == fused.keys() and paths == ("plain", "fused")
    tied = "tied" if more["tie_word_embeddings"] else "untied"
    say(f"totals of texts: {kind}, {tied}", holds, (error, said, told))


def main() -> None:
    for name in SHAPES:
        nats_are_the_plain_models(name)
    for name in ("llama, tied", "qwen3, untied"):
        halves_err_as_the_plain_model_does(name)
    a_wrong_one_is_rejected()
    text_goes_on_as_before()
    totals_agree("llama", tie_word_embeddings=True)
    totals_agree("qwen3", tie_word_embeddings=False)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
