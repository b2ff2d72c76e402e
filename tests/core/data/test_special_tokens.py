"""Where a text ends, in tokenizers of any make."""

import json

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.pack.manifest import load_manifest, write_manifest
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.pack.special_tokens import end_of_text, special_ids
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.data.pack.tokenizer_check import check_tokenizer
from albor_core.run.errors import ConfigError, DataError


def write_tokenizer(folder, *specials, config=None, ordinary=()):
    """Bytes as tokens, then `ordinary` words, then these specials."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *ordinary]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in specials])
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def end_in(folder, chosen=None):
    tokenizer = load_tokenizer(folder)
    return tokenizer.id_to_token(end_of_text(tokenizer, folder, chosen))


@pytest.mark.parametrize(
    "specials, config, end",
    [
        (["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], None, "<|end_of_text|>"),
        (["<unk>", "<s>", "</s>"], None, "</s>"),
        (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|endoftext|>"),
        (["<|endoftext|>", "<|im_end|>"], {"eos_token": "<|im_end|>"}, "<|im_end|>"),
        (["<|im_start|>", "<|im_end|>"], None, "<|im_end|>"),
        (["<pad>", "<eos>", "<bos>"], {}, "<eos>"),
        (["<s>", "[stop]"], {"eos_token": {"content": "[stop]"}}, "[stop]"),
        (["</s>", "<|endoftext|>"], {"eos_token": "</s>"}, "</s>"),
    ],
    ids=str,
)
def test_a_text_ends_as_the_tokenizer_says(tmp_path, specials, config, end):
    assert end_in(write_tokenizer(tmp_path, *specials, config=config)) == end


def test_the_older_file_of_transformers_is_read_where_the_newer_says_nothing(tmp_path):
    write_tokenizer(tmp_path, "</s>", "<|endoftext|>", config={"model_max_length": 9})
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": {"content": "</s>"}}')
    assert end_in(tmp_path) == "</s>"


def test_an_ordinary_token_that_looks_like_an_end_is_none(tmp_path):
    folder = write_tokenizer(tmp_path, "<s>", ordinary=["</s>"])
    with pytest.raises(DataError, match="no special token ends a text"):
        end_in(folder)
    assert end_in(folder, "</s>") == "</s>"


def test_what_may_end_in_two_ways_is_refused_with_both(tmp_path):
    folder = write_tokenizer(tmp_path, "<|endoftext|>", "</s>")
    with pytest.raises(DataError, match=r"several tokens may end a text: <\|endoftext\|>, </s>"):
        end_in(folder)
    assert "--eos '</s>'" in _refusal(folder).hint
    assert end_in(folder, "</s>") == "</s>"
    assert check_tokenizer(folder)["problems"][0].startswith("end of text: ")


def _refusal(folder, chosen=None):
    with pytest.raises((DataError, ConfigError)) as caught:
        end_in(folder, chosen)
    return caught.value


def test_a_token_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    folder = write_tokenizer(tmp_path, "<s>", "</s>")
    refusal = _refusal(folder, "<|nope|>")
    assert "--eos '<|nope|>': not a token of" in refusal.message and refusal.exit_code == 2
    assert "<s>, </s>" in refusal.hint
    write_tokenizer(tmp_path, "<s>", "</s>", config={"eos_token": "<|nope|>"})
    assert "its eos_token '<|nope|>' is not in the vocabulary" in _refusal(folder).message


@pytest.mark.parametrize(
    "specials, begin",
    [
        (["<|begin_of_text|>", "<|end_of_text|>"], "<|begin_of_text|>"),
        (["<s>", "</s>"], "<s>"),
        (["<|endoftext|>"], None),
    ],
    ids=str,
)
def test_what_begins_a_text_is_known_where_the_tokenizer_has_it(tmp_path, specials, begin):
    tokenizer = load_tokenizer(write_tokenizer(tmp_path, *specials))
    found = special_ids(tokenizer, tmp_path)
    assert found.bos == (None if begin is None else tokenizer.token_to_id(begin))
    assert found.first == (found.eos if begin is None else found.bos)


def test_shards_of_a_foreign_tokenizer_are_joined_by_its_end_and_say_so(corpus, tmp_path):
    folder = write_tokenizer(tmp_path / "t", "<s>", "</s>")
    ids = special_ids(load_tokenizer(folder), folder)
    made = pretokenize(corpus, folder, tmp_path / "o", seq_len=64, val_fraction=0.2)
    for split in made.splits.values():
        assert (split.eos_token_id, split.bos_token_id) == (ids.eos, ids.bos)
        again = load_manifest(split.directory)
        assert (again.eos_token_id, again.bos_token_id) == (ids.eos, ids.bos)
    rows = PackedShards(made.splits["train"].directory, seq_len=64)
    flat = np.concatenate([rows[i] for i in range(len(rows))])
    ends = int((flat == ids.eos).sum())
    assert made.splits["train"].documents - 1 <= ends <= made.splits["train"].documents
    assert not (flat == ids.bos).any()


def test_the_same_corpus_joined_by_another_token_is_other_data(corpus, tmp_path):
    folder, out = write_tokenizer(tmp_path / "t", "</s>", "[stop]"), tmp_path / "o"
    args = {"seq_len": 64, "val_fraction": 0.2}
    pretokenize(corpus, folder, out, **args)
    assert pretokenize(corpus, folder, out, eos="</s>", **args).reused
    with pytest.raises(DataError, match="not the same: end_of_text"):
        pretokenize(corpus, folder, out, eos="[stop]", **args)


def test_shards_that_say_nothing_of_an_end_are_read_as_before(corpus, tokenizer, tmp_path):
    made = pretokenize(corpus, tokenizer, tmp_path / "o", seq_len=64, val_fraction=0.2)
    file = made.splits["train"].directory / "manifest.json"
    fields = json.loads(file.read_text())
    kept = {k: v for k, v in fields.items() if not k.endswith("_token_id")}
    write_manifest(made.splits["train"].directory, {k: v for k, v in kept.items() if k != "schema"})
    assert load_manifest(made.splits["train"].directory).eos_token_id is None
    assert (
        len(PackedShards(made.splits["train"].directory, seq_len=64))
        == made.splits["train"].sequences
    )
