"""From a probe's lines to the time, energy and cost of a run; and one real probe."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from test_run_plan import FACTS, planned
from tiny_run import tiny_config

from albor_core.config.clock import Place
from albor_core.config.load import load_config
from albor_core.data.load.packed_shards import SHARED_FROM_BYTES
from albor_core.launch.planned import plan_run
from albor_core.launch.probe import Sample, power, probe
from albor_core.launch.run_folder import new_run
from albor_core.plan.estimates import CACHED_FROM, cache_bytes
from albor_core.plan.plan import plan
from albor_core.plan.speed import MeasuredSpeed, ProbeLine, ProbeTimes, from_probe, from_runs
from albor_core.plan.text import render
from albor_core.run.errors import AlborError, InUseError, UsageError
from albor_core.run.files.lock_file import locked
from albor_core.run.files.whole_file import ended_by_signals
from albor_core.telemetry.sample import GpuSample

START, STEP, EVAL, SAVE, TAIL = 30.0, 0.5, 4.0, 0.25, 1.5
TOKENS = 4096


def times(steps=20, *, step=STEP, slow_start=3):
    """A probe that evaluates before step 1 and after 8 and 16, and saves after 8 and 16."""
    wall, lines = 1000.0 + START, []
    for number in range(1, steps + 1):
        after = number - 1 in (0, 8, 16)
        wall += step * (10 if number <= slow_start else 1) + EVAL * after
        wall += SAVE * (number - 1 in (8, 16))
        lines.append(ProbeLine(number, wall, EVAL * after, float(number * TOKENS)))
    return ProbeTimes(1000.0, wall + TAIL, lines, [8, 16, steps])


def test_a_probe_is_taken_apart_into_start_steps_evaluations_and_checkpoints():
    found = from_probe(times(), "here")
    assert found.tokens_per_s == pytest.approx(TOKENS / STEP)
    assert found.eval_s == pytest.approx(EVAL)
    assert found.checkpoint_s == pytest.approx(SAVE)
    assert found.start_s == pytest.approx(START + 9 * STEP + TAIL)  # the first step took ten times
    assert found.low < found.tokens_per_s < found.high


def test_steps_that_differ_widen_what_is_said_of_their_mean():
    made = times()
    shaken = [replace(line, wall=line.wall + (0.2 if line.step % 2 else 0)) for line in made.lines]
    calm, loud = from_probe(made, "here"), from_probe(replace(made, lines=shaken), "here")
    assert loud.high - loud.low > 2 * (calm.high - calm.low)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_too_few_steps_are_no_measurement(steps):
    assert from_probe(times(steps), "here") is None


def test_a_short_run_is_measured_by_what_it_has():
    assert from_probe(times(6, slow_start=0), "here").tokens_per_s == pytest.approx(TOKENS / STEP)


def gpu(index, watts, *reasons):
    return GpuSample(
        index, name="H100", memory_total_bytes=80 << 30, power_w=watts, throttle_reasons=reasons
    )


def test_power_is_that_of_the_runs_gpus_while_its_steps_count(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    made = times()
    first, last = made.lines[5].wall, made.lines[-1].wall
    start = Sample(first - 10, (gpu(0, 90.0), gpu(1, 80.0)))
    calm = Sample(first + 1, (gpu(0, 600.0), gpu(1, 200.0), gpu(2, 999.0)))
    held = Sample(last - 1, (gpu(0, 700.0, "power cap"), gpu(1, 300.0), gpu(2, 999.0)))
    after = Sample(last + 1, (gpu(0, 70.0), gpu(1, 70.0)))
    assert power(made, [start, calm, held, after], ranks=2) == (900.0, 0.5)
    assert power(made, [start, calm, held, after], ranks=1) == (650.0, 0.5)
    hot = Sample(first + 1, (gpu(0, 500.0, "thermal (software)"),))
    assert power(made, [hot], ranks=1) == (500.0, 0.0)
    silent = Sample(first + 1, (gpu(0, None),))
    assert power(made, [silent], ranks=1) == power(made, [start, after], ranks=1) == (None, None)


def test_no_runs_say_nothing():
    assert from_runs([]) is None


PROBED = MeasuredSpeed(
    *("probe", "14 of 20 steps of this config here", 10_000.0, 9_500.0, 10_500.0),
    start_s=30.0, eval_s=2.0, checkpoint_s=0.5, watts=350.0, capped=0.25,
)  # fmt: skip


def test_a_measured_run_takes_its_steps_and_what_is_beside_them():
    made = planned(measured=PROBED)
    evaluations, saves = 1 + 5000 // 25, 200
    wanted = 30 + 5000 * 4096 / 10_000 + evaluations * 2.0 + saves * 0.5
    assert made.duration.seconds == pytest.approx(wanted)
    assert made.duration.low_s < wanted < made.duration.high_s
    assert (made.duration.source, made.duration.tokens_per_s) == ("probe", 10_000)
    text = render(made)
    assert "measured: 14 of 20 steps of this config here" in text
    assert any("held back by its power limit in 25% of the probe" in note for note in made.notes)


def test_of_a_run_that_goes_on_what_is_left_is_timed():
    half = Place(unit=4, cursor=10_000, sequences=10_000, step=2500)
    config = planned().config
    made = plan(config, replace(FACTS, measured=PROBED), place=half)
    assert made.schedule.done_tokens == 10_000 * 1024
    wanted = 30 + 2500 * 4096 / 10_000 + (1 + 2500 // 25) * 2.0 + 100 * 0.5
    assert made.duration.seconds == pytest.approx(wanted)


def test_without_validation_data_no_evaluations_are_counted():
    made = planned("data.val=null", measured=PROBED, val=None)
    assert made.duration.seconds == pytest.approx(30 + 2048 + 100)


def test_energy_and_cost_follow_from_measured_power_and_the_rates_of_the_config():
    rates = ("rate_per_gpu_hour=2.5", "rate_per_kwh=0.4", "currency=EUR", "money=10")
    made = planned(*(f"monitoring.budgets.{rate}" for rate in rates), measured=PROBED)
    hours = made.duration.seconds / 3600
    spent = made.expenses
    assert spent.energy_kwh == pytest.approx(0.350 * hours)
    assert spent.money == pytest.approx(2.5 * hours + 0.4 * 0.350 * hours)
    (budget,) = made.budgets
    assert budget.planned == pytest.approx(spent.money)
    text = render(made)
    assert "kWh (GPUs at 350 W, measured)" in text and " EUR for " in text


def test_unmeasured_power_is_at_most_the_limit_of_all_gpus_and_no_budget_is_held_to_it():
    more = ("training.distributed.world_size=4", "monitoring.budgets.energy_kwh=1")
    made = planned(*more, "data.batch_size=4", device_count=4, gpu_power_limit_w=700.0)
    assert made.expenses.watts == 2800 and made.expenses.watts_source == "limit"
    assert "at most: their limit" in render(made)
    assert made.budgets[0].planned is None


def test_what_nothing_is_known_of_is_said_to_be_unknown_and_costs_nothing_to_tell():
    made = planned()
    assert made.expenses.energy_kwh is None and made.expenses.money is None
    assert "Energy:       unknown (power of the GPU not known)" in render(made)
    endless = planned(peak_flops=None, gpu_power_limit_w=700.0)
    assert "Energy:       unknown (wall time not known)" in render(endless)
    on_cpu = planned("training.mixed_precision=fp32", device="cpu")
    assert "Energy" not in render(on_cpu) and on_cpu.expenses.gpu_hours is None
    assert on_cpu.to_json()["time"]["source"] == "formula"


def test_the_disk_of_what_is_recorded_grows_with_log_lines_and_not_with_steps():
    every, tenth = planned().disk, planned("training.log_interval=10").disk
    assert every.journal > 9 * tenth.journal - 200_000 and every.stores > tenth.stores
    assert planned("monitoring.tracking.enabled=false").disk.stores == 0
    train = 2 * 67_977 * 1024 + 4 * 67_977
    assert every.cache == train + 2 * 67_977 * 1024 + 4 * 400  # val says as many tokens here
    assert planned(train=replace(FACTS.train, tokens=1000), val=None).disk.cache == 0
    wide = replace(FACTS.train, vocab_size=100_000)
    assert planned(train=wide, val=None).disk.cache == train  # the model's vocabulary is small
    assert cache_bytes(wide, 100_000) == 2 * train - 4 * 67_977
    small = replace(FACTS.train, sequences=10_000, tokens=10_000 * 1024)  # 20 MiB, read as it is
    mixed = replace(FACTS.train, parts=(FACTS.train, small))
    assert cache_bytes(mixed, None) == train
    assert CACHED_FROM == SHARED_FROM_BYTES
    assert every.total == every.checkpoint * every.copies + every.journal + every.stores


@pytest.mark.slow
def test_a_real_probe_measures_and_leaves_nothing(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("ALBOR_HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(tiny_config(tmp_path)))
    loaded = load_config(path)
    said = []
    found = probe(loaded, plan_run(loaded), tell=said.append)
    assert found.source == "probe" and said[0].startswith("probe: 20 steps in ")
    assert found.tokens_per_s > 0 and found.start_s > 0
    assert found.eval_s > 0 and found.checkpoint_s is not None and found.watts is None
    made = plan_run(loaded, measured=found)
    assert made.duration.source == "probe" and json.dumps(made.to_json())
    assert os.environ["ALBOR_HOME"] == str(home)
    left = {path.relative_to(home).parts[0] for path in home.rglob("*")}
    assert left <= {"cache"}
    assert not list((tmp_path / "tmp").glob("albor-*")) and not Path(tmp_path / "out").exists()
    monkeypatch.setenv("ALBOR_FAULTS", "step:crash@3")
    with pytest.raises(AlborError, match="the probe failed"):
        probe(loaded, plan_run(loaded))
    assert not list((tmp_path / "tmp").glob("albor-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_ends_a_probe_and_leaves_no_folder(tmp_path, monkeypatch, number):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(tiny_config(tmp_path)))
    loaded = load_config(path)
    with pytest.raises(SystemExit) as left:
        probe(loaded, plan_run(loaded), tell=lambda _: os.kill(os.getpid(), number))
    assert left.value.code == 128 + number and signal.getsignal(number) is signal.SIG_DFL
    assert not list(tmp_path.glob("albor-*"))


def test_a_probe_removes_what_killed_ones_left_and_no_folder_that_is_in_use(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(tiny_config(tmp_path)))
    loaded = load_config(path)
    killed, used, link = (tmp_path / f"albor-probe-{name}" for name in ("killed", "used", "link"))
    other = tmp_path / "other"
    for folder in (killed, used, other):
        (folder / "runs").mkdir(parents=True)
        (folder / "probe.lock").touch()
    link.symlink_to(other)

    def stop(_):
        left = {one.name for one in tmp_path.glob("albor-probe-*")}
        assert "albor-probe-killed" not in left and len(left) == 3  # and that of this probe
        raise AlborError("seen")

    with locked(used / "probe.lock", InUseError("")), pytest.raises(AlborError, match="seen"):
        probe(loaded, plan_run(loaded), tell=stop)
    assert {one.name for one in tmp_path.glob("albor-probe-*")} == {used.name, link.name}
    assert (used / "runs").is_dir() and (other / "runs").is_dir()


def test_signals_that_a_caller_has_ignored_stay_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_failed_probe_says_why_and_not_what_to_do_about_it_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = "print('error: too wide\\n  try: less'); raise SystemExit(2)"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{said}"\n')
    python.chmod(0o700)
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(tiny_config(tmp_path)))
    loaded = load_config(path)
    made = plan_run(loaded)
    monkeypatch.setattr("albor_core.launch.probe.sys.executable", str(python))
    with pytest.raises(AlborError, match=r"exit code 2: too wide\n"):
        probe(loaded, made)


def test_a_home_that_cannot_be_made_leaves_no_run_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", "/proc/albor")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(tiny_config(tmp_path)))
    loaded = load_config(path)
    made = plan_run(loaded)
    output_dir = Path(loaded.config.training.output_dir)
    for begin in (lambda: probe(loaded, made), lambda: new_run(loaded, made, name="one")):
        with pytest.raises(UsageError, match="/proc/albor: no folder can be made there"):
            begin()
        assert not (output_dir / "one").exists() and not list(tmp_path.glob("albor-*"))


def test_a_rate_of_gpus_is_said_to_do_nothing_on_a_cpu(tmp_path):
    path = tmp_path / "c.yaml"
    rate = {"monitoring__budgets": {"rate_per_gpu_hour": 2.5}}
    path.write_text(yaml.safe_dump(tiny_config(tmp_path, training__device="cpu", **rate)))
    assert any(
        "rate of a GPU-hour has no effect" in one for one in plan_run(load_config(path)).notes
    )


def test_the_facts_of_the_table_have_no_measurement():
    assert FACTS.measured is None
