"""How ranks share a global batch, and that together they do all of it in one order."""

import math
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.config.microbatches import share_of, world_sizes
from albor_core.data.load.order import SequenceOrder


@given(st.integers(1, 48), st.integers(1, 48), st.integers(1, 16))
def test_ranks_do_the_whole_batch_or_are_refused(batch_size, accumulation, world_size):
    share = share_of(batch_size, accumulation, world_size)
    if (batch_size * accumulation) % world_size:
        assert share is None
    else:
        assert share.sequences_per_step == batch_size * accumulation
        assert share.batch_size <= batch_size


@pytest.mark.parametrize(
    ("batch_size", "accumulation", "world_size", "expected"),
    [
        (16, 1, 1, (16, 1)),
        (16, 8, 4, (16, 2)),  # micro-batches go round: none gets smaller
        (16, 2, 4, (8, 1)),
        (16, 1, 4, (4, 1)),
        (6, 4, 8, (3, 1)),
    ],
)
def test_micro_batches_are_shared_before_sequences(batch_size, accumulation, world_size, expected):
    share = share_of(batch_size, accumulation, world_size)
    assert (share.batch_size, share.accumulation) == expected


def test_the_world_sizes_that_would_do_are_the_divisors():
    assert world_sizes(3, 4, 8) == (1, 2, 3, 4, 6)
    assert world_sizes(1, 7, 8) == (1, 7)
    assert math.prod(world_sizes(1, 1, 8)) == 1


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.integers(1, 50))
def test_every_split_reads_the_sequences_of_one_rank_in_its_order(
    batch_size, accumulation, world_size, step
):
    share = share_of(batch_size, accumulation, world_size)
    if share is None:
        return
    order = SequenceOrder(7, 97)
    alone = [
        order.indices(step, micro, batch_size, accumulation).tolist()
        for micro in range(accumulation)
    ]
    together = [
        order.indices(
            step, micro, share.batch_size, share.accumulation, rank=rank, world=world_size
        ).tolist()
        for micro in range(share.accumulation)
        for rank in range(world_size)
    ]
    assert list(chain(*together)) == list(chain(*alone))
    assert len(set(chain(*alone))) == batch_size * accumulation
