"""The contenders of sprint.py that are not ours. Each trains so many seconds on the GPU it sees.

`hand` is albor_core/model/llama.py in plain PyTorch: autocast, torch.compile, torch.optim.AdamW,
2e-3, rates by the share of the time that is gone. `autoresearch` is autoresearch.py's, with a BPE
of 8,192 as its own; `autoresearch-32k` has our tokenizer.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from bits_per_byte import bits_per_byte
from peers import autoresearch as ported
from pretrain import T
from timed_runs import VOCABULARY, encoded, nats_of, tokenizer_of
from torch import Tensor

from albor_core.model.llama import Llama, LlamaConfig, init_weights, param_groups
from albor_core.train.optim.schedules import Schedule

HAND = LlamaConfig(512, 12, 8, 2, 2048, VOCABULARY, T)
HAND_BATCH, HAND_LR, WARMUP = 64, 2e-3, 0.05
UNCOUNTED = 11  # steps, after which its weights start again
AHEAD = 1  # steps that wait for the GPU while one is computed
MOST_TOKENS_PER_S = 2.5e6  # that autoresearch's model could read


def hand_batches(rows: Tensor, batch: int, seed: int) -> Iterator[Tensor]:
    """(batch, T) int64; epochs in orders of their own."""
    draw = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows), generator=draw).to(rows.device)
        for at in order.split(batch):
            if len(at) == batch:
                yield rows[at].long()


def train_by_hand(
    config: LlamaConfig, rows: Tensor, *, seconds: float, seed: int, batch: int, uncounted: int
) -> tuple[Llama, dict[str, Any]]:
    """Trained on rows (N, T) on their device; no step begins after `seconds`."""
    device = rows.device
    model = Llama(config).to(device)
    run: Any = torch.compile(model, dynamic=False) if device.type == "cuda" else model
    schedule = Schedule(HAND_LR, HAND_LR / 10, int(1000 * WARMUP), 1000)
    steps, spent = 0, 0.0

    def begin() -> torch.optim.Optimizer:
        init_weights(model, seed=seed)
        groups = param_groups(model, 0.1)
        return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=device.type == "cuda")

    def step(optimizer: torch.optim.Optimizer, ids: Tensor, rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(device.type, torch.bfloat16):
            _, loss = run(ids, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    batches, optimizer = hand_batches(rows, batch, seed), begin()
    for _ in range(uncounted):
        step(optimizer, next(batches), HAND_LR / 100)
    batches, optimizer = hand_batches(rows, batch, seed), begin()
    asked: deque[torch.cuda.Event] = deque()
    _wait(device)
    begun = time.monotonic()
    while (spent := time.monotonic() - begun) < seconds:
        step(optimizer, next(batches), schedule.lr_at(max(1.0, 1000 * spent / seconds)))
        steps += 1
        if device.type == "cuda":  # else the clock would tell when steps are asked for, not done
            asked.append(torch.cuda.Event())
            asked[-1].record()
            if len(asked) > AHEAD:
                asked.popleft().synchronize()
    _wait(device)
    spent = time.monotonic() - begun
    about = {"train_s": round(spent, 2), "steps": steps, "tokens": steps * batch * rows.shape[1]}
    return model.eval(), about


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def hand(data: Mapping[str, Any], folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    from starts import read_rows

    rows = read_rows(Path(data["train"])).cuda()
    model, about = train_by_hand(HAND, rows, seconds=seconds, seed=seed, batch=HAND_BATCH,
                                 uncounted=UNCOUNTED)  # fmt: skip

    def nats(ids: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            logits, _ = model(ids)
        assert logits is not None
        return nats_of(logits, targets)

    texts, first = encoded(folder, "held", Path(data["tokenizer"]))
    bpb = bits_per_byte(nats, [one.tolist() for one in texts], data["bytes"], first=first,
                        context=T, batch=16, device=torch.device("cuda"))  # fmt: skip
    size = sum(weight.numel() for weight in model.parameters())
    return {"bpb": bpb, **about, "parameters": size, "context": T, "vocabulary": VOCABULARY}


def autoresearch(
    data: Mapping[str, Any], folder: Path, seconds: float, seed: int, peers: Path, *, small: bool
) -> dict[str, Any]:
    """Its train.py, run in this process."""
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    vocabulary, rows = (ported.VOCABULARY, 128) if small else (VOCABULARY, 32)
    tokenizer = tokenizer_of(folder, vocabulary)
    source = ported.port(ported.read(peers), seed=seed, rows=rows)
    device, context = torch.device("cuda"), ported.CONTEXT
    documents, first = encoded(folder, "train", tokenizer)
    held, _ = encoded(folder, "held", tokenizer)
    most = int(MOST_TOKENS_PER_S * (seconds + 30))
    served = ported.Served(documents, vocabulary=vocabulary, first=first, seed=seed,
                                seconds=seconds, most_tokens=most, device=device)  # fmt: skip
    ported.make_band(context, context // 2)

    def evaluate(model: Any, tokenizer: object, batch: int) -> float:
        def nats(ids: Tensor, targets: Tensor) -> Tensor:
            found: Tensor = model(ids, targets, reduction="none")
            return found

        return bits_per_byte(nats, [one.tolist() for one in held], data["bytes"], first=first,
                             context=context, batch=16, device=device, always=True)  # fmt: skip

    sys.modules["prepare"] = served.module(evaluate)
    file = folder / f"autoresearch-{vocabulary}-{seed}-{seconds:g}.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("autoresearch_train", file)
    assert spec is not None and spec.loader is not None
    peer = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = peer
    spec.loader.exec_module(peer)
    return {
        "bpb": peer.val_bpb,
        "train_s": round(peer.total_training_time, 2),
        "steps": peer.step,
        "tokens": peer.total_tokens,
        "epochs": peer.epoch,
        "parameters": peer.num_params,
        "context": context,
        "vocabulary": vocabulary,
        "commit": ported.COMMIT,
    }
