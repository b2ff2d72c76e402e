"""How fast text is generated beside transformers' generate, on the same random weights.

    python benchmarks/step/generate.py [--config configs/train/pretrain-350m.yaml] [--layers N]
        [--batch 1 --batch 256] [--context 128] [--new-tokens 256] [--rounds 3] [--alone]
        [--device auto] [--dtype auto] [--threads N]

The decoder of a training config with weights drawn at random, so nothing need be on disk. Rounds
are interleaved: a machine that slows down slows both. A line says what was measured: tokens a
second over all of the time, the prefill's included, of a step alone (batch over its median), the
share of the bandwidth law, and the ratio of transformers' time to ours.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from albor_core.cli.model.generate import place_of
from albor_core.config.config import Config
from albor_core.model.generate.measure import Load, MeasuredLoad, measure, read_bandwidth
from albor_core.model.generate.peer import Peer
from albor_core.model.llama import Llama, LlamaConfig, init_weights

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive, read_config

CONFIG = Path(__file__).resolve().parents[2] / "configs/train/pretrain-350m.yaml"


def model_of(config: Config, layers: int | None, device: torch.device, dtype: torch.dtype) -> Llama:
    shape = config.model.architecture.shape()
    if layers is not None:
        shape = replace(shape, num_hidden_layers=layers)
    model = Llama(LlamaConfig(**vars(shape), initializer_range=0.02))
    init_weights(model, 0)
    return model.to(device, dtype).eval().requires_grad_(False)


def peer_of(model: Llama) -> Peer:
    """transformers with the same weights."""
    import transformers

    about = model.config.to_hf()
    config = transformers.AutoConfig.for_model(**about)
    weight = model.head_weight
    with torch.device("meta"):
        theirs = transformers.AutoModelForCausalLM.from_config(config).to(weight.dtype)
    theirs = theirs.to_empty(device=weight.device)
    theirs.load_state_dict(model.state_dict(), strict=False)
    theirs.tie_weights()
    rotary = theirs.model.rotary_emb  # its buffer is in no state dict
    theirs.model.rotary_emb = type(rotary)(config).to(weight.device)
    return Peer(theirs)


def line_of(one: MeasuredLoad, bandwidth: float) -> str:
    step, load = one.step_s(0.5), one.load
    tokens = load.batch * load.new_tokens
    parts = [
        f"batch {load.batch}, context {load.context} + {load.new_tokens}",
        f"{tokens / one.total_s:,.0f} tok/s",
        f"step {1000 * step:.3f} ms p50, {1000 * one.step_s(0.99):.3f} p99",
        f"{load.batch / step:,.0f} tok/s of steps",
        f"prefill {load.batch * load.context / one.prefill_s:,.0f} tok/s",
        f"{one.step_bytes / bandwidth / step:.0%} of the bandwidth law",
    ]
    if one.peer_s is not None:
        parts.append(f"transformers {tokens / one.peer_s:,.0f} tok/s")
        parts.append(f"ratio {one.peer_s / one.total_s:.2f}")
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--layers", type=positive)
    parser.add_argument("--batch", type=positive, action="append")
    parser.add_argument("--context", type=positive, default=128)
    parser.add_argument("--new-tokens", type=positive, default=256)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--dtype", default="auto", choices=("auto", "fp32", "bf16", "fp16"))
    parser.add_argument("--alone", action="store_true")
    how = parser.parse_args()
    config = read_config(parser, how.config)
    if how.threads is not None:
        torch.set_num_threads(how.threads)
    device, dtype = place_of(how.device, how.dtype)
    model = model_of(config, how.layers, device, dtype)
    peer = None if how.alone else peer_of(model)
    bandwidth = read_bandwidth(device)
    is_gpu = device.type == "cuda"
    where = torch.cuda.get_device_name(device) if is_gpu else f"{torch.get_num_threads()} threads"
    print(
        f"{model.config.num_parameters:,} parameters, {dtype}, {where}, "
        f"{bandwidth / 1e9:,.1f} GB/s read, load {os.getloadavg()[0]:.1f}, "
        f"torch {torch.__version__}"
    )
    for batch in how.batch or (1, 256):
        load = Load(batch, how.context, how.new_tokens)
        print(line_of(measure(model, load, peer=peer, rounds=how.rounds), bandwidth), flush=True)


if __name__ == "__main__":
    main()
