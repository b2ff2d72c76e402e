"""Run by test_generate_fused.py under TRITON_INTERPRET=1: one JSON line a family."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from hf_folder import SHAPES, write_model

from albor_core.model.generate.cache import Cache
from albor_core.model.generate.forward import decode
from albor_core.model.generate.fused import FusedDecode

CPU = torch.device("cpu")


def compared(family: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), family).requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plain = Cache(model.config, 4, 20, dtype=torch.float32, device=CPU)
    source = torch.Generator().manual_seed(1)
    for held in (plain.keys, plain.values):
        held.normal_(generator=source)
    fused = Cache(model.config, 4, 20, dtype=torch.float32, device=CPU)
    fused.keys.copy_(plain.keys), fused.values.copy_(plain.values)
    step = FusedDecode(model, fused)
    joined = FusedDecode(model, fused)._qkv[0].weight  # again: nothing moves
    worst, positions = 0.0, torch.tensor([0, 13, 5])
    for number in range(3):
        tokens = torch.tensor([3, 60, number])
        with torch.no_grad():
            wanted = decode(model, plain, tokens, positions, 20, is_even=False)
        worst = max(worst, float((step(tokens, positions) - wanted).abs().max() / wanted.std()))
        positions += 1
    stored = max(
        float((a - b).abs().max())
        for a, b in ((plain.keys, fused.keys), (plain.values, fused.values))
    )
    same = all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    again = joined.data_ptr() == step._qkv[0].weight.data_ptr()
    return {"family": family, "worst": worst, "stored": stored, "same": same, "again": again}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in SHAPES:
        sys.stdout.write(json.dumps(compared(name)) + "\n")
