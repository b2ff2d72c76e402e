"""Smaller batches and shorter sequences at the beginning: the same data, tokens and schedule."""

import json
from math import cos, pi

import pytest
from tiny_run import SEQ_LEN, events, history, make_run, train_here

from albor_core.config.load import parse_config
from albor_core.plan.estimates import schedule
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.run.errors import ConfigError
from albor_core.run.rundir import read_json
from albor_core.run.state import read_state
from albor_core.train.build import build
from albor_core.train.resume.digest import digest

RAMP = {
    "data__batch_size": 2,
    "training__gradient_accumulation": 4,
    "training__max_steps": 8,
    "training__warmup_steps": 2,
    "training__eval_interval": 4,
    "training__checkpoint": {"save_every": 2},
    "training__batch_ramp": [
        {"until": 2, "gradient_accumulation": 1},
        {"until": 4, "gradient_accumulation": 2},
    ],
    "training__seq_len_ramp": [{"until": 3, "seq_len": 8}, {"until": 6, "seq_len": 16}],
}
STEPS = 2 * 4 + 2 * 2 + 4
"""Of one, of two and of four micro-batches."""


def lr_by_hand(sequences, lr=0.003, low=0.0003, unit=8, warmup=2, steps=8):
    done = sequences / unit
    if done < warmup:
        return lr * done / warmup
    return low + (lr - low) * (1 + cos(pi * (done - warmup) / (steps - warmup))) / 2


def column(run, key):
    return {step: value for step, name, value in history(run, (key,)) if name == key}


def test_a_ramp_trains_on_the_tokens_of_full_steps_at_the_rate_that_they_have(tmp_path):
    run = make_run(tmp_path, "ramp", **RAMP)
    assert train_here(run).reason == "completed"
    tokens, rates = column(run, "train/tokens"), column(run, "optim/lr")
    sequences = {step: count / SEQ_LEN for step, count in tokens.items()}
    assert sequences == {4: 8, 8: 16, 10: 24, 12: 32, 13: 40, 14: 48, 15: 56, 16: 64}
    for step, rate in rates.items():
        assert rate == pytest.approx(lr_by_hand(sequences[step]), rel=1e-12)
    state = read_state(run.state)
    assert (state["global_step"], state["max_steps"], state["progress_percent"]) == (16, 16, 100)
    assert state["tokens"] == 64 * SEQ_LEN
    evaluated = [step for step, _, _ in history(run, ("val/loss",))]
    assert evaluated == [0, 12, 16]  # after 4 and 8 full batches
    assert not events(run, "training.rollback")


@pytest.mark.parametrize("stop", [3, 7, 9, 13])
def test_a_stop_within_a_ramp_resumes_to_the_same_bytes(tmp_path, stop):
    whole, parts = (make_run(tmp_path, name, **RAMP) for name in ("whole", "parts"))
    train_here(whole)
    assert train_here(parts, stop_after=stop).step == stop
    train_here(parts, attempt=2)
    assert digest(parts) == digest(whole)
    keys = ("train/loss", "optim/lr", "train/tokens")
    assert history(parts, keys) == history(whole, keys)


def test_progress_within_a_ramp_is_that_of_its_tokens(tmp_path):
    run = make_run(tmp_path, "ramp", **RAMP)
    train_here(run, stop_after=8)
    state = read_state(run.state)
    assert (state["global_step"], state["max_steps"]) == (8, STEPS)
    assert state["progress_percent"] == 25.0
    assert state["tokens"] == 16 * SEQ_LEN


def test_the_plan_counts_the_smaller_steps_and_the_tokens_of_the_full_ones(tmp_path):
    run = make_run(tmp_path, "ramp", **RAMP)
    config = parse_config(run.config_resolved.read_bytes(), file="ramp.yaml")
    facts = PlanFacts(
        config_path=run.config_yaml, train=SplitFacts(tmp_path, sequences=40, row_len=SEQ_LEN)
    )
    planned = schedule(config, facts)
    assert (planned.max_steps, planned.updates) == (8, STEPS)
    assert planned.total_tokens == 64 * SEQ_LEN


def test_a_cut_sequence_is_scored_as_the_shorter_ones_that_it_is_made_of(tmp_path):
    config = read_json(make_run(tmp_path, "ramp", **RAMP).config_resolved)
    parts = build(parse_config(json.dumps(config).encode(), file="ramp.yaml"))
    early, late = parts.at(0), parts.at(48)
    cut, whole = early.batch(0, 0).ids, late.batch(0, 0).ids
    assert cut.shape == (8, 8) and whole.shape == (2, 32)
    assert (cut.reshape(2, 32) == whole).all()
    assert early.scored(0, 0, 0) == 8 * 7
    assert late.scored(0, 0, 0) == 2 * 31
    (weight,) = early.weights(0)
    loss, _ = parts.recipe.share_of_loss(parts.forward, early.batch(0, 0), *weight)
    _, mean = parts.model(cut, cut)
    assert loss.item() == pytest.approx(mean.item())


@pytest.mark.parametrize(
    ("field", "stages", "said"),
    [
        ("batch_ramp", [{"until": 2, "gradient_accumulation": 3}], "3 is not a divisor"),
        ("batch_ramp", [{"until": 2, "gradient_accumulation": 4}], "4 is not a divisor"),
        ("seq_len_ramp", [{"until": 2, "seq_len": 12}], "12 is not a divisor of data.seq_len"),
        ("seq_len_ramp", [{"until": 2, "seq_len": 32}], "32 is not a divisor"),
        (
            "batch_ramp",
            [{"until": 2, "gradient_accumulation": 2}, {"until": 2, "gradient_accumulation": 1}],
            "stages must grow",
        ),
    ],
)
def test_a_ramp_that_cannot_be_is_refused_by_name(tmp_path, field, stages, said):
    with pytest.raises(ConfigError) as refused:
        make_run(tmp_path, "no", **{**RAMP, f"training__{field}": stages})
    assert any(field in p.field and said in p.message for p in refused.value.problems)
