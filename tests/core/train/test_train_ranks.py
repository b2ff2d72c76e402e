"""Several ranks train what one would: losses, weights, data, rollbacks, other numbers of them."""

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

from albor_core.checkpoint.folder import list_checkpoints

pytestmark = pytest.mark.slow


def plan(stage):
    stage.plan("one", {"traced": stage.trace("one")})
    stage.plan("ddp2", {"traced": stage.trace("ddp2")}, **ranks(2))
    stage.plan("fsdp2", {}, **ranks(2, "fsdp"))
    stage.plan("ddp2-again", {"stop_after": 3}, {}, **ranks(2))
    stage.plan(
        "moved",
        {"stop_after": 3},
        {"stop_after": 5, "distributed": (2, "fsdp")},
        {"distributed": (1, "ddp")},
    )
    muon = {"optimizer__name": "muon"}
    stage.plan("muon1", {}, **muon)
    stage.plan("muon2", {}, **muon, **ranks(2, "fsdp"))
    stage.plan(
        "muon-moved",
        {"stop_after": 3},
        {"stop_after": 5, "distributed": (2, "fsdp")},
        {"distributed": (1, "ddp")},
        **muon,
    )
    lost = {"faults": "loss:nan@5-6"}
    stage.plan("back1", lost, training__nan_limit=2)
    stage.plan("back2", lost, training__nan_limit=2, **ranks(2))
    stage.plan("drift", {"spoiled_at": 3}, **ranks(2))


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return staged(tmp_path_factory, "ranks", plan)


@pytest.mark.parametrize("name", ["ddp2", "fsdp2"])
def test_several_ranks_take_the_steps_that_one_takes(stage, name):
    assert last_words(stage.runs[name]) == {}  # the driver writes none; the journal has the end
    assert events(stage.runs[name], "run.end")[-1]["data"]["reason"] == "completed"
    assert_same_course(stage, name)


def test_ranks_together_read_each_sequence_of_a_step_once_and_in_the_order_of_one(stage):
    assert_read_together(stage, 2)


def test_a_stop_and_a_resume_on_as_many_ranks_end_in_the_same_bits(stage):
    assert_same_bits(stage, "ddp2")


def test_a_run_goes_on_with_any_number_of_ranks_where_it_was(stage):
    assert_moved(stage, [1, 2, 1], [None, 3, 5])


@pytest.mark.parametrize("name", ["muon2", "muon-moved"])
def test_muon_takes_the_same_steps_on_parts_and_goes_on_with_or_without_them(stage, name):
    starts = events(stage.runs["muon-moved"], "run.start")
    assert [start["data"]["world_size"] for start in starts] == [1, 2, 1]
    assert_same_course(stage, name, "muon1")


def test_all_ranks_go_back_together(stage):
    for name in ("back1", "back2"):
        (rollback,) = events(stage.runs[name], "training.rollback")
        assert (rollback["step"], rollback["data"]["at_step"]) == (4, 6)
    assert_same_course(stage, "back2", "back1")


def test_copies_that_drift_apart_never_become_a_checkpoint(stage):
    run = stage.runs["drift"]
    assert stage.failed == ["drift"]
    assert list_checkpoints(run.checkpoints) == []
    assert "the weights of the 2 ranks differ at step 4" in stage.stderr
    assert history(run, ("train/loss",))[-1][0] == 4


def test_the_journal_says_how_many_there_were(stage):
    (start,) = events(stage.runs["fsdp2"], "run.start")
    assert (start["data"]["world_size"], start["data"]["strategy"]) == (2, "fsdp")
    (start,) = events(stage.runs["one"], "run.start")
    assert start["data"]["world_size"] == 1
    assert_one_writer(stage, "ddp2")
