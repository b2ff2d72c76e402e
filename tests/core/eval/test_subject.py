"""A subject's answers are those of the model, whatever is asked beside them."""

import pytest
import torch
from eval_models import make_model, subject_of
from hf_folder import write_model

from albor_core.eval.target import open_target, weights_hash
from albor_core.model.generate.text import text_after
from albor_core.run.errors import AlborError, DataError, NoCheckpointError

PAIRS = [([1, 5, 9], [7, 8]), ([1], [3]), ([4] * 40, [5, 6, 7]), ([2, 2], [9] * 30), ([1], [])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


@torch.inference_mode()
def plainly(model, context, continuation):
    """Row by row, the whole table of logits."""
    if not continuation:
        return 0.0, True
    whole = [*context, *continuation][-33:]
    logits, _ = model(torch.tensor([whole[:-1]]))
    logs = logits.double().log_softmax(-1)[0]
    start = len(whole) - 1 - len(continuation)
    picked = [logs[start + i, token].item() for i, token in enumerate(continuation)]
    greedy = [logs[start + i].argmax().item() == token for i, token in enumerate(continuation)]
    return sum(picked), all(greedy)


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_likelihoods_are_the_models_own_whatever_shares_the_batch(folder, batch_size):
    subject = subject_of(folder, batch_size=batch_size)
    for pair, found in zip(PAIRS, subject.logprobs(PAIRS), strict=True):
        total, greedy = plainly(subject.model, *pair)
        assert found.sum == pytest.approx(total, rel=1e-12, abs=1e-12)
        assert (found.tokens, found.is_greedy) == (len(pair[1]), greedy)


def test_a_continuation_beyond_the_context_is_refused_with_both_lengths(folder):
    with pytest.raises(DataError, match="33 tokens is longer than the context of 32"):
        subject_of(folder).logprobs([([1], [2] * 33)])


def test_greedy_text_is_the_likeliest_token_after_token(folder):
    subject = subject_of(folder)
    [[text]] = subject.complete(["def fib"], max_new_tokens=8)
    ids = given = subject.tokenizer.encode("def fib").ids
    for _ in range(8):
        with torch.inference_mode():
            logits, _ = subject.model(torch.tensor([ids]))
        if (token := int(logits[0, -1].argmax())) == subject.ids.eos:
            break
        ids = [*ids, token]
    assert text == text_after(subject.tokenizer, given, ids[len(given) :])


def test_a_sample_depends_on_its_prompt_its_number_and_the_seed_alone(folder):
    subject = subject_of(folder)
    how = {"n": 3, "max_new_tokens": 6, "temperature": 1.0, "top_p": 0.95, "seed": 5}
    first = subject.complete(["def a", "for b", "x ="], **how)
    assert subject.complete(["x =", "def a"], **how) == [first[2], first[0]]
    assert subject.complete(["def a"], **{**how, "n": 2}) == [first[0][:2]]
    assert len({*first[0]}) > 1
    assert subject.complete(["def a"], **{**how, "seed": 6}) != [first[0]]


def test_a_text_ends_where_a_stop_word_begins(folder):
    subject = subject_of(folder)
    [[whole]] = subject.complete(["def fib"], max_new_tokens=10)
    word = whole[2:4]
    [[cut]] = subject.complete(["def fib"], max_new_tokens=10, stop=["not there", word])
    assert cut == whole[: whole.index(word)]


def test_a_prompt_that_fills_the_context_is_refused(folder):
    with pytest.raises(DataError, match="leaves no room in the context of 32"):
        subject_of(folder).complete(["x = 1\n" * 40])


def test_the_hash_of_weights_is_that_of_their_bytes_and_knows_a_damaged_checkpoint(folder):
    target = open_target(folder)
    before = weights_hash(target)
    assert weights_hash(open_target(folder)) == before
    manifest = folder / "manifest.json"
    manifest.write_text(
        '{"files": {"model.safetensors": {"algo": "blake3", "hash": "00", "size": 1}}}'
    )
    try:
        with pytest.raises(NoCheckpointError, match=r"model\.safetensors is damaged"):
            weights_hash(target)
    finally:
        manifest.unlink()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda f: make_model(f) and (f / "tokenizer.json").unlink(), "no tokenizer.json"),
        (lambda f: f.mkdir() or (f / "adapter_config.json").write_text("{}"), "is an adapter"),
        (lambda f: make_model(f) and truncate(f / "model.safetensors"), "is damaged"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_by_name(tmp_path, make, what):
    make(tmp_path / "m")
    with pytest.raises(AlborError, match=what) as caught:
        open_target(tmp_path / "m")
    assert caught.value.hint


def truncate(file):
    file.write_bytes(file.read_bytes()[:-100])


def test_a_tokenizer_with_ids_beyond_the_vocabulary_is_a_problem_of_the_target(tmp_path):
    folder = make_model(tmp_path / "m")
    write_model(folder, "llama", vocab_size=300)
    found = [str(one) for one in open_target(folder).problems()]
    assert any("above vocab_size 300" in one for one in found)
    with pytest.raises(DataError, match="above vocab_size 300"):
        subject_of(folder)
