"""Two GPUs over NCCL take the steps that one takes, within what half precision rounds."""

import pytest
import torch
from tiny_run import events, history, make_run, train

from albor_core.train.checkpoint import list_checkpoints, verify

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.device_count() < 2,
        reason=f"needs 2 GPUs, torch sees {torch.cuda.device_count()}",
    ),
]

SHARED = {
    "training__device": "cuda",
    "training__gradient_accumulation": 2,
    "training__max_steps": 12,
    "optimizer__eps": 1e-4,  # as on the CPU: no weight moves by the sign of a rounding error
}
LIMIT = 4 * 2**-9  # of a loss of 4: bf16 keeps 8 bits
KEYS = ("train/loss", "val/loss")


def course(folder, name, **changes):
    run = make_run(folder / name, name, **{**SHARED, **changes})
    code, stderr = train(run)
    assert code == 0, stderr
    return run


@pytest.mark.parametrize(
    ("kind", "changes", "limit"),
    [
        ("fused", {"training__compile": True, "training__mixed_precision": "bf16"}, LIMIT),
        ("plain", {"training__compile": False, "training__mixed_precision": "bf16"}, LIMIT),
        ("exact", {"training__compile": False, "training__deterministic": True}, 1e-5),
        ("fsdp", {"training__compile": True, "training__mixed_precision": "bf16"}, LIMIT),
    ],
)
def test_two_gpus_take_the_steps_of_one(tmp_path, kind, changes, limit):
    strategy = "fsdp" if kind == "fsdp" else "ddp"
    one = course(tmp_path, "one", **changes)
    two = course(
        tmp_path,
        "two",
        **changes,
        training__distributed={"world_size": 2, "strategy": strategy},
    )
    if kind == "fused":
        assert [e["data"]["backend"] for e in events(two, "step.chosen")] == ["fused"]
    expected, found = history(one, KEYS), history(two, KEYS)
    assert [(step, key) for step, key, _ in found] == [(step, key) for step, key, _ in expected]
    for (_, _, a), (step, key, b) in zip(expected, found, strict=True):
        assert b == pytest.approx(a, abs=limit), (key, step)
    sizes = [
        {name: tensor.shape for name, tensor in checkpoint.model().items()}
        for checkpoint in (verify(list_checkpoints(run.checkpoints)[0]) for run in (one, two))
    ]
    assert sizes[0] == sizes[1]
