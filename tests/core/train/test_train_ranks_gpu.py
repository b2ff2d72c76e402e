"""Two and four GPUs over NCCL take the steps that one takes, within what half precision rounds."""

import os
import signal

import pytest
import torch
from tiny_run import events, history, last_words, make_run, ranks_of, start, train, wait_until

from albor_core.checkpoint.folder import list_checkpoints, verify
from albor_core.train.ranks.peer_copies import RANKS

# Every kernel is compiled and checked, on a machine that may have other work.
START_S = 240.0
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3 * START_S)]

SHARED = {
    "training__device": "cuda",
    "training__gradient_accumulation": 2,
    "training__max_steps": 12,
    "optimizer__eps": 1e-4,  # as on the CPU: no weight moves by the sign of a rounding error
}
FUSED = {"training__compile": True, "training__mixed_precision": "bf16"}
COPIED = {**FUSED, "training__gradient_accumulation": 1}
PLAIN = {"training__compile": False, "training__mixed_precision": "bf16"}
EXACT = {"training__compile": False, "training__deterministic": True}
MUON = {**PLAIN, "optimizer__name": "muon"}
LIMIT = 4 * 2**-9  # of a loss of 4: bf16 keeps 8 bits
KEYS = ("train/loss", "val/loss")


def needs(world):
    """A number of GPUs; skipped, and said so, where this machine has fewer: nothing stands in."""
    there = torch.cuda.device_count()
    reason = f"needs {world} GPUs, torch sees {there}"
    return pytest.param(world, marks=pytest.mark.skipif(there < world, reason=reason))


def course(folder, name, **changes):
    run = make_run(folder / name, name, **{**SHARED, **changes})
    code, stderr = train(run, limit_s=START_S)
    assert code == 0, stderr
    return run


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one GPU with such changes; each is made once."""
    made = {}

    def run(changes):
        key = str(changes)
        if key not in made:
            made[key] = course(tmp_path_factory.mktemp("alone"), "one", **changes)
        return made[key]

    return run


@pytest.mark.parametrize("world", [needs(2), needs(4)])
@pytest.mark.parametrize(
    ("strategy", "changes", "limit"),
    [
        ("ddp", FUSED, LIMIT),
        ("ddp", COPIED, LIMIT),
        ("ddp", PLAIN, LIMIT),
        ("ddp", EXACT, 1e-5),
        ("fsdp", FUSED, LIMIT),
        ("fsdp", MUON, LIMIT),
    ],
    ids=["fused", "copied", "plain", "exact", "fsdp", "fsdp, muon"],
)
def test_several_gpus_take_the_steps_of_one(tmp_path, alone, strategy, changes, limit, world):
    one = alone(changes)
    together = {"world_size": world, "strategy": strategy}
    many = course(tmp_path, "many", **changes, training__distributed=together)
    if changes in (FUSED, COPIED) and strategy == "ddp":
        (chosen,) = events(many, "step.chosen")
        assert chosen["data"]["backend"] == "fused"
        is_copied = "one message" not in chosen["data"]["reason"]
        assert is_copied == (changes is FUSED or world == RANKS), chosen
    expected, found = history(one, KEYS), history(many, KEYS)
    assert [(step, key) for step, key, _ in found] == [(step, key) for step, key, _ in expected]
    for (_, _, a), (step, key, b) in zip(expected, found, strict=True):
        assert b == pytest.approx(a, abs=limit), (key, step)
    sizes = [
        {name: tensor.shape for name, tensor in checkpoint.model().items()}
        for checkpoint in (verify(list_checkpoints(run.checkpoints)[0]) for run in (one, many))
    ]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("world", [needs(2)])
def test_a_rank_that_is_killed_ends_the_attempt_though_the_other_waits_on_its_gpu(tmp_path, world):
    together = {"world_size": world, "strategy": "ddp"}
    changes = {**SHARED, **COPIED, "training__max_steps": 100}
    run = make_run(tmp_path, "shot", **changes, training__distributed=together)
    process = start(run, ALBOR_FAULTS="step:sleep=0.3@4-100")
    wait_until(lambda: len(history(run, ("train/loss",))) >= 6, START_S)
    (other,) = ranks_of(run).values()
    os.kill(other, signal.SIGKILL)
    assert process.wait(60) == 1
    assert last_words(run)["reason"] == "rank_lost"
    assert "SIGKILL" in last_words(run)["message"]
    assert ranks_of(run) == {}
