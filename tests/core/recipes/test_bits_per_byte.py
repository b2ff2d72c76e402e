"""val/bpb: the validation loss in bits per byte of text, in every run that knows its bytes."""

import hashlib
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import VOCAB, history, make_run, train_here
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from albor_core.cli.main import cli
from albor_core.data.load.order import val_rows
from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.pack.token_bytes import bytes_of_tokens
from albor_core.run.state import read_state

TEXTS = [
    "def f(x):\n    return x + 1\n",
    "na\u00efve caf\u00e9 \u2603 \U0001f600 \u4e2d\u6587",
    " a  b\t\t",
]


def byte_level(path, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    tokenizer.save(str(path))
    return tokenizer


def pieces_of_text(path):
    """As Llama 2 has it: spaces are U+2581, what no piece holds goes byte by byte."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
    words += ["\u2581", *"abcdefxrtun:()=+1", "\u2581re", "\u2581a", "\u00e9"]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[("\u2581", "a")], byte_fallback=True, fuse_unk=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(path))
    return tokenizer


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    made = {}
    for name, make in (("bytes", lambda p: byte_level(p, 320)), ("pieces", pieces_of_text)):
        path = folder / f"{name}.json"
        made[name] = (make(path), bytes_of_tokens(path))
    return made


@pytest.mark.parametrize("name", ["bytes", "pieces"])
@given(text=st.text(max_size=60))
def test_the_bytes_of_tokens_add_up_to_the_text(known, name, text):
    tokenizer, table = known[name]
    text = text.replace("\u2581", "")  # which stands for a space in one of them
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert int(table[ids].sum()) == len(text.encode())


def test_the_end_of_a_text_has_no_bytes(known):
    tokenizer, table = known["bytes"]
    assert table[tokenizer.token_to_id("<|endoftext|>")] == 0
    assert table.sum() > 256


def test_words_do_not_tell_what_stood_between_them(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    tokenizer.save(str(tmp_path / "words.json"))
    assert bytes_of_tokens(tmp_path / "words.json") is None
    (tmp_path / "odd.json").write_text("[1, 2]")
    assert bytes_of_tokens(tmp_path / "odd.json") is None
    assert bytes_of_tokens(tmp_path / "gone.json") is None


def letters(path):
    """A tokenizer of VOCAB tokens of one to three bytes, the first of which ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[: VOCAB - 1]
    vocabulary = {"<|endoftext|>": 0}
    vocabulary |= {c * (1 + n % 3): n for n, c in enumerate(alphabet, 1)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel()])
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))
    return np.array([0, *(1 + n % 3 for n in range(1, VOCAB))])


def test_a_run_that_knows_its_tokenizer_tells_bits_per_byte_wherever_it_tells_its_loss(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    sizes = letters(tmp_path / "tokenizer.json")
    run = make_run(tmp_path, "told", data__tokenizer=str(tmp_path / "tokenizer.json"))
    train_here(run)
    shards = PackedShards(tmp_path / "val", seq_len=32)
    rows = np.concatenate(list(val_rows(len(shards), 4, 2)))
    scored = shards.batch(rows)[:, 1:]
    per_token = sizes[scored].mean()
    losses, found = history(run, ("val/loss",)), history(run, ("val/bpb",))
    assert [step for step, *_ in found] == [step for step, *_ in losses] == [0, 8, 16, 24]
    for (_, _, loss), (_, _, bits) in zip(losses, found, strict=True):
        assert bits == pytest.approx(loss / math.log(2) / per_token, rel=1e-12)
    last = found[-1][2]
    assert read_state(run.state)["val_bpb"] == last
    assert CliRunner().invoke(cli, ["db", "rebuild"]).exit_code == 0

    def asked(*words):
        done = CliRunner().invoke(cli, ["runs", *words])
        assert done.exit_code == 0, done.output
        return done.output

    (row,) = json.loads(asked("ls", "--json"))["runs"]
    assert row["val_bpb"] == last
    assert "val bpb" in asked("ls")
    assert len(json.loads(asked("ls", "--json", f"val_bpb<{last + 0.1}"))["runs"]) == 1
    assert json.loads(asked("ls", "--json", f"val_bpb<{last - 0.1}"))["runs"] == []
    assert len(json.loads(asked("ls", "--json", "--sort", "val_bpb"))["runs"]) == 1


def test_a_run_without_bytes_says_nothing_of_bits(tmp_path):
    run = make_run(tmp_path, "untold")
    train_here(run, stop_after=1)
    assert not history(run, ("val/bpb",))
    assert read_state(run.state)["val_bpb"] is None


def test_shards_of_another_tokenizer_are_not_measured_by_this_one(tmp_path):
    from albor_core.config.load import parse_config
    from albor_core.recipes.registry import recipe_of

    letters(tmp_path / "tokenizer.json")
    run = make_run(tmp_path, "other", data__tokenizer=str(tmp_path / "tokenizer.json"))
    recipe = recipe_of(parse_config(run.config_resolved.read_bytes(), file="c"))
    _, val = recipe.sources()
    rows = np.arange(4)
    assert val.text_bytes(rows, tmp_path / "tokenizer.json") > 0
    digest = hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()
    for packed, is_known in ((digest, True), ("0" * 64, False)):
        object.__setattr__(val.manifest, "tokenizer_sha256", packed)
        assert (val.text_bytes(rows, tmp_path / "tokenizer.json") is not None) == is_known
    assert val.text_bytes(rows, None) is None
