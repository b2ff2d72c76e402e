from __future__ import annotations

import pytest
from simulated_run import Gpu, Sample

from albor_core.andon.health.gpu import KINDS, gpus_of, troubles


def eight(**odd):
    """Eight GPUs at full load but for those named: gpu5={"util_percent": 41}."""
    return tuple(Gpu(index, **odd.get(f"gpu{index}", {})) for index in range(8))


def window(seconds=60, every=2, **odd):
    return [Sample(1_000.0 + t, eight(**odd)) for t in range(0, seconds + 1, every)]


def named(samples, own=range(8), **more):
    return [(one.index, one.kind) for one in troubles(samples, own, **more)]


def test_a_straggler_and_a_throttled_one_among_eight_are_named():
    samples = window(
        gpu5={"util_percent": 41.0}, gpu7={"throttle_reasons": ("thermal",), "temperature_c": 88.0}
    )
    assert named(samples) == [(5, "straggling"), (7, "hot"), (7, "throttled")]
    straggler, hot, throttled = troubles(samples, range(8))
    assert straggler.words == "41 % busy, the run's other GPUs 97 %" and straggler.against == 97.0
    assert hot.words == "88 C, limit 85 C" and hot.since_wall == 1_000.0
    assert throttled.words == "slowed down: thermal"


def test_heat_counts_after_three_samples_and_is_over_some_time_after_it_went():
    hot = {"gpu0": {"temperature_c": 90.0}}
    assert named([Sample(float(t), eight(**hot)) for t in (0, 1)]) == []
    course = [Sample(float(t), eight(**hot)) for t in range(5)]
    assert named(course) == [(0, "hot")]
    course += [Sample(5.0 + t, eight()) for t in range(5)]
    assert named(course) == [(0, "hot")]
    assert named([*course, *(Sample(10.0 + t, eight()) for t in range(12))]) == []


def test_the_cards_own_limit_counts_where_it_is_lower():
    class Card(Gpu):
        temperature_limit_c = 80.0

    samples = [Sample(float(t), (Card(0, temperature_c=82.0),)) for t in range(5)]
    assert named(samples, [0]) == [(0, "hot")]


@pytest.mark.parametrize("reason", ["power cap", "board limit", "reliability"])
def test_limits_that_a_busy_gpu_is_meant_to_reach_are_no_throttling(reason):
    assert named(window(gpu1={"throttle_reasons": (reason,)})) == []


@pytest.mark.parametrize(
    "reason", ["thermal (software)", "thermal (hardware)", "power brake", "hardware slowdown"]
)
def test_heat_and_power_brake_are(reason):
    assert named(window(gpu1={"throttle_reasons": (reason,)})) == [(1, "throttled")]


def test_one_odd_sample_says_nothing():
    samples = window()
    samples[10] = Sample(
        samples[10].wall,
        eight(gpu1={"throttle_reasons": ("thermal",)}, gpu2={"util_percent": 0.0}),
    )
    assert named(samples) == []


def test_gpus_of_others_and_of_nobody_known_are_not_siblings():
    samples = window(seconds=600, gpu5={"util_percent": 0.0})
    assert named(samples, own=[0, 1, 2]) == []
    assert named(samples, own=None) == []
    assert named(samples, own=[5]) == [(5, "idle")]
    assert named(samples, own=[4, 5]) == [(5, "straggling"), (5, "idle")]


def test_a_pause_for_an_evaluation_says_nothing():
    idle = {f"gpu{i}": {"util_percent": 0.0} for i in range(1, 8)}
    samples = [*window(), *(Sample(1_062.0 + t, eight(**idle)) for t in range(0, 600, 5))]
    assert named(samples) != []
    assert named(samples, pauses=[(1_061.0, 1_700.0)]) == []


def test_memory_errors_count_from_where_the_window_begins():
    old = window(gpu3={"ecc_uncorrected": 4})
    assert named(old) == []
    new = [*old, Sample(1_062.0, eight(gpu3={"ecc_uncorrected": 6}))]
    (found,) = troubles(new, range(8))
    assert (found.kind, found.value, found.words) == ("ecc", 2, "2 uncorrectable memory errors")


def test_an_xid_is_named_but_for_the_clean_up_after_a_kill():
    (found,) = troubles(window(gpu3={"xid": 79}), range(8))
    assert found.words == "Xid 79: the GPU has fallen off the bus"
    assert named(window(gpu3={"xid": 45})) == []


def test_unknown_readings_are_no_trouble():
    blank = {"util_percent": None, "temperature_c": None, "ecc_uncorrected": None}
    assert named(window(seconds=600, **{f"gpu{i}": blank for i in range(8)})) == []
    assert troubles([], range(8)) == ()


def test_samples_that_come_twice_or_late_count_once():
    hot = {"gpu0": {"temperature_c": 90.0}}
    assert named([Sample(5.0, eight(**hot))] * 9) == []
    assert named([Sample(float(t), eight(**hot)) for t in (9, 3, 4, 5)]) == []


def test_the_gpus_of_a_run_are_those_that_hold_its_memory():
    class Process:
        def __init__(self, pid):
            self.pid = pid

    class Card:
        def __init__(self, index, *pids):
            self.index, self.processes = index, [Process(pid) for pid in pids]

    cards = [Card(0, 7), Card(1), Card(2, 8, 9)]
    assert gpus_of(cards, {7, 9}) == {0, 2}
    assert gpus_of(cards, {1}) is None
    assert set(KINDS) == {"hot", "throttled", "straggling", "idle", "ecc", "xid"}
