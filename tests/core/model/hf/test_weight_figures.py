"""Weights in figures: exact of small tensors, a spread and repeatable sample of large ones."""

import math

import numpy as np
import pytest
import torch
from hf_folder import write_model
from safetensors.torch import save_file

from albor_core.model.hf.arrays import BLOCK, sample
from albor_core.model.hf.weight_figures import BINS, to_json, weight_figures
from albor_core.run.files.weight_files import open_weights


def figures(folder, **tensors):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    return {one.name: one for one in weight_figures(open_weights(folder))}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_figures_of_a_small_tensor_are_those_of_all_its_numbers(tmp_path, dtype):
    wanted = torch.randn(40, 30).to(dtype)
    wanted[0, :6] = 0
    [found] = figures(tmp_path, w=wanted).values()
    numbers = wanted.double().numpy().ravel()
    assert (found.read, found.count, found.shape) == (1200, 1200, (40, 30))
    assert found.rms == pytest.approx(math.sqrt((numbers**2).mean()), rel=1e-12)
    assert found.mean == pytest.approx(numbers.mean(), rel=1e-9)
    assert (found.minimum, found.maximum) == (numbers.min(), numbers.max())
    assert found.zeros == (numbers == 0).mean()
    assert sum(found.counts) == 1200 and len(found.counts) == BINS


def test_what_is_not_finite_is_counted_and_left_out(tmp_path):
    odd = torch.tensor([1.0, math.nan, math.inf, 3.0])
    all_odd = torch.full((3,), math.nan)
    huge = torch.tensor([-1.7e308, 1.7e308], dtype=torch.float64)
    found = figures(tmp_path, odd=odd, all_odd=all_odd, huge=huge, flat=torch.ones(5))
    assert (found["odd"].nonfinite, found["odd"].mean) == (2, 2.0)
    assert (found["all_odd"].nonfinite, found["all_odd"].rms) == (3, None)
    assert sum(found["all_odd"].counts) == sum(found["huge"].counts) == 0
    assert sum(found["flat"].counts) == 5 and found["flat"].edges == (0.5, 1.5)


def test_a_large_tensor_is_sampled_from_end_to_end_and_alike_each_time(tmp_path):
    count = 40 * BLOCK + 7
    save_file({"w": torch.arange(count, dtype=torch.float32)}, tmp_path / "model.safetensors")
    held = open_weights(tmp_path).tensors["w"]
    found = sample(held, 10 * BLOCK)
    assert len(found) == 10 * BLOCK
    assert (found[0], found[-1]) == (0, count - 1)
    assert (np.diff(found) > 0).all() and np.array_equal(found, sample(held, 10 * BLOCK))
    assert abs(found.mean() / (count / 2) - 1) < 0.01
    assert np.array_equal(sample(held, count), np.arange(count))


def test_tensors_stand_by_layer_and_part_and_what_has_no_floats_is_left_out(tmp_path):
    write_model(tmp_path / "m", "qwen3")
    found = to_json(open_weights(tmp_path / "m"))["tensors"]
    layers = [one["layer"] for one in found]
    assert [n for n in layers if n is not None] == sorted(n for n in layers if n is not None)
    assert layers[-1] is None
    parts = {one["part"] for one in found if one["layer"] == 1}
    assert {"self_attn.q_proj", "mlp.down_proj", "input_layernorm"} <= parts
    assert {one["part"] for one in found if one["layer"] is None} == {
        "embed_tokens", "norm", "lm_head",
    }  # fmt: skip
    assert figures(tmp_path / "ints", n=torch.arange(4)) == {}
