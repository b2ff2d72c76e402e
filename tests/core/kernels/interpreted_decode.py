"""Run by test_decode_attention.py under TRITON_INTERPRET=1: one JSON line a case."""

from __future__ import annotations

import json
import sys
from functools import partial

import torch
from oracle import deviations

from albor_core.kernels.decode.attention import (
    OP,
    decode_attention,
    decode_attention_reference,
)


def cases(dtype):
    """As the parity check's, but small; then every length around a tile, windows, one key head."""
    source = torch.Generator().manual_seed(0)
    for number, (B, H, K, E, C, window, splits) in enumerate(
        (
            (3, 6, 2, 24, 97, 0, 1),
            (2, 4, 4, 32, 70, 0, 4),
            (4, 4, 1, 64, 66, 0, 2),
            (3, 4, 2, 16, 140, 9, 1),
            (2, 4, 2, 16, 140, 70, 4),
            (1, 2, 2, 128, 20, 1, 16),
        )
    ):

        def drawn(*shape):
            return torch.randn(*shape, generator=source)

        norms = [1 + 0.1 * drawn(E) for _ in range(2)]
        at = torch.randint(C, (B,), generator=source)
        at[0], at[-1] = 0 if B > 1 else C - 1, C - 1
        angle = drawn(C, E // 2).repeat(1, 2)
        tensors = [drawn(B, (H + 2 * K) * E), angle.cos(), angle.sin(), at,
                   drawn(B + 1, C, K, E), drawn(B + 1, C, K, E)]  # fmt: skip
        halves = [t.to(dtype) if i in (0, 4, 5) else t for i, t in enumerate(tensors)]
        norm = [n.to(dtype) for n in norms] if number % 2 else []
        yield (B, H, K, E, C, window, splits, len(norm)), window, splits, (*halves, *norm)


def main() -> None:
    assert OP.triton is decode_attention and OP.reference is decode_attention_reference
    for dtype in (torch.float32, torch.float16):
        for name, window, splits, tensors in cases(dtype):
            kernel = partial(decode_attention, window=window, splits=splits)
            plain = partial(decode_attention_reference, window=window)
            found = deviations(kernel, plain, *tensors)
            broken = [str(one) for one in found if not one.is_accurate()]
            mine, theirs = ([t.clone() for t in tensors] for _ in range(2))
            kernel(*mine)
            plain(*theirs)
            close = all(
                torch.allclose(a, b, rtol=0, atol=1e-6 if dtype is torch.float32 else 2e-3)
                for a, b in zip(mine[4:6], theirs[4:6], strict=True)
            )
            line = {"case": [*name], "dtype": str(dtype), "broken": broken, "stores": close}
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
