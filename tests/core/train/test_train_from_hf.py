"""A run that begins from a folder of Hugging Face's, and the checkpoints that it leaves."""

import json
import shutil

import pytest
import torch
from hf_folder import SHAPES, TEXT, write_model, write_tokenizer
from rank_stage import assert_same_course, ranks, staged
from safetensors.torch import load_file, save_file
from tiny_run import make_run, tiny_config, train_here

from albor_core.checkpoint.folder import list_checkpoints
from albor_core.config.hf_config import shape_of
from albor_core.config.load import parse_config
from albor_core.data.pack.special_tokens import special_ids
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.plan.start_weights import weights_problems
from albor_core.run.errors import ConfigError

HUNDRED = {"training__max_steps": 4, "data__batch_size": 1}  # steps of 32 tokens
OWN = {"model__architecture": {}}


def newest(run):
    return list_checkpoints(run.checkpoints)[0]


def read(folder, name="config.json"):
    return json.loads((folder / name).read_text())


@pytest.mark.parametrize("family", SHAPES)
def test_a_hundred_tokens_are_trained_from_weights_in_many_files_whose_config_says_the_shape(
    tmp_path, family
):
    start = write_model(tmp_path / "hf", family, files=3)
    run = make_run(tmp_path, model__path=str(tmp_path / "hf"), **OWN, **HUNDRED)
    assert train_here(run).code == 0
    assert shape_of(read(newest(run)), "c") == shape_of(read(tmp_path / "hf"), "c")
    found = load_file(newest(run) / "model.safetensors")
    assert found.keys() == start.state_dict().keys()
    moved = {name: (found[name] - old).abs().max() for name, old in start.state_dict().items()}
    assert all(0 < float(most) < 0.05 for most in moved.values()), moved


def test_a_run_goes_on_to_the_same_bytes_though_its_first_weights_are_gone(tmp_path):
    for name in ("whole", "cut"):
        write_model(tmp_path / name / "hf", "qwen2", vocab_size=400)
        write_tokenizer(tmp_path / name / "hf", "qwen2")
    whole, cut = (
        make_run(tmp_path / name, name, model__path=str(tmp_path / name / "hf"), **OWN)
        for name in ("whole", "cut")
    )
    assert train_here(whole).code == 0
    train_here(cut, stop_after=11)
    shutil.rmtree(tmp_path / "cut" / "hf")
    assert train_here(cut, attempt=2).code == 0
    names = {path.name for path in newest(whole).iterdir()} - {"manifest.json", "trainer.json"}
    assert names == {path.name for path in newest(cut).iterdir()} - {
        "manifest.json",
        "trainer.json",
    }
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} <= names
    for name in names:
        assert (newest(whole) / name).read_bytes() == (newest(cut) / name).read_bytes(), name


def test_a_checkpoint_keeps_the_settings_that_the_weights_came_with(tmp_path):
    write_model(tmp_path / "hf", "mistral")
    about = read(tmp_path / "hf") | {"eos_token_id": [2, 5], "torch_dtype": "bfloat16"}
    (tmp_path / "hf/config.json").write_text(json.dumps(about))
    sampling = {"eos_token_id": [2, 5], "temperature": 0.6, "do_sample": True}
    (tmp_path / "hf/generation_config.json").write_text(json.dumps(sampling))
    run = make_run(tmp_path, model__path=str(tmp_path / "hf"), **OWN, **HUNDRED)
    assert train_here(run).code == 0
    found = read(newest(run))
    assert {k: v for k, v in about.items() if k != "torch_dtype"} == found
    assert found["dtype"] == "float32"
    assert read(newest(run), "generation_config.json") == sampling


@pytest.mark.slow  # imports transformers
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral"])
def test_a_tokenizer_goes_through_a_run_and_gives_the_ids_of_transformers(tmp_path, kind):
    from transformers import AutoConfig, AutoTokenizer

    write_model(tmp_path / "hf", kind, vocab_size=400)
    made = write_tokenizer(tmp_path / "hf", kind)
    about = read(tmp_path / "hf")
    specials = special_ids(made, tmp_path / "hf")
    about |= {"bos_token_id": specials.bos, "eos_token_id": specials.eos}
    (tmp_path / "hf/config.json").write_text(json.dumps(about))
    run = make_run(tmp_path, model__path=str(tmp_path / "hf"), **OWN, **HUNDRED)
    assert train_here(run).code == 0
    ours, theirs = load_tokenizer(newest(run)), AutoTokenizer.from_pretrained(newest(run))
    for text in TEXT:
        plain = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text).ids == plain == made.encode(text, add_special_tokens=False).ids
    assert specials == special_ids(ours, newest(run))
    assert (specials.eos, specials.bos) == (theirs.eos_token_id, theirs.bos_token_id)
    config = AutoConfig.from_pretrained(newest(run))
    assert (config.eos_token_id, config.bos_token_id) == (specials.eos, specials.bos)
    assert read(newest(run), "tokenizer_config.json") == read(
        tmp_path / "hf", "tokenizer_config.json"
    )


def test_what_the_architecture_says_beside_the_weights_is_taken_over_them(tmp_path):
    write_model(tmp_path / "hf", "llama")
    changes = {"model__path": str(tmp_path / "hf"), "model__architecture": {"rope_theta": 1e6}}
    shape = parse(tmp_path, **changes).model.architecture
    assert (shape.rope_theta, shape.hidden_size, shape.model_type) == (1e6, 32, "llama")
    assert shape.rope_scaling is not None and shape.rope_scaling.factor == 8


def parse(folder, **changes):
    return parse_config(json.dumps(tiny_config(folder, **changes)).encode(), file="c.yaml")


def test_without_a_config_beside_the_weights_the_architecture_is_asked_for(tmp_path):
    write_model(tmp_path / "hf")
    (tmp_path / "hf/config.json").unlink()
    with pytest.raises(ConfigError) as refused:
        parse(tmp_path, model__path=str(tmp_path / "hf"), **OWN)
    (problem,) = refused.value.problems
    assert problem.field == "model.path"
    assert f"no config.json that can be read in {tmp_path / 'hf'}" in problem.message
    assert "model.architecture" in problem.hint


def test_a_family_that_is_not_built_is_refused_by_name_and_nothing_else_is(tmp_path):
    write_model(tmp_path / "hf")
    (tmp_path / "hf/config.json").write_text('{"model_type": "gemma3_text"}')
    with pytest.raises(ConfigError) as refused:
        parse(tmp_path, model__path=str(tmp_path / "hf"), **OWN)
    (problem,) = refused.value.problems
    assert "model_type 'gemma3_text' cannot be read" in problem.message
    assert "llama, mistral, qwen2 and qwen3" in problem.hint


def test_a_tokenizer_that_gives_ids_beyond_the_embedding_is_refused(tmp_path):
    write_model(tmp_path / "hf", "qwen2", vocab_size=100)
    write_tokenizer(tmp_path / "hf", "qwen2")
    config = parse(tmp_path, model__path=str(tmp_path / "hf"), **OWN)
    (problem,) = weights_problems(config.model, file="c.yaml")
    assert "tokenizer.json has" in problem.message and "vocab_size 100" in problem.message


def test_half_precision_on_disk_is_widened_one_tensor_at_a_time(tmp_path):
    start = write_model(tmp_path / "hf", "qwen3", files=2)
    for file in (tmp_path / "hf").glob("*.safetensors"):
        save_file({n: t.bfloat16() for n, t in load_file(file).items()}, file)
    run = make_run(tmp_path, model__path=str(tmp_path / "hf"), **OWN, **HUNDRED)
    assert train_here(run).code == 0
    found = load_file(newest(run) / "model.safetensors")
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert all((found[n] - t).abs().max() < 0.05 for n, t in start.state_dict().items())


def ranks_from(family):
    def plan(stage):
        weights = stage.folder / "weights"
        if not stage.done.exists():
            write_model(weights, family, files=3)
        begins = {"model__path": str(weights), **OWN}
        stage.plan("one", {}, **begins)
        stage.plan("ddp2", {}, **begins, **ranks(2))
        stage.plan("fsdp2", {"stop_after": 3}, {}, **begins, **ranks(2, "fsdp"))

    return plan


@pytest.fixture(scope="module", params=["qwen2", "qwen3"])
def stage(request, tmp_path_factory):
    return staged(tmp_path_factory, f"ranks-{request.param}", ranks_from(request.param))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp2", "fsdp2"])
def test_several_ranks_take_the_steps_that_one_takes_from_such_weights(stage, name):
    assert_same_course(stage, name)
