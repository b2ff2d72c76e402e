"""How the start of a model's weights changes what a recipe reaches: one GPU.

    python research/pretrain.py --out DIR --runs     # makes the corpus only
    python research/starts.py --data DIR [--size 62m] [--starts NAME ...] [--orders 0 7]
                              [--steps 401] [--lr RATE] [--eps EPS] [--stream bf16]
                              [--json FILE]

The recipe of pretrain.py (AdamW 2e-3, 1e-3 at 398m; 64 x 1,024 tokens; 5 % of 1,190 steps warm up,
then a cosine to a tenth; clip 1.0, decay 0.1), stopped after --steps (1190: all of it; a quick
start need not be a good end), in plain PyTorch: autocast, torch.compile, torch.optim.AdamW. So it
also tells whether the trainer's own step holds a model back. --stream bf16 keeps the residual
stream in bf16, as training.residual_in_fp32: false does. Each start meets each order of the
batches; how far one start's losses lie apart is the noise that others have to be told from. With
several GPUs give each process its own by CUDA_VISIBLE_DEVICES. Exit code 2 without a GPU.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from pretrain import BATCH, EVERY, STEPS, T, tell
from torch import Tensor

from albor_core.data.load.order import SequenceOrder
from albor_core.model.llama import (
    Llama,
    LlamaConfig,
    init_weights,
    param_groups,
    repeat_rows,
    role_of,
)
from albor_core.train.optim.schedules import Schedule

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import above_zero, new_file, positive, there

SIZES = {
    "62m": (LlamaConfig(512, 12, 8, 2, 2048, 32768, T), 2e-3),
    "398m": (LlamaConfig(1024, 24, 16, 4, 4096, 32768, T), 1e-3),
}


@dataclass(frozen=True)
class Start:
    """Standard deviations, and the weight of the final norm. `loud` channels have the embedding's
    deviation `heard` and the weight `gain`, the others `embedding` and `quiet`. `mirrored`: the
    second half of the channels repeats the first, its weight is -gain; `alike`: o_proj and
    down_proj write the same to both.
    """

    embedding: float
    gain: float = 1.0
    loud: int | None = None
    """None: all of them."""
    quiet: float = 0.0
    heard: float | None = None
    """None: as `embedding`."""
    matrix: float | None = None
    """None: `scale` x 0.64 / sqrt(D)."""
    scale: float = 1.0
    writers: float | None = None
    """Of o_proj and down_proj; None: `share` x 0.64 / sqrt(2 L D)."""
    share: float = 1.0
    mirrored: bool = False
    alike: bool = False
    embedding_rate: float = 1.0
    """Times the learning rate."""


STARTS = {
    "usual": Start(0.02, matrix=0.02, writers=0.02),
    "scaled": Start(0.02),
    "quiet-all": Start(0.02, gain=0.51),
    "big-embedding": Start(0.2, gain=0.033),
    "small-embedding": Start(0.008),
    "loud-128": Start(0.02, loud=128),
    "loud-32": Start(0.03, loud=32, quiet=0.1),
    "split-0.15": Start(0.15, gain=1.2, loud=64, heard=0.02),
    "split-0.3": Start(0.3, gain=1.65, loud=64, heard=0.02),
    "split-0.3-128": Start(0.3, gain=1.5, loud=128, heard=0.015),
    "split-0.6": Start(0.6, gain=2.8, loud=64, heard=0.02),
    "split-0.6-256": Start(0.6, gain=1.1, loud=256, heard=0.02),
    "split-1": Start(1.0, gain=4.5, loud=64, heard=0.02),
    "still": Start(0.02, share=0.1),
    "fast": Start(0.02, embedding_rate=2.0),
    "still-fast": Start(0.02, share=0.1, embedding_rate=3.0),
    "mirrored-0.01": Start(0.01, gain=2.0, share=0.016, mirrored=True),
    "mirrored-0.014": Start(0.014, gain=2.0, share=0.016, mirrored=True),
    "mirrored-0.02": Start(0.02, gain=2.0, share=0.016, mirrored=True),  # the trainer's own
    "alike": Start(0.02, mirrored=True, alike=True),
    "alike-2": Start(0.02, scale=2.0, mirrored=True, alike=True),  # pretrain-350m.yaml's, at 398m
    "alike-2-tenth": Start(0.02, gain=2.0, scale=2.0, share=0.1, mirrored=True, alike=True),
    "alike-tenth": Start(0.02, gain=2.0, share=0.1, mirrored=True, alike=True),
    "mirrored-0.02-1": Start(0.02, gain=1.0, share=0.032, mirrored=True),
    "mirrored-0.02-4": Start(0.02, gain=4.0, share=0.008, mirrored=True),
    "mirrored-0.05": Start(0.05, gain=2.0, share=0.016, mirrored=True),
    "mirrored-0.05-1": Start(0.05, gain=1.0, share=0.032, mirrored=True),
    "mirrored-0.1-1": Start(0.1, gain=1.0, share=0.032, mirrored=True),
}


def begin(model: Llama, start: Start) -> None:
    """The same draws for every start, times its deviations."""
    D, L = model.config.hidden_size, model.config.num_hidden_layers
    loud = D if start.loud is None else start.loud
    unit = 0.64 / math.sqrt(D)
    matrix = start.scale * unit if start.matrix is None else start.matrix
    writer = start.share * unit / math.sqrt(2 * L) if start.writers is None else start.writers
    half = D // 2
    drawn = Llama(LlamaConfig(**{**asdict(model.config), "initializer_range": 1.0}))
    init_weights(drawn, seed=0)
    with torch.no_grad():
        for (name, weight), draw in zip(model.named_parameters(), drawn.parameters(), strict=True):
            if "embed_tokens" in name:
                draw[:, :loud] *= start.embedding if start.heard is None else start.heard
                draw[:, loud:] *= start.embedding
                if start.mirrored:
                    draw[:, half:] = draw[:, :half]
            elif draw.ndim == 2:
                writes = role_of(name) == "residual"
                draw *= writer if writes else matrix
                if writes and start.alike:
                    repeat_rows(draw)
            elif name == "model.norm.weight":
                draw[:loud], draw[loud:] = start.gain, start.quiet
                if start.mirrored:
                    draw[half:] = -start.gain
            weight.copy_(draw)


def train(
    model: Llama,
    run: Any,
    rows: Tensor,
    held: Tensor,
    *,
    top: float,
    eps: float,
    order: int,
    steps: int,
    embedding_rate: float,
) -> dict[str, Any]:
    """Losses of the first step, the last ones, each 20 on the way, and of the held-out rows after
    each EVERY steps and the last. `run`: the model, compiled; `top`: the highest learning rate,
    times `embedding_rate` for the embedding; `eps`: AdamW's.
    """
    device = rows.device
    groups = param_groups(model, 0.1)
    embedding = model.model.embed_tokens.weight
    groups[0]["params"] = [weight for weight in groups[0]["params"] if weight is not embedding]
    groups.append({"params": [embedding], "weight_decay": 0.1})
    optimizer = torch.optim.AdamW(
        groups, lr=top, betas=(0.9, 0.95), eps=eps, fused=device.type == "cuda"
    )
    schedule = Schedule(top, top / 10, STEPS // 20, STEPS)
    batches, losses, begun = SequenceOrder(order, len(rows)), [], time.monotonic()
    validation: dict[int, float] = {}
    whole = held[: len(held) // BATCH * BATCH].split(BATCH)
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = schedule.lr_at(step)
        optimizer.param_groups[-1]["lr"] *= embedding_rate
        chosen = torch.from_numpy(batches.indices(step - 1, 0, BATCH, 1)).to(device)
        ids = rows[chosen].long()
        with torch.autocast(device.type, torch.bfloat16):
            _, loss = run(ids, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if step % EVERY == 0 or step == steps:
            with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
                found = [run(ids.long(), ids.long())[1] for ids in whole]
            validation[step] = round(torch.stack(found).mean().item(), 4)
    course = torch.stack(losses)[: steps // 20 * 20].view(-1, 20).mean(1).tolist()
    return {
        "first": round(losses[0].item(), 4),
        "train": round(torch.stack(losses[-20:]).mean().item(), 4),
        "validation": validation,
        "course": [round(loss, 3) for loss in course],
        "seconds": round(time.monotonic() - begun, 1),
    }


def read_rows(folder: Path) -> Tensor:
    """(N, T) int32: every shard in or below `folder`."""
    files = sorted(folder.rglob("shard-*.parquet"))
    values = [pq.read_table(file)["input_ids"].combine_chunks().values for file in files]
    return torch.from_numpy(np.concatenate(values).astype(np.int32)).view(-1, T)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=there, required=True, help="what pretrain.py made: --out")
    parser.add_argument("--size", choices=SIZES, default="62m")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--orders", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=positive, default=EVERY)
    parser.add_argument("--lr", type=above_zero, help="highest rate; the recipe's own if not given")
    parser.add_argument("--eps", type=above_zero, default=1e-8, help="AdamW's")
    parser.add_argument("--stream", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("research/starts.py needs a CUDA GPU; torch sees none here\n")
        return 2
    config, top = SIZES[options.size]
    rows = read_rows(options.data / "train" / "train").cuda()
    held = read_rows(options.data / "held").cuda()
    model = Llama(replace(config, residual_in_fp32=options.stream == "fp32")).cuda()
    compiled = torch.compile(model, dynamic=False)
    results = []
    for order in options.orders:
        for name in options.starts:
            begin(model, STARTS[name])
            settings = {"top": options.lr or top, "eps": options.eps, "order": order}
            rate = STARTS[name].embedding_rate
            found = train(
                model, compiled, rows, held, steps=options.steps, embedding_rate=rate, **settings
            )
            about = {"size": options.size, "start": name, "stream": options.stream, **settings}
            results.append({**about, **found})
            tell(results, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
