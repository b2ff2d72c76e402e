"""The memory estimate against what autograd really keeps for the backward pass."""

from pathlib import Path

import pytest

from albor_core.run.config import parse_config
from albor_core.run.estimates import memory
from albor_core.run.facts import Facts, SplitFacts

BATCH, SEQ_LEN = 4, 64


def kept_bytes(layers, heads, kv_heads, intermediate, *, half):
    """Bytes of distinct storages saved in one forward pass, parameters left out."""
    import torch

    from albor_core.model.llama import Llama, LlamaConfig

    model = Llama(LlamaConfig(128, layers, heads, kv_heads, intermediate, 512, SEQ_LEN))
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept, storages = [], {}

    def pack(tensor):
        kept.append(tensor)  # alive, so that no two storages share an address
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.zeros((BATCH, SEQ_LEN), dtype=torch.int64)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=half),
    ):
        model(ids, labels=ids)
    return sum(storages.values())


def estimate(layers, heads, kv_heads, intermediate, *, half):
    """Activations and the half-precision copies of weights that autograd keeps with them."""
    text = f"""
model: {{architecture: {{hidden_size: 128, num_hidden_layers: {layers},
  num_attention_heads: {heads}, num_key_value_heads: {kv_heads},
  intermediate_size: {intermediate}, vocab_size: 512, max_position_embeddings: {SEQ_LEN}}}}}
data: {{train: x, batch_size: {BATCH}, seq_len: {SEQ_LEN}}}
optimizer: {{lr: 1e-3}}
training: {{output_dir: x, mixed_precision: {"bf16" if half else "fp32"}}}
"""
    facts = Facts(Path("c"), SplitFacts(Path("x")))
    found = memory(parse_config(text.encode(), file="c"), facts)
    return found.activations + found.half_copies


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("shape", [(4, 2, 384), (4, 4, 384), (4, 1, 512)], ids=str)
def test_a_block_costs_what_the_formula_says(shape, half):
    """The slope over layers. Row statistics and padding are left out of the formula, hence 0.98."""
    measured = kept_bytes(4, *shape, half=half) - kept_bytes(2, *shape, half=half)
    expected = estimate(4, *shape, half=half) - estimate(2, *shape, half=half)
    assert 0.98 <= expected / measured <= 1.1
