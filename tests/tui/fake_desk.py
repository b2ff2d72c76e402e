"""A desk and a launchpad of fixed values that write down what they were asked to do."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fake_data
import fake_feed

from albor_core.config.reference import FieldDoc
from albor_core.feed.attention.item import AttentionItem
from albor_core.feed.data.batch import StepRows, batch_of
from albor_core.feed.data.known import DataShelf
from albor_core.feed.data.sheet import DataSheet, sheet_of
from albor_core.feed.view.run_view import RunView
from albor_core.picture.line_picture import LinePicture
from albor_core.picture.save import save
from albor_core.run.errors import AlborError, NotFoundError, Problem
from albor_core.store.query.column_names import ColumnNames
from albor_core.store.query.filter import parse_filter
from albor_core.store.rows.rows import AlertRow
from albor_tui.model.command import Cancelled
from albor_tui.model.desk import Matches, RunQuery
from albor_tui.model.launchpad import Checked, ConfigFile

RUNS = (("code-125m", "code-125m-3f2a91"), ("sweep-lr-3e3", "sweep-lr-3e3-0c11fe"))
YELLOW = {
    "rule": "gradient_norm-gt-3",
    "action": "warn",
    "metric": "optim/grad_norm",
    "value": 4.7,
    "threshold": 3.0,
}
RED = {
    "rule": "loss-gt-9",
    "action": "stop",
    "metric": "train/loss",
    "value": math.inf,
    "threshold": 9.0,
}
STEPS = (14_312, 371, 9_400, 300)


def alert(number: int, severity: str = "warning", **changes: Any) -> AlertRow:
    name, run_id = RUNS[number % 2]
    step, looks = STEPS[number], YELLOW if severity == "warning" else RED
    words = "gradient norm 4.70 is above 3" if severity == "warning" else "loss inf is above 9"
    fields: dict[str, Any] = {
        "id": f"{looks['rule']}@1.{step}",
        "run_id": run_id,
        "run_name": name,
        "severity": severity,
        "message": f"{words} at step {step:,}",
        "step": step,
        "attempt": 1,
        "wall": fake_feed.WALL - 600 * (number + 1),
        "acked_by": None,
        "acked_wall": None,
        **looks,
    }
    return AlertRow(**{**fields, **changes})


ALERTS = (
    alert(0),
    alert(1, "error"),
    alert(2, acked_by="ana", acked_wall=fake_feed.WALL - 60),
    alert(3, "error"),
)
REHEARSAL = {
    "schema": "albor.alerts.test/1",
    "run": "code-125m-3f2a91",
    "rules": [
        {
            "id": "gradient_norm-gt-3",
            "condition": "gradient_norm > 3",
            "metric": "optim/grad_norm",
            "action": "notify",
            "severity": "warning",
            "arm_step": 100,
            "sentence": "gradient_norm > 3 -> notify; arms once gradient_norm begins or stays <= 3 "
            "(10 values), or at step 100 (no warm-up)",
            "points": 15_280,
            "exact": True,
            "alerts": [{"step": 200}, {"step": 14_312}],
        },
        {
            "id": "loss-gt-9",
            "condition": "loss > 9",
            "metric": "train/loss",
            "action": "stop",
            "severity": "error",
            "arm_step": 100,
            "sentence": "loss > 9 -> stop; arms once loss begins or stays <= 9 (10 values), "
            "or at step 100 (no warm-up)",
            "points": 15_280,
            "exact": True,
            "alerts": [],
        },
    ],
}
WATCHED = (
    "2,000,000,000 tokens -> stop; warns at 90%",
    "brick optimizer above 50 ms (2x its budget of 25 ms) -> pause",
)


class FakeBoard:
    problem = ""

    def __init__(self, desk: FakeDesk) -> None:
        self._desk, self._told = desk, -1

    def poll(self) -> tuple[AlertRow, ...] | None:
        if self._told == self._desk.version:
            return None
        self._told = self._desk.version
        return self._desk.alerts

    def close(self) -> None:
        pass


def tensor(layer: int | None, part: str, rms: float, shape: list[int]) -> dict[str, Any]:
    prefix = "model." if layer is None else f"model.layers.{layer}."
    return {
        "name": f"{prefix}{part}.weight",
        "layer": layer,
        "part": part,
        "dtype": "F32",
        "shape": shape,
        "count": 1_048_576,
        "read": 262_144,
        "mean": 0.0001,
        "rms": rms,
        "minimum": -0.1,
        "maximum": 0.1,
        "zeros": 0.0,
        "nonfinite": 0,
        "edges": [-0.1, 0.1],
        "counts": [1, 5, 20, 5, 1],
    }


WEIGHTS = {
    "schema": "albor.model.weights/1",
    "path": "/runs/x",
    "is_sampled": True,
    "tensors": [
        *(tensor(n, "self_attn.q_proj", 0.02 * (n + 1), [64, 64]) for n in range(3)),
        *(tensor(n, "mlp.down_proj", 0.01, [64, 256]) for n in range(3)),
        tensor(0, "input_layernorm", 1.0, [64]),
        tensor(None, "norm", 2.0, [64]),
    ],
}


def op(name, backend, us, floor, reference_us, dtype="bfloat16"):
    measured = {"backend": "triton", "cosine": 0.999996, "rms_error": 3.1e-3, "max_error": 4e-3}
    plain = {"backend": "reference", "cosine": None, "rms_error": 3.4e-3, "max_error": 4e-3}
    return {
        "step": 0,
        "attempt": 1,
        "op": name,
        "dtype": dtype,
        "device": "cuda",
        "backend": backend,
        "evidence": f"passes parity; triton {us:.0f} us, reference {reference_us:.0f} us",
        "candidates": [
            {**measured, "us": us, "floor_share": floor},
            {**plain, "us": reference_us, "floor_share": floor * us / reference_us},
        ],
    }


def parity(at, step, cosine, rounded=None, *, is_bad=False):
    return {
        "step": step,
        "attempt": 1,
        "at": at,
        "how": "fused",
        "cosine": cosine,
        "max_error": 4e-3,
        "loss": 10.39729,
        "reference_loss": 10.39717,
        "rounded_cosine": rounded,
        "is_bad": is_bad,
        "skipped": None,
    }


KERNELS = {
    "schema": "albor.kernels.show/1",
    "run": "code-125m-3f2a91",
    "attempt": 1,
    "damaged_lines": 0,
    "ops": [
        op("rms_norm", "triton", 115.5, 0.69, 2179.0),
        op("add_rms_norm", "triton", 161.2, 0.99, 2317.0),
        op("rope_qkv", "triton", 55.2, 0.37, 441.2),
        op("swiglu", "triton", 185.7, 0.65, 562.4),
        op("cross_entropy", "reference", 640.0, 0.30, 608.7),
    ],
    "rejected": [],
    "parity": [
        parity("load", 0, 0.700908, 0.70144),
        parity("10 steps", 10, 0.999997),
    ],
}


class FakeDesk:
    """What LiveDesk does, into lists. `refusal` makes every deed fail."""

    def __init__(self) -> None:
        self.alerts: tuple[AlertRow, ...] = ALERTS
        self.version = 1
        self.done: list[tuple[Any, ...]] = []
        self.refusal: AlborError | None = None
        self.read: list[str] = []  # entries whose evidence was asked for
        self.stands_behind: dict[str, tuple[str, ...]] = {}
        self.shelf = fake_data.SHELF
        self.stats = {fake_data.CODE: fake_data.stats()}  # documents by path
        self.batch = fake_data.batch()
        self.wrong: tuple[str, ...] = ()  # what verifying finds
        self.may_answer = threading.Event()  # whether questions about data are answered
        self.may_answer.set()
        self.names = ColumnNames()

    def _do(self, *deed: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.done.append(deed)

    def board(self) -> FakeBoard:
        return FakeBoard(self)

    def annotate(self, run: str, kind: str, value: str = "") -> str:
        self._do(kind, run, value)
        if kind == "ack":
            self.alerts = tuple(
                row
                if row.id != value
                else AlertRow(**{**vars(row), "acked_by": "me", "acked_wall": fake_feed.WALL})
                for row in self.alerts
            )
            self.version += 1
        return value

    def edit_note(self, run: str, number: int, text: str) -> None:
        self._do("edit_note", run, number, text)

    def set_tags(self, run: str, tags: Sequence[str], before: Sequence[str]) -> None:
        self._do("set_tags", run, tuple(tags), tuple(before))

    def resume(self, run: str) -> str:
        self._do("resume", run)
        return "a guard has started it again"

    def stop(self, run: str, number: str) -> str:
        self._do("stop", run, number)
        return f"SIG{number} sent"

    def export(self, runs: Sequence[str], out: Path) -> str:
        self._do("export", tuple(runs), out.name)
        return str(out)

    def report(self, runs: Sequence[str], out: Path) -> str:
        self._do("report", tuple(runs), out.name)
        return str(out)

    def draw(self, picture: LinePicture, out: Path) -> None:
        self._do("picture", out.name)
        save(picture, out)

    def column_names(self) -> ColumnNames:
        return self.names

    def matching(self, question: RunQuery) -> Matches:
        parse_filter(question.words)
        return Matches(frozenset({"distill-50m-77aa10"}), 1)

    def find(self, run_id: str) -> RunView:
        known = {view.id: view for view in fake_feed.rows()}
        return known.get(run_id) or fake_feed.training(run_id)

    def acknowledge(self, item: AttentionItem) -> None:
        self._do("seen", item.id)

    def mute(self, item: AttentionItem, until: float) -> None:
        self._do("mute", item.id, until - fake_feed.WALL)

    def note_look(self) -> None:
        self.done.append(("look",))

    def evidence(self, item: AttentionItem) -> tuple[str, ...]:
        self.read.append(item.id)
        return self.stands_behind.get(item.id, ())

    def gpu_past(self, item: AttentionItem) -> tuple[str, tuple[float, ...]]:
        return "", ()

    def weights(self, folder: str, cancelled: threading.Event) -> dict[str, Any]:
        self._do("weights", folder)
        return WEIGHTS

    def kernels(self, run: str, cancelled: threading.Event) -> dict[str, Any]:
        self._do("kernels", run)
        return KERNELS

    def data_sets(self) -> DataShelf:
        return self.shelf

    def data_stats(self, path: str, cancelled: threading.Event) -> DataSheet:
        self._do("data_stats", path)
        self._wait(cancelled)
        if path not in self.stats:
            raise NotFoundError(f"{path}: no manifest.json and no *.parquet", hint="albor data")
        return sheet_of(self.stats[path])

    def data_batch(self, run: str, cancelled: threading.Event) -> StepRows:
        self._do("data_batch", run)
        self._wait(cancelled)
        return batch_of(self.batch)

    def verify_data(self, path: str, cancelled: threading.Event) -> tuple[str, ...]:
        self._do("verify_data", path)
        self._wait(cancelled)
        return self.wrong

    def _wait(self, cancelled: threading.Event) -> None:
        while not self.may_answer.wait(0.01):
            if cancelled.is_set():
                raise Cancelled("not wanted any more")

    def watched(self, run: str) -> tuple[str, ...]:
        return WATCHED

    def replay_rules(self, run: str, conditions: Sequence[str]) -> dict[str, Any]:
        self.done.append(("replay_rules", run, tuple(conditions)))
        return REHEARSAL


FIELDS = (
    FieldDoc("data.train", "data", "path", "required", "Directory of training shards.", True),
    FieldDoc("data.batch_size", "data", "whole number > 0", "required", "Sequences.", True),
    FieldDoc("optimizer.lr", "optimizer", "number > 0", "required", "Peak learning rate.", True),
    FieldDoc(
        "training.lr_scheduler",
        "training",
        "cosine or linear",
        "cosine",
        "Shape of the learning rate.",
        False,
        ("cosine", "linear"),
    ),
    FieldDoc("training.max_steps", "training", "whole number > 0", "none", "Steps.", False),
)
VALUES = {
    "data.train": "shards/train",
    "data.batch_size": "8",
    "optimizer.lr": "0.0003",
    "training.lr_scheduler": "cosine",
    "training.max_steps": "null",
}


def plan(problems: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    return {
        "schema": "albor.train.plan/1",
        "model": {"parameters": 128_994_048, "precision": "bf16"},
        "memory": {"total": 21_500_000_000, "capacity": 150_000_000_000},
        "training": {
            "max_steps": 4_920,
            "tokens_per_step": 524_288,
            "total_tokens": 2_579_496_960,
            "warmup_steps": 200,
            "reachable_steps": 5_000,
            "checkpoints": 5,
        },
        "disk": {"total": 6_200_000_000, "free": 412_000_000_000},
        "device": {"kind": "cuda", "name": "NVIDIA H200"},
        "time": {"seconds": 15_300.0, "assumption": "40 % of the peak"},
        "problems": list(problems),
        "warnings": [],
        "notes": ["20 tokens per parameter"],
        "andon": ["loss > 10 -> stop; arms once loss begins or stays <= 10 (10 values)"],
    }


class FakeLaunchpad:
    """What LiveLaunchpad does, without files and processes."""

    def __init__(self) -> None:
        self.planned: list[tuple[str, ...]] = []
        self.started: list[tuple[str, tuple[str, ...], str]] = []
        self.problems: tuple[dict[str, str], ...] = ()
        self.refusal: AlborError | None = None

    def configs(self) -> tuple[ConfigFile, ...]:
        return (
            ConfigFile(Path("configs/demo.yaml"), "Small enough for two cores."),
            ConfigFile(Path("configs/train/pretrain-125m.yaml"), "GPT-2 small."),
        )

    def fields(self, values: Mapping[str, str]) -> tuple[FieldDoc, ...]:
        return FIELDS

    def check(self, path: Path, overrides: Sequence[str]) -> Checked:
        if not path.name.endswith(".yaml"):
            raise NotFoundError(f"{path}: No such file or directory")
        given = dict(text.split("=", 1) for text in overrides)
        wrong = "x" in given.get("optimizer.lr", "")
        problem = Problem("optimizer.lr", "must be a number such as 0.1, 3e-4 or 10B")
        return Checked({**VALUES, **given}, (problem,) if wrong else ())

    def plan(
        self, path: Path, overrides: Sequence[str], cancelled: threading.Event
    ) -> dict[str, Any]:
        self.planned.append(tuple(overrides))
        return plan(self.problems)

    def start(self, path: Path, overrides: Sequence[str], name: str) -> tuple[str, str]:
        if self.refusal is not None:
            raise self.refusal
        self.started.append((str(path), tuple(overrides), name))
        return "code-125m-3f2a91", "/runs/code-125m-3f2a91"
