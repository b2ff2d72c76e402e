"""The clock in sequences: steps, epochs and intervals against plain counting."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from albor_core.config.clock import Clock, Place, place_in
from albor_core.data.load.order import SequenceOrder


def clock(num_sequences=40, batch=4, unit=None, epochs=1, max_steps=None):
    return Clock(num_sequences, batch, unit or batch, epochs, max_steps)


def gone(clock, place, steps):
    """The starts of so many steps; `place` moves on."""
    starts = []
    for _ in range(steps):
        starts.append(clock.start(place.cursor))
        clock.advance(place)
    return starts


def test_an_undisturbed_run_takes_the_batches_and_ends_where_counting_steps_does():
    source = random.Random(3)
    for _ in range(200):
        batch, epochs = source.randint(1, 9), source.randint(1, 3)
        n = source.randint(batch, 60)
        made, place, order = clock(n, batch, epochs=epochs), Place(unit=batch), SequenceOrder(5, n)
        number = n // batch * epochs
        assert made.steps_left(place) == made.last_step(place) == made.planned == number
        for step, start in enumerate(gone(made, place, number)):
            wanted = order.indices(step, 0, batch, 1).tolist()
            assert order.part(start, 0, batch).tolist() == wanted
            assert made.batch_number(start) == step + 1
        assert (made.steps_left(place), place.sequences) == (0, number * batch)
        assert made.last_step(place) == number


def test_a_run_whose_batch_changes_ends_within_one_batch_of_the_epoch_and_reads_nothing_twice():
    source = random.Random(4)
    for _ in range(300):
        before, after = source.randint(1, 9), source.randint(1, 9)
        n = source.randint(max(before, after), 60)
        first, place = clock(n, before), Place(unit=before)
        starts = gone(first, place, source.randint(1, n // before))
        read = [(start, start + before) for start in starts]
        second = clock(n, after, unit=before)
        starts = gone(second, place, second.steps_left(place))
        read += [(start, start + after) for start in starts]
        assert all(end == start for (_, end), (start, _) in pairwise(read))
        assert read[0][0] == 0
        assert n - after < read[-1][1] <= n
        assert place.sequences == place.cursor == read[-1][1]


def test_max_steps_are_those_of_the_first_batch_whatever_the_batch_is_now():
    place = Place(step=6, sequences=24, before=20, cursor=24, unit=4)
    assert clock(batch=8, unit=4, max_steps=9).steps_left(place) == 1  # 36 sequences, not beyond
    assert clock(batch=2, unit=4, max_steps=9).steps_left(place) == 6
    assert clock(batch=4, unit=4, max_steps=6).steps_left(place) == 0


@pytest.mark.parametrize(
    ("changes", "is_behind"),
    [
        ({"max_steps": 6}, False),
        ({"max_steps": 5}, True),
        ({"max_steps": 5, "unit": 6, "batch": 3}, False),
        ({"epochs": 1}, False),
        ({"num_sequences": 20}, True),
        ({"num_sequences": 20, "epochs": 2}, False),
    ],
)
def test_an_end_lies_behind_where_more_was_trained_on_or_read(changes, is_behind):
    place = Place(step=6, sequences=24, before=20, cursor=24, unit=4)
    assert clock(**changes).is_behind(place) is is_behind


def test_intervals_come_at_the_same_sequences_whatever_the_batch():
    reached = {}
    for batch in (2, 4, 8, 12):
        place, made, found = Place(unit=4), clock(960, batch, unit=4), []
        assert place.passed(3)  # before the first step
        for _ in range(960 // batch):
            made.advance(place)
            if place.passed(6):
                found.append(place.sequences)
        reached[batch] = found
    assert reached[2] == reached[4] == reached[8] == reached[12] == list(range(24, 961, 24))


def test_what_a_rollback_left_behind_is_missing_at_the_end_of_the_epoch():
    made, place = clock(), Place(unit=4)
    gone(made, place, 7)
    back = Place(step=5, sequences=20, before=16, cursor=place.cursor, unit=4)
    assert gone(made, back, made.steps_left(back)) == [28, 32, 36]
    assert (back.step, back.sequences, back.cursor) == (8, 32, 40)


def test_a_ramp_takes_the_sequences_of_full_steps_in_smaller_ones_and_ends_with_them():
    source = random.Random(6)
    for _ in range(200):
        size, epochs = source.randint(1, 5), source.randint(1, 4)
        n, steps = source.randint(4 * size, 80), source.randint(1, 30)
        ramp = ((source.randint(1, 8), size), (source.randint(9, 16), 2 * size))
        made = replace(clock(n, 4 * size, epochs=epochs), max_steps=steps, ramp=ramp)
        place = Place(unit=4 * size)
        taken = [made.left(place)]
        while made.steps_left(place):
            batch = made.batch_at(place.sequences)
            done = place.sequences / place.unit
            assert batch == next((b for until, b in ramp if done < until), 4 * size)
            made.advance(place)
            taken.append(made.left(place))
        end = place.sequences
        assert [left for _, left in taken] == [end - s for s in told(made, len(taken))]
        assert [left for left, _ in taken] == list(range(len(taken) - 1, -1, -1))
        if end < steps * place.unit:  # then the data is over: not another batch of it is left
            assert made.start(place.cursor, made.batch_at(end)) >= epochs * n


def told(made, number):
    place, found = Place(unit=made.unit), [0]
    for _ in range(number - 1):
        made.advance(place)
        found.append(place.sequences)
    return found


def trainer(batch=4, accumulation=1, seq_len=32, **progress):
    config = {
        "data": {"batch_size": batch, "seq_len": seq_len},
        "training": {"gradient_accumulation": accumulation},
    }
    return {"progress": progress, "config": config}


def test_a_checkpoint_that_knows_steps_alone_is_read():
    found = place_in(trainer(step=12, data_offset=2), seq_len=32, num_sequences=43)
    assert found == Place(12, 48, 44, 43 + 4 * 4, 4)  # ten batches fit into an epoch
    assert place_in(trainer(step=0), seq_len=32, num_sequences=43) == Place(0, 0, -1, 0, 4)
    found = place_in(trainer(2, 3, step=5), seq_len=32, num_sequences=60)
    assert found == Place(5, 30, 24, 30, 6)


def test_sequences_of_another_length_are_counted_by_their_tokens():
    saved = trainer(step=6, sequences=24, before=20, cursor=32, unit=4)
    assert place_in(saved, seq_len=32, num_sequences=40) == Place(6, 24, 20, 32, 4)
    assert place_in(saved, seq_len=16, num_sequences=80) == Place(6, 48, 40, 64, 8)
    assert place_in(saved, seq_len=64, num_sequences=20) == Place(6, 12, 10, 16, 2)
