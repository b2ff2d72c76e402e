"""A source with fixed data: the same bytes on every machine and at every hour.

Used by snapshots and Pilot tests; `rows` may be replaced between polls to play a story.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from albor_core.feed.archive.archive import Told
from albor_core.feed.archive.card import CodeCard, Relative, RunCard
from albor_core.feed.archive.checkpoints import SavedView, ShelfView
from albor_core.feed.archive.config_sheet import ConfigView, FieldView
from albor_core.feed.archive.crashes import CrashView
from albor_core.feed.archive.log_file import LogName, LogWindow
from albor_core.feed.archive.media import MediumView, MediumWanted
from albor_core.feed.archive.patch import FileChange, Patch
from albor_core.feed.archive.traced import TracedBricks
from albor_core.feed.attention.item import AttentionList
from albor_core.feed.data.of_run import RunData
from albor_core.feed.runs.cells import CellsWanted, RunCells
from albor_core.feed.view.diagnostics import RunDiagnostics, Watched
from albor_core.feed.view.run_view import BrickView, CheckpointView, RunsView, RunView
from albor_core.run.values.clean import clean
from albor_core.store.rows.rows import (
    AlertRow,
    ArtifactRow,
    AttemptRow,
    EventRow,
    NoteRow,
    SampleRow,
)
from albor_core.store.rows.run_row import Param
from albor_core.store.rows.series import Series
from albor_core.telemetry.sample import GpuProcess, GpuSample, HostSample
from albor_tui.messages import AttentionChanged, CommandReport
from albor_tui.model.program_charts import own_choice

WALL = 1_764_000_000.0
GIB = 1 << 30


def losses(count: int, seed: int, start: float = 10.8, floor: float = 2.1) -> tuple[float, ...]:
    """A noisy power-law decay."""
    rng = random.Random(seed)
    return tuple(
        floor + (start - floor) / (1 + i / 18) ** 0.9 + rng.gauss(0, 0.12) for i in range(count)
    )


def gpu(index: int = 0, util: float = 96.0) -> GpuSample:
    return GpuSample(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H200",
        util_percent=util,
        memory_used_bytes=61 * GIB + 300_000_000 * index,
        memory_total_bytes=140 * GIB,
        temperature_c=64.0 + index,
        power_w=612.0,
        power_limit_w=700.0,
        sm_clock_mhz=1830,
        memory_clock_mhz=3201,
        throttle_reasons=(),
        processes=(GpuProcess(4242, "python", 61 * GIB),),
    )


HOST = HostSample(
    cpu_percent=23.4,
    rss_bytes=int(8.2 * GIB),
    memory_available_bytes=87 * GIB,
    memory_total_bytes=128 * GIB,
    disk_free_bytes=412 * GIB,
    load1=3.4,
)


WATCHED = RunDiagnostics(watched=Watched(2, by="loop", acts=True))


RUNS = Path("/runs")  # where the fixed runs say that they lie; it is not there


def training(run_id: str = "code-125m-3f2a91", **changes: Any) -> RunView:
    """A healthy run in the middle of its work."""
    history = losses(120, 3)
    view = RunView(
        id=run_id,
        name=run_id.rsplit("-", 1)[0],
        experiment="pretrain",
        path=f"{RUNS}/{run_id}",
        host="box",
        created=WALL - 12_000,
        status="running",
        detail="",
        is_live=True,
        age_s=0.4,
        phase="training",
        attempt=2,
        attempts_total=2,
        step=15_280,
        max_steps=40_000,
        progress=0.382,
        epoch=0.76,
        tokens=1_001_390_080,
        loss=2.3142,
        loss_ema=2.3388,
        val_loss=2.4107,
        val_ppl=11.14,
        lr=2.61e-4,
        grad_norm=0.412,
        tokens_per_s=187_300.0,
        samples_per_s=182.9,
        mfu=0.413,
        step_ms=349.8,
        eta_s=8_650.0,
        elapsed_s=11_520.0,
        loss_history=history,
        lr_history=tuple(3e-4 * min(1, i / 10) for i in range(120)),
        grad_norm_history=tuple(0.4 + 0.3 * math.sin(i / 9) ** 2 for i in range(120)),
        device="cuda:0",
        gpu=(gpu(),),
        system=HOST,
        bricks=(
            BrickView("data", 2.1, 10.0),
            BrickView("forward", 104.2, 120.0),
            BrickView("backward", 208.9, 220.0),
            BrickView("optimizer", 31.4, 25.0),
            BrickView("other", 3.2, None),
        ),
        checkpoint=CheckpointView(
            last_step=15_000, last_wall=WALL - 95, best_step=14_000, best_value=2.4107
        ),
        rules_watching=2,
        diagnostics=WATCHED,
        guards={"nan_skipped": 1},
        guard={"state": "running"},
        optimizer="adamw",
        batch_size=64,
        trainer_pid=4242,
        guard_pid=4240,
        attempts=(
            AttemptRow(
                1,
                started=WALL - 12_000,
                ended=WALL - 9_000,
                code=1,
                exit_class="cuda_oom",
                action="restart",
                reason="CUDA out of memory at step 4,112",
                step=4112,
            ),
            AttemptRow(2, started=WALL - 8_990),
        ),
    )
    return replace(view, **changes)


ALERT = AlertRow(
    id="grad_norm@2.15102",
    severity="warning",
    message="gradient_norm > 5: 7.31 at step 15,102",
    rule="grad_norm",
    action="warn",
    metric="optim/grad_norm",
    value=7.31,
    threshold=5.0,
    step=15_102,
    attempt=2,
)


def rows() -> tuple[RunView, ...]:
    """One run in each state that matters."""
    ended = {
        "is_live": False,
        "phase": None,
        "eta_s": None,
        "trainer_pid": None,
        "guard_pid": None,
        "gpu": (),
    }
    return (
        training(alerts_open=1, severity="warning", last_alert=ALERT.message, alerts=(ALERT,)),
        training(
            "code-350m-b81c07",
            step=2_100,
            progress=0.0525,
            phase="checkpointing",
            loss=3.8801,
            loss_ema=3.9127,
            checkpoint=CheckpointView(
                last_step=2_000, last_wall=WALL - 95, best_step=2_000, best_value=4.012
            ),
            val_loss=4.012,
            val_ppl=55.3,
            tokens_per_s=71_250.0,
            mfu=0.447,
            eta_s=401_000.0,
            loss_history=losses(40, 9),
            created=WALL - 3_000,
            attempt=1,
            attempts_total=1,
        ),
        training(
            "distill-50m-77aa10",
            status="paused",
            phase="paused",
            step=9_000,
            progress=0.9,
            max_steps=10_000,
            loss=2.9013,
            val_loss=2.951,
            val_ppl=19.12,
            eta_s=None,
            detail="paused by you",
            created=WALL - 30_000,
            loss_history=losses(120, 5),
        ),
        training(
            "sweep-lr-3e3-0c11fe",
            status="failed",
            detail="loss is NaN for 10 steps",
            loss=math.nan,
            val_ppl=math.inf,
            val_loss=math.inf,
            step=411,
            progress=0.0411,
            max_steps=10_000,
            age_s=2_600.0,
            alerts_open=2,
            severity="error",
            last_alert="10 non-finite steps in a row",
            loss_history=losses(30, 8)[:24],
            created=WALL - 7_000,
            **ended,
        ),
        training(
            "sweep-lr-1e3-5be2d9",
            status="completed",
            detail="",
            step=10_000,
            progress=1.0,
            max_steps=10_000,
            loss=2.6120,
            val_loss=2.688,
            val_ppl=14.70,
            age_s=5_400.0,
            created=WALL - 16_000,
            loss_history=losses(120, 11),
            **ended,
        ),
        training(
            "old-baseline-e0d001",
            status="lost",
            detail="no trainer, no guard, no last words",
            step=7_420,
            progress=0.742,
            max_steps=10_000,
            loss=2.7788,
            val_loss=None,
            val_ppl=None,
            age_s=190_000.0,
            created=WALL - 400_000,
            loss_history=losses(120, 12),
            **ended,
        ),
        RunView(
            id="queued-62m-9d9d9d",
            name="queued-62m",
            experiment="pretrain",
            created=WALL - 10,
            status="queued",
            max_steps=20_000,
            progress=0.0,
        ),
    )


def curve(key: str, ys: Sequence[float], last: float, spread: float = 0.0) -> Series:
    steps = tuple(round(last * (i + 1) / len(ys)) for i in range(len(ys)))
    low = tuple(y - spread for y in ys)
    high = tuple(y + spread for y in ys)
    return Series(key, steps, low, high, tuple(ys), is_raw=not spread)


def _ending_at(loss: float | None, ys: Sequence[float]) -> tuple[float, ...]:
    """A curve from the same start down to `loss`."""
    if loss is None or math.isnan(loss):
        return tuple(ys)
    return tuple(ys[0] - (ys[0] - y) * (ys[0] - loss) / (ys[0] - ys[-1]) for y in ys)


def curves_of(view: RunView) -> dict[str, Series]:
    if view.step is None:
        return {}
    rng = random.Random(view.id)
    last = float(view.step)
    if view.kind != "train" and view.metrics:  # a loop that logs what it likes
        wave = [math.sin(i / 9) for i in range(60)]
        return {one.name: curve(one.name, wave, last) for one in view.metrics}
    raw = _ending_at(view.loss, losses(300, len(view.id)))
    found = {
        "train/loss": curve("train/loss", raw, last, 0.1),
        "val/loss": curve("val/loss", [raw[i * 20 + 19] + 0.1 for i in range(15)], last),
        "optim/lr": curve(
            "optim/lr",
            [3e-4 * min(1, i / 15) * (0.55 + 0.45 * math.cos(i / 300 * 1.2)) for i in range(300)],
            last,
        ),
        "optim/grad_norm": curve(
            "optim/grad_norm",
            [0.4 + abs(rng.gauss(0, 0.15)) + (4 if i == 280 else 0) for i in range(300)],
            last,
        ),
        "perf/tokens_per_s": curve(
            "perf/tokens_per_s", [187e3 + rng.gauss(0, 1500) for _ in range(300)], last
        ),
    }
    if view.loss is not None and math.isnan(view.loss):
        broken = (*raw[:270], *(math.nan for _ in range(30)))
        found["train/loss"] = curve("train/loss", broken, last)
    return found


LOG = (
    *(
        f"step {step:>6}  loss {2.5 - step / 1e5:.4f}  lr 2.61e-04  187.3k tok/s"
        for step in range(15_000, 15_280, 10)
    ),
    "checkpoint step-00015000 written, 1.52 GB in 0.8 s, verified",
    "warning: gradient norm 7.31 clipped to 1.0",
)


OLD_LOG = (
    *(f"step {step:>6}  loss {3.4 - step / 1e4:.4f}" for step in range(0, 4_110, 10)),
    "Traceback (most recent call last):",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB",
)

_YAML = """\
# a 125 million parameter model of code
model:
  path: "."
  architecture:
    hidden_size: 768
    num_hidden_layers: 12
optimizer:
  name: adamw
  lr: 3.0e-4
  weight_decay: 0.1
training:
  max_steps: 40_000   # one epoch and a bit
  warmup_steps: 500
"""

CONFIG = ConfigView(
    lines=tuple(_YAML.splitlines()),
    fields=(
        FieldView("model.path", ".", None, "file", False, 3),
        FieldView("model.architecture.hidden_size", "768", None, "file", False, 5),
        FieldView("model.architecture.num_hidden_layers", "12", None, "file", False, 6),
        FieldView("model.architecture.rope_theta", "10000.0", "10000"),
        FieldView("optimizer.name", "adamw", '"adamw"', "file", False, 8),
        FieldView("optimizer.lr", "0.0003", None, "file", False, 9),
        FieldView("optimizer.weight_decay", "0.2", "0.1", "file", True, 10),
        FieldView("optimizer.min_lr", "3e-05", "computed"),
        FieldView("training.max_steps", "40000", "none", "file", True, 12),
        FieldView("training.warmup_steps", "500", "0", "file", True, 13),
        FieldView("training.seed", "7", "0", "elsewhere", True),
        FieldView("monitoring.bricks.optimizer_ms", "25.0", "none", "elsewhere", True),
        FieldView(
            "monitoring.alerts",
            '[{"condition": "loss > 10", "action": "stop", "message": "loss exploded"}]',
            "[]",
            "elsewhere",
            True,
        ),
        FieldView("guard.max_restarts", "50", "50"),
    ),
)


def _saved(step: int, **more: Any) -> SavedView:
    name = f"step-{step:08d}"
    made = SavedView(
        name,
        step,
        "verified",
        f"/runs/code-125m-3f2a91/checkpoints/{name}",
        wall=WALL - (15_280 - step) * 0.35,
        num_bytes=1_631_000_000,
    )
    made = replace(made, **more)
    return replace(made, path=f"/runs/code-125m-3f2a91/checkpoints/{made.name}")


SHELF = ShelfView(
    saved=(
        _saved(15_500, state="writing", num_bytes=None, wall=None, name="step-00015500.tmp"),
        _saved(15_000, val_loss=2.4151, is_latest=True),
        _saved(
            14_500,
            state="damaged",
            name="bad-step-00014500",
            reason="model.safetensors is damaged (its blake3 hash differs)",
        ),
        _saved(14_000, val_loss=2.4107, is_best=True),
        _saved(10_000, state="whole", val_loss=2.502),
    ),
    written=31,
)

CRASH = CrashView(
    id="20251124T133640Z-a0001",
    path="/runs/code-125m-3f2a91/crash-reports/20251124T133640Z-a0001.json",
    attempt=1,
    kind="cuda_oom",
    reason="CUDA out of memory at step 4,112",
    error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB (loop.py:212)",
    log=(
        *OLD_LOG[-6:-2],
        "Traceback (most recent call last):",
        '  File "/home/ana/albor/albor_core/train/loop.py", line 212, in eval_step',
        "    logits = model(batch.input_ids)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB",
    ),
)
CARD = RunCard(
    id="code-125m-3f2a91",
    notes=(
        NoteRow(WALL - 86_000, "ana", "the one that the others are compared with", 1),
        NoteRow(WALL - 4_000, "ben", "ablate rope next, see the paper's table 4", 3),
    ),
    tags=("baseline", "paper"),
    command=("albor", "train", "apply", "pretrain-125m.yaml", "--set", "optimizer.lr=3e-4"),
    cwd="/home/ana/albor",
    code=CodeCard(
        commit="0f24d89c1be07d2a3c9e9a1f4f4b6d0d1c2b3a49",
        is_dirty=True,
        patch=Patch(
            (
                FileChange("albor_core/train/loop.py", 118, 12),
                FileChange("configs/train/pretrain-125m.yaml", 2, 2),
                FileChange("docs/loss.png", None, None),
            ),
            3,
            120,
            14,
        ),
        patch_path="/runs/code-125m-3f2a91/run.json",
        untracked=2,
        script="/home/ana/albor/sweep.py",
        script_copy="/runs/code-125m-3f2a91/script.txt",
    ),
    versions={"albor": "0.1.0", "torch": "2.12.1", "python": "3.11.7"},
    host="box",
    seed=7,
    created=WALL - 12_000,
    path="/runs/code-125m-3f2a91",
    parent=Relative("code-125m-043aa1", "code-125m-043", "completed", 40_000, "/runs/p"),
    children=(
        Relative("rope-77aa10", "rope", "running", 2_100, "/runs/rope-77aa10"),
        Relative("wide-b81c07", "wide", "failed", 411, "/runs/wide-b81c07"),
    ),
    child_ids=("rope-77aa10", "wide-b81c07"),
    artifacts=(
        ArtifactRow("step-00010000", "/runs/c/checkpoints/step-00010000", "checkpoint",
                    1_631_000_000, "ab", 10_000, WALL - 4_000),
        ArtifactRow("tokenizer", "/data/tokenizer.json", "file", 2_100_000, "cd", None,
                    WALL - 11_000),
        ArtifactRow("eval.csv", "/home/ana/eval.csv", "table", 40_000, "ef", 14_000, WALL - 700),
    ),
)  # fmt: skip

EVENTS = (
    EventRow(name="guard.preflight_note", wall=WALL - 12_003, data={"note": "412 GiB free"}),
    EventRow(
        name="run.start", step=0, wall=WALL - 12_000, attempt=1, data={"device": "NVIDIA H200"},
    ),
    EventRow(
        name="checkpoint.saved", step=4_000, wall=WALL - 9_050, attempt=1,
        data={"bytes": 1_631_000_000, "seconds": 0.81},
    ),
    EventRow(
        name="run.start", step=4_000, wall=WALL - 8_990, attempt=2,
        data={"resumed_from": 4_000, "device": "NVIDIA H200"},
    ),
    EventRow(
        name="jidoka.pause", severity="warning", step=9_120, wall=WALL - 5_000, attempt=2,
        data={"brick": "optimizer", "value_ms": 61.2, "budget_ms": 25.0},
    ),
    EventRow(name="control.resumed", step=9_120, wall=WALL - 4_900, attempt=2),
    EventRow(
        name="checkpoint.bad", severity="warning", wall=WALL - 400, attempt=2,
        data={"path": "bad-step-00014500", "reason": "model.safetensors is damaged"},
    ),
    EventRow(
        name="checkpoint.saved", step=15_000, wall=WALL - 95, attempt=2,
        data={"bytes": 1_631_000_000, "seconds": 0.79},
    ),
    EventRow(
        name="andon.alert", severity="warning", step=15_102, wall=WALL - 60, attempt=2,
        data={"id": "grad_norm@2.15102", "message": "gradient_norm > 5: 7.31 at step 15,102"},
    ),
)  # fmt: skip

SAMPLES = tuple(
    SampleRow(
        step,
        WALL - (15_280 - step) * 0.35,
        "def fibonacci(n):\n    ",
        f"if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - {2 + i})\n",
    )
    for i, step in enumerate((5_000, 10_000, 15_000))
)


def past_of_machine() -> dict[str, Series]:
    """Bricks and the machine over the steps so far."""
    rng = random.Random(5)
    means = {"data": 2.1, "forward": 104.0, "backward": 208.0, "optimizer": 31.0, "other": 3.1}
    found = {
        f"brick/{name}_ms": curve(
            f"brick/{name}_ms", [ms + rng.gauss(0, ms / 40) for _ in range(200)], 15_280
        )
        for name, ms in means.items()
    }
    machine = {
        "gpu0/util_percent": (95.0, 2.0),
        "gpu0/memory_bytes": (61.0 * GIB, 0.2 * GIB),
        "gpu0/power_w": (612.0, 15.0),
        "gpu0/temperature_c": (64.0, 1.0),
        "host/rss_bytes": (8.2 * GIB, 0.1 * GIB),
    }
    for key, (mean, spread) in machine.items():
        found[key] = curve(key, [mean + rng.gauss(0, spread) for _ in range(120)], 15_280)
    return found


def diff_document() -> dict[str, Any]:
    """What `diff_runs(...).to_json()` gives for two runs."""

    def stat(last: float) -> dict[str, Any]:
        return {"last": last, "best": last, "minimum": last, "maximum": last, "count": 400}

    def series(seed: int, end: int) -> dict[str, Any]:
        ys = list(losses(80, seed))
        return {"steps": [(i + 1) * end // 80 for i in range(80)], "min": ys, "max": ys, "mean": ys}

    a, b = {"id": "code-125m-3f2a91", "name": "code-125m"}, {"id": "wide-b81c07", "name": "wide"}
    verdict = {
        "outcome": "better",
        "reason": None,
        "metric": "val/loss",
        "interval": [-0.1204, -0.0441],
        "confidence": 0.95,
        "difference": -0.0819,
        "method": "Student's t, standard error of AR(1) noise (Andrews and Monahan 1992)",
        "detail": "400 paired points, steps 30,000 to 40,000",
        "unknown": [],
    }
    return {
        "schema": "albor.runs.diff/1",
        "metric": "val/loss",
        "direction": "min",
        "runs": [a, b],
        "left_out": [],
        "config": [
            {"key": "optimizer.lr", "values": [0.0003, 0.001]},
            {"key": "model.architecture.hidden_size", "values": [768, 1024]},
        ],
        "code": [{"key": "commit", "values": ["a81f3c2", "77b0e19"]}],
        "environment": [{"key": "versions.torch", "values": ["2.12.1", None]}],
        "metrics": {
            "val/loss": [stat(2.4107), stat(2.3288)],
            "perf/tokens_per_s": [stat(187_300.0), stat(121_050.0)],
            "perf/mfu": [stat(0.413), stat(0.447)],
            "optim/lr": [stat(2.61e-4), stat(9.1e-4)],
        },
        "reach": [
            {
                "run": a["id"],
                "other": b["id"],
                "target": 2.3288,
                "step": None,
                "tokens": None,
                "seconds": None,
            },
            {
                "run": b["id"],
                "other": a["id"],
                "target": 2.4107,
                "step": 31_200,
                "tokens": 2.04e9,
                "seconds": 17_040.0,
            },
        ],
        "verdict": verdict,
        "verdicts": [{"run": b["id"], "against": a["id"], **verdict}],
        "curves": {
            "val/loss": [series(1, 40_000), series(2, 40_000)],
            "train/loss": [series(3, 40_000), series(4, 40_000)],
        },
    }


class FakeFollower:
    def __init__(self, source: FakeSource, run_id: str) -> None:
        self._source, self._id = source, run_id
        self._polled: RunView | None = None
        self._log_sent = False
        self.problem = ""
        self.is_closed = False

    def poll(self) -> RunView | None:
        view = next((row for row in self._source.rows if row.id == self._id), None)
        if view is self._polled and self.problem == self._source.problem:
            return None
        self._polled, self.problem = view, self._source.problem
        if view is None or view.terminal is not None:
            return view
        names, is_house = self.main_metrics(view, 8), view.kind == "train"
        return replace(view, terminal=own_choice(names, tuple(curves_of(view)), is_house=is_house))

    def curves(self, keys: Sequence[str], max_points: int) -> dict[str, Series]:
        if self._polled is None:
            self.poll()
        view = next((row for row in self._source.rows if row.id == self._id), None)
        found = curves_of(view) if view is not None else {}
        return {key: found[key] for key in keys if key in found}

    def main_metrics(self, view: RunView, most: int = 1) -> tuple[str, ...]:
        return tuple(one.name for one in view.metrics)[:most]

    def log(self) -> Sequence[str]:
        if self._log_sent:
            return ()
        self._log_sent = True
        return self._source.log_lines

    def close(self) -> None:
        self.is_closed = True


class FakeArchive:
    """What `RunArchive` gives, from the values of its source; `asked` counts the questions."""

    def __init__(self, source: FakeSource, run_id: str) -> None:
        self._source, self._id = source, run_id
        self.asked: Counter[str] = source.asked
        self.is_closed = False

    @property
    def problem(self) -> str:
        return self._source.problem

    def _view(self) -> RunView | None:
        return next((row for row in self._source.rows if row.id == self._id), None)

    def _known(self) -> dict[str, Series]:
        view = self._view()
        return {} if view is None else {**curves_of(view), **self._source.more_curves}

    def keys(self) -> tuple[str, ...]:
        return tuple(self._known())

    def curves(
        self, keys: Sequence[str], *, lo: int | None = None, hi: int | None = None, points: int
    ) -> dict[str, Series]:
        self.asked["curves"] += 1
        known = self._known()
        return {key: known[key] for key in keys if key in known}

    def log(self, name: LogName | None, top: int | None, count: int, needle: str = "") -> LogWindow:
        self.asked["log"] += 1
        logs = self._source.logs
        if not logs:
            return LogWindow()
        chosen = name if name in logs else max(logs)
        lines = logs[chosen]
        first = max(0, len(lines) - count) if top is None else top
        low = needle.lower()
        return LogWindow(
            name=chosen,
            names=tuple(sorted(logs)),
            top=first,
            lines=tuple(clean(line) for line in lines[first : first + count]),
            total=len(lines),
            num_bytes=sum(len(line) + 1 for line in lines),
            needle=needle,
            matches=tuple(i for i, s in enumerate(lines) if low in s.lower()) if low else (),
        )

    def config(self) -> ConfigView:
        self.asked["config"] += 1
        return self._source.config

    def card(self) -> RunCard:
        self.asked["card"] += 1
        return self._source.card

    def medium(self, wanted: MediumWanted) -> MediumView:
        self.asked["medium"] += 1
        return self._source.medium(wanted)

    def data(self) -> RunData:
        self.asked["data"] += 1
        return self._source.data

    def traced(self) -> TracedBricks:
        self.asked["traced"] += 1
        return self._source.traced

    def checkpoints(self) -> ShelfView:
        self.asked["checkpoints"] += 1
        return self._source.shelf

    def events(self) -> Told:
        self.asked["events"] += 1
        return Told(events=self._source.events, crashes=self._source.crashes)

    def samples(self) -> Told:
        self.asked["samples"] += 1
        return Told(samples=self._source.samples)

    def close(self) -> None:
        self.is_closed = True


class FakeCells:
    """What the source has of each column, of the runs that are asked for."""

    def __init__(self, source: FakeSource) -> None:
        self._source, self._last = source, RunCells()

    def read(self, wanted: CellsWanted, rows: Sequence[RunView]) -> RunCells | None:
        source = self._source
        runs = {key: {row.id for row in rows} for key in wanted.of_all}
        for key in wanted.columns:
            runs.setdefault(key, {*wanted.visible})
        source.cells_asked.append({key: len(found) for key, found in runs.items()})
        values = {
            key: {run: source.cells.get(key, {}).get(run) for run in found}
            for key, found in runs.items()
        }
        absent = frozenset(key for key in runs if key not in source.cells)
        now = RunCells(values, absent, differing=source.differing, compared=wanted.compared)
        if now == self._last:
            return None
        self._last = now
        return now


class FakeOverview:
    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self.cells = FakeCells(source)

    def poll(self, *, visible: Collection[str] = (), wanted: Collection[str] = ()) -> RunsView:
        source = self._source
        if source.failure is not None:
            raise source.failure
        return RunsView(
            source.rows,
            source.gpus,
            "no GPU on this machine",
            problem=source.trouble,
            version=source.version,
            total=len(source.rows),
        )

    def close(self) -> None:
        pass


class FakeAttention:
    """Tells what the source has been given, when it was given something else."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self._last: AttentionChanged | None = None

    def look(self, overview: FakeOverview, runs: RunsView) -> AttentionChanged | None:
        found = self._source.troubles
        about = {item.run_id for item in found.items}
        views = tuple(row for row in runs.rows if row.is_active or row.id in about)
        told = AttentionChanged(found, views)
        if self._last is not None and (told.found, told.views) == (
            self._last.found,
            self._last.views,
        ):
            return None
        self._last = told
        return told


class FakeOverlay:
    def __init__(self, source: FakeSource) -> None:
        self._source = source

    def curves(
        self, views: Sequence[RunView], keys: Sequence[str], **window: Any
    ) -> dict[str, dict[str, Series]]:
        found = {
            view.id: FakeArchive(self._source, view.id).curves(keys, **window) for view in views
        }
        return {
            key: {run: curves[key] for run, curves in found.items() if key in curves}
            for key in keys
        }

    def close(self) -> None:
        pass


class FakeSource:
    """What `LiveSource` gives, from values."""

    def __init__(
        self, rows: tuple[RunView, ...] = (), gpus: tuple[GpuSample, ...] = (gpu(),)
    ) -> None:
        self.rows, self.gpus, self.version = rows, gpus, 1
        self.troubles = AttentionList(is_complete=False)
        self.log_lines: tuple[str, ...] = LOG
        self.failure: Exception | None = None
        self.commands: list[tuple[str, ...]] = []
        self.acknowledged: list[tuple[str, str]] = []
        self.document: dict[str, Any] = diff_document()
        self.compared: list[tuple[str, ...]] = []
        self.asked: Counter[str] = Counter()
        self.archive_failure: Exception | None = None
        self.problem = ""  # of a run's own store
        self.trouble = ""  # of the store of all runs
        self.more_curves: dict[str, Series] = past_of_machine()
        self.logs: dict[LogName, tuple[str, ...]] = {LogName(1): OLD_LOG, LogName(2): LOG}
        self.config = CONFIG
        self.shelf = SHELF
        self.traced = TracedBricks()
        self.card = CARD
        self.medium: Callable[[MediumWanted], MediumView] = lambda wanted: MediumView(
            wanted.key, wanted.kind, problem="nothing was kept"
        )
        self.data = RunData("It recorded no data.")
        self.events: tuple[EventRow, ...] = EVENTS
        self.crashes: tuple[CrashView, ...] = ()
        self.samples: tuple[SampleRow, ...] = SAMPLES
        self.cells: dict[str, dict[str, Param]] = {}  # by column and run
        self.cells_asked: list[dict[str, int]] = []  # of how many runs, by column
        self.differing: tuple[str, ...] = ()

    def show(self, rows: tuple[RunView, ...]) -> None:
        self.rows, self.version = rows, self.version + 1

    def overview(self) -> FakeOverview:
        return FakeOverview(self)

    def attention(self) -> FakeAttention:
        return FakeAttention(self)

    def follow(self, view: RunView) -> FakeFollower:
        return FakeFollower(self, view.id)

    def overlay(self) -> FakeOverlay:
        return FakeOverlay(self)

    def archive(self, view: RunView) -> FakeArchive:
        if self.archive_failure is not None:
            raise self.archive_failure
        return FakeArchive(self, view.id)

    def command(self, view: RunView, cmd: str, argument: str = "") -> Iterator[CommandReport]:
        self.commands.append((view.id, cmd, argument) if argument else (view.id, cmd))
        yield CommandReport(view.name, cmd, "sent")
        yield CommandReport(view.name, cmd, "accepted")
        yield CommandReport(view.name, cmd, "done", "in 0.8 s")

    def acknowledge(self, view: RunView, alert_id: str) -> None:
        self.acknowledged.append((view.id, alert_id))

    def compare(self, run_ids: Sequence[str], metric: str | None = None) -> dict[str, Any]:
        self.compared.append(tuple(run_ids))
        return self.document if metric is None else {**self.document, "metric": metric}
