"""Batches: every sequence once per epoch, any step reachable without the ones before it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albor_core.data.load.order import SequenceOrder, val_rows
from albor_core.data.load.packed_shards import PackedShards
from albor_core.run.errors import ConfigError, DataError


def write_shards(directory, *shards, kind=None):
    kind = kind or pa.list_(pa.uint32())
    directory.mkdir(exist_ok=True)
    for number, rows in enumerate(shards):
        table = pa.table({"input_ids": pa.array(rows, kind)})
        pq.write_table(table, directory / f"part-{number}.parquet", row_group_size=2)
    return directory


def counted(rows, length, start=0):
    return (np.arange(rows * length).reshape(rows, length) + start).tolist()


def test_rows_come_back_as_stored_across_shards_and_row_groups(tmp_path):
    write_shards(tmp_path, counted(5, 4), counted(3, 4, 20))
    data = PackedShards(tmp_path, seq_len=4)
    assert len(data) == 8
    assert data[7].tolist() == [28, 29, 30, 31] and data[7].dtype == np.int64
    batch = data.batch([6, 0])
    assert batch.dtype == np.int64 and batch.tolist() == [[24, 25, 26, 27], [0, 1, 2, 3]]
    with pytest.raises(IndexError):
        data[8]
    with pytest.raises(IndexError):
        data.batch([8])


def test_longer_rows_are_cut_into_as_many_sequences_as_fit(tmp_path):
    write_shards(tmp_path, counted(2, 7))
    rows = list(PackedShards(tmp_path, seq_len=3))
    assert [row.tolist() for row in rows] == [[0, 1, 2], [3, 4, 5], [7, 8, 9], [10, 11, 12]]


def test_rows_of_different_lengths_lose_only_their_own_remainder(tmp_path):
    write_shards(tmp_path, [[1, 2], [3, 4, 5, 6, 7], [8, 9, 10]])
    data = PackedShards(tmp_path, seq_len=2)
    assert [data[i].tolist() for i in range(len(data))] == [[1, 2], [3, 4], [5, 6], [8, 9]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.list_(pa.int64()),
        pa.large_list(pa.uint32()),
        pa.list_(pa.int16(), 4),
    ],
    ids=str,
)
def test_other_list_types_of_ids_are_read_too(tmp_path, kind):
    write_shards(tmp_path, counted(3, 4), kind=kind)
    assert PackedShards(tmp_path, seq_len=4)[2].tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize(
    "vocab_size, largest", [(None, 70_000), (65_537, 65_536), (65_536, 65_535)]
)
def test_data_larger_than_memory_is_served_from_a_file_that_cleans_itself_up(
    tmp_path, vocab_size, largest
):
    shards = write_shards(tmp_path / "s", [[largest, 1, 2, 3]], counted(9, 4))
    (tmp_path / "spill").mkdir()
    data = PackedShards(
        shards, seq_len=2, vocab_size=vocab_size, memory_limit=0, spill_dir=tmp_path / "spill"
    )
    inside = PackedShards(shards, seq_len=2)
    every = np.arange(len(inside))
    assert np.array_equal(data.batch(every), inside.batch(every))
    assert data[0].tolist() == [largest, 1]
    assert list((tmp_path / "spill").iterdir()) == []


def test_no_room_to_spill_is_said_with_the_place(tmp_path):
    shards = write_shards(tmp_path / "s", counted(3, 4))
    with pytest.raises(DataError, match=r"gone: no room for 48 bytes"):
        PackedShards(shards, seq_len=4, memory_limit=0, spill_dir=tmp_path / "gone")


def test_every_sequence_appears_once_in_an_epoch_but_for_the_dropped_tail():
    order = SequenceOrder(seed=5, num_sequences=103)
    assert order.steps_per_epoch(4, 3) == 8
    for epoch in range(3):
        seen = np.concatenate(
            [order.indices(epoch * 8 + s, m, 4, 3) for s in range(8) for m in range(3)]
        )
        assert len(seen) == 96 == len(set(seen.tolist()))
        assert set(seen.tolist()) == set(order.permutation(epoch)[:96].tolist())
        assert sorted(order.permutation(epoch).tolist()) == list(range(103))


@pytest.mark.slow
@settings(max_examples=50, deadline=None, database=None)
@given(st.integers(0, 2**70), st.integers(1, 60), st.lists(st.integers(0, 400), min_size=1))
def test_a_step_holds_the_same_sequences_whatever_was_asked_before(seed, num_sequences, steps):
    wandering = SequenceOrder(seed, num_sequences)
    for step in steps:
        fresh = SequenceOrder(seed, num_sequences).indices(step, 0, 1, 1)
        assert np.array_equal(wandering.indices(step, 0, 1, 1), fresh)


def test_epochs_and_seeds_differ():
    order = SequenceOrder(0, 1000)
    assert not np.array_equal(order.permutation(0), order.permutation(1))
    assert not np.array_equal(order.permutation(0), SequenceOrder(1, 1000).permutation(0))


def test_the_order_is_the_one_of_every_version():
    # A golden: a change here silently breaks the resuming of every run out there.
    assert SequenceOrder(42, 8).permutation(0).tolist() == [7, 1, 6, 4, 3, 5, 0, 2]
    assert SequenceOrder(42, 8).permutation(1).tolist() == [4, 5, 3, 0, 2, 7, 1, 6]


def test_the_global_batch_does_not_depend_on_how_it_is_split():
    order = SequenceOrder(1, 200)

    def whole(batch, accum, world):
        return np.sort(
            np.concatenate(
                [
                    order.indices(3, m, batch, accum, rank=r, world=world)
                    for m in range(accum)
                    for r in range(world)
                ]
            )
        )

    one = whole(24, 1, 1)
    for batch, accum, world in [(4, 6, 1), (4, 3, 2), (1, 6, 4), (12, 1, 2)]:
        assert np.array_equal(whole(batch, accum, world), one)
    assert len(set(one.tolist())) == 24


def test_without_shuffling_the_order_is_the_stored_one():
    order = SequenceOrder(9, 10, shuffle=False)
    assert order.indices(1, 0, 2, 2).tolist() == [4, 5]


def test_too_few_sequences_for_one_step_are_refused():
    with pytest.raises(ConfigError, match="7 sequences do not fill one step of 4 x 2 x 1"):
        SequenceOrder(0, 7).steps_per_epoch(4, 2)


def test_positions_are_roughly_uniform_so_the_shuffle_shuffles():
    first = np.array([SequenceOrder(seed, 10).permutation(0)[0] for seed in range(5000)])
    counts = np.bincount(first, minlength=10)
    # chi-square with 9 degrees of freedom exceeds 45 once in a million
    assert ((counts - 500) ** 2 / 500).sum() < 45


def test_a_validation_subset_is_the_same_every_time_and_spread_over_all_files(tmp_path):
    data = PackedShards(write_shards(tmp_path, counted(7, 2)), seq_len=2)
    twice = [[data.batch(b).tolist() for b in val_rows(len(data), 2, 2)] for _ in range(2)]
    assert twice[0] == twice[1] == [[[0, 1], [2, 3]], [[6, 7], [10, 11]]]
    whole = [data.batch(rows) for rows in val_rows(len(data), 3)]
    assert [len(b) for b in whole] == [3, 3, 1]
    assert np.concatenate(whole).tolist() == counted(7, 2)
