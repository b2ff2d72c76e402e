"""Four ranks, half precision, Muon, samples and skipped steps: beyond what make test takes."""

import pytest
from rank_stage import (
    assert_moved,
    assert_one_writer,
    assert_read_together,
    assert_same_bits,
    assert_same_course,
    ranks,
    staged,
)
from tiny_run import events, history, last_words

from albor_core.run.journal import read_journal


def plan(stage):
    stage.plan("one", {"traced": stage.trace("one")})
    stage.plan("ddp4", {"traced": stage.trace("ddp4")}, **ranks(4))
    stage.plan("fsdp2", {}, **ranks(2, "fsdp"))
    stage.plan("fsdp4", {}, **ranks(4, "fsdp"), training__activation_checkpointing=True)
    stage.plan("ddp4-again", {"stop_after": 3}, {}, **ranks(4))
    stage.plan("fsdp2-again", {"stop_after": 3}, {}, **ranks(2, "fsdp"))
    stage.plan(
        "moved",
        {"stop_after": 3},
        {"stop_after": 5, "distributed": (2, "fsdp")},
        {"stop_after": 6, "distributed": (4, "ddp")},
        {"distributed": (1, "ddp")},
    )
    write_tokenizer(stage.folder / "tokenizer.json")
    words = {
        "data__tokenizer": str(stage.folder / "tokenizer.json"),
        "training__sample_prompts": ["w3 w5", "w9"],
        "training__max_steps": 2,
        "training__warmup_steps": 1,
    }
    stage.plan("words1", {}, **words)
    stage.plan("words2", {}, **words, **ranks(2, "fsdp"))
    half = {"training__mixed_precision": "bf16"}
    stage.plan("half1", {}, **half)
    stage.plan("half2", {}, **half, **ranks(2, "fsdp"))
    stage.plan("half4", {}, **half, **ranks(4))
    spoiled = {"faults": "loss:nan@2"}
    stage.plan("skip1", spoiled)
    stage.plan("skip2", spoiled, **ranks(2, "fsdp"))
    muon = {"optimizer__name": "muon"}
    stage.plan("muon1", {}, **muon)
    stage.plan("muon2", {}, **muon, **ranks(2))
    # three ranks: neither the 32 rows nor the matrices of a batch go round
    thirds = {"data__batch_size": 3, "training__gradient_accumulation": 2, **muon}
    stage.plan("thirds1", {}, **thirds)
    stage.plan("thirds3", {}, **thirds, **ranks(3, "fsdp"))
    stage.plan("parts2", {}, **muon, **ranks(2, "fsdp"))
    stage.plan("parts2-again", {"stop_after": 3}, {}, **muon, **ranks(2, "fsdp"))
    stage.plan("parts4", {"faults": "loss:nan@2"}, **muon, **ranks(4, "fsdp"))
    stage.plan("parts1", {"faults": "loss:nan@2"}, **muon)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return staged(tmp_path_factory, "many-ranks", plan)


def write_tokenizer(path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def samples(run):
    said = [line.record for line in read_journal(run.journal)]
    return [(r["step"], r["prompt"], r["text"]) for r in said if r["t"] == "s"]


@pytest.mark.parametrize("name", ["ddp4", "fsdp4"])
def test_several_ranks_take_the_steps_that_one_takes(stage, name):
    assert last_words(stage.runs[name]) == {}  # the driver writes none; the journal has the end
    assert events(stage.runs[name], "run.end")[-1]["data"]["reason"] == "completed"
    assert_same_course(stage, name)


@pytest.mark.parametrize("name", ["half2", "half4"])
def test_half_precision_differs_by_its_own_rounding_alone(stage, name):
    """bf16 keeps 8 bits: a loss of 4 is read off logits rounded to 2^-9 of themselves, which
    averages out over some 500 positions; a course of its own would be apart by tenths.
    """
    expected = history(stage.runs["half1"], ("train/loss", "val/loss"))
    found = history(stage.runs[name], ("train/loss", "val/loss"))
    assert [(step, key) for step, key, _ in found] == [(step, key) for step, key, _ in expected]
    for (_, _, a), (step, key, b) in zip(expected, found, strict=True):
        assert b == pytest.approx(a, abs=4 * 2**-9), (key, step)
    tensors = stage.tensors(name)
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"torch.float32"}


@pytest.mark.parametrize("name", ["ddp4", "fsdp2"])
def test_a_stop_and_a_resume_on_as_many_ranks_end_in_the_same_bits(stage, name):
    assert_same_bits(stage, name)


def test_a_run_goes_on_with_any_number_of_ranks_where_it_was(stage):
    assert_moved(stage, [1, 2, 4, 1], [None, 3, 5, 6])


def test_four_ranks_read_each_sequence_of_a_step_once_and_in_the_order_of_one(stage):
    assert_read_together(stage, 4)
    assert_one_writer(stage, "ddp4")


def test_a_sharded_model_writes_the_same_samples(stage):
    assert len(samples(stage.runs["words1"])) == 4
    assert samples(stage.runs["words2"]) == samples(stage.runs["words1"])


def test_all_ranks_skip_a_step_that_is_not_finite(stage):
    assert [e["data"]["count"] for e in events(stage.runs["skip2"], "step.skipped")] == [1]
    assert_same_course(stage, "skip2", "skip1")


def test_muon_takes_the_same_steps_on_copies(stage):
    assert_same_course(stage, "muon2", "muon1")


@pytest.mark.parametrize(
    ("name", "reference"),
    [("parts2", "muon1"), ("thirds3", "thirds1"), ("parts4", "parts1")],
    ids=["two", "three", "four, with a skipped step"],
)
def test_muon_takes_the_same_steps_on_parts(stage, name, reference):
    assert_same_course(stage, name, reference)


def test_muon_on_parts_resumes_in_the_same_bits(stage):
    assert_same_bits(stage, "parts2")
