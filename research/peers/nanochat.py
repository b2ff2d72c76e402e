"""karpathy/nanochat as a contender of sprint.py: its model and optimizer, fetched, never kept here.

    git clone https://github.com/karpathy/nanochat PEERS/nanochat
    git -C PEERS/nanochat checkout 92d63d4e8bb4df75c3b71618f31ddde2378b2bcd

Its gpt.py, optim.py and common.py are imported from there as they are; other contents are refused.
The loop here is that of its scripts/base_train.py with its flags' defaults: window pattern, batch
and rates by its scaling rules, schedules, torch.compile, garbage collection. Depth is 8, and what
its rules take from a number of steps follows the share of the seconds that is gone; warm-up and
the first rise of momentum are so many steps, as there. Its first 11 steps are trained on and not
counted, as it does itself. Replaced are Flash Attention 3 (autoresearch.attend) and its texts and
tokenizer (ours of 8,192, packed by its rule but for what is cut off, see autoresearch.pack). It
pins torch 2.9.1; here it has the torch that all have.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import math
import os
import sys
import time
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bits_per_byte import bits_per_byte
from peers.autoresearch import CONTEXT, VOCABULARY, Served, attend, make_band
from peers.contenders import MOST_TOKENS_PER_S, UNCOUNTED
from timed_runs import encoded
from torch import Tensor

COMMIT = "92d63d4e8bb4df75c3b71618f31ddde2378b2bcd"
URL = "https://github.com/karpathy/nanochat"
SHA256 = {
    "gpt.py": "8cdedc2e418b9d4dc45884e07f59904fcdec066bb3d76664b2adf2d415f704e3",
    "optim.py": "7c9b714c6f76e3a9d50fc530044b2767d0cd89391237e609548f1cd730afed8f",
    "common.py": "b843db6e769db18d3364e42cb3742a9537a3d4cf43e5f098293babc7ddeb44bf",
}
DEPTH, REFERENCE_DEPTH = 8, 12
ASPECT, HEAD_DIM, WINDOWS, ROWS = 64, 128, "SSSL", 32  # rows of CONTEXT at once
TOKENS_PER_PARAMETER, REFERENCE_BATCH = 12, 2**19
RATES = {"embedding_lr": 0.3, "unembedding_lr": 0.008, "matrix_lr": 0.02, "scalar_lr": 0.5}
WEIGHT_DECAY = 0.28
WARMUP_STEPS, WARMDOWN, LAST_RATE = 40, 0.65, 0.05
MOMENTUM_STEPS, MOMENTUM = 400, (0.85, 0.97, 0.90)  # at first, then, at last


def check(peers: Path) -> None:
    """SystemExit with what to do where PEERS/nanochat is not of COMMIT."""
    folder = peers / "nanochat"
    for name, expected in SHA256.items():
        file = folder / "nanochat" / name
        if not file.is_file():
            raise SystemExit(
                f"{file}: no such file; git clone {URL} {folder} and check out {COMMIT}"
            )
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise SystemExit(
                f"{file}: not that of commit {COMMIT}; git -C {folder} checkout {COMMIT}"
            )


def load(peers: Path) -> types.ModuleType:
    """Its gpt.py, whose attention is ours: Flash Attention 3 would be fetched from a hub."""
    check(peers)

    def flash_attn_func(
        q: Tensor, k: Tensor, v: Tensor, causal: bool, window_size: tuple[int, int]
    ) -> Tensor:
        return attend(q, k, v, window_size[0])

    attention = types.ModuleType("nanochat.flash_attention")
    attention.__dict__["flash_attn"] = types.SimpleNamespace(flash_attn_func=flash_attn_func)
    sys.path.insert(0, str(peers.resolve() / "nanochat"))
    sys.modules[attention.__name__] = attention
    return importlib.import_module("nanochat.gpt")


@dataclass(frozen=True)
class Scale:
    """What its rules make of a model's size."""

    batch: int
    """Tokens a step."""
    rate: float
    """Times each of RATES."""
    weight_decay: float


def scale(size: int, reference: int) -> Scale:
    """For so many parameters in blocks and lm_head; `reference` are those of REFERENCE_DEPTH, for
    which RATES and REFERENCE_BATCH were tuned. The horizon is TOKENS_PER_PARAMETER whatever is
    trained, as with its --num-iterations.
    """
    tokens, tuned = int(TOKENS_PER_PARAMETER * size), TOKENS_PER_PARAMETER * reference
    batch = 2 ** round(math.log2(REFERENCE_BATCH * (tokens / tuned) ** 0.383))
    rate = math.sqrt(batch / REFERENCE_BATCH)
    return Scale(batch, rate, WEIGHT_DECAY * rate * tuned / tokens)


def rate_share(step: int, gone: float) -> float:
    """Of a learning rate, at a step and a share of the seconds."""
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    if gone <= 1 - WARMDOWN:
        return 1.0
    left = (1 - gone) / WARMDOWN
    return left + (1 - left) * LAST_RATE


def momentum(step: int, gone: float) -> float:
    """Of Muon; where both apply its rise goes before its fall."""
    first, high, last = MOMENTUM
    if step < MOMENTUM_STEPS:
        share = step / MOMENTUM_STEPS
        return (1 - share) * first + share * high
    fallen = max(0.0, (gone - (1 - WARMDOWN)) / WARMDOWN)
    return high * (1 - fallen) + last * fallen


def decay_share(gone: float) -> float:
    """Of Muon's weight decay."""
    return 0.5 * (1 + math.cos(math.pi * gone))


def build(
    gpt: types.ModuleType, depth: int, vocabulary: int, device: torch.device
) -> tuple[Any, Scale]:
    """Its model, initialised on `device`, and the scale of its training."""

    def shaped(depth: int) -> Any:
        width = -(-depth * ASPECT // HEAD_DIM) * HEAD_DIM
        heads = width // HEAD_DIM
        config = gpt.GPTConfig(
            sequence_len=CONTEXT, vocab_size=vocabulary, n_layer=depth, n_head=heads,
            n_kv_head=heads, n_embd=width, window_pattern=WINDOWS,
        )  # fmt: skip
        with torch.device("meta"):
            return gpt.GPT(config)

    def size(model: Any) -> int:
        counts: dict[str, int] = model.num_scaling_params()
        return counts["transformer_matrices"] + counts["lm_head"]

    model = shaped(depth)
    model.to_empty(device=device)
    model.init_weights()
    return model, scale(size(model), size(shaped(REFERENCE_DEPTH)))


def train(
    model: Any,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor, int]],
    *,
    seconds: float,
    accumulation: int,
    weight_decay: float,
    uncounted: int = UNCOUNTED,
) -> dict[str, Any]:
    """By steps of `accumulation` batches (ids, targets, epoch); `model` gives the mean loss. No
    step begins after `seconds` of those that follow the first `uncounted`.
    """
    is_cuda = next(model.parameters()).is_cuda
    wait = torch.cuda.synchronize if is_cuda else lambda: None
    step, spent, tokens, epoch = 0, 0.0, 0, 1
    ids, targets, coming = next(batches)
    try:
        while step < uncounted or spent < seconds:
            wait()
            begun = time.monotonic()
            for _ in range(accumulation):
                loss = model(ids, targets)
                (loss / accumulation).backward()
                tokens, epoch = tokens + ids.numel(), coming
                ids, targets, coming = next(batches)
            gone = min(1.0, spent / seconds)
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * rate_share(step, gone)
                if group["kind"] == "muon":
                    group["momentum"] = momentum(step, gone)
                    group["weight_decay"] = weight_decay * decay_share(gone)
            optimizer.step()
            model.zero_grad(set_to_none=True)
            last = loss.item()
            wait()
            spent += time.monotonic() - begun if step >= uncounted else 0.0
            if step == 0:  # its own measure: a collection took it half a second
                gc.collect()
                gc.freeze()
                gc.disable()
            if step % 100 == 0:
                print(f"step {step}: loss {last:.4f}, {spent:.1f} s", flush=True)
            step += 1
    finally:
        gc.enable()
        gc.unfreeze()
    return {"train_s": round(spent, 2), "steps": step, "tokens": tokens, "epochs": epoch}


def nanochat(
    data: Mapping[str, Any],
    folder: Path,
    tokenizer: Path,
    seconds: float,
    seed: int,
    peers: Path,
) -> dict[str, Any]:
    """Trained and judged in this process; `peers` holds nanochat, `tokenizer` has VOCABULARY."""
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    device = torch.device("cuda")
    documents, first = encoded(folder, "train", tokenizer)
    held, _ = encoded(folder, "held", tokenizer)
    served = Served(documents, vocabulary=VOCABULARY, first=first, seed=seed, seconds=seconds,
                    most_tokens=int(MOST_TOKENS_PER_S * (seconds + 30)), device=device)  # fmt: skip
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    model, scaled = build(load(peers), DEPTH, VOCABULARY, device)
    for window in {left for left, _ in model.window_sizes if left < CONTEXT - 1}:
        make_band(CONTEXT, window)
    run: Any = torch.compile(model, dynamic=False)
    optimizer = model.setup_optimizer(
        **{name: rate * scaled.rate for name, rate in RATES.items()},
        weight_decay=scaled.weight_decay,
    )
    about = train(run, optimizer, served.batches(ROWS), seconds=seconds,
                  accumulation=scaled.batch // (ROWS * CONTEXT),
                  weight_decay=scaled.weight_decay)  # fmt: skip
    run.eval()

    def nats(ids: Tensor, targets: Tensor) -> Tensor:
        found: Tensor = run(ids, targets, loss_reduction="none")
        return found

    bpb = bits_per_byte(nats, [one.tolist() for one in held], data["bytes"], first=first,
                        context=CONTEXT, batch=16, device=device, always=True)  # fmt: skip
    return {
        "bpb": bpb,
        **about,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "batch": scaled.batch,
        "context": CONTEXT,
        "vocabulary": VOCABULARY,
        "commit": COMMIT,
    }
