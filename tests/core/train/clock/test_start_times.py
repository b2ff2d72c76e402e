"""A start says where its time went, and does nothing that a resume throws away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tiny_run import events, make_run, train, train_here

from albor_core.outputs import identity
from albor_core.recipes import causal_lm
from albor_core.train.process import start_times
from albor_core.train.process.start_times import StartTimes, process_age_s
from albor_core.train.resume.digest import digest


def test_laps_of_one_name_add_up_and_all_of_them_to_the_whole(monkeypatch):
    now = iter([10.0, 13.0, 14.0, 18.0])
    monkeypatch.setattr(start_times, "time", SimpleNamespace(monotonic=lambda: next(now)))
    times = StartTimes(before_s=2.0)
    for name in ("imports", "kernels", "imports"):
        times.mark(name)
    assert times.seconds() == {"imports": 9.0, "kernels": 1.0}


def test_a_process_is_as_old_as_the_kernel_says():
    code = "import time; time.sleep(0.3); from albor_core.train.process.start_times import *; "
    said = subprocess.run(
        [sys.executable, "-c", code + "print(process_age_s())"], capture_output=True, text=True
    )
    assert 0.3 <= float(said.stdout) < 30 < 1e6
    assert process_age_s() >= 0


def test_each_attempt_tells_once_what_its_first_step_took(tmp_path, capsys):
    run = make_run(tmp_path)
    train_here(run, stop_after=3)
    train_here(run, attempt=2, stop_after=6)
    first, second = events(run, "run.first_step")
    assert (first["step"], second["step"]) == (1, 4)
    for one in (first, second):
        parts = {name: s for name, s in one["data"].items() if name != "total_s"}
        assert sum(parts.values()) == pytest.approx(one["data"]["total_s"], abs=0.1)
        assert {"data_s", "model_s", "checkpoint_s", "kernels_s", "step_s"} <= set(parts)
    assert "validation_s" in first["data"] and "validation_s" not in second["data"]
    assert capsys.readouterr().out.count("first step after ") == 2


@pytest.mark.slow
def test_a_trainer_counts_from_the_start_of_its_process(tmp_path):
    run = make_run(tmp_path)
    assert train(run, "--stop-after", "1")[0] == 0
    (found,) = events(run, "run.first_step")
    assert 0.5 < found["data"]["imports_s"] < found["data"]["total_s"]


def test_a_resumed_attempt_draws_no_weights(tmp_path, monkeypatch):
    straight, broken = (make_run(tmp_path / name, name) for name in ("a", "b"))
    train_here(straight)
    train_here(broken, stop_after=7)

    def drawn(model, seed):
        raise AssertionError("a checkpoint would replace them")

    monkeypatch.setattr(causal_lm, "init_weights", drawn)
    train_here(broken, attempt=2)
    assert digest(broken) == digest(straight)


def test_a_model_without_memory_loads_no_compiler():
    """Its import takes as long as that of torch."""
    code = """
import sys, torch
from albor_core.model.llama import Llama, LlamaConfig
before = torch.get_rng_state()
with torch.device("meta"):
    Llama(LlamaConfig(32, 1, 4, 2, 64, 64, 32))
assert torch.equal(before, torch.get_rng_state())
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_a_hash_is_of_the_bytes_however_they_are_read(tmp_path, monkeypatch, size):
    monkeypatch.setattr(identity, "CHUNK", 64)
    content = bytes(range(size))
    written = identity.write_file(tmp_path / "file", [content])
    for threads in (1, 8):
        read = identity.hash_file(tmp_path / "file", written.algo, threads=threads)
        assert read == written and read.size == size


def test_a_fork_of_a_process_that_verified_can_verify(tmp_path):
    """Threads do not survive a fork: a hasher must not wait for those of its parent."""
    written = identity.write_file(tmp_path / "file", [bytes(1 << 20)])

    def is_right():
        return identity.hash_file(tmp_path / "file", written.algo, threads=8) == written

    assert is_right()
    if (pid := os.fork()) == 0:
        signal.alarm(20)
        os._exit(0 if is_right() else 1)
    assert os.waitpid(pid, 0)[1] == 0
