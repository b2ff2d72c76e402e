"""ZClip, noise scale, verdicts: each against plain arithmetic."""

from __future__ import annotations

import json
import math
import random

import pytest
import torch

from albor_core.config.sections.training import StabilityConfig
from albor_core.train.optim.clipping import STD_FLOOR, Clip, NoiseScale, ZClip, noise_scale
from albor_core.train.optim.gradients import LossScale
from albor_core.train.step.interval_totals import IntervalTotals, Readings
from albor_core.train.step.spikes import SETTLED, Spike, SpikeWatch
from albor_core.train.step.stability import (
    GradientFlow,
    Trouble,
    find_trouble,
    group_norms,
    may_go_back,
    times_in_a_row,
)

CPU = torch.device("cpu")
SOUND, SKIPPED = torch.zeros(()), torch.ones(())


def zclip(**changes):
    return ZClip(CPU, **{"threshold": 2.5, "decay": 0.97, "warmup": 5, **changes})


def allowed_by_hand(norms, threshold=2.5, decay=0.97, warmup=5):
    """The paper's loop over Python floats: two passes for the warm-up, then the recurrences."""
    said, mean, variance = [], 0.0, 0.0
    for i, norm in enumerate(norms):
        if i < warmup:
            seen = norms[: i + 1]
            mean = sum(seen) / len(seen)
            variance = sum((n - mean) ** 2 for n in seen) / len(seen)
            said.append(norm)
            continue
        deviation = max(math.sqrt(variance), STD_FLOOR * mean)
        z = (norm - mean) / deviation
        allowed = norm if z <= threshold else mean + deviation * threshold / (z / threshold)
        mean = decay * mean + (1 - decay) * allowed
        variance = decay * variance + (1 - decay) * (allowed - mean) ** 2
        said.append(allowed)
    return said


def test_zclip_is_the_papers_recurrence():
    source = random.Random(4)
    norms = [1 + source.random() for _ in range(60)]
    norms[20], norms[40] = 50.0, 4.0
    clip, wanted = zclip(), allowed_by_hand(norms)
    for norm, allowed in zip(norms, wanted, strict=True):
        bound, spike = clip.bound(torch.tensor(norm, dtype=torch.float64), SOUND)
        assert bound.item() == pytest.approx(allowed, rel=1e-12)
        assert bool(spike) == (allowed < norm)
    assert wanted[20] < wanted[40] < 4.0  # the wilder, the nearer to the mean


def test_zclip_only_watches_while_it_warms_up():
    clip = zclip(warmup=3)
    assert [clip.bound(torch.tensor(n), SOUND)[1].item() for n in (1.0, 1e6, 1.0)] == [0, 0, 0]


def test_a_skipped_step_leaves_no_trace_in_zclip():
    clip = zclip(warmup=1)
    clip.bound(torch.tensor(1.0), SOUND)
    before = clip.to_json()
    for norm in (math.nan, math.inf, 7.0):
        _, spike = clip.bound(torch.tensor(norm), SKIPPED)
        assert spike.item() == 0
    assert clip.to_json() == before


def test_norms_that_never_varied_may_still_rise():
    clip = zclip(warmup=2)
    for _ in range(10):
        clip.bound(torch.tensor(1.0), SOUND)
    said = [clip.bound(torch.tensor(2.0), SOUND)[0].item() for _ in range(1500)]
    assert said[0] < 1.05
    assert said[-1] == 2.0


def test_a_restored_zclip_goes_on_to_the_bit():
    clip, twin = zclip(), zclip()
    for norm in (1.0, 1.3, 0.9, 1.1, 1.2, 9.0):
        clip.bound(torch.tensor(norm), SOUND)
    twin.load(clip.to_json())
    for norm in (1.0, 8.0, 1.1):
        assert torch.equal(
            torch.stack(clip.bound(torch.tensor(norm), SOUND)),
            torch.stack(twin.bound(torch.tensor(norm), SOUND)),
        )


def test_the_stricter_of_limit_and_zclip_counts():
    clip = Clip(1.0, zclip(warmup=2))
    for norm in (0.1, 0.12):
        assert clip.factor(torch.tensor(norm), SOUND)[0].item() == 1.0
    factor, spike = clip.factor(torch.tensor(0.9), SOUND)  # below the limit, but a spike
    assert spike.item() == 1.0
    assert 0.1 < 0.9 * factor.item() < 0.2
    loose = Clip(0.05, zclip(warmup=2))
    assert loose.factor(torch.tensor(0.1), SOUND)[0].item() == pytest.approx(0.5, rel=1e-4)
    assert Clip().factor(torch.tensor(9.0), SOUND)[0] is None


def test_the_noise_scale_of_known_noise_is_its_own():
    """With |G|^2 = 3 and tr(S) = 600, a batch of b has a mean squared norm of 3 + 600 / b."""
    noise = NoiseScale(CPU)
    assert noise_scale(noise.state.tolist()) is None
    for _ in range(3):
        small, big = (torch.tensor(math.sqrt(3 + 600 / b), dtype=torch.float64) for b in (32, 256))
        noise.add(small, 32, big, 256)
    assert noise_scale(noise.state.tolist()) == pytest.approx(200.0, rel=1e-9)


def test_the_noise_scale_of_drawn_gradients_is_near_the_truth():
    """Gradients of 400 numbers around G, variance 1 each: tr(S) = 400, |G|^2 = 4, the ratio 100.

    The running means weigh about 200 steps; the relative error of the means is below 0.04 (tr) and
    0.12 (signal) one standard deviation each, so 0.4 is three of them together.
    """
    noise, source = NoiseScale(CPU), torch.Generator().manual_seed(5)
    truth = torch.full((400,), 0.1)
    for _ in range(1500):
        micro = truth + torch.randn(4, 400, generator=source) / math.sqrt(16)
        noise.add(micro[0].norm(), 16, micro.mean(0).norm(), 64)
    assert noise_scale(noise.state.tolist()) == pytest.approx(100.0, rel=0.4)


def test_a_noise_scale_without_signal_or_numbers_says_nothing():
    noise = NoiseScale(CPU)
    noise.add(torch.tensor(1.0), 1, torch.tensor(0.1), 100)  # all noise: |G|^2 comes out at 1e-4
    before = noise.to_json()
    noise.add(torch.tensor(math.nan), 1, torch.tensor(0.1), 100)
    noise.add(torch.tensor(math.inf), 1, torch.tensor(0.1), 100)
    assert noise.to_json() == before
    hidden = NoiseScale(CPU)
    hidden.add(torch.tensor(1.0), 1, torch.tensor(0.05), 100)
    assert noise_scale(hidden.state.tolist()) is None


def test_groups_add_up_to_the_whole():
    norms = {
        "model.embed_tokens.weight": 3.0,
        "model.layers.0.self_attn.q_proj.weight": 1.0,
        "model.layers.1.self_attn.o_proj.weight": 2.0,
        "model.layers.1.mlp.up_proj.weight": 4.0,
        "model.layers.0.input_layernorm.weight": 0.5,
        "model.norm.weight": 0.25,
        "lm_head.weight": 5.0,
    }
    groups = group_norms(norms)
    assert set(groups) == {"embedding", "attention", "mlp", "norm", "head"}
    assert groups["attention"] == pytest.approx(math.sqrt(5))
    assert sum(n * n for n in groups.values()) == pytest.approx(sum(n * n for n in norms.values()))


def test_a_parameter_may_be_silent_in_one_of_two_steps():
    flow = GradientFlow()
    flow.see({"a": 0.0, "b": 1.0})
    assert (flow.without, flow.is_open, flow.is_broken) == ({"a"}, True, False)
    flow.see({"a": math.nan, "b": 1.0})  # skipped: no evidence
    flow.see({"a": 0.5, "b": 1.0})
    assert (flow.is_open, flow.is_broken) == (False, False)
    flow = GradientFlow()
    for _ in range(3):  # nothing is left to learn, which says nothing either
        flow.see({"a": 0.0, "b": 0.0}, 0.0)
    assert flow.is_open
    flow = GradientFlow()
    for _ in range(2):
        flow.see({"a": 0.0, "b": 1.0})
    assert flow.is_broken


SPIKE = Spike(6, 6.1, 3.05)


@pytest.mark.parametrize(
    ("readings", "sound", "trouble"),
    [
        (Readings(2.0, 1.0, 0, 0), 49, None),
        (Readings(6.1, 1.0, 0, 0, spike=SPIKE), 44, ("loss_spike", 45)),
        (Readings(2.5, 1.0, 0, 0, spike=SPIKE), 40, ("loss_spike", 41)),  # hidden in a mean
        (Readings(2.0, math.nan, 3, 3), 45, None),
        (Readings(math.nan, math.nan, 1, 4), 49, ("nan_limit", 47)),
        (Readings(2.0, math.nan, 4, 4), 40, ("nan_limit", 41)),
    ],
)
def test_verdicts_on_an_interval_that_ends_with_step_50(readings, sound, trouble):
    found = find_trouble(readings, step=50, sound=sound, nan_limit=4)
    assert (found and (found.reason, found.step)) == trouble
    assert found is None or isinstance(found, Trouble)


def watched(losses, times=3.0):
    """Where the watch found a spike: (index of the loss that completed it, of its first)."""
    watch, found = SpikeWatch(times), []
    for i, loss in enumerate(losses):
        if (spike := watch.add(loss)) is not None:
            found.append((i, i - spike.steps + 1))
    return found


def calm(number=60, loss=2.0):
    return [loss * (1 + 0.02 * (i % 5)) for i in range(number)]


def test_five_high_losses_in_a_row_are_a_spike_and_four_are_none():
    assert watched([*calm(), *[10.0] * 4, *calm()]) == []
    assert watched([*calm(), *[10.0] * 5, *calm()]) == [(64, 60)]


def test_one_loss_is_never_a_spike_however_high():
    assert watched([*calm(), 1e30, *calm(), 1e30, 2.0, 2.0, 1e30, *calm()]) == []


def test_a_loss_that_stays_high_by_less_than_the_factor_is_no_spike():
    assert watched([*calm(), *[5.9] * 40]) == []
    assert watched([*calm(), *[5.9] * 40], times=2.5)[0] == (64, 60)
    assert watched([*calm(), *[1e9] * 40], times=None) == []


def test_a_loss_that_is_small_however_much_it_rises_is_no_spike():
    assert watched([*calm(loss=0.01), *[1.9] * 40]) == []
    assert watched([*[0.0] * 60, *[1.9] * 40]) == []
    assert watched([*[0.0] * 60, *[2.5] * 5]) == [(64, 60)]


def test_rows_of_which_some_are_hard_are_no_spikes_but_a_loss_that_left_them_behind_is():
    source = random.Random(7)
    rows = [4.2 if source.random() < 0.1 else 0.02 for _ in range(4000)]
    assert watched(rows) == []
    assert watched([*rows, *[4.2] * 20])[0][0] < 4020


def test_a_loss_that_falls_and_jitters_is_no_spike_and_hides_none():
    source = random.Random(8)
    falls = [(3.5 + 5 * math.exp(-i / 30)) * math.exp(source.gauss(0, 0.1)) for i in range(300)]
    assert watched(falls) == []
    spiky = [5 * loss if 205 <= i < 210 else loss for i, loss in enumerate(falls)]
    assert watched(spiky) == [(209, 205)]


def test_losses_without_a_number_neither_make_a_spike_nor_end_one():
    assert watched([*calm(), *[math.nan] * 40]) == []
    assert watched([*calm(), 10.0, 10.0, math.inf, 10.0, 10.0, 10.0]) == [(65, 60)]


def test_nothing_is_a_spike_before_it_is_known_what_is_usual():
    assert watched([*calm(SETTLED), *[10.0] * 5]) == []


def test_a_restored_watch_goes_on_to_the_bit():
    losses = [*calm(40), *[10.0] * 5]
    whole = SpikeWatch(3.0)
    for loss in losses:
        whole.add(loss)
    for cut in range(len(losses)):
        first, second = SpikeWatch(3.0), SpikeWatch(3.0)
        for loss in losses[:cut]:
            first.add(loss)
        second.load(json.loads(json.dumps(first.to_json())))
        found = [second.add(loss) for loss in losses[cut:]]
        assert found[-1] == Spike(5, 10.0, found[-1].times)
        assert second.to_json() == whole.to_json()


def test_a_checkpoint_past_the_last_trouble_forgives():
    assert times_in_a_row(0, None, 10) == 1
    assert times_in_a_row(2, 13, 10) == 3  # back where it was before
    assert times_in_a_row(2, 13, 15) == 1
    stability = StabilityConfig(max_rollbacks=2)
    assert [may_go_back(times, stability) for times in (1, 2, 3)] == [True, True, False]


def made_tally():
    return IntervalTotals(CPU, SpikeWatch(3.0))


def test_a_loss_of_zero_is_a_number_like_any_other():
    tally = made_tally()
    for loss in (0.0, -1e-8, 3.0):  # a divergence may round below 0
        tally.add(torch.tensor(loss), torch.tensor(1.0), SOUND, SOUND, torch.ones(()))
    readings = tally.readings_of(tally.drain().tolist())
    assert (readings.loss, readings.spikes) == (pytest.approx(1.0), 3)


def test_a_tally_of_an_older_checkpoint_is_read():
    tally = made_tally()
    tally.load([float(n).hex() for n in range(7)])
    readings = tally.readings_of(tally.drain().tolist())
    assert (readings.grad_norm, readings.skipped, readings.spikes, readings.spike) == (
        3,
        4,
        0,
        None,
    )


def test_a_tally_that_forgives_keeps_its_sums():
    tally = made_tally()
    tally.add(torch.tensor(2.0), torch.tensor(1.0), SOUND, SOUND, SOUND)
    tally.add(torch.tensor(math.nan), torch.tensor(1.0), SKIPPED, SKIPPED, SOUND)
    tally.reset_skip_streak()
    readings = tally.readings_of(tally.drain().tolist())
    assert (readings.loss, readings.skipped, readings.worst_row) == (2.0, 1, 0)


def test_a_spike_inside_an_interval_is_saved_with_it():
    tally, twin = made_tally(), made_tally()
    for loss in [*calm(40), *[10.0] * 6]:
        tally.add(torch.tensor(loss), torch.tensor(1.0), SOUND, SOUND, SOUND)
    twin.load(tally.to_json())
    twin.spikes.load(tally.spikes.to_json())
    for one in (tally, twin):
        one.add(torch.tensor(2.0), torch.tensor(1.0), SOUND, SOUND, SOUND)
        spike = one.readings_of(one.drain().tolist()).spike
        assert (spike.steps, spike.loss) == (7, 10.0)  # of steps 41 to 45, and it is step 47 now


def test_a_loss_scale_begins_anew_after_a_return_to_step_0():
    scale = LossScale(CPU)
    scale.update(torch.ones(()))
    scale.reset()
    assert scale.to_json() == [LossScale.START, 0.0]
