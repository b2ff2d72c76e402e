"""ZClip, noise scale, verdicts: each against plain arithmetic."""

from __future__ import annotations

import math
import random

import pytest
import torch

from albor_core.run.sections import StabilityConfig, TrainingConfig
from albor_core.train.meter import Ema
from albor_core.train.optim import LossScale
from albor_core.train.stability import (
    SETTLED,
    STD_FLOOR,
    Clip,
    GradientFlow,
    NoiseScale,
    Trouble,
    ZClip,
    find_trouble,
    group_norms,
    may_go_back,
    noise_scale,
    times_in_a_row,
)
from albor_core.train.tally import Readings, Tally

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
    for _ in range(2):
        flow.see({"a": 0.0, "b": 1.0})
    assert flow.is_broken


def usual(loss=2.0, intervals=SETTLED + 1):
    mean = Ema(0.98)
    for _ in range(intervals):
        mean.add(loss)
    return mean


TRAINING = TrainingConfig(output_dir="out", nan_limit=4)


@pytest.mark.parametrize(
    ("readings", "mean", "steps", "trouble"),
    [
        (Readings(2.0, 1.0, 0, 0, 2.0), usual(), 1, None),
        (Readings(5.9, 1.0, 0, 0, 5.9), usual(), 1, None),  # below three times
        (Readings(6.1, 1.0, 0, 0, 6.1), usual(), 1, ("loss_spike", 50)),
        (Readings(2.5, 1.0, 0, 0, 6.1), usual(), 10, ("loss_spike", 41)),  # hidden in a mean
        (Readings(6.1, 1.0, 0, 0, 6.1), usual(intervals=3), 1, None),  # what is usual?
        (Readings(0.09, 1.0, 0, 0, 0.09), usual(0.01), 1, None),  # no catastrophe
        (Readings(2.0, math.nan, 3, 3, 2.0), usual(), 5, None),
        (Readings(math.nan, math.nan, 1, 4, 0.0), usual(), 1, ("nan_limit", 47)),
        (Readings(2.0, math.nan, 4, 4, 2.0), usual(), 10, ("nan_limit", 41)),
    ],
)
def test_verdicts_on_an_interval_that_ends_with_step_50(readings, mean, steps, trouble):
    found = find_trouble(readings, mean, step=50, sound=50 - steps, training=TRAINING)
    assert (found and (found.reason, found.step)) == trouble
    assert found is None or isinstance(found, Trouble)


def test_without_a_factor_no_loss_is_a_spike():
    calm = TRAINING.model_copy(update={"stability": StabilityConfig(loss_spike=None)})
    wild = Readings(99.0, 1.0, 0, 0, 99.0)
    assert find_trouble(wild, usual(), step=50, sound=49, training=calm) is None


def test_a_checkpoint_past_the_last_trouble_forgives():
    assert times_in_a_row(0, None, 10) == 1
    assert times_in_a_row(2, 13, 10) == 3  # back where it was before
    assert times_in_a_row(2, 13, 15) == 1
    stability = StabilityConfig(max_rollbacks=2)
    assert [may_go_back(times, stability) for times in (1, 2, 3)] == [True, True, False]


def test_a_loss_of_zero_is_no_loss():
    tally = Tally(CPU)
    flags = SKIPPED, SKIPPED, torch.zeros(())
    tally.add(torch.tensor(0.0), torch.tensor(1.0), *flags)
    assert math.isnan(tally.settle(tally.take().tolist()).loss)
    tally.add(torch.tensor(0.0), torch.tensor(1.0), *flags)
    tally.add(torch.tensor(3.0), torch.tensor(1.0), SOUND, SOUND, torch.ones(()))
    readings = tally.settle(tally.take().tolist())
    assert (readings.loss, readings.largest, readings.spikes) == (3.0, 3.0, 1)


def test_a_tally_of_an_older_checkpoint_is_read():
    tally = Tally(CPU)
    tally.load([float(n).hex() for n in range(7)])
    readings = tally.settle(tally.take().tolist())
    assert (readings.grad_norm, readings.skipped, readings.largest, readings.spikes) == (3, 4, 0, 0)


def test_a_tally_that_forgives_keeps_its_sums():
    tally = Tally(CPU)
    tally.add(torch.tensor(2.0), torch.tensor(1.0), SOUND, SOUND, SOUND)
    tally.add(torch.tensor(math.nan), torch.tensor(1.0), SKIPPED, SKIPPED, SOUND)
    tally.forgive()
    readings = tally.settle(tally.take().tolist())
    assert (readings.loss, readings.skipped, readings.worst_row) == (2.0, 1, 0)


def test_a_loss_scale_begins_anew_after_a_return_to_step_0():
    scale = LossScale(CPU)
    scale.update(torch.ones(()))
    scale.reset()
    assert scale.to_json() == [LossScale.START, 0.0]
