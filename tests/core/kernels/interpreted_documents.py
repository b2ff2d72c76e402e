"""Run by test_document_attention.py under TRITON_INTERPRET=1: one JSON line a case."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice
from typing import Any

import torch
from oracle import deviations

from albor_core.kernels.documents import attention
from albor_core.kernels.ops.attention.rope import tables
from albor_core.kernels.ops.cross_entropy import IGNORED
from albor_core.model.flat import FlatParameters
from albor_core.model.fused import FusedLlama
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.recipes.batch import Batch
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip
from albor_core.train.step.fused import GraphedStep


def cases():
    """Documents of one token, that end with a tile, that fill a row, of all lengths."""
    source = torch.Generator().manual_seed(0)
    lengths = (
        (4, 2, ([64, 64, 64], [192], [1, 63, 1, 127])),
        (2, 2, ([1] * 128,)),
        (3, 1, ([5, 70, 3, 50], [127, 1], [100, 28])),
    )
    for H, K, rows in lengths:
        document = torch.tensor(
            [[n for n, size in enumerate(row) for _ in range(size)] for row in rows]
        )
        yield H, K, document
    yield 4, 2, attention.drawn_documents(2, 256, 40, source)


def main() -> None:
    source = torch.Generator().manual_seed(1)
    for dtype, E in ((torch.float32, 64), (torch.float16, 64), (torch.float32, 128)):
        for H, K, document in cases() if E == 64 else islice(cases(), 2, 3):
            B, T = document.shape
            qkv = (0.3 * torch.randn(B, T, (H + 2 * K) * E, generator=source)).to(dtype)
            bounds = attention.stretches(document)
            check([H, K, E, B, T, str(dtype)], qkv, bounds, H, K)
    qkv = 0.3 * torch.randn(2, 192, 4 * 64, generator=source)
    whole = attention.stretches(torch.zeros(2, 192))
    parts = attention.stretches(attention.drawn_documents(2, 192, 60, source))
    for name, bounds, window in (("rows", whole, 70), ("rows", whole, 1), ("documents", parts, 33)):
        check(f"{window} of {name}", qkv, attention.windowed(bounds, window), 2, 1)
    fused("llama")
    fused("qwen3")
    slides = {"sliding_window": 40, "window_pattern": "SL"}
    fused("qwen3", **slides)
    fused("qwen3", is_apart=False, **slides)
    fused("mistral", is_apart=False, sliding_window=70)


def check(case: object, qkv: torch.Tensor, bounds: Any, H: int, K: int) -> None:
    E = qkv.shape[2] // (H + 2 * K)
    given = (qkv, *tables(qkv.shape[1], E), *bounds)
    kernel = partial(attention.document_attention, H=H, K=K)
    plain = partial(attention.document_attention_reference, H=H, K=K)
    broken = [str(one) for one in deviations(kernel, plain, *given) if not one.is_accurate()]
    print(json.dumps({"case": case, "broken": broken}))


def fused(family: str, *, is_apart: bool = True, **more: Any) -> None:
    """The written-out step of a batch with documents or windows, beside autograd's."""
    model = Llama(LlamaConfig(128, 2, 2, 1, 128, 96, 128, model_type=family, **more))
    init_weights(model, 0)
    flat = FlatParameters(model, torch.float32)
    written = FusedLlama(model, flat)
    optimizer = FlatAdamW(flat, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    source = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 96, (2, 128), generator=source)
    document = attention.drawn_documents(2, 128, 20, source)
    labels = ids.clone()
    labels[:, 1:][document[:, 1:] != document[:, :-1]] = IGNORED
    _, wanted = model(ids, labels, document if is_apart else None)
    wanted.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    step = GraphedStep(
        written,
        optimizer,
        batch=(2, 128),
        accumulation=1,
        clip=Clip(None, None),
        like=Batch(ids, None, document.int() if is_apart else None),
    )
    loss = step.forward(Batch(ids, labels, document.int() if is_apart else None))
    step.backward(0)
    found = optimizer.flat.gradients()
    off = {n: float((found[n] - g).norm() / g.norm()) for n, g in gradients.items()}
    off["loss"] = abs(loss.item() / wanted.item() - 1)
    broken = {name: error for name, error in off.items() if not error < 1e-5}
    case = f"fused {family} {'apart ' * is_apart}{more}"
    print(json.dumps({"case": case, "broken": broken}))


if __name__ == "__main__":
    main()
