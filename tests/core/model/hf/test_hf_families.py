"""Random small models of every family: transformers' own classes are the judge."""

import json

import pytest
import torch
from hf_peers import CASES, FAMILIES, SIZES, ours, theirs

from albor_core.config.hf_config import hf_config, refusals, shape_of
from albor_core.model.rotary import frequencies
from albor_core.run.files.weight_files import open_weights

pytestmark = pytest.mark.slow  # imports transformers


@pytest.mark.parametrize(("name", "more"), CASES, ids=str)
def test_a_model_computes_the_logits_of_transformers(tmp_path, name, more):
    judge = theirs(name, more, tmp_path)
    mine = ours(tmp_path)
    assert not list(refusals(json.loads((tmp_path / "config.json").read_text())))
    assert {n: tuple(t.shape) for n, t in mine.state_dict().items()} == (
        mine.config.tensor_shapes()
    )
    assert sum(p.numel() for p in mine.parameters()) == mine.config.num_parameters
    ids = torch.randint(0, 128, (2, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, found = judge(ids).logits, mine(ids)[0]
    assert wanted.std() > 0.3
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert torch.equal(found.argmax(-1), wanted.argmax(-1))


@pytest.mark.parametrize(("name", "more"), CASES, ids=str)
@pytest.mark.parametrize("keeps", [True, False], ids=["what it came with", "the shape alone"])
def test_config_json_comes_back_equal_field_by_field(tmp_path, name, more, keeps):
    from transformers import AutoConfig

    judge = theirs(name, more, tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    shape = shape_of(about, "config.json")
    ids = {key: about.get(key) for key in ("bos_token_id", "eos_token_id")}
    out = hf_config(shape, initializer_range=0.1, about=about if keeps else None, **ids)
    assert shape_of(out, "config.json") == shape
    (tmp_path / "config.json").write_text(json.dumps(out))
    again = AutoConfig.from_pretrained(tmp_path)
    assert type(again) is type(judge.config)
    assert _without_names(again.to_dict()) == _without_names(judge.config.to_dict())
    older = {**out.get("rope_scaling", {}), "rope_theta": out["rope_theta"]}
    assert older.items() <= out["rope_parameters"].items()  # the spelling of transformers 4


def _without_names(said):
    return {key: value for key, value in said.items() if key != "_name_or_path"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_weights_are_rounded_or_widened_as_they_are_read_but_rotations_stay_whole(tmp_path, dtype):
    judge = theirs("Qwen3", {"head_dim": 16}, tmp_path).state_dict()
    mine = ours(tmp_path, dtype)
    assert all(torch.equal(t, judge[name].to(dtype)) for name, t in mine.state_dict().items())
    assert mine.model.rotary_emb.cos.dtype is torch.float32
    ids = torch.randint(0, 128, (2, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, found = ours(tmp_path)(ids)[0], mine(ids)[0]
    assert found.dtype is dtype
    assert (found - wanted).norm() < (0.05 if dtype is torch.bfloat16 else 1e-6) * wanted.norm()


def test_weights_in_many_files_are_those_in_one(tmp_path):
    theirs("Qwen3", {"head_dim": 16}, tmp_path / "one")
    theirs("Qwen3", {"head_dim": 16}, tmp_path / "many", max_shard_size="40KB")
    one, many = open_weights(tmp_path / "one"), open_weights(tmp_path / "many")
    assert len(one.files) == 1 and len(many.files) > 3
    assert {n: h.shape for n, h in one.tensors.items()} == {
        n: h.shape for n, h in many.tensors.items()
    }
    a, b = ours(tmp_path / "one").state_dict(), ours(tmp_path / "many").state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("more", [m for m in FAMILIES["Llama"] if "rope_parameters" in m], ids=str)
def test_every_rotation_is_that_of_transformers_to_the_last_bit(more):
    from transformers import LlamaConfig as TheirConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = TheirConfig(**{**SIZES, **more})
    judge = LlamaRotaryEmbedding(config)
    shape = shape_of(config.to_dict(), "config.json")
    speed, gain = frequencies(shape.head_dim, shape.rope_theta, shape.rope_scaling)
    assert torch.equal(speed, judge.inv_freq)
    assert gain == judge.attention_scaling
