"""The GPU a run would get: what plan, doctor and journal say of it."""

import json
import os
import pwd

import pytest
from tiny_run import events, make_run, train_here

from albor_core.launch import found_gpu
from albor_core.launch.found_gpu import find_gpu


@pytest.fixture
def fake_gpus(tmp_path, monkeypatch):
    """Two GPUs of one name, on a torch that was built for the CPU."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(found_gpu, "torch_without_cuda", lambda: "2.0+cpu")

    def say(torch_cuda=False, **more):
        one = {"name": "NVIDIA H100", **more}
        gpus = [{**one, "uuid": f"GPU-{n}a", "memory_total_bytes": n << 30} for n in (8, 9)]
        path = tmp_path / "nvml.json"
        path.write_text(json.dumps({"gpus": gpus, "torch_cuda": torch_cuda}))
        monkeypatch.setenv("ALBOR_FAKE_NVML", str(path))

    say()
    return say


@pytest.mark.parametrize(
    ("visible", "gib", "count"),
    [(None, 8, 2), ("0,1", 8, 2), ("1", 9, 1), ("GPU-9", 9, 1), ("1,7,0", 9, 1)],
)
def test_the_gpu_of_a_run_is_the_first_that_cuda_would_show(
    fake_gpus, monkeypatch, visible, gib, count
):
    fake_gpus(torch_cuda=True)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = find_gpu()
    assert (found.memory_bytes, found.count, found.obstacle) == (gib << 30, count, "")


@pytest.mark.parametrize("visible", ["", "-1", "0,0", None])
def test_a_gpu_that_torch_will_not_see_comes_with_why_and_a_remedy(fake_gpus, monkeypatch, visible):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = find_gpu()
    why = "this torch (2.0+cpu) has no CUDA" if visible is None else "CUDA_VISIBLE_DEVICES"
    assert why in found.obstacle
    assert found.remedy


def test_a_fakes_compute_capability_is_what_its_file_says(fake_gpus):
    assert find_gpu().capability is None
    fake_gpus(capability=[8, 7])
    assert find_gpu().capability == (8, 7)


def test_doctor_says_that_a_run_would_not_use_the_gpu(fake_gpus, monkeypatch):
    from albor_core.cli.machine import doctor

    check = doctor._gpu()
    assert check.ok is False
    assert "has no CUDA" in check.detail and "torch with CUDA" in check.hint
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check = doctor._gpu()
    assert (check.ok, check.hint) == (None, "unset CUDA_VISIBLE_DEVICES")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    fake_gpus(torch_cuda=True)
    assert doctor._gpu().ok


def test_a_run_that_falls_back_to_the_cpu_names_the_gpu_in_its_journal(fake_gpus, tmp_path):
    run = make_run(tmp_path, training__device="auto")
    train_here(run, stop_after=1)
    (told,) = events(run, "gpu.idle")
    assert told["data"]["gpu"] == "NVIDIA H100"
    assert "this torch (2.0+cpu) has no CUDA" in told["data"]["why"]


def test_a_plan_names_who_uses_the_gpus_that_a_run_could_use(fake_gpus, monkeypatch):
    mine = {"pid": os.getpid(), "name": "python", "memory_bytes": 3 << 30}
    fake_gpus(torch_cuda=True, processes=[mine])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (words,) = find_gpu().strangers
    user = pwd.getpwuid(os.getuid()).pw_name
    assert words.startswith(f"GPU 1 is in use by process {os.getpid()} (")
    assert words.endswith(f") of {user} with 3.0 GiB")
