"""What a plan says of weights to begin from, and of the tokenizer that is named with them."""

import json

import pytest
from hf_folder import write_model, write_tokenizer
from safetensors.torch import load_file, save_file
from tiny_run import tiny_config

from albor_core.config.load import parse_config
from albor_core.plan.start_weights import weights_problems


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "m", "llama", vocab_size=400, tie_word_embeddings=True)
    write_tokenizer(tmp_path / "m", "llama")
    return tmp_path / "m"


def planned(tmp_path, folder, **more):
    config = tiny_config(tmp_path, model__path=str(folder), model__architecture={}, **more)
    return parse_config(json.dumps(config).encode(), file="c.yaml")


def problems(tmp_path, folder):
    return [one.message for one in weights_problems(planned(tmp_path, folder).model)]


def test_a_tied_head_that_is_written_out_is_the_embedding(tmp_path, folder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    head = tensors["model.embed_tokens.weight"].clone()
    save_file({**tensors, "lm_head.weight": head}, file)
    assert problems(tmp_path, folder) == []
    save_file({**tensors, "lm_head.weight": head + 1}, file)
    (said,) = problems(tmp_path, folder)
    assert "lm_head.weight is not in the model" in said


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_an_end_of_text_that_the_weights_have_no_row_for_is_refused(tmp_path, folder, name):
    file = folder / name
    told = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**told, "eos_token_id": [2, 4000]}))
    (said,) = problems(tmp_path, folder)
    assert f"eos_token_id 4,000 of its {name} is outside vocab_size 400" in said


def test_a_tokenizer_is_named_by_its_folder_as_well(tmp_path, folder):
    assert planned(tmp_path, folder, data__tokenizer=str(folder)).data.tokenizer == (
        folder / "tokenizer.json"
    )
    (tmp_path / "none").mkdir()
    other = planned(tmp_path, folder, data__tokenizer=str(tmp_path / "none"))
    assert other.data.tokenizer == tmp_path / "none"
