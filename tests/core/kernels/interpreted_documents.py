"""Run by test_document_attention.py under TRITON_INTERPRET=1: one JSON line a case."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice

import torch
from oracle import deviations

from albor_core.kernels.documents import attention
from albor_core.kernels.ops.rope import tables
from albor_core.model.flat import FlatParameters
from albor_core.model.fused import FusedLlama
from albor_core.model.llama import IGNORED, Llama, LlamaConfig, init_weights
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
            given = (qkv, *tables(T, E), *attention.stretches(document))
            kernel = partial(attention.document_attention, H=H, K=K)
            plain = partial(attention.document_attention_reference, H=H, K=K)
            found = deviations(kernel, plain, *given)
            broken = [str(one) for one in found if not one.is_accurate()]
            print(json.dumps({"case": [H, K, E, B, T, str(dtype)], "broken": broken}))
    fused("llama")
    fused("qwen3")


def fused(family: str) -> None:
    """The written-out step of a batch with documents, beside autograd's."""
    model = Llama(LlamaConfig(128, 2, 2, 1, 128, 96, 128, model_type=family))
    init_weights(model, 0)
    flat = FlatParameters(model, torch.float32)
    written = FusedLlama(model, flat)
    optimizer = FlatAdamW(flat, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    source = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 96, (2, 128), generator=source)
    document = attention.drawn_documents(2, 128, 20, source)
    labels = ids.clone()
    labels[:, 1:][document[:, 1:] != document[:, :-1]] = IGNORED
    _, wanted = model(ids, labels, document)
    wanted.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    step = GraphedStep(
        written,
        optimizer,
        batch=(2, 128),
        accumulation=1,
        clip=Clip(None, None),
        has_documents=True,
    )
    loss = step.forward(Batch(ids, labels, document.int()))
    step.backward(0)
    found = optimizer.flat.gradients()
    off = {n: float((found[n] - g).norm() / g.norm()) for n, g in gradients.items()}
    off["loss"] = abs(loss.item() / wanted.item() - 1)
    broken = {name: error for name, error in off.items() if not error < 1e-5}
    print(json.dumps({"case": f"fused {family}", "broken": broken}))


if __name__ == "__main__":
    main()
