"""A night that went wrong, as fixed values: what the feed would say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fake_feed

from albor_core.feed.attention.item import KINDS, AttentionItem, AttentionList, SinceLooked
from albor_core.feed.view.diagnostics import RunDiagnostics, Watched
from albor_core.feed.view.run_view import BrickView, BudgetView, RunView
from albor_core.store.rows.rows import EventRow
from albor_core.telemetry.sample import GpuSample

WALL = fake_feed.WALL
HOST = "box"


def entry(kind: str, run: RunView | None, minutes: float | None, **fields: Any) -> AttentionItem:
    """An entry of a kind, as its table says, of a run or of the machine."""
    table = KINDS[kind]
    whose = {} if run is None else {"run_id": run.id, "run_name": run.name, "path": run.path}
    made: dict[str, Any] = {
        "id": f"{HOST if run is None else run.id}/{kind}",
        "kind": kind,
        "word": table.word,
        "severity": table.severity,
        "host": HOST,
        "since_wall": None if minutes is None else WALL - 60 * minutes,
        "key": "enter",
        **whose,
    }
    return AttentionItem(**{**made, **fields})


def runs() -> tuple[RunView, ...]:
    """One that trains, one that died, one that hangs, one with NaN."""
    ended = {"is_live": False, "eta_s": None, "trainer_pid": None, "guard_pid": None, "gpu": ()}
    live = fake_feed.training(
        gpu=eight_gpus(),
        diagnostics=RunDiagnostics(watched=Watched(3, by="loop", acts=True), ranks=8),
        bricks=BRICKS, brick_coverage=0.931,
        events=(EventRow(name="brick.traced", step=15_102, data={"path": TRACE}),),
        budgets=BUDGETS, health={"expected loss": "on track, 2.61-2.70"},
        finish_wall=WALL + 8_650, finish_low_wall=WALL + 8_100, finish_high_wall=WALL + 9_400,
    )  # fmt: skip
    died = fake_feed.training(
        "code-350m-b81c07", status="failed", step=48_100, detail="CUDA out of memory",
        age_s=720.0, **ended,
    )  # fmt: skip
    hung = fake_feed.training(
        "ppo-cartpole-77aa10", kind="track", status="stalled", is_live=False, age_s=360.0,
        guard_pid=None, guard=None, trainer_pid=10_550, step=9_000,
    )  # fmt: skip
    odd = fake_feed.training(
        "odd-values-5be2d9", kind="guard", loss=float("nan"), step=4_880, max_steps=None,
        progress=None,
    )  # fmt: skip
    return live, died, hung, odd


BUDGETS = (
    BudgetView("gpu_hours", "GPU-hours", 11.2, 27.9, at_completion=29.3,
               exhausted_wall=WALL + 8_000),
    BudgetView("money", "EUR", 41.0, 200.0, at_completion=107.3),
)  # fmt: skip


TRACE = "/runs/code-125m-3f2a91/traces/step-00015102.json.gz"
BRICKS = (
    BrickView("data", 2.1, 10.0),
    BrickView("forward+loss", 104.2, None, 118.0),
    BrickView("backward", 208.9, 220.0),
    BrickView("clip+optimizer", 31.4, 25.0),
    BrickView("other", 24.1, None, 26.0),
    BrickView("checkpoint", 812.0, None, 950.0),
)


def eight_gpus() -> tuple[GpuSample, ...]:
    """All at work, but one at 41 % and one that heat holds back."""
    return tuple(
        replace(
            fake_feed.gpu(i, 41.0 if i == 5 else 97.0),
            temperature_c=60.0 + 4 * i,
            throttle_reasons=("thermal",) if i == 7 else (),
        )
        for i in range(8)
    )


EVIDENCE = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB (train.py:212)",
    "report: /runs/code-350m-b81c07/crash-reports/a0001.json",
    "",
    "step  48090  loss 2.6141  lr 2.61e-04  71.3k tok/s",
    "step  48100  loss 2.6093  lr 2.61e-04  71.2k tok/s",
    "Traceback (most recent call last):",
    '  File "train.py", line 212, in eval_step',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB",
)


def attention() -> AttentionList:
    """What needs a person in it, the worst first."""
    live, died, hung, odd = runs()
    items = (
        entry(
            "hung", hung, 6, key="x", step=9_000, cost_gpu_hours=0.1,
            cost="0.1 GPU-h without a step", command=f"albor guard stop {hung.id}",
            summary="no news for 6m, its steps took 200 ms, process 10550 is alive",
            cause="it waits for data, a disk, the network or a lock; nothing ends it: no guard",
        ),
        entry(
            "non_finite", odd, 2, word="NaN", key="x", step=4_840, metric="train/loss",
            summary="train/loss is NaN 4 times since step 4,840",
            cause="a learning rate too high, a bad batch, or fp16 without loss scaling",
            cost="0.1 GPU-h since", command=f"albor guard stop {odd.id}",
        ),
        entry(
            "died", died, 12, key="R", step=48_100, cost_gpu_hours=1.6,
            cost="1.6 GPU-h lost: the newest checkpoint is of step 48,000",
            summary="OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB",
            cause="a longer batch than any before, or another program on the GPU",
            command=f"albor train resume {died.id}",
        ),
        entry(
            "gpu_throttled", live, 3, id=f"{HOST}/gpu_throttled:7", word="gpu 7 throttled",
            summary="GPU 7: slowed down: thermal", cause="heat, or its power supply",
            command="albor gpu",
        ),
        entry(
            "gpu_straggling", live, 40, id=f"{HOST}/gpu_straggling:5", word="gpu 5 straggling",
            summary="GPU 5: 41 % busy, the run's other GPUs 97 %", cost_gpu_hours=3.1,
            cost="3.1 GPU-h: the run's other GPUs wait for it",
            cause="it is throttled, shared with another program, or waits for its own data",
            command="albor gpu",
        ),
        entry("silent", live, 90, summary="silent", acked_by="ana"),
    )  # fmt: skip
    return AttentionList(
        items=items,
        fine=("wide-1", "wide-2", "wide-3"),
        not_watched=(hung.id,),
        since_last_looked=SinceLooked(WALL - 9 * 3600, 5, 0, 1, "sweep-lr-199", 2.4561),
    )
