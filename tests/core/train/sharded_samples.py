"""Run by test_train_compiled.py: a sharded model whose blocks are compiled, as
train/ranks/sharding.py does it, samples before it trains. One JSON line: calls through compiled
graphs in a first step, and what the step said.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

from albor_core.config.microbatches import RankShare
from albor_core.data.pack.special_tokens import SpecialIds
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.recipes.batch import Batch
from albor_core.recipes.causal_lm import CausalLM
from albor_core.recipes.head_loss import CrossEntropy
from albor_core.train.evaluate import Sampler
from albor_core.train.optim.adamw import Optimizer
from albor_core.train.ranks.group import ALONE, Ranks
from albor_core.train.ranks.placement import Placement
from albor_core.train.ranks.sharding import reshard, shard
from albor_core.train.step.plain import PlainStep

torch.set_num_threads(1)
os.environ.update(RANK="0", WORLD_SIZE="1")
calls = 0


def backend(graph: torch.fx.GraphModule, _example: list[torch.Tensor]):
    def run(*inputs: torch.Tensor):
        global calls
        calls += 1
        return graph(*inputs)

    return run


class Trained(CausalLM):
    """Without a config."""

    def head_loss(self) -> CrossEntropy:
        return CrossEntropy()


def main(folder: Path, mode: str) -> None:
    store = dist.FileStore(str(folder / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    plain = nn.Module.compile
    nn.Module.compile = lambda module, **how: plain(module, backend=backend, **how)
    model = Llama(LlamaConfig(32, 3, 4, 2, 64, 64, 128))
    init_weights(model, 0)
    shard(model, model.model.layers, torch.device("cpu"), 1, half=None, compiles=True)
    ranks = Ranks(is_sharded=True)
    placement = Placement(torch.device("cpu"), None, "fp32", mode != "unguarded", ranks)
    sampler = Sampler(folder / "tokenizer.json", ("w1 w2 w3",), SpecialIds())
    sampler.continue_prompts(model, placement)
    reshard(model)
    said: list[dict[str, object]] = []
    parts = SimpleNamespace(
        optimizer=Optimizer(
            model, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0, fused=False
        ),
        recipe=Trained(None),
        model=model,
        forward=model,
        placement=replace(placement, compiles=True, ranks=ALONE),
        ranks=ALONE,
        share=RankShare(1, 4, 1),
        scale=None,
        config=None,
    )
    step = PlainStep(parts, lambda name, **fields: said.append({"name": name, **fields}))
    before = calls
    ids = torch.randint(0, 64, (4, 32))
    step.forward(Batch(ids))
    step.backward(0)
    sys.stdout.write(json.dumps({"calls": calls - before, "said": said}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
