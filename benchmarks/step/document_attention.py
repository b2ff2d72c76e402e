"""What keeping documents apart costs and saves in attention: one GPU.

    python benchmarks/step/document_attention.py [--tokens 65536] [--rows 4096 8192] [--width 64]
                                                 [--windows 512 ...] [--json FILE]

Forward with backward, RoPE's gradient with it, bf16, 16 + 4 heads of 64 or 8 + 2 of 128, rows of
4,096 and 8,192 tokens by default: causal attention over whole rows, with a backward by kernels
(`causal`) and by SDPA (`sdpa`); the kernels that stay within documents (`documents`) where a
document has T / 4, T / 8 and T / 16 tokens on average and where a row is one, or where a token sees
so many (--windows) of one; and torch's attention with a mask of (B, 1, T, T) booleans (`mask`).
`skipped` is the share of the causal tiles that no query sees. Medians of interleaved rounds; every
result is first held to its reference. Exit code 2 without a GPU, 1 where one fails parity.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels import dispatch
from albor_core.kernels.documents import attention as documents
from albor_core.kernels.ops.attention import attention
from albor_core.kernels.ops.attention.rope import tables

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, positive

H, K, TILE = 16, 4, attention.TILE  # heads of 64; half as many of 128
ROUNDS, REPEATS = 9, 5
SHARES = (4, 8, 16)  # T over the mean length of a document


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if max(options.rows) > options.tokens:
        parser.error("--rows: at most as many as --tokens")
    if not torch.cuda.is_available():
        print("no GPU: nothing is timed", file=sys.stderr)
        return 2
    device = torch.device("cuda")
    if reason := dispatch.rejection(documents.OP, device, torch.bfloat16):
        print(f"documents: {reason}", file=sys.stderr)
        return 1
    E = options.width
    found = [
        row
        for T in options.rows
        for row in compare(T, options.tokens // T, E, options.windows, device)
    ]
    heads = f"{H * 64 // E} + {K * 64 // E} heads of {E}"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, {heads}")
    print("     T  sees  skipped   causal us  sdpa us  documents us  mask us  of the quicker")
    for one in found:
        print(
            f"{one['T']:6} {one['sees']:>5} {one['skipped']:8.1%} {one['causal_us']:11.0f}"
            f" {one['sdpa_us']:8.0f} {one['documents_us']:13.0f}"
            f" {one['mask_us'] or float('nan'):8.0f}"
            f" {one['documents_us'] / min(one['causal_us'], one['sdpa_us']):15.2f}"
        )
    if options.json is not None:
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        options.json.write_text(json.dumps({**about, "rows": found}, indent=1))
    return 0


def compare(
    T: int, B: int, E: int, windows: list[int], device: torch.device
) -> list[dict[str, Any]]:
    """One entry for each mean length of a document and each window, in rows of T tokens."""
    source = torch.Generator(device).manual_seed(0)
    heads = {"H": H * 64 // E, "K": K * 64 // E}
    width = (heads["H"] + 2 * heads["K"]) * E
    qkv = torch.randn(B, T, width, generator=source, device=device).bfloat16()
    cos, sin = (table.to(device) for table in tables(T, E))
    whole = torch.zeros(B, T, dtype=torch.int64, device=device)
    seen = {f"{T}": documents.stretches(whole)}
    for share in SHARES:
        drawn = documents.drawn_documents(B, T, T // share, source)
        seen[f"~{T // share}"] = documents.stretches(drawn)
    place = torch.arange(T, device=device, dtype=torch.int32).expand(B, T)
    for window in windows:
        ends = (place + window).clamp(max=T).int().contiguous()
        seen[f"w{window}"] = ((place - window + 1).clamp(min=0).int().contiguous(), ends)
    rows = []
    for name, bounds in seen.items():
        turned = {"cos": cos, "sin": sin, **heads}
        ways: dict[str, Callable[[Tensor], Tensor]] = {
            "causal": partial(attention.attention_triton, **turned),
            "sdpa": partial(attention.attention_sdpa, **turned),
            "documents": partial(_documents, bounds=bounds, **turned),
        }
        if B * T * T <= 1 << 30:
            ways["mask"] = partial(_mask, bounds=bounds, **turned)
        times = race(ways, qkv)
        told = {f"{way}_us": times.get(way) for way in ("causal", "sdpa", "documents", "mask")}
        rows.append({"T": T, "E": E, "sees": name, "skipped": skipped(bounds[0]), **told})
    return rows


def _documents(
    x: Tensor, cos: Tensor, sin: Tensor, bounds: tuple[Tensor, Tensor], **heads: int
) -> Tensor:
    return documents.document_attention(x, cos, sin, *bounds, **heads)


def _mask(
    x: Tensor, cos: Tensor, sin: Tensor, bounds: tuple[Tensor, Tensor], **heads: int
) -> Tensor:
    return documents.document_attention_reference(x, cos, sin, *bounds, **heads)


def skipped(first: Tensor) -> float:
    """Share of the causal tiles that no query of theirs sees."""
    begins = first[:, ::TILE].long() // TILE
    tiles = begins.shape[1]
    walked = int((torch.arange(1, tiles + 1, device=first.device) - begins).sum())
    return 1 - walked / (len(first) * tiles * (tiles + 1) / 2)


def race(ways: dict[str, Callable[[Tensor], Tensor]], qkv: Tensor) -> dict[str, float]:
    """Microseconds of forward and backward; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    leaf = qkv.detach().requires_grad_()
    upstream = torch.randn_like(ways["documents"](qkv))
    for _ in range(ROUNDS + 1):
        for name, way in ways.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(REPEATS):
                torch.autograd.grad(way(leaf), leaf, upstream)
            end.record()
            end.synchronize()
            times[name].append(1000 * begin.elapsed_time(end) / REPEATS)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=positive, default=65536, help="of a batch")
    parser.add_argument(
        "--rows", type=positive, nargs="+", default=[4096, 8192], help="tokens of a row"
    )
    parser.add_argument(
        "--width", type=int, choices=tuple(attention.OPS), default=64, help="of heads"
    )
    parser.add_argument(
        "--windows", type=positive, nargs="*", default=[], help="tokens that one sees"
    )
    parser.add_argument("--json", type=new_file, help="write the numbers here, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
