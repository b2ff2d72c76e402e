"""Orders and mixtures against plain counting."""

import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from albor_core.data.load import order as order_module
from albor_core.data.load.interleave import LONGEST_PERIOD, interleaving, whole_shares
from albor_core.data.load.mixture import DrawnSource, MixtureOrder
from albor_core.data.load.order import RowBlocks, SequenceOrder
from albor_core.data.load.permutation import scattered
from albor_core.run.errors import ConfigError


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1000, 1025, 65_537])
def test_a_scattered_order_holds_every_number_once(size):
    found = scattered(np.arange(size), size, 5, 2)
    assert sorted(found.tolist()) == list(range(size))
    picked = np.array([size - 1, 0, size // 2])
    assert scattered(picked, size, 5, 2).tolist() == found[picked].tolist()


def test_a_scattered_order_differs_by_seed_epoch_and_stream_and_moves_everything_anywhere():
    size = 4096
    orders = [scattered(np.arange(size), size, *key) for key in ((1, 0), (2, 0), (1, 1), (1, 0, 9))]
    for number, one in enumerate(orders):
        for other in orders[:number]:
            assert (one == other).sum() < 12  # of equal chances 1 is usual
    # the means of 64 neighbours have the spread of 64 draws: 1.5 sigma of a mean of uniforms
    means = orders[0].reshape(64, 64).mean(axis=1)
    assert 0.7 < means.std() / (size / np.sqrt(12 * 64)) < 1.3
    steps = np.diff(orders[0])
    assert len(set(steps.tolist())) > 0.6 * size  # no pattern from one to the next


def test_the_scattered_order_is_the_one_of_every_version():
    # A golden: a change here silently breaks the resuming of every large run out there.
    assert scattered(np.arange(8), 8, 42, 0).tolist() == [3, 7, 2, 4, 1, 5, 6, 0]
    found = scattered(np.arange(4), 10**9, 42, 1, 7).tolist()
    assert found == [460981210, 577829607, 998293072, 896085516]


def test_large_data_are_scattered_and_a_run_from_before_keeps_the_order_it_had(monkeypatch):
    small = SequenceOrder(42, 1000)
    monkeypatch.setattr(order_module, "SORTED_UP_TO", 100)
    large = SequenceOrder(42, 1000)
    assert sorted(large.permutation(1).tolist()) == list(range(1000))
    assert large.part(1010, 1, 8).tolist() == large.permutation(1)[18:26].tolist()
    assert large.part(0, 0, 8).tolist() != small.part(0, 0, 8).tolist()
    resumed = SequenceOrder(42, 1000)
    resumed.resume(large.to_json(16), 16)
    assert resumed.part(16, 0, 8).tolist() == large.part(16, 0, 8).tolist()
    resumed.resume({"seed": 42, "cursor": 16}, 16)  # a checkpoint of an older version
    assert resumed.part(16, 0, 8).tolist() == small.part(16, 0, 8).tolist()


def test_a_run_that_leaves_a_mixture_begins_the_order_of_its_data():
    mixed = MixtureOrder(42, [DrawnSource("a", "a" * 64, 50)], ((0, {"a" * 64: 1.0}),))
    alone, resumed = SequenceOrder(42, 50), SequenceOrder(42, 50)
    resumed.resume(mixed.to_json(16), 16)
    assert resumed.part(16, 0, 8).tolist() == alone.part(16, 0, 8).tolist()


def test_epochs_are_told_where_rows_are_others_in_each():
    plain, telling = SequenceOrder(3, 10), SequenceOrder(3, 10, tells_epochs=True)
    for start in (0, 4, 12, 26):
        both = plain.part(start, 0, 4), telling.part(start, 0, 4)
        assert (both[0] + start // 10 * 10).tolist() == both[1].tolist()


def weights_to_try():
    source = random.Random(11)
    for _ in range(120):
        number = source.randint(1, 12)
        kinds = (source.randint(0, 40), round(source.random(), 2), 1)
        weights = tuple(float(source.choice(kinds)) for _ in range(number))
        if any(weights):
            yield weights
    yield from [(0.7, 0.2, 0.1), (0.5, *(0.05,) * 10), (1.0,), (0.0, 3.0), (1e-3, 1.0)]


@pytest.mark.slow
def test_every_source_has_its_share_of_every_beginning_off_by_less_than_one():
    for weights in weights_to_try():
        made, exact = interleaving(weights), [Fraction(repr(weight)) for weight in weights]
        period = sum(made.shares)
        assert [Fraction(one, period) for one in made.shares] == [e / sum(exact) for e in exact]
        length = 2 * period + 3
        source, draws = made.draws(np.arange(length))
        counts = (source[:, None] == np.arange(len(weights))).cumsum(axis=0)
        targets = np.arange(1, length + 1)[:, None] * np.array(made.shares)  # times the period
        assert np.abs(counts * period - targets).max() < period, weights
        # each source counts on, with no gap
        assert (draws == counts[np.arange(length), source] - 1).all()
        assert made.drawn(length) == tuple(counts[-1])


def test_weights_without_a_short_ratio_are_rounded_by_less_than_anybody_sees():
    weights = (12_345_678_901.0, 3_456_789_012.0, 17.0)
    shares = whole_shares(weights)
    assert sum(shares) <= LONGEST_PERIOD
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share / sum(shares) - weight / sum(weights)) < 1 / LONGEST_PERIOD
    assert whole_shares((0.1, 0.2, 0.7)) == (1, 2, 7)


A, B, C = (DrawnSource(name, name * 64, rows) for name, rows in (("a", 7), ("b", 10), ("c", 23)))
EVEN = {A.data_hash: 1.0, B.data_hash: 1.0}
STAGES = (
    (0, {A.data_hash: 3.0, B.data_hash: 1.0, C.data_hash: 1.0}),
    (40, {A.data_hash: 0.0, B.data_hash: 1.0, C.data_hash: 3.0}),
    (111, {A.data_hash: 1.0, B.data_hash: 1.0, C.data_hash: 1.0}),
)


def named(order, rows):
    """(source, epoch, row in it) of each row."""
    begins = np.cumsum([0, *(one.rows for one in order.sources)])
    found = []
    for row in rows.tolist():
        epoch, within = divmod(row, order.num_sequences)
        index = int(np.searchsorted(begins, within, side="right")) - 1
        found.append((order.sources[index].name, epoch, within - int(begins[index])))
    return found


def test_each_source_is_read_through_before_it_begins_again():
    order = MixtureOrder(1, (A, B, C), STAGES)
    drawn = named(order, order.rows(np.arange(400)))
    for source in (A, B, C):
        mine = [(epoch, row) for name, epoch, row in drawn if name == source.name]
        epochs = [epoch for epoch, _ in mine]
        assert epochs == [number // source.rows for number in range(len(mine))]
        for epoch in set(epochs[: len(mine) // source.rows * source.rows]):
            rows = [row for at, row in mine if at == epoch]
            assert sorted(rows) == list(range(source.rows))
    assert order.seen(400) == Counter(name for name, _, _ in drawn)
    assert {name for name, _, _ in drawn[40:111]} == {"b", "c"}


def test_a_step_of_a_mixture_is_the_same_for_every_split_of_it():
    order = MixtureOrder(1, (A, B, C), STAGES)
    whole = order.part(36, 0, 12).tolist()
    for batch, accum, world in ((12, 1, 1), (4, 1, 3), (2, 3, 2), (1, 12, 1), (6, 1, 2), (3, 2, 2)):
        parts = [
            order.part(36, micro, batch, rank=rank, world=world).tolist()
            for micro in range(accum)
            for rank in range(world)
        ]
        assert [row for part in parts for row in part] == whole


def test_resuming_is_skipping_and_a_changed_mixture_goes_on_from_where_each_source_was():
    before = MixtureOrder(1, (A, B, C), STAGES)
    same = MixtureOrder(1, (C, B, A), STAGES)  # listed otherwise
    same.resume(before.to_json(130), 130)
    assert same.changed_at is None
    assert named(same, same.rows(np.arange(130, 190))) == named(
        before, before.rows(np.arange(130, 190))
    )
    other = MixtureOrder(1, (A, B), ((0, EVEN),))
    other.resume(before.to_json(130), 130)
    assert other.changed_at == 130
    old = named(before, before.rows(np.arange(130)))
    new = named(other, other.rows(np.arange(130, 200)))
    for source in (A, B):
        mine = [(epoch, row) for name, epoch, row in old + new if name == source.name]
        assert [epoch for epoch, _ in mine] == [n // source.rows for n in range(len(mine))]
        assert len(set(mine)) == len(mine)  # nothing twice in an epoch
    counts = Counter(name for name, _, _ in new)
    assert abs(counts["a"] - counts["b"]) < 2
    # a second resume, and a source that comes back: it goes on where it was
    again = MixtureOrder(1, (A, B, C), ((0, {C.data_hash: 1.0}),))
    again.resume(other.to_json(200), 200)
    thirds = [one for one in old if one[0] == "c"] + named(again, again.rows(np.arange(200, 240)))
    assert len(set(thirds)) == len(thirds)
    assert again.seen(240)["c"] == len(thirds)


def test_a_rollback_keeps_to_the_mixture_that_the_attempt_resumed_with():
    before = MixtureOrder(1, (A, B, C), STAGES)
    other = MixtureOrder(1, (A, B), ((0, EVEN),))
    other.resume(before.to_json(130), 130)
    rows = other.rows(np.arange(130, 180)).tolist()
    other.resume(before.to_json(100), 100)
    assert other.rows(np.arange(130, 180)).tolist() == rows


def test_sequences_of_another_length_are_counted_by_their_tokens():
    before, half = MixtureOrder(1, (A, B), ((0, EVEN),)), MixtureOrder(1, (A, B), ((0, EVEN),))
    half.resume(before.to_json(20), 40)
    assert half.seen(40) == {"a": 20, "b": 20}


def test_a_mixture_that_is_too_small_for_a_step_is_refused():
    with pytest.raises(ConfigError, match="17 sequences do not fill one step of 18 x 1 x 1"):
        MixtureOrder(0, (A, B), ((0, EVEN),)).steps_per_epoch(18, 1)


def test_rows_are_made_in_blocks_and_are_the_same_wherever_those_end(monkeypatch):
    monkeypatch.setattr(RowBlocks, "SIZE", 5)
    monkeypatch.setattr(RowBlocks, "KEPT", 2)
    order = MixtureOrder(1, (A, B, C), STAGES)
    monkeypatch.setattr(order_module, "SORTED_UP_TO", 10)
    large, source = SequenceOrder(2, 103), random.Random(5)
    for _ in range(60):
        start, size = source.randint(0, 90), source.randint(1, 13)
        assert (
            order.part(start, 0, size).tolist()
            == order.rows(np.arange(start, start + size)).tolist()
        )
        epoch = source.randint(0, 2)
        wanted = large.permutation(epoch)[start : start + size]
        assert large.part(epoch * 103 + start, 0, size).tolist() == wanted.tolist()
