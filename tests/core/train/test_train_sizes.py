"""The shipped configs at their full sizes: what a user's first step begins from."""

import math
from pathlib import Path

import pytest
import torch

from albor_core.config.load import load_config
from albor_core.model.llama import Llama, init_weights
from albor_core.recipes.causal_lm import shape_of

CONFIGS = Path(__file__).parents[3] / "configs" / "train"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("pretrain-*.yaml")), ids=lambda p: p.stem)
def test_a_shipped_size_begins_at_the_entropy_of_a_uniform_guess(path):
    shape = shape_of(load_config(path).config)
    model = Llama(shape)
    init_weights(model, seed=0)
    ids = torch.randint(0, shape.vocab_size, (8, 256))
    with torch.no_grad():
        _, loss = model(ids, ids)
    print(f"{path.stem}: {shape.num_parameters:,} parameters begin at {loss.item():.3f}")
    assert abs(loss.item() - math.log(shape.vocab_size)) < 0.03
