"""Classes of the user's own by the fused step on a GPU: the plain step's losses, and the plan's
memory. `pytest -s` prints both.
"""

import gc
import json

import pytest
import tiny_run
import torch
from tiny_run import events, history, make_run, tiny_config, train_here

from albor_core.checkpoint.folder import list_checkpoints, verify
from albor_core.config.load import load_config
from albor_core.launch.planned import plan_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]

GIB, TARGET = 1 << 30, (1.00, 1.25)
STEPS = 4
BASE = {
    "model__architecture__hidden_size": 256,
    "model__architecture__intermediate_size": 512,
    "training__max_steps": STEPS,
    "training__warmup_steps": 1,
    "training__eval_interval": STEPS,
    "training__checkpoint": {"save_every": STEPS, "keep": 1},
    "training__device": "cuda",
    "training__mixed_precision": "bf16",
}
LARGE = {  # activations are more than what kernels need to be checked
    "model__architecture__hidden_size": 768,
    "model__architecture__intermediate_size": 3072,
    "model__architecture__num_hidden_layers": 12,
    "model__architecture__num_attention_heads": 12,
    "model__architecture__num_key_value_heads": 4,
    "model__architecture__vocab_size": 32768,
    "data__batch_size": 32,
}
CASES = {
    "a frozen model beside it": {
        "training__mode": "own_recipes:Taught",
        "recipe": {"teacher_seed": 7},
    },
    "a loss on pairs": {"training__mode": "own_recipes:Preferred", "data__val": ...},
    "matrices in int8": {"training__mode": "own_recipes:Packed"},
    "norms alone": {"training__mode": "own_recipes:Norms"},
    "qwen2": {"model__architecture__model_type": "qwen2"},
}


def planned(folder, changes):
    file = folder / "planned.yaml"
    file.write_text(json.dumps(tiny_config(folder, **changes)))
    found = plan_run(load_config(file)).memory
    assert found is not None
    return found


def trained(folder, name, **changes):
    """The run, its losses, and the most that torch had of the GPU."""
    run = make_run(folder / name, name, **changes)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert train_here(run).reason == "completed"
    torch.cuda.synchronize()
    losses = [value for _, _, value in history(run, ("train/loss",))]
    assert len(losses) == STEPS
    return run, losses, torch.cuda.max_memory_allocated()


def both(folder, changes):
    """By the fused and by the plain step: (plan, most of the GPU that the fused one had)."""
    changes = BASE | changes
    found, (run, fused, peak) = planned(folder, changes), trained(folder, "fused", **changes)
    other, plain, _ = trained(folder, "plain", training__compile=False, **changes)
    backends = [[e["data"]["backend"] for e in events(one, "step.chosen")] for one in (run, other)]
    print(f"\n{found.step}: losses {fused}, plain {plain}")
    assert backends == [["fused"], ["plain"]], events(run, "kernels.rejected")
    assert found.step == "fused"
    assert fused == pytest.approx(plain, rel=1e-2, abs=1e-3)  # a loss on pairs falls to nearly 0
    one, two = (verify(list_checkpoints(r.checkpoints)[0]) for r in (run, other))
    assert {*one.model()} == {*two.model()}
    for key in ("frozen_hash", "beside_hash"):
        assert one.manifest.get(key) == two.manifest.get(key)
    return found, peak


@pytest.mark.parametrize("name", CASES)
def test_the_fused_step_trains_it_as_the_plain_one_does(tmp_path, monkeypatch, name):
    monkeypatch.setattr(tiny_run, "SEQ_LEN", 64)
    found, peak = both(tmp_path, CASES[name])
    held = found.fixed - found.overhead
    print(f"{name}: plan {found.total / GIB:.2f} GiB, held {held / 2**20:.1f} MiB of it")
    assert peak <= found.total


def test_a_plan_of_norms_alone_is_what_the_gpu_gave(tmp_path, monkeypatch):
    """Over torch's peak without the overhead; and in all, over what the GPU has taken besides."""
    monkeypatch.setattr(tiny_run, "SEQ_LEN", 1024)
    found, peak = both(tmp_path, {**LARGE, **CASES["norms alone"]})
    free, total = torch.cuda.mem_get_info()
    beside = total - free - torch.cuda.memory_reserved()
    ratio = (found.total - found.overhead) / peak
    print(
        f"norms alone: plan {found.total / GIB:.2f} GiB, allocated {peak / GIB:.2f}: {ratio:.3f}, "
        f"and with {beside / GIB:.2f} beside: {found.total / (peak + beside):.3f}"
    )
    assert TARGET[0] <= ratio <= TARGET[1]


def test_in_fp8_what_is_frozen_stays_in_bf16(tmp_path, monkeypatch):
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("fp8 needs Hopper")
    monkeypatch.setattr(tiny_run, "SEQ_LEN", 64)
    changes = BASE | {"training__mode": "own_recipes:LastLayer"}
    half, losses, _ = trained(tmp_path, "bf16", **changes)
    changes["training__mixed_precision"] = "fp8"
    run, found, _ = trained(tmp_path, "fp8", **changes)
    print(f"\nlosses in fp8 {found}, in bf16 {losses}")
    for one in (half, run):
        assert [e["data"]["backend"] for e in events(one, "step.chosen")] == ["fused"]
    assert found == pytest.approx(losses, rel=2e-2)
