"""Settings that a foreign tokenizer.json carries beside its vocabulary change no text."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from albor_core.data.clean.token_lengths import token_counter
from albor_core.data.pack.foreign_tokenizer import not_applied
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.data.pack.tokenizer_check import check_tokenizer
from albor_core.data.pack.work.encode import _encoder
from albor_core.data.pack.work.recipe import open_tokenizer
from albor_core.model.generate.text_model import TextModel
from albor_core.run.errors import DataError

TEXTS = (
    "the quick brown fox jumps over the lazy dog " * 6, " a\n", "x",
    "a zebra , zebra\nzebras  ZEBRA", "na\u00efve \u2603 \U0001f600 \ufb01 e\u0301", "",
)  # fmt: skip
BEGIN, END = ("<s>", 0), ("</s>", 1)


def _made(dropout: float | None = None) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(TEXTS, trainer)
    if dropout is not None:
        made.model.dropout = dropout
    return made


def _cut(**how):
    return lambda made: made.enable_truncation(**how)


def _pad(**how):
    return lambda made: made.enable_padding(pad_id=2, pad_token="<pad>", **how)


def _post(processor):
    return lambda made: setattr(made, "post_processor", processor)


def _added(**how):
    return lambda made: made.add_tokens([AddedToken("zebra", **how)])


CUTS = [
    _cut(max_length=4, stride=stride, strategy=strategy, direction=way)
    for stride, strategy, way in itertools.product(
        (0, 2), ("longest_first", "only_first"), ("left", "right")
    )
]
PADS = [
    _pad(length=length, direction=way, pad_to_multiple_of=many)
    for length, way, many in itertools.product((None, 64), ("left", "right"), (None, 8))
]
TEMPLATES = [
    processors.TemplateProcessing(single=single, special_tokens=[BEGIN, END])
    for single in ("<s> $A", "$A </s>", "<s> $A </s>", "<s> <s> $A:1")
]
BYTES = [processors.ByteLevel(trim_offsets=trims) for trims in (True, False)]
POSTS = [
    *TEMPLATES,
    *BYTES,
    processors.BertProcessing(END, BEGIN),
    processors.RobertaProcessing(END, BEGIN, trim_offsets=True, add_prefix_space=True),
    processors.RobertaProcessing(END, BEGIN, trim_offsets=False, add_prefix_space=False),
    *(processors.Sequence([one, template]) for one in BYTES for template in TEMPLATES[:2]),
]
ADDED = [
    _added(lstrip=left, rstrip=right, normalized=plain)
    for left, right, plain in itertools.product((True, False), repeat=3)
]
WAYS = [
    *CUTS, *PADS, *map(_post, POSTS), *ADDED,
    lambda made: setattr(made.model, "dropout", 0.5),
    lambda made: (CUTS[0](made), PADS[1](made), _post(POSTS[0])(made)),
    lambda made: (setattr(made.model, "dropout", 1.0), PADS[0](made)),
]  # fmt: skip


def _without(file: Path) -> Tokenizer:
    """By the library alone, of the file less its sections."""
    document = json.loads(file.read_text())
    for section in ("truncation", "padding", "post_processor"):
        document[section] = None
    if "dropout" in document["model"]:
        document["model"]["dropout"] = None
    return Tokenizer.from_str(json.dumps(document))


@pytest.fixture(scope="module")
def plain() -> str:
    return _made().to_str()


@pytest.mark.parametrize("number", range(len(WAYS)))
def test_every_reader_of_a_tokenizer_gives_the_tokens_of_the_text_alone(plain, tmp_path, number):
    made = Tokenizer.from_str(plain)
    WAYS[number](made)
    same_tokens(made, tmp_path / "tokenizer.json")


def same_tokens(made: Tokenizer, file: Path) -> None:
    """Whatever reads the file gives the tokens of the library without the settings."""
    file.write_text(made.to_str())
    right = _without(file)
    wanted = [right.encode(text, add_special_tokens=False).ids for text in TEXTS]
    loaded = load_tokenizer(file)
    assert [one.ids for one in loaded.encode_batch(list(TEXTS))] == wanted
    assert [loaded.encode(text).ids for text in TEXTS] == wanted
    model = TextModel(None, loaded, None, frozenset())  # type: ignore[arg-type]
    assert [model.encode(text) for text in TEXTS if text] == wanted[:-1]
    right.encode_special_tokens = True  # documents are data: a sentinel in them is plain text
    data = [right.encode(text, add_special_tokens=False).ids for text in TEXTS]
    packer = _encoder(file, open_tokenizer(file, "</s>").sha256)
    assert [one.ids for one in packer.encode_batch_fast(list(TEXTS))] == data
    assert [*token_counter(file, load_tokenizer).count(TEXTS)] == [*map(len, data)]


NORMALIZERS = [
    normalizers.NFKC(),
    normalizers.NFD(),
    normalizers.Lowercase(),
    normalizers.Strip(),
    normalizers.Prepend("_"),
    normalizers.Replace(" ", "_"),
    normalizers.BertNormalizer(),
    normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
]
WORDS = ["<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "the", "quick", "##x"]
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


def _whole(model, before=None):
    def make(_):
        made = Tokenizer(model())
        made.pre_tokenizer = before
        made.add_special_tokens(["<s>", "</s>"])
        return made

    return make


OTHERS = [
    *(lambda made, one=one: setattr(made, "normalizer", one) for one in NORMALIZERS),
    *(_added(single_word=one, special=two) for one in (True, False) for two in (True, False)),
    _whole(lambda: models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="<unk>"),
           pre_tokenizers.WhitespaceSplit()),
    _whole(lambda: models.WordPiece({w: n for n, w in enumerate(WORDS)}, unk_token="<unk>"),
           pre_tokenizers.BertPreTokenizer()),
    _whole(lambda: models.Unigram([(w, -float(n)) for n, w in enumerate([*WORDS, *FALLBACK])],
                                  unk_id=0, byte_fallback=True)),
    _whole(lambda: models.BPE({w: n for n, w in enumerate([*WORDS, *FALLBACK])}, [],
                              unk_token="<unk>", byte_fallback=True, fuse_unk=True)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(OTHERS)))
@pytest.mark.parametrize("way", [CUTS[0], PADS[1], _post(TEMPLATES[2])], ids=["cut", "pad", "post"])
def test_of_other_models_and_normalizers_too(plain, tmp_path, number, way):
    made = Tokenizer.from_str(plain)
    made = OTHERS[number](made) if number >= len(OTHERS) - 4 else (OTHERS[number](made), made)[1]
    way(made)
    same_tokens(made, tmp_path / "tokenizer.json")


def test_dropped_merges_are_never_dropped_here(tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(_made(dropout=0.9).to_str())
    found = {tuple(load_tokenizer(file).encode(TEXTS[0]).ids) for _ in range(5)}
    assert len(found) == 1


def test_check_names_what_is_not_applied(tmp_path):
    made = _made(dropout=0.1)
    made.enable_truncation(16)
    made.enable_padding()
    made.post_processor = POSTS[-1]
    file = tmp_path / "tokenizer.json"
    file.write_text(made.to_str())
    wanted = [
        "truncation to 16 tokens",
        "padding",
        "tokens around a text (TemplateProcessing)",
        "merges dropped at random (dropout 0.1)",
    ]
    assert check_tokenizer(file)["not_applied"] == not_applied(tmp_path) == wanted


REPLACE = {"type": "Replace", "content": "x" * 1000}


@pytest.mark.parametrize(
    "harm",
    [
        {"normalizer": {**REPLACE, "pattern": {"String": ""}}},
        {"normalizer": {**REPLACE, "pattern": {"Regex": "x*"}}},
        {"normalizer": {"type": "Prepend", "prepend": ""}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        {"decoder": {"type": "Strip", "content": "x", "start": 99, "stop": 99}},
    ],
    ids=lambda harm: next(iter(harm)),
)
def test_a_file_that_makes_the_library_panic_is_refused_in_words(plain, tmp_path, capfd, harm):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(plain), **harm}))
    with pytest.raises(DataError, match="tokenizers gives up on it"):
        check_tokenizer(file)
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"
