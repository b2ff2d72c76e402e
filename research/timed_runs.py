"""What sprint.py and slow.py need: one corpus, a run of ours that lasts so many seconds, the cards.

Corpus: that of pretrain.py, and of its training files those are left out that are nearly equal to
a held-out one or to another (`albor data dedup --near`). Seconds are those of training steps: the
journal's step times, added up; the first interval of an attempt, which may compile, counts as the
median.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
import yaml
from bits_per_byte import UNSCORED, bits_per_byte
from jobs import ROOT, over_cards
from pretrain import T, albor, shards, write_corpora
from torch import Tensor

from albor_core.data.pack.special_tokens import END_OF_TEXT
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.run.rundir import RunDir
from albor_core.run.state import read_state
from albor_core.run.status import ENDS
from albor_core.run.values.step_time import step_seconds

VOCABULARY = 32768
POLL_S = 0.25
TRIED_STEPS, LOGGED = 200, 10  # of the calibration; steps between journal lines
LOOK_AT = 0.5  # of the steps that it foresaw: what these took says how many fit
FORESEEN = 0.98  # of the time: a card slows down as it warms up
FILLED = 0.995  # at last; half-way it is warm, and what is left is foreseen to 0.1 %
SAME_BPB = 5e-4  # ours by `albor eval` and by transformers, both in fp32


@dataclass(frozen=True)
class Rows:
    """How the texts are cut: tokens of which vocabulary, how many a row, how they fill one."""

    vocabulary: int = VOCABULARY
    context: int = T
    packing: str = "concat"


USUAL = Rows()


def corpus(folder: Path, rows: Rows | None = None) -> dict[str, Any]:
    """As pretrain.shards; `bytes` are those held out. Made once. Other rows than the usual ones are
    those of the same texts, in a folder of their own.
    """
    rows = rows or USUAL
    if rows != USUAL:
        folder, usual = folder_of(folder, rows), folder
        folder.mkdir(exist_ok=True)
        for name in ("train.parquet", "held.parquet"):
            if not (folder / name).exists():
                shutil.copy(usual / name, folder)
        shutil.copy(tokenizer_of(usual, rows.vocabulary), folder / "tokenizer.json")
    elif not (folder / "tokenizer.json").exists():
        raw = folder / "raw"
        raw.mkdir(exist_ok=True)
        write_corpora(raw)
        albor("data", "dedup", raw / "train.parquet", "--near", "--against", raw / "held.parquet",
              "-o", folder / "train.parquet", "--force")  # fmt: skip
        (folder / "held.parquet").write_bytes((raw / "held.parquet").read_bytes())
        kept, seen = (pq.read_metadata(f / "train.parquet").num_rows for f in (folder, raw))
        print(f"near-duplicates: {seen - kept:,} of {seen:,} training files left out", flush=True)
        tokenizer_of(folder, rows.vocabulary)
    held = texts(folder, "held")
    return shards(folder, rows.context, rows.packing) | {
        "held_text": folder / "held.parquet",
        "bytes": sum(len(text.encode()) for text in held),
        "vocabulary": rows.vocabulary,
        "context": rows.context,
    }


def folder_of(folder: Path, rows: Rows) -> Path:
    """Where `rows` lie; `folder` has the texts and the usual ones."""
    packed = "" if rows.packing == USUAL.packing else f"-{rows.packing}"
    return folder if rows == USUAL else folder / f"{rows.vocabulary}x{rows.context}{packed}"


def tokenizer_of(folder: Path, vocabulary: int) -> Path:
    """A BPE of `vocabulary`, from the texts of `folder`; made once."""
    file = folder / (
        "tokenizer.json" if vocabulary == USUAL.vocabulary else f"bpe-{vocabulary}.json"
    )
    if not file.exists():
        albor("tokenizer", "apply", folder / "train.parquet", "-o", file,
              "--vocab-size", vocabulary)  # fmt: skip
    return file


def texts(folder: Path, split: str) -> list[str]:
    found: list[str] = pq.read_table(folder / f"{split}.parquet")["text"].to_pylist()
    return found


def encoded(folder: Path, split: str, tokenizer: Path) -> tuple[list[np.ndarray[Any, Any]], int]:
    """Ids of each text, and the token that stands before one. Made once, and best before anything
    is timed: it takes every core, which the host of another card's run would feel.
    """
    made = load_tokenizer(tokenizer)
    first: int = made.token_to_id(END_OF_TEXT)  # type: ignore[assignment]  # it was made with one
    file = folder / f"{split}-{tokenizer.stem}.npz"
    if not file.exists():
        found = made.encode_batch(texts(folder, split), add_special_tokens=False)
        part = file.with_name(f"part-{os.getpid()}-{file.name}")
        np.savez(part, ids=np.concatenate([np.array(one.ids, np.int32) for one in found]),
                 ends=np.cumsum([len(one.ids) for one in found]))  # fmt: skip
        part.replace(file)
    with np.load(file) as kept:
        return np.split(kept["ids"], kept["ends"][:-1]), first


def parts_of(word: str) -> tuple[str, tuple[str, ...]]:
    """Name and settings of NAME+FIELD=VALUE ...; no name where one of these sets nothing."""
    name, *sets = word.split("+")
    return name if all("=" in one for one in sets) else "", tuple(sets)


@dataclass(frozen=True)
class Recipe:
    """A config, and what else is set in it."""

    config: str
    sets: tuple[str, ...]
    batch: int = 32
    """Times T tokens a step, in rows of any length."""
    warmup: float = 0.05

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    def variant(self, word: str) -> Recipe:
        """With what `word` sets besides."""
        return replace(self, sets=(*self.sets, *parts_of(word)[1]))

    def words(self, data: Mapping[str, Any], folder: Path, steps: int, seed: int) -> list[str]:
        """Of `albor train apply`."""
        sets = {
            "data.train": data["train"],
            "data.val": data["held"],
            "data.tokenizer": data["tokenizer"],
            "model.architecture.vocab_size": data["vocabulary"],
            "data.batch_size": self.batch * T // data["context"],
            "data.seq_len": data["context"],
            "model.architecture.max_position_embeddings": data["context"],
            "training.epochs": 1000,
            "training.max_steps": steps,
            "training.warmup_steps": int(self.warmup * steps),
            "training.gradient_accumulation": 1,
            "training.log_interval": LOGGED,
            "training.stability.zclip": "false",
            "training.save_interval": max(LOGGED, steps // 8 // LOGGED * LOGGED),
            "training.checkpoint.save_every": max(LOGGED, steps // 8 // LOGGED * LOGGED),
            "training.checkpoint.keep": 1,
            "training.eval_interval": steps,
            "training.eval_batches": 1,
            "monitoring.alerts": "[]",  # a loss that explodes is a result, too
            "training.output_dir": folder / "runs",
        }
        words = [*(f"{key}={value}" for key, value in sets.items()), *self.sets]
        return [self.config, "--seed", str(seed), *(w for one in words for w in ("--set", one))]


@dataclass
class TimedRun:
    """A run that trains for `seconds`, or `most_steps` if those come first. It stops half-way to be
    given as many steps as fit. `file` remembers it: if a call is cut short, the next goes on.
    """

    file: Path
    seconds: float
    most_steps: int | None = None

    def trained(self, words: Sequence[str], steps: int, limit_s: float) -> Any:
        """Apply `words`, of which `steps` are expected, to the end; `albor runs show`, and seconds
        and steps.
        """
        half = max(1, int(LOOK_AT * steps) // LOGGED) * LOGGED
        until = ("--stop-after", half)
        if self.file.exists():
            known = json.loads(self.file.read_text())
            path, stopped_at = Path(known["path"]), known["stopped_at"]
            if phase_of(path) not in ("completed", "stopped"):  # its guard may have outlived that
                resume(path, *(until if stopped_at is None else ("--allow-config-change",)))
        else:
            stopped_at = 0 if half >= steps or steps == self.most_steps else None
            asked = until if stopped_at is None else ()
            path = begin(f"ours-{time.time_ns()}", [*words, *asked])
            self._remember(path, stopped_at)
        if stopped_at is None:
            shown = ended(path, limit_s, "stopped")
            spent, stopped_at = measured(shown)
            self._fit(path, spent, stopped_at, late_step_s(shown, 3 * stopped_at // 4))
            self._remember(path, stopped_at)
        if phase_of(path) == "stopped":
            resume(path, "--allow-config-change")
        shown = ended(path, limit_s)
        return shown, *measured(shown, stopped_at)

    def _fit(self, path: Path, spent: float, made: int, step_s: float) -> None:
        """Let the run's config end where the time does, if steps go on to take `step_s`."""
        fits = max(1, int((self.seconds * FILLED - spent) / step_s))
        steps = made + fits if self.most_steps is None else min(made + fits, self.most_steps)
        config = path / "config.yaml"
        document = yaml.safe_load(config.read_text())
        document["training"]["max_steps"] = steps
        config.write_text(yaml.safe_dump(document, sort_keys=False))

    def _remember(self, path: Path, stopped_at: int | None) -> None:
        """Where it is, and the step at which it was given its end: None before that, 0 where it has
        had it from the start.
        """
        self.file.write_text(json.dumps({"path": str(path), "stopped_at": stopped_at}))


def begin(name: str, words: Sequence[object]) -> Path:
    """A run under a guard of its own."""
    made = albor("train", "apply", *words, "--name", name, "--detach")
    return Path(made["run"]["path"])


def resume(path: Path, *words: object) -> None:
    """From its newest checkpoint; one that is at work is only followed."""
    with suppress(SystemExit):
        albor("train", "resume", path, "--detach", *words)


def ended(path: Path, limit_s: float, wanted: str = "completed") -> Any:
    """`albor runs show` of a run that has ended as `wanted`."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        phase = phase_of(path)
        # of a run that is being resumed the state file still says that it ended
        is_over = phase in ENDS and not RunDir(path).liveness().is_alive
        shown = albor("runs", "show", path) if is_over else None
        if shown and shown["run"]["ended_status"] is not None:
            if phase != wanted:
                raise SystemExit(f"{path}: {phase}, see {path}/logs")
            return shown
        time.sleep(POLL_S)
    albor("guard", "stop", path)
    raise SystemExit(f"{path}: not done after {limit_s:.0f} s, stopped; see {path}/logs")


def phase_of(path: Path) -> str | None:
    """What the state file of a run says."""
    found: str | None = (read_state(RunDir(path).state) or {}).get("phase")
    return found


def measured(shown: Mapping[str, Any], *stops: int) -> tuple[float, int]:
    """Seconds and steps of a run that stopped after `stops` and went on."""
    series = [(int(step), float(ms)) for step, ms, _ in shown["points"]["perf/step_ms"]]
    return step_seconds(series, (0, *stops)), series[-1][0]


def late_step_s(shown: Mapping[str, Any], after: int) -> float:
    """Mean seconds of a step of those beyond `after`: rows may be shorter at the beginning."""
    return statistics.mean(ms for n, ms, _ in shown["points"]["perf/step_ms"] if n > after) / 1000


def calibrated(recipe: Recipe, data: Mapping[str, Any], folder: Path, seconds: float) -> float:
    """Seconds a step on this card; measured once for a card and recipe."""
    card = f"{torch.cuda.get_device_properties(0).uuid} {recipe} {TRIED_STEPS}"
    file = folder / f"rate-{hashlib.sha256(card.encode()).hexdigest()[:12]}.json"
    if not file.exists():
        words = recipe.words(data, folder, TRIED_STEPS, 0)
        shown = ended(begin(f"rate-{time.time_ns()}", words), 240 + seconds)
        step_s = late_step_s(shown, TRIED_STEPS // 2)
        file.write_text(json.dumps({"step_s": step_s, "of": card}))
    found: float = json.loads(file.read_text())["step_s"]
    return found


def ours(
    recipe: Recipe, data: Mapping[str, Any], folder: Path, seconds: float, seed: int,
    *, most_steps: int | None = None, is_trial: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Trained for `seconds`, or `most_steps` if those come first, evaluated and loaded anew; a
    trial is not loaded.
    """
    step_s = calibrated(recipe, data, folder, seconds)
    steps = int(seconds * FORESEEN / step_s)
    steps = steps if most_steps is None else min(steps, most_steps)
    words = recipe.words(data, folder, steps, seed)
    key = hashlib.sha256(f"{recipe} {seconds} {seed} {most_steps}".encode()).hexdigest()[:12]
    made = TimedRun(folder / f"begun-{key}", seconds, most_steps)
    shown, spent, steps = made.trained(words, steps, 240 + 2 * seconds)
    path = Path(shown["run"]["path"])
    found = albor("eval", "apply", path, "--task", f"text:{data['held_text']}",
                  "--batch-size", 32, "--dtype", "fp32")  # fmt: skip
    scores = {one["name"]: one["value"] for task in found["tasks"] for one in task["scores"]}
    checkpoint = sorted((path / "checkpoints").glob("step-*"))[-1]
    bpb, again, parameters = scores["held/bpb"], None, None
    if not is_trial:
        again, parameters = by_transformers(checkpoint, folder, data, torch.device("cuda"))
    return {
        "bpb": bpb,
        "bpb_transformers": again,
        "loads_in_transformers": again is not None and abs(again - bpb) <= SAME_BPB,
        "train_s": round(spent, 2),
        "within": spent <= seconds,
        "steps": steps,
        "tokens": steps * recipe.batch * T,
        "parameters": parameters,
        "context": data["context"],
        "vocabulary": data["vocabulary"],
        "calibrated_step_ms": round(step_s * 1000, 3),
        "sets": list(recipe.sets),
        "checkpoint": str(checkpoint),
    }


def by_transformers(
    checkpoint: Path, folder: Path, data: Mapping[str, Any], device: torch.device
) -> tuple[float, int]:
    """Bits per byte of what AutoModelForCausalLM loads, and its parameters."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    model.to(device)
    torch.set_float32_matmul_precision("high")  # in half the time
    ids, first = encoded(folder, "held", Path(data["tokenizer"]))

    def nats(read: Tensor, targets: Tensor) -> Tensor:
        return nats_of(model(read).logits, targets)

    bpb = bits_per_byte(nats, [one.tolist() for one in ids], data["bytes"], first=first,
                        context=data["context"], batch=16, device=device)  # fmt: skip
    return bpb, sum(weight.numel() for weight in model.parameters())


def nats_of(logits: Tensor, targets: Tensor) -> Tensor:
    """(B T,) from logits (B, T, V)."""
    wide = logits.float().flatten(0, 1)
    return F.cross_entropy(wide, targets.flatten(), ignore_index=UNSCORED, reduction="none")


class Results:
    """What is known so far, in a file that each result rewrites: what is there is not run again."""

    def __init__(self, file: Path) -> None:
        self.file, self._lock = file, threading.Lock()
        file.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []

    def has(self, key: Mapping[str, Any]) -> bool:
        return any(key.items() <= row.items() for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        with self._lock:
            self.rows.append(row)
            print(json.dumps(row), flush=True)
            keep(self.file, self.rows)


def keep(file: Path, document: Any) -> None:
    """As JSON, whole or not at all: another process may read it."""
    part = file.with_name(f"part-{os.getpid()}-{file.name}")
    part.write_text(json.dumps(document, indent=1, default=str))
    part.replace(file)


def spread(
    keys: Sequence[dict[str, Any]],
    script: Path,
    words: Sequence[object],
    *,
    out: Path,
    results: Results,
    cards: int,
    until: float,
    each_s: float,
) -> list[str]:
    """Each of `keys` (run, seed, seconds) by a process `script --worker RUN@SEED WORDS` that sees
    one GPU; what is known is left out. None begins that would not be done by `until`, of
    time.monotonic(). What was not done, in words.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = (seen.split(",") if seen else list(map(str, range(cards))))[:cards]
    left: list[str] = []

    def one(key: dict[str, Any], card: str) -> None:
        name = f"{key['run']}@{key['seed']}"
        if time.monotonic() + each_s > until:
            left.append(f"{name}: no time left in this call")
            return
        begun, tag = time.monotonic(), f"{name}-{key['seconds']:g}"
        found, log = out / f"{tag}.json", out / f"{tag}.log"
        found.unlink(missing_ok=True)
        env = os.environ | {
            "CUDA_VISIBLE_DEVICES": card,
            "ALBOR_HOME": str(out / "home"),
        }
        line = [sys.executable, script, "--worker", name, "--result", found, *words]
        with log.open("w") as stream:
            done = subprocess.run(
                list(map(str, line)), stdout=stream, stderr=stream, env=env, cwd=ROOT
            )
        if done.returncode or not found.exists():
            left.append(f"{name}: exit {done.returncode}, {log}: {log.read_text()[-1500:]}")
            return
        wall = round(time.monotonic() - begun, 1)
        results.add(key | json.loads(found.read_text()) | {"wall_s": wall, "card": card})

    for _ in over_cards([key for key in keys if not results.has(key)], one, names):
        pass
    return left
