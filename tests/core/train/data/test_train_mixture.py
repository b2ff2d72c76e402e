"""Runs on a mixture: resumed, changed, rolled back, and shown step by step."""

import pytest
from tiny_run import (
    SEQ_LEN,
    events,
    history,
    make_run,
    rewrite_config,
    train,
    train_here,
    write_documents,
    write_tokenizer,
)

from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.load.step_batch import step_batch
from albor_core.run.errors import ConfigError, DataError, NotFoundError
from albor_core.train import loop
from albor_core.train.resume.digest import digest

SEEN = ("data/a_sequences", "data/b_sequences")


@pytest.fixture
def mixed(tmp_path):
    sources = [
        {"path": str(write_documents(tmp_path / name / "train", number, seed)), "weight": weight}
        for seed, (name, number, weight) in enumerate((("a", 23, 3), ("b", 40, 1)))
    ]
    return {
        "data__train": ...,
        "data__mixture": sources,
        "data__fim": {"rate": 0.5},
        "data__tokenizer": str(write_tokenizer(tmp_path / "tokenizer.json")),
        "data__document_mask": True,
        "training__max_steps": 12,
    }


@pytest.fixture
def trained_on(monkeypatch):
    """The ids of each step that was trained, the last time it was."""
    found, plain = {}, loop.take_step

    def noting(parts, *rest, step, start, batch, **more):
        rows = parts.order.part(start, 0, batch)
        found[step] = parts.source.ids(rows)
        return plain(parts, *rest, step=step, start=start, batch=batch, **more)

    monkeypatch.setattr(loop, "take_step", noting)
    return found


def shown(run, step):
    """Ids of a batch by what `albor data batch` says of it."""
    words = {f"w{n}": n for n in range(64)} | {"<|endoftext|>": 0}
    words |= {"<|fim_prefix|>": 61, "<|fim_suffix|>": 62, "<|fim_middle|>": 63}
    made = step_batch(run, step)
    return [[words[word] for word in one.text.split()] for one in made.rows], made


def test_a_run_on_a_mixture_resumes_to_the_same_bytes_and_counts_what_it_saw(tmp_path, mixed):
    whole, parts = (make_run(tmp_path, name, **mixed) for name in ("whole", "parts"))
    train_here(whole)
    train_here(parts, stop_after=7)
    train_here(parts, attempt=2)
    assert digest(whole) == digest(parts)
    seen = history(whole, SEEN)
    assert seen == history(parts, SEEN)
    assert seen[-2:] == [(12, "data/a_sequences", 36), (12, "data/b_sequences", 12)]


def test_shuffled_documents_resume_to_the_same_bytes_in_any_epoch(tmp_path, mixed, trained_on):
    alone = {name: mixed[name] for name in ("data__tokenizer", "data__document_mask")}
    alone |= {"data__train": mixed["data__mixture"][0]["path"], "data__shuffle": "documents"}
    alone |= {"training__max_steps": 14, "training__epochs": 4}  # of 23 rows, 5 steps each
    whole, parts = (make_run(tmp_path, name, **alone) for name in ("whole", "parts"))
    train_here(whole)
    first = dict(trained_on)
    train_here(parts, stop_after=9)
    train_here(parts, attempt=2)
    assert digest(whole) == digest(parts)
    assert all((first[step] == ids).all() for step, ids in trained_on.items())
    for step in (1, 7, 14):
        ids, batch = shown(whole, step)
        assert ids == first[step].tolist()
        assert {row.epoch for row in batch.rows} == {1 + (step - 1) // 5}


def test_micro_batches_and_ranks_of_any_number_train_on_the_same_sequences(
    tmp_path, mixed, trained_on
):
    steps = []
    for index, (size, accumulation) in enumerate(((4, 1), (2, 2), (1, 4))):
        more = {"data__batch_size": size, "training__gradient_accumulation": accumulation}
        train_here(make_run(tmp_path, f"run{index}", **mixed, **more), stop_after=3)
        steps.append({step: ids.tolist() for step, ids in trained_on.items()})
    assert steps[0] == steps[1] == steps[2]


@pytest.mark.slow  # two processes, twice
def test_two_ranks_that_were_stopped_take_the_steps_of_one(tmp_path, mixed):
    mixed |= {"training__gradient_accumulation": 2, "training__max_steps": 6}
    one = make_run(tmp_path, "one", **mixed)
    train_here(one)
    two = make_run(tmp_path, "two", **mixed, training__distributed={"world_size": 2})
    assert train(two, "--stop-after", "3") == (0, "")
    assert train(two) == (0, "")
    assert [told["data"]["world_size"] for told in events(two, "run.start")] == [2, 2]
    keys = ("train/loss", *SEEN)
    ours, theirs = history(one, keys), history(two, keys)
    assert [entry[:2] for entry in ours] == [entry[:2] for entry in theirs]
    for (*_, a), (*_, b) in zip(ours, theirs, strict=True):
        assert a == pytest.approx(b, rel=1e-6)


def test_other_weights_are_refused_at_a_resume_or_hold_from_the_next_sequence_on(tmp_path, mixed):
    run = make_run(tmp_path, **mixed)
    train_here(run, stop_after=5)
    sources = [{**one, "weight": 1} for one in mixed["data__mixture"]]
    rewrite_config(run, "data.mixture", sources)
    with pytest.raises(ConfigError, match=r"data.mixture"):
        train_here(run, attempt=2)
    train_here(run, attempt=3, allow_config_change=True)
    (told,) = events(run, "mixture.changed")
    assert told["data"] == {"sequence": 20, "seen": {"a": 15, "b": 5}}
    assert history(run, SEEN)[-2:] == [(12, "data/a_sequences", 29), (12, "data/b_sequences", 19)]
    train_here(run, attempt=4)
    assert len(events(run, "mixture.changed")) == 1


def test_a_curriculum_weighs_by_the_sequences_that_were_read(tmp_path, mixed):
    stages = [{"from": 0, "weights": {"b": 1}}, {"from": 16, "weights": {"a": 1}}]
    run = make_run(tmp_path, **mixed, data__curriculum=stages)
    train_here(run)
    seen = history(run, SEEN[:1])
    assert [number for step, _, number in seen if step <= 4] == [0, 0, 0, 0]
    assert seen[-1] == (12, SEEN[0], 32)


def test_the_batch_of_every_step_is_shown_as_it_was_trained_on(tmp_path, mixed, trained_on):
    run = make_run(tmp_path, **mixed)
    train_here(run, stop_after=7)
    train_here(run, attempt=2)
    for step in range(1, 13):
        ids, made = shown(run, step)
        assert ids == trained_on[step].tolist(), step
        for row, one in zip(ids, made.rows, strict=True):
            assert one.source in ("a", "b") and one.tokens == SEQ_LEN
            assert one.fim == (61 in row)
            firsts = [0, *(at + 1 for at in range(SEQ_LEN - 1) if row[at] == 0)]
            assert list(one.documents) == firsts
    assert any(one.fim for one in made.rows)
    assert step_batch(run).step == 12
    with pytest.raises(NotFoundError, match="no step 13"):
        step_batch(run, 13)
    rewrite = write_documents(tmp_path / "a" / "train", 23, seed=9)
    with pytest.raises(DataError, match=f"{rewrite}.*not the shards"):
        step_batch(run, 12)


def test_the_batches_after_a_rollback_are_those_that_were_read_after_it(
    tmp_path, mixed, trained_on
):
    run = make_run(tmp_path, **mixed, training__nan_limit=2)
    train_here(run, faults="loss:nan@7-8")
    assert events(run, "training.rollback")
    for step in range(1, 13):
        assert shown(run, step)[0] == trained_on[step].tolist(), step


def test_a_plain_run_is_shown_too_and_one_from_before_a_change_says_so(tmp_path, trained_on):
    run = make_run(
        tmp_path, training__max_steps=24, training__checkpoint={"save_every": 4, "keep": 3}
    )
    train_here(run, stop_after=14)
    stored = PackedShards(tmp_path / "train", seq_len=SEQ_LEN)
    for step in (1, 10, 11, 14):  # 10 steps are an epoch
        made = step_batch(run, step)
        assert stored.batch([one.row for one in made.rows]).tolist() == trained_on[step].tolist()
        assert {(one.source, one.text, one.fim) for one in made.rows} == {(None, None, False)}
    rewrite_config(run, "data.batch_size", 2)
    train_here(run, attempt=2, allow_config_change=True, stop_after=20)
    with pytest.raises(DataError, match=r"what step 3 read .*: .* were changed at step 14"):
        step_batch(run, 3)
    # the newest checkpoint before them is that of step 14, or a later one
    for step in (15, 17, 20):
        rows = [one.row for one in step_batch(run, step).rows]
        assert stored.batch(rows).tolist() == trained_on[step].tolist()
