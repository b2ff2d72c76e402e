"""How fast text is scored by the fused kernels beside the plain model: one GPU.

    python benchmarks/step/eval_speed.py [--config configs/train/pretrain-350m.yaml] [--dtype bf16]
        [--batch 8] [--context N] [--stride N] [--tokens 262144] [--rounds 5] [--json]

What `albor eval apply --task text:FILE` asks of a model, without a tokenizer: one document of
--tokens random tokens in windows of --context (the model's own) that score --stride tokens each
(half of it), --batch of them a forward; the decoder of a training config with random weights. Both
score the same windows once before the clock runs, which checks the kernels, too; then they take
turns. A time is the median over rounds of all windows, results on the host; "ratio" is the median
over rounds of plain over fused, with its quartiles, "MiB" the peak above the weights, and
"difference" that of the loss in nats a token. Exit code 1 where the fused path is refused, 2
without a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from albor_core.config.config import Config
from albor_core.eval.kinds.windows import windows
from albor_core.eval.subject import DTYPES, EvaluatedModel
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.model.token_scores import PlainScorer, TokenScorer

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive, read_config

CONFIG = Path(__file__).resolve().parents[2] / "configs/train/pretrain-350m.yaml"


def model_of(config: Config, dtype: torch.dtype) -> Llama:
    shape = config.model.architecture.shape()
    model = Llama(LlamaConfig(**vars(shape), initializer_range=0.02))
    init_weights(model, 0)
    return model.to("cuda", dtype).eval().requires_grad_(False)


def subject_of(model: Llama, batch: int, dtype: str) -> EvaluatedModel:
    """Nothing is encoded and no text ends: likelihoods of tokens alone are asked for."""
    nothing: Any = None
    longest = model.config.max_position_embeddings
    rest = (batch, nothing, longest, frozenset[int]())
    return EvaluatedModel(model, nothing, "", dtype, model.head_weight.device, *rest)


def scoring(subject: EvaluatedModel, scorer: Any, pairs: list[Any]) -> Callable[[], float]:
    """What scores all pairs by one of the two: ln p."""

    def work() -> float:
        subject.scorer = scorer
        return math.fsum(one.sum for one in subject.logprobs(pairs))

    return work


def seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def peak_mib(work: Callable[[], object]) -> float:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measured(how: argparse.Namespace, config: Config) -> dict[str, Any]:
    model = model_of(config, DTYPES[how.dtype])
    longest, V = model.config.max_position_embeddings, model.config.vocab_size
    window = how.context or longest
    stride = how.stride or (window + 1) // 2
    ids = torch.randint(V, (how.tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    pairs = [*windows(ids, first=0, window=window, stride=stride)]
    subject, fused = subject_of(model, how.batch, how.dtype), TokenScorer(model)
    ways = {
        "plain": scoring(subject, PlainScorer(model), pairs),
        "fused": scoring(subject, fused, pairs),
    }
    found = {name: work() for name, work in reversed(ways.items())}  # the gate sees it plainly
    peaks = {name: peak_mib(work) for name, work in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(how.rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            times[name].append(seconds(ways[name]))
    ratios = [a / b for a, b in zip(times["plain"], times["fused"], strict=True)]
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "parameters": model.config.num_parameters,
        "dtype": how.dtype,
        "batch": how.batch,
        "window": window,
        "stride": stride,
        "tokens": how.tokens,
        "rounds": how.rounds,
        "path": fused.path,
        "path_reason": fused.reason,
        "seconds": {name: statistics.median(each) for name, each in times.items()},
        "mib": peaks,
        "ratio": statistics.median(ratios),
        "quartiles": statistics.quantiles(ratios, n=4)[::2] if len(ratios) > 1 else ratios * 2,
        "difference": (found["plain"] - found["fused"]) / how.tokens,
    }


def lines_of(one: dict[str, Any]) -> str:
    low, high = one["quartiles"]
    head = (
        f"{one['gpu']}, torch {one['torch']}, {one['parameters']:,} parameters, {one['dtype']}, "
        f"batch {one['batch']}, windows of {one['window']} that score {one['stride']}"
    )
    each = [
        f"{name}: {1000 * one['seconds'][name]:.1f} ms, "
        f"{one['tokens'] / one['seconds'][name]:,.0f} scored tok/s, {one['mib'][name]:,.0f} MiB"
        for name in ("plain", "fused")
    ]
    ratio = f"ratio {one['ratio']:.3f} ({low:.3f} to {high:.3f}) of {one['rounds']} rounds"
    return "\n".join([head, *each, f"{ratio}; difference {one['difference']:+.2e} nats a token"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16", "fp32"))
    parser.add_argument("--batch", type=positive, default=8)
    parser.add_argument("--context", type=positive)
    parser.add_argument("--stride", type=positive)
    parser.add_argument("--tokens", type=positive, default=1 << 18)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--json", action="store_true")
    how = parser.parse_args()
    config = read_config(parser, how.config)
    if not torch.cuda.is_available():
        sys.stderr.write("benchmarks/step/eval_speed.py needs a CUDA GPU; torch sees none here\n")
        return 2
    one = measured(how, config)
    print(json.dumps(one) if how.json else lines_of(one))
    if one["path"] != "fused":
        sys.stderr.write(f"the fused path was not taken: {one['path_reason']}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
