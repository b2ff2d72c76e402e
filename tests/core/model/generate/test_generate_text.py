"""Text while it comes: what was shown is never taken back, and is what all tokens decode to."""

import random

import pytest
from hf_folder import write_tokenizer

from albor_core.model.generate.text import BROKEN, TextStream, text_after

TEXTS = [
    "def f(x):\n    return x\n",
    "Caf\u00e9 \u4f60\u597d \U0001f468\u200d\U0001f469\u200d\U0001f467 na\u00efve \u20ac",
    "  leading, trailing  ",
    "\U0001f600" * 40,
    "",
]
KINDS = ("llama", "qwen2", "mistral")


@pytest.fixture(params=KINDS)
def tokenizer(request, tmp_path):
    return write_tokenizer(tmp_path, request.param)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("prompt", ["", "a", "x = \u20ac "])
def test_pieces_are_whole_characters_and_together_the_text(tokenizer, text, prompt):
    before = tokenizer.encode(prompt, add_special_tokens=False).ids or [0]
    both = tokenizer.encode(prompt + text, add_special_tokens=False).ids
    if both[: len(before)] != before:
        before = []
    stream = TextStream(tokenizer, before)
    pieces = [stream.push(token) for token in both[len(before) :]]
    rest = stream.end()
    assert rest == ""
    assert BROKEN not in "".join(pieces)
    whole, known = tokenizer.decode(both), tokenizer.decode(before)
    assert "".join(pieces) == whole[len(known) :]
    assert not text or len([piece for piece in pieces if piece]) > 1


def test_the_end_of_a_prompt_tells_whether_a_blank_stands_before_the_next_word(tokenizer):
    before = tokenizer.encode("x =", add_special_tokens=False).ids
    both = tokenizer.encode("x = n", add_special_tokens=False).ids
    assert both[: len(before)] == before
    assert text_after(tokenizer, before, both[len(before) :]) == " n"


@pytest.mark.parametrize("seed", range(20))
def test_tokens_that_are_no_text_are_shown_up_to_the_last_whole_character(tokenizer, seed):
    draw = random.Random(seed)
    ids = [draw.randrange(tokenizer.get_vocab_size()) for _ in range(200)]
    stream = TextStream(tokenizer, ids[:1])
    pieces = [stream.push(token) for token in ids[1:]]
    assert not any(piece.endswith(BROKEN) for piece in pieces)
    whole, first = tokenizer.decode(ids), tokenizer.decode(ids[:1])
    shown = "".join(pieces) + stream.end()
    if '"ByteFallback"' in tokenizer.to_str():  # one bad byte takes back all beside it, but here
        assert len(shown) > 100
    elif not first.endswith(BROKEN):
        assert whole[len(first) :].startswith(shown)
        assert set(whole[len(first) + len(shown) :]) <= {BROKEN}


def test_bytes_that_only_begin_a_character_are_left_out(tokenizer):
    ids = tokenizer.encode("ab\U0001f600", add_special_tokens=False).ids
    stream = TextStream(tokenizer, [])
    shown = "".join(stream.push(token) for token in ids[:-1]) + stream.end()
    assert shown == "ab"


@pytest.mark.parametrize(
    "stops, shown, is_stopped",
    [
        ([], "one\n\ntwo\nclass x", False),
        (["\n\n"], "one", True),
        (["\nclass", "\n\n"], "one", True),
        (["two\ncl"], "one\n\n", True),
        (["class xy", "xyz"], "one\n\ntwo\nclass x", False),
        (["one"], "", True),
        (["", "x"], "one\n\ntwo\nclass ", True),
    ],
)
def test_a_stop_text_and_what_may_become_one_is_never_shown(tokenizer, stops, shown, is_stopped):
    ids = tokenizer.encode("one\n\ntwo\nclass x", add_special_tokens=False).ids
    stream, pieces = TextStream(tokenizer, [], stops), []
    for token in ids:
        pieces.append(stream.push(token))
        assert shown.startswith("".join(pieces))
    assert "".join(pieces) + stream.end() == shown
    assert stream.is_stopped == is_stopped
