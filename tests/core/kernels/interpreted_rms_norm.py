"""Run by test_rms_norm.py under TRITON_INTERPRET=1: one JSON line per case."""

from __future__ import annotations

import json
import sys

import torch
from oracle import deviations

from albor_core.kernels import dispatch
from albor_core.kernels.ops.norms import rms_norm

SHAPES = [(2, 16, 512), (5, 3, 123), (1, 1, 1), (300, 64)]  # last: more tiles than programs


def main() -> None:
    rms_norm.PROGRAMS = 8  # every program of the backward loops; 512 interpreted ones take seconds
    for name in ("float32", "float16"):
        dtype = getattr(torch, name)
        for shape in SHAPES:
            source = torch.Generator().manual_seed(0)
            x = torch.randn(shape, generator=source).to(dtype)
            w = 1 + 0.1 * torch.randn(shape[-1], generator=source)
            for weight in {w.dtype: w, dtype: w.to(dtype)}.values():
                assert dispatch.use_triton("rms_norm", x)
                found = deviations(rms_norm.rms_norm, rms_norm.rms_norm_reference, x, weight)
                broken = [str(d) for d in found if not d.is_accurate()]
                case = {"dtype": name, "shape": shape, "results": len(found), "broken": broken}
                sys.stdout.write(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
