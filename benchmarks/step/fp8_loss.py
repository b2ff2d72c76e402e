"""Does fp8 cost loss? One model trained in bf16 and in fp8 on the same batches: one GPU.

    python benchmarks/step/fp8_loss.py [--steps 2000] [--batch 8] [--megabytes 100] [--json FILE]

The model of pretrain-50m (62.4M parameters) from one initialisation, on the Python sources that are
installed here: exact duplicates dropped, every fiftieth file held out, a byte-level BPE of 32,768
trained on the rest. AdamW at 2e-3, 5 % warm-up, cosine to a tenth, clip 1.0, weight decay 0.1.
Validation is by the plain model in bf16 for both: what is compared are the weights. Exit code 2
without a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from albor_core.model.flat import FlatParameters
from albor_core.model.fp8 import Scales
from albor_core.model.fused import FusedLlama
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.recipes.batch import Batch
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip
from albor_core.train.optim.schedules import Schedule
from albor_core.train.step.fused import GraphedStep

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, positive

SHAPE = LlamaConfig(512, 12, 8, 2, 2048, 32768, 1024)
T = 1024
LR = 2e-3
HELD_OUT = 50
VALIDATION_ROWS = 128


def sources(megabytes: int) -> tuple[list[str], list[str]]:
    """(training, held-out) texts in the order of their hashes: the same on every call."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib")}
    found: dict[str, str] = {}
    for folder in sorted(folders):
        for path in sorted(Path(folder).rglob("*.py")):
            text = path.read_text(errors="ignore")
            if 200 < len(text) < 200_000:
                found[hashlib.sha256(text.encode(errors="ignore")).hexdigest()] = text
    texts, held, size = [], [], 0
    for number, key in enumerate(sorted(found)):
        (texts if number % HELD_OUT else held).append(found[key])
        size += len(found[key])
        if size > megabytes * 1_000_000:
            break
    return texts, held


def tokenizer_of(texts: list[str]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SHAPE.vocab_size,
        special_tokens=["<|end|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(texts[:4000], trainer)
    return made


def rows(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray[Any, Any]:
    """(rows, T) of one long stream."""
    stream: list[int] = []
    for encoded in tokenizer.encode_batch(texts):
        stream += [*encoded.ids, 0]
    whole = np.array(stream[: len(stream) // T * T], dtype=np.int64)
    return whole.reshape(-1, T)


def validation_loss(model: Llama, data: Tensor) -> float:
    total = 0.0
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for piece in data.split(16):
            total += float(model(piece, piece)[1]) * len(piece)
    return total / len(data)


def train(in_fp8: bool, data: Tensor, held: Tensor, steps: int, batch: int) -> dict[str, Any]:
    """Trains one model; `data` goes round."""
    model = Llama(SHAPE)
    init_weights(model, 0)
    model.cuda()
    flat = FlatParameters(model, torch.bfloat16)
    optimizer = FlatAdamW(flat, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    scales = Scales.of(model.config, torch.device("cuda")) if in_fp8 else None
    fused = FusedLlama(model, flat, scales)
    step = GraphedStep(fused, optimizer, batch=(batch, T), accumulation=1, clip=Clip(1.0))
    fused.calibrate(data[:batch])
    schedule = Schedule(LR, LR / 10, steps // 20, steps)
    torch.cuda.synchronize()
    begun, curve = time.time(), []
    for number in range(1, steps + 1):
        at = number * batch % (len(data) - batch)
        optimizer.set_lr(schedule.lr_at(number))
        loss = step.forward(Batch(data[at : at + batch]))
        step.backward(0)
        step.update(loss)
        if number % (steps // 10) == 0:
            curve.append(round(float(loss), 4))
    torch.cuda.synchronize()
    return {
        "precision": "fp8" if in_fp8 else "bf16",
        "seconds": round(time.time() - begun, 1),
        "validation": round(validation_loss(model, held), 5),
        "training": curve,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=positive, default=2000)
    parser.add_argument("--batch", type=positive, default=8)
    parser.add_argument("--megabytes", type=positive, default=100, help="of sources")
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("benchmarks/step/fp8_loss.py needs a CUDA GPU; torch sees none here\n")
        return 2
    texts, held = sources(options.megabytes)
    tokenizer = tokenizer_of(texts)
    order = np.random.default_rng(0)
    data = torch.from_numpy(order.permutation(rows(tokenizer, texts))).cuda()
    kept = torch.from_numpy(rows(tokenizer, held)[:VALIDATION_ROWS]).cuda()
    print(f"{len(texts)} files, {data.numel() / 1e6:.1f}M tokens, {len(kept)} rows held out")
    results = []
    for in_fp8 in (False, True):
        results.append(train(in_fp8, data, kept, options.steps, options.batch))
        print(json.dumps(results[-1]), flush=True)
    first, second = (result["validation"] for result in results)
    print(f"fp8 against bf16: {100 * (second / first - 1):+.2f} %")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
