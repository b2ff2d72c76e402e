"""How fast a config is here, by the runs of its shape that the store knows."""

from __future__ import annotations

import pytest

from albor_core.launch.earlier_speeds import earlier_speed
from albor_core.run.values.flatten import flatten

CONFIG = {
    "model": {"architecture": {"hidden_size": 64, "num_hidden_layers": 2}},
    "data": {"batch_size": 4, "seq_len": 32, "train": "a"},
    "optimizer": {"name": "adamw", "lr": 3e-4},
    "training": {"mode": "causal_lm", "mixed_precision": "bf16", "seed": 1, "max_steps": 40},
}
GPU = "NVIDIA H100 80GB HBM3"


def record(bench, run_id, *, rate=1000.0, device=GPU, config=CONFIG, **more):
    run = bench.run(run_id)
    journal = bench.journal(run)
    for key, value in flatten(config).items():
        journal.append("p", key=key, value=value)
    journal.event("run.start", step=0, device=device, threads=2, world_size=1)
    for step in range(1, 41):
        values = {"perf/tokens_per_s": rate if step > 1 else rate / 50}
        if step % 10 == 1:
            values |= {"val/loss": 3.0, "brick/eval_ms": 500.0}
        if step in (20, 40):
            journal.event("checkpoint.saved", step=step, path="x", bytes=1, seconds=0.2)
            values |= {"brick/checkpoint_ms": 100.0}
        journal.metrics(step, values | more)
    bench.index(run)
    return run


def speed(config=CONFIG, device=GPU, threads=None):
    return earlier_speed(config, device=device, host="elsewhere", threads=threads)


def changed(section, **values):
    return {**CONFIG, section: {**CONFIG[section], **values}}


def test_the_first_step_counts_for_nothing_and_each_part_has_its_time(bench):
    record(bench, "one", **{"gpu0/power_w": 400.0, "gpu1/power_w": 300.0})
    found = speed()
    assert found.source == "runs" and "1 earlier run of this shape here (one)" in found.words
    assert found.tokens_per_s == pytest.approx(1000)
    assert found.low < 1000 < found.high
    assert found.eval_s == pytest.approx(0.5) and found.checkpoint_s == pytest.approx(0.1)
    assert found.watts == pytest.approx(700)


def test_several_runs_say_between_which_it_lies(bench):
    record(bench, "slow", rate=800.0)
    record(bench, "fast", rate=1200.0)
    found = speed()
    assert found.tokens_per_s == pytest.approx(1000)
    assert found.low < 800 and found.high > 1200


@pytest.mark.parametrize(
    "config",
    [
        changed("model", architecture={"hidden_size": 128, "num_hidden_layers": 2}),
        changed("data", batch_size=8),
        changed("data", seq_len=64),
        changed("optimizer", name="muon"),
        changed("training", mixed_precision="fp32"),
        changed("training", batch_ramp=[{"until": 10, "gradient_accumulation": 1}]),
    ],
)
def test_another_shape_says_nothing(bench, config):
    record(bench, "one")
    assert speed(config) is None


def test_what_does_not_change_a_step_may_differ(bench):
    record(bench, "one")
    assert speed(changed("training", seed=9, max_steps=7)) is not None
    assert speed(changed("optimizer", lr=1e-3)) is not None


def test_another_gpu_or_another_hosts_cpu_says_nothing(bench):
    record(bench, "gpu")
    record(bench, "cpu", device="cpu")
    assert speed(device="NVIDIA A100-SXM4-80GB") is None
    assert speed(device="cpu") is None  # its host is this one


def test_without_a_store_nothing_is_known(tmp_path):
    path = tmp_path / "none.db"
    assert earlier_speed(CONFIG, device=GPU, host="h", threads=None, store=path) is None
