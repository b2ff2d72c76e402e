"""What lies beside a checkpoint's weights: readers elsewhere know where a text ends."""

import json
from itertools import pairwise

import pyarrow.parquet as pq
import pytest
import torch
from tiny_run import VOCAB, make_run, train_here
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from albor_core.checkpoint.folder import list_checkpoints
from albor_core.data.pack.manifest import Shard, shard_fields, write_manifest
from albor_core.data.pack.special_tokens import SpecialIds
from albor_core.model.llama import Llama, LlamaConfig
from albor_core.run.files.publish import sha256_file
from albor_core.train.evaluate import Sampler
from albor_core.train.ranks.placement import Placement

END, BEGIN = 61, 60


def write_tokenizer(folder, *, ordinary="!"):
    """Words w1 to w59, id 0 an ordinary one, then the specials."""
    words = {ordinary: 0, **{f"w{i}": i for i in range(1, 60)}}
    made = Tokenizer(models.WordLevel(words, unk_token=ordinary))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([AddedToken(name, special=True) for name in ("<s>", "</s>", "<pad>")])
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def newest(run):
    return list_checkpoints(run.checkpoints)[0]


def documents(folder):
    names = ("config.json", "generation_config.json", "tokenizer_config.json")
    return [json.loads((folder / name).read_text()) for name in names]


@pytest.mark.slow  # imports transformers
def test_generation_elsewhere_stops_where_a_text_ends(tmp_path):
    from transformers import AutoTokenizer, GenerationConfig, LlamaForCausalLM

    run = make_run(tmp_path, data__tokenizer=str(write_tokenizer(tmp_path)), training__max_steps=5)
    assert train_here(run).code == 0
    config, generation, _ = documents(newest(run))
    assert (config["bos_token_id"], config["eos_token_id"]) == (BEGIN, END)
    assert generation == {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": 62,
                          "_from_model_config": False}  # fmt: skip
    assert GenerationConfig.from_pretrained(newest(run)).eos_token_id == END
    tokenizer = AutoTokenizer.from_pretrained(newest(run))
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("</s>", END)
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id) == (BEGIN, 62)
    assert tokenizer("w3 w5", add_special_tokens=False)["input_ids"] == [3, 5]
    model = LlamaForCausalLM.from_pretrained(newest(run)).eval()
    with torch.no_grad():  # after w3 it can say nothing but the end
        model.model.norm.weight.fill_(1.0)
        model.model.embed_tokens.weight.zero_()
        model.model.embed_tokens.weight[3] = model.model.embed_tokens.weight[END] = 1.0
        model.model.embed_tokens.weight[END] *= 2
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        said = model.generate(torch.tensor([[3]]), max_new_tokens=8, do_sample=False)
    assert said.tolist() == [[3, END]]


def test_the_data_says_where_texts_end_before_the_tokenizer_does(tmp_path):
    run = make_run(tmp_path, data__tokenizer=str(write_tokenizer(tmp_path)), training__max_steps=5)
    seal(tmp_path / "train", eos_token_id=7, bos_token_id=None)
    assert train_here(run).code == 0
    config, generation, told = documents(newest(run))
    assert (config["eos_token_id"], generation["eos_token_id"]) == (7, 7)
    assert (told["eos_token"], told["bos_token"]) == ("w7", "<s>")


def test_data_without_a_tokenizer_still_says_where_texts_end(tmp_path):
    run = make_run(tmp_path, training__max_steps=5)
    seal(tmp_path / "train", eos_token_id=7, bos_token_id=None)
    assert train_here(run).code == 0
    config = json.loads((newest(run) / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (7, 7)
    assert json.loads((newest(run) / "generation_config.json").read_text())["eos_token_id"] == 7


def test_where_nothing_says_it_nothing_is_made_up(tmp_path):
    run = make_run(tmp_path, training__max_steps=5)
    assert train_here(run).code == 0
    assert json.loads((newest(run) / "config.json").read_text())["eos_token_id"] is None
    assert not (newest(run) / "generation_config.json").exists()


def seal(folder, **ids):
    """A manifest for shards that have none."""
    shard = folder / "shard-00000.parquet"
    rows = pq.read_metadata(shard).num_rows
    fields = {"split": "train", "seq_len": 32, "vocab_size": VOCAB, "max_id": VOCAB - 1,
              "sequences": rows, "tokens": rows * 32, "documents": 1, "dropped_tokens": 0,
              "tokenizer_sha256": "0" * 64, "corpus_sha256": "0" * 64, **ids}  # fmt: skip
    found = Shard(shard.name, shard.stat().st_size, sha256_file(shard), rows)
    write_manifest(folder, {**fields, "shards": shard_fields((found,))})


def says(*tokens):
    """A model that after each of `tokens` says the next."""
    model = Llama(LlamaConfig(VOCAB, 1, 2, 1, 8, VOCAB, 128, tie_word_embeddings=False))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        model.model.embed_tokens.weight.copy_(torch.eye(VOCAB))
        for token, following in pairwise(tokens):
            model.lm_head.weight[following, token] = 1.0
    return model


@pytest.mark.parametrize(
    "ids, said",
    [(SpecialIds(eos=END), " w4 ! w5"), (SpecialIds(eos=0), " w4"), (SpecialIds(eos=5), " w4 !")],
    ids=["the tokenizer's", "id 0 where that is it", "another"],
)
def test_a_sample_ends_at_the_end_of_text_and_not_at_an_id(tmp_path, ids, said):
    sampler = Sampler(write_tokenizer(tmp_path), ("w3",), ids)
    here = Placement(torch.device("cpu"), None, "fp32", compiles=False)
    model = says(3, 4, 0, 5, END, 1)
    assert sampler.continue_prompts(model, here) == [said]
    assert model.training


def test_a_sample_of_weights_that_have_diverged_is_empty_and_ends_nothing(tmp_path):
    sampler = Sampler(write_tokenizer(tmp_path), ("w3", "w4"), SpecialIds())
    model = says(3, 4)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    here = Placement(torch.device("cpu"), None, "fp32", compiles=False)
    assert sampler.continue_prompts(model, here) == ["", ""]
    assert model.training


@pytest.mark.parametrize("words", [1, 100, 128, 500])
def test_a_sample_of_a_long_prompt_goes_on_from_its_end(tmp_path, words):
    sampler = Sampler(write_tokenizer(tmp_path), ("w9 " * words + "w3",), SpecialIds(eos=END))
    here = Placement(torch.device("cpu"), None, "fp32", compiles=False)
    assert sampler.continue_prompts(says(3, 4, 5, END), here) == [" w4 w5"]
