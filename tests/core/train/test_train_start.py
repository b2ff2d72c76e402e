"""A run that begins from the weights of another one."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_run import history, make_run, train_here

from albor_core.checkpoint.folder import MODEL, list_checkpoints
from albor_core.config.load import load_config, parse_config
from albor_core.config.shape import ModelShape
from albor_core.model.llama import Llama, LlamaConfig
from albor_core.plan.start_weights import parent_run, weights_notes, weights_problems
from albor_core.run.errors import ConfigError
from albor_core.train.build import build

BRIEF = {"training__max_steps": 5}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The newest checkpoint of a run of 24 steps."""
    with pytest.MonkeyPatch.context() as patch:  # made before any test has its own home
        patch.setenv("ALBOR_HOME", str(tmp_path_factory.mktemp("base-home")))
        run = make_run(tmp_path_factory.mktemp("base"), "base")
        train_here(run)
    return list_checkpoints(run.checkpoints)[0]


def losses(run):
    return [loss for _, _, loss in history(run, ("train/loss",))]


def test_a_run_begins_where_the_weights_it_names_were_left(tmp_path, base):
    fresh, warm = (
        make_run(tmp_path / "fresh", "fresh", **BRIEF),
        make_run(tmp_path / "warm", "warm", model__path=str(base), **BRIEF),
    )
    assert train_here(fresh).code == train_here(warm).code == 0
    assert losses(warm)[0] < losses(fresh)[0] - 0.1


def test_a_resumed_run_needs_the_weights_it_began_from_no_longer(tmp_path, base):
    shutil.copytree(base, tmp_path / "kept")
    run = make_run(tmp_path / "run", model__path=str(tmp_path / "kept"))
    train_here(run, stop_after=6)
    shutil.rmtree(tmp_path / "kept")
    assert train_here(run, attempt=2).code == 0


def test_weights_in_half_precision_are_widened(tmp_path, base):
    tensors = {name: value.bfloat16() for name, value in load_file(base / MODEL).items()}
    save_file(tensors, tmp_path / MODEL)
    run = make_run(tmp_path / "run", model__path=str(tmp_path), **BRIEF)
    assert train_here(run).code == 0
    last = load_file(list_checkpoints(run.checkpoints)[0] / MODEL)
    assert {value.dtype for value in last.values()} == {torch.float32}


def _other_width(folder, base):
    save_file({"model.norm.weight": torch.ones(7)}, folder / MODEL)


def _no_floats(folder, base):
    save_file({k: v.to(torch.int32) for k, v in load_file(base / MODEL).items()}, folder / MODEL)


def _one_too_many(folder, base):
    save_file({**load_file(base / MODEL), "lm_head.weight": torch.ones(2)}, folder / MODEL)


def _in_shards(folder, base):
    (folder / f"{MODEL}.index.json").write_text("{}")


def _half(folder, base):
    whole = (base / MODEL).read_bytes()
    (folder / MODEL).write_bytes(whole[: len(whole) // 2])


def _one_bit(folder, base):
    """Of a value: the file is sound but for the hash in its manifest."""
    for name in (MODEL, "manifest.json"):
        shutil.copy(base / name, folder)
    with (folder / MODEL).open("r+b") as file:
        file.seek(-3, 2)
        byte = file.read(1)[0]
        file.seek(-3, 2)
        file.write(bytes([byte ^ 1]))


def _folder(folder, base):
    (folder / MODEL).mkdir()


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda folder, base: None, "no model.safetensors in"),
        (_other_width, "does not fit model.architecture: model.embed_tokens.weight is missing"),
        (_no_floats, "holds I32, no floats"),
        (_one_too_many, "lm_head.weight is not in the model"),
        (_in_shards, "weight_map is not a table of files"),
        (_half, "is damaged"),
        (_one_bit, "is damaged: its bytes are not those that manifest.json"),
        (_folder, "is a directory, not a file of weights"),
    ],
)
def test_weights_that_are_none_of_this_model_are_refused_by_field(tmp_path, base, spoil, said):
    weights = tmp_path / "weights"
    weights.mkdir()
    spoil(weights, base)
    run = make_run(tmp_path / "run", model__path=str(weights))
    config = load_config(run.config_resolved, ()).config
    (problem,) = weights_problems(config.model, file="c.yaml")
    assert (problem.field, problem.file) == ("model.path", "c.yaml")
    assert said in problem.message
    assert str(weights) in problem.message
    with pytest.raises(ConfigError, match=re.escape("model.path")):
        train_here(run)
    assert not list_checkpoints(run.checkpoints)


@pytest.mark.parametrize("value", [float("nan"), 1e300])
def test_weights_that_are_not_finite_are_refused_before_a_step(tmp_path, base, value):
    tensors = {name: weight.double() for name, weight in load_file(base / MODEL).items()}
    tensors["model.norm.weight"][3] = value
    save_file(tensors, tmp_path / MODEL)
    run = make_run(tmp_path / "run", model__path=str(tmp_path), **BRIEF)
    with pytest.raises(ConfigError, match=r"model\.norm\.weight is finite in fp32"):
        train_here(run)


def test_the_parent_is_known_however_its_checkpoint_is_named(tmp_path, base, monkeypatch):
    (tmp_path / "link").symlink_to(base)
    monkeypatch.chdir(base.parent)
    for i, name in enumerate((base.name, str(base), str(tmp_path / "link"))):
        run = make_run(tmp_path / f"{i}", f"run-{i}", model__path=name)
        assert parent_run(load_config(run.config_resolved, ()).config.model) == "base"
    shutil.copytree(base.parents[1], tmp_path / "renamed")
    again = make_run(tmp_path / "x", model__path=f"{tmp_path}/renamed/checkpoints/{base.name}")
    assert parent_run(load_config(again.config_resolved, ()).config.model) == "base"
    shutil.copytree(base, tmp_path / "copy")
    loose = make_run(tmp_path / "loose", "loose", model__path=str(tmp_path / "copy"))
    assert parent_run(load_config(loose.config_resolved, ()).config.model) is None


def test_other_positions_than_the_weights_were_made_with_are_said(tmp_path, base):
    run = make_run(tmp_path, model__path=str(base))
    model = load_config(run.config_resolved, ("model.architecture.rope_theta=500000",)).config.model
    assert not weights_problems(model)
    (note,) = weights_notes(model)
    assert "rope_theta 10000, not 500000" in note


def test_a_manifest_that_is_none_is_nobodys_word(tmp_path, base):
    shutil.copy(base / MODEL, tmp_path)
    (tmp_path / "manifest.json").write_text('{"files": ["model.safetensors"]}')
    run = make_run(tmp_path / "run", model__path=str(tmp_path))
    assert not weights_problems(load_config(run.config_resolved, ()).config.model)


def problems_beside(folder, base, about):
    """What stops weights of ours that have such a config.json beside them."""
    shutil.copy(base / MODEL, folder)
    (folder / "config.json").write_text(about if isinstance(about, str) else json.dumps(about))
    run = make_run(folder / "run", model__path=str(folder))
    return weights_problems(load_config(run.config_resolved, ()).config.model)


LLAMA = {"model_type": "llama"}
QWEN2 = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    "about, said",
    [
        ({"model_type": "gemma"}, "model_type 'gemma' cannot be read"),
        ({"model_type": "qwen2", "hidden_act": "gelu"}, "hidden_act 'gelu' is not built"),
        ({"model_type": ["llama"]}, "model_type ['llama'] cannot be read"),
        ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, "is not a language model"),
        ({**LLAMA, "rope_scaling": {"rope_type": "llama3"}}, "rope type llama3 needs factor"),
        ({**LLAMA, "rope_scaling": {"type": "longrope"}}, "rope type 'longrope' is not built"),
        ({**LLAMA, "rope_scaling": {**YARN, "mscale": 0.7}}, "mscale of rope type yarn"),
        ({**QWEN2, "layer_types": ["chunked_attention"] * 2}, "'chunked_attention' is not built"),
        ({**QWEN2, "layer_types": "full_attention"}, "'full_attention' is not a list"),
        ({**LLAMA, "quantization_config": {"bits": 4}}, "quantization_config {'bits': 4}"),
        ({**LLAMA, "rope_parameters": {"rope_type": "dynamic"}}, "rope type 'dynamic'"),
        ({**LLAMA, "attention_bias": True}, "attention_bias True is not built"),
        ({**LLAMA, "mlp_bias": True}, "mlp_bias True is not built"),
        ({**LLAMA, "hidden_act": "gelu"}, "hidden_act 'gelu' is not built"),
        ({**LLAMA, "hidden_act": ["a"]}, "hidden_act ['a'] is not built"),
        ({**LLAMA, "final_logit_softcapping": 30.0}, "final_logit_softcapping 30.0 is not built"),
        ({**LLAMA, "embedding_multiplier": 12}, "embedding_multiplier 12 is not built"),
        ("{", "config.json is not a JSON object"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_weights_of_another_kind_are_refused_by_the_name_of_what_is_not_built(
    tmp_path, base, about, said
):
    (problem,) = problems_beside(tmp_path, base, about)
    assert problem.field == "model.path"
    assert str(tmp_path / "config.json") in problem.message and said in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    "about",
    [
        LLAMA,
        {"model_type": "mistral"},  # a window of 4,096
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "mistral", "sliding_window": 32, "head_dim": None},
        {**LLAMA, "rope_scaling": None, "attention_bias": False, "embedding_multiplier": 1.0},
        {**LLAMA, "rope_parameters": {"rope_type": None}, "rope_theta": True},
    ],
    ids=str,
)
def test_what_changes_nothing_at_this_length_is_read(tmp_path, base, about):
    assert problems_beside(tmp_path, base, about) == ()


def test_what_is_taken_for_granted_of_weights_without_a_config_is_said(tmp_path, base):
    shutil.copy(base / MODEL, tmp_path)
    run = make_run(tmp_path / "run", model__path=str(tmp_path))
    (note,) = weights_notes(load_config(run.config_resolved, ()).config.model)
    assert note.startswith("no config.json beside the weights in")
    assert "taken for llama with rope_theta 10000, rms_norm_eps 1e-05" in note


@pytest.mark.parametrize(
    "said, ours, field",
    [
        ({"num_attention_heads": 8}, {}, "num_attention_heads: is 4"),
        ({"head_dim": 16}, {}, "head_dim: is 8"),
        ({"model_type": "mistral"}, {"model_type": "llama"}, "model_type: is llama"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, {"rope_scaling": None},
         "rope_scaling: is none"),
        ({**QWEN2, "tie_word_embeddings": False}, {}, "model_type: is llama"),
    ],
    ids=str,
)  # fmt: skip
def test_what_config_and_weights_say_otherwise_is_refused_by_field(
    tmp_path, base, said, ours, field
):
    shutil.copy(base / MODEL, tmp_path)
    run = make_run(tmp_path / "run", model__path=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(said))
    config = json.loads(run.config_resolved.read_text())
    config["model"]["architecture"] |= {"head_dim": 8, **ours}
    found = weights_problems(parse_config(json.dumps(config).encode(), file="c").model)
    assert found[0].field.startswith("model.architecture.")
    assert f"{found[0].field}: {found[0].message}".startswith(f"model.architecture.{field}, and")
    assert str(tmp_path / "config.json") in found[0].message


def test_weights_of_another_family_are_not_blamed_for_their_window(tmp_path, base):
    shutil.copy(base / MODEL, tmp_path)
    run = make_run(tmp_path / "run", model__path=str(tmp_path))
    config = json.loads(run.config_resolved.read_text())
    config["model"]["architecture"] = {"model_type": "llama"}
    about = json.loads((base / "config.json").read_text())
    about |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    about |= {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}
    (tmp_path / "config.json").write_text(json.dumps(about))
    found = weights_problems(parse_config(json.dumps(config).encode(), file="c").model)
    assert found[0].field == "model.architecture.model_type"
    assert found[0].message.startswith("is llama, and")


WIDE = {"model__initialization__matrix": 2, "model__initialization__residual": 0.5}


def test_random_weights_begin_as_the_config_says(tmp_path):
    wide, usual = make_run(tmp_path / "wide", "wide", **WIDE), make_run(tmp_path / "usual", "usual")
    model, plain = (
        build(load_config(run.config_resolved, ()).config).model for run in (wide, usual)
    )
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(model.get_parameter(name), 2 * plain.get_parameter(name))
    writer = model.get_parameter("model.layers.0.mlp.down_proj.weight")
    first, second = writer.detach().chunk(2)
    assert (first - second).norm() < 0.01 * first.norm()


def test_a_start_that_is_not_mirrored_repeats_no_channel_and_has_plain_norms(tmp_path):
    ordinary = {"model__initialization__mirrored": False, "model__initialization__residual": 1}
    mirrored = {"model__initialization__residual": 1}
    found = {}
    for name, changes in (("ordinary", ordinary), ("mirrored", mirrored)):
        run = make_run(tmp_path / name, name, **changes)
        model = build(load_config(run.config_resolved, ()).config).model
        halves = [
            model.get_parameter(f"model.{part}.weight").detach().chunk(2, dim)
            for part, dim in (("embed_tokens", 1), ("layers.0.mlp.down_proj", 0))
        ]
        found[name] = [float((a - b).norm() / a.norm()) for a, b in halves]
        norm = model.get_parameter("model.norm.weight").detach()
        assert bool((norm == 1).all()) is (name == "ordinary")
    assert min(found["ordinary"]) > 1.2  # two independent draws differ by sqrt(2) of one
    assert max(found["mirrored"]) < 0.01


@pytest.mark.parametrize("wide", [True, False])
def test_the_residual_stream_is_as_wide_as_the_config_says(tmp_path, wide):
    changes = {"training__mixed_precision": "bf16", "training__residual_in_fp32": wide}
    parts = build(load_config(make_run(tmp_path, **changes).config_resolved, ()).config)
    found = []
    parts.model.model.layers[-1].register_forward_hook(lambda *seen: found.append(seen[-1].dtype))
    with parts.placement.autocast():
        parts.model(parts.batch(1, 0).ids)
    assert found == [torch.float32 if wide else torch.bfloat16]


def test_scales_that_weights_from_elsewhere_leave_unused_are_noted(tmp_path, base):
    run = make_run(tmp_path, model__path=str(base), **WIDE)
    (note,) = weights_notes(load_config(run.config_resolved, ()).config.model)
    assert note.startswith("model.initialization is not used")


@pytest.mark.parametrize("is_tied", [True, False])
def test_the_tensors_of_a_shape_are_those_of_the_model(is_tied):
    sizes = (32, 2, 4, 2, 48, 64, 16)
    with torch.device("meta"):
        model = Llama(LlamaConfig(*sizes, tie_word_embeddings=is_tied))
    real = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert ModelShape(*sizes, tie_word_embeddings=is_tied).tensor_shapes() == real
