"""What a recipe reaches: the Python sources installed here, trained on by the product: one GPU.

    python research/pretrain.py --out DIR [--runs adamw best@2 398m] [--steps N]
                                 [--every N] [--cards N] [--json FILE]

Corpus: every .py file of the standard library and of site-packages, exact duplicates dropped, at
most 100 kB, at least a quarter letters; whole packages are held out, and files equal to one of
theirs with them (near-duplicates are not looked for). A byte-level BPE of 32,768, rows of 1,024.
Everything goes through `albor tokenizer`, `albor data` and `albor train apply` with
configs/train/pretrain-50m.yaml and -350m.yaml; only what RECIPES names is set. 5 % warm-up, cosine
to a tenth, clip 1.0 without ZClip, weight decay 0.1, bf16. `best` takes pretrain-50m-muon.yaml as
it is. The trainer of `adamw` is killed (-9) half-way; its guard resumes it. `398m` has the schedule
of 78.0M tokens and is stopped at 26.3M, `398m-whole` is not; `398m-best` and `398m-best-whole`
take pretrain-350m-muon.yaml likewise. `--steps` shortens the schedule of all; `--every` has that
many between evaluations; both count steps of 64 rows. START-HEAD-END, such as quiet-tied-cosine, is
Muon's recipe with another start of the weights (ordinary: normal 0.02, writers 0.028 / sqrt(2 L),
norms of 1), an untied head, or a rate that falls linearly to 0.
NAME+FIELD=VALUE sets a field of the config besides. NAME@SEED has a seed of its own for the weights
and the order of the rows; the corpus and what is held out stay the same. NAME:STEPS has a schedule
of its own. Runs are spread over `--cards`, one at a time on each.
Validation: all that is held out. Exit code 2 without a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jobs import ROOT, over_cards

from albor_core.data.pack.shard_writer import write_shard
from albor_core.data.pack.special_tokens import END_OF_TEXT
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.run.rundir import RunDir
from albor_core.run.state import read_state
from albor_core.run.status import ENDS

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import new_file_below, new_folder, positive

HELD_OUT = (
    *("xarray", "anyio", "click", "torchdiffeq", "cloudpickle", "json", "http", "sqlite3"),
    *("logging", "concurrent", "argparse.py", "tarfile.py", "difflib.py", "statistics.py"),
)
COLUMNS = ("text", "source", "file")
LARGEST, LETTERS = 100_000, 0.25
UNUSED = 0.002  # of the training files: packing splits off a validation of its own
T = 1024
POLL_S, LIMIT_S = 0.25, 560.0
STEPS, BATCH = 1190, 64  # of 1,024 tokens; a recipe with a smaller batch has more steps


@dataclass(frozen=True)
class Recipe:
    """One run: what differs from the config's own."""

    config: str
    lr: float
    sets: tuple[str, ...] = ()
    killed_at: int | None = None
    stopped_at: int | None = None
    batch: int = BATCH


EVERY = 401  # steps between evaluations: 26.3M tokens
SMALL, LARGE = "configs/train/pretrain-50m.yaml", "configs/train/pretrain-350m.yaml"
RECIPES = {
    "adamw": Recipe(SMALL, 2e-3, killed_at=600),
    "muon": Recipe(SMALL, 3e-3, ("optimizer.name=muon", "optimizer.muon_lr=5e-3")),
    "398m": Recipe(LARGE, 1e-3, stopped_at=EVERY),
    "398m-bf16-residual": Recipe(
        LARGE, 1e-3, ("training.residual_in_fp32=false",), stopped_at=EVERY
    ),
}


PRODUCTS = list(RECIPES)
_MUON = RECIPES["muon"]
_STARTS = {
    "quiet": (),
    "ordinary": (
        "model.initialization.mirrored=false",
        "model.initialization.matrix=0.707",  # 0.02 at 512 channels
        "model.initialization.residual=1",
    ),
}
_HEADS = {"tied": (), "untied": ("model.architecture.tie_word_embeddings=false",)}
_ENDS = {"cosine": (), "linear": ("training.lr_scheduler=linear", "optimizer.min_lr=0")}
RECIPES |= {
    f"{start}-{head}-{end}": Recipe(
        _MUON.config, _MUON.lr, (*_MUON.sets, *_STARTS[start], *_HEADS[head], *_ENDS[end])
    )
    for start in _STARTS
    for head in _HEADS
    for end in _ENDS
}
RECIPES |= {
    f"muon-b{batch}-{rate:g}": Recipe(
        SMALL, lr, ("optimizer.name=muon", f"optimizer.muon_lr={rate:g}"), batch=batch
    )
    for batch in (64, 32, 16)
    for rate, lr in ((2.5e-3, 1.5e-3), (3.5e-3, 2.1e-3), (5e-3, 3e-3), (1e-2, 6e-3))
}
"""Batches of fewer rows at the same number of tokens, each with rates of its own."""
RECIPES["adamw-b32"] = Recipe(SMALL, 1.4e-3, batch=32)  # 2e-3 over the root of 2
BEST, BEST_LR = "configs/train/pretrain-50m-muon.yaml", 6e-3
RECIPES["best"] = Recipe(BEST, BEST_LR, ("optimizer.min_lr=0",), batch=32)
_BEST_LARGER = replace(RECIPES["best"], config="configs/train/pretrain-350m-muon.yaml")
RECIPES |= {
    "398m-whole": replace(RECIPES["398m"], stopped_at=None),
    "398m-best": replace(_BEST_LARGER, stopped_at=2 * EVERY),
    "398m-best-whole": _BEST_LARGER,
}


@dataclass(frozen=True)
class Asked:
    """A recipe to run; without a seed, the config's."""

    name: str
    seed: int | None = None
    steps: int | None = None
    """Of 64 rows; without it --steps."""
    sets: tuple[str, ...] = ()
    """What else is set."""

    @classmethod
    def read(cls, word: str) -> Asked:
        rest, colon, steps = word.partition(":")
        rest, at, seed = rest.partition("@")
        name, *sets = rest.split("+")
        numbers = [number for mark, number in ((at, seed), (colon, steps)) if mark]
        is_right = all(number.isdecimal() for number in numbers) and all("=" in one for one in sets)
        if name not in RECIPES or not is_right:
            wanted = "RECIPE[+FIELD=VALUE ...][@SEED][:STEPS]"
            raise argparse.ArgumentTypeError(f"{word!r} is not {wanted}")
        return cls(name, int(seed) if at else None, int(steps) if colon else None, tuple(sets))

    def __str__(self) -> str:
        """Short enough for a run's name."""
        told = [one.partition("=") for one in self.sets]
        own = [f"{field.rpartition('.')[2]}-{value}" for field, _, value in told]
        numbers = [word for word in (self.seed and f"seed-{self.seed}", self.steps) if word]
        return "-".join(map(str, (self.name, *own, *numbers)))

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.name]


def write_corpora(folder: Path) -> None:
    """`train` and `held` as Parquet: text, source (the package), file."""
    places = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    rows: dict[str, list[tuple[str, str, str]]] = {"held": [], "train": []}
    files = sorted((path for place in places for path in place.rglob("*.py")), key=str)
    seen: set[bytes] = set()
    found: dict[str, list[tuple[Path, str]]] = {"held": [], "train": []}
    for path in dict.fromkeys(files):
        place = max((p for p in places if path.is_relative_to(p)), key=lambda p: len(p.parts))
        package = path.relative_to(place).parts[0]
        if path.is_file():
            found["held" if package in HELD_OUT else "train"].append((path, package))
    for split, paths in found.items():  # held out first: nothing equal to it is trained on
        for path, package in paths:
            text = path.read_text(encoding="utf-8", errors="ignore")
            key = hashlib.sha256(text.encode()).digest()
            if key not in seen and is_code(text):
                seen.add(key)
                rows[split].append((text, package, str(path)))
    for split, kept in rows.items():
        columns = dict(zip(COLUMNS, map(list, zip(*kept, strict=True)), strict=True))
        pq.write_table(pa.table(columns), folder / f"{split}.parquet", row_group_size=1000)
        size = sum(len(text) for text, _, _ in kept)
        packages = len({package for _, package, _ in kept})
        print(f"{split}: {len(kept):,} files, {packages} packages, {size / 1e6:.0f} MB")
    print(f"held out: {', '.join(HELD_OUT)}", flush=True)


def is_code(text: str) -> bool:
    data = np.frombuffer(text.encode(), np.uint8) | 32  # lower case
    letters = int(np.count_nonzero((data >= ord("a")) & (data <= ord("z"))))
    return 0 < len(text) <= LARGEST and letters >= LETTERS * len(data)


def albor(*words: object, card: int | None = None) -> Any:
    """The document of a command, which sees that GPU alone; None: all."""
    line = [sys.executable, "-m", "albor_core.cli", *map(str, words), "--json"]
    seen = {} if card is None else {"CUDA_VISIBLE_DEVICES": str(card)}
    env = {**os.environ, **seen}
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=env)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(line)}: exit {done.returncode}\n{done.stderr[-2000:]}{done.stdout[-2000:]}"
        )
    return json.loads(done.stdout)


def shards(folder: Path, context: int = T, packing: str = "concat") -> dict[str, Any]:
    """Folders of token rows by split, and the tokenizer; made once."""
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.exists():
        write_corpora(folder)
        albor("tokenizer", "apply", folder / "train.parquet", "-o", tokenizer,
              "--vocab-size", 32768)  # fmt: skip
    report = albor("data", "pretokenize", folder / "train.parquet", "--tokenizer", tokenizer,
                   "--seq-len", context, "-o", folder / "train",
                   "--val-fraction", UNUSED, "--packing", packing)  # fmt: skip
    train = report["splits"]["train"]
    tokens = pack_held_out(folder, tokenizer, context)
    print(f"tokens: {train['tokens']:,} to train on, {tokens:,} held out")
    return {
        "tokenizer": tokenizer,
        "train": train["folder"],
        "held": folder / "held",
        "held_tokens": tokens,
    }


def pack_held_out(folder: Path, file: Path, context: int) -> int:
    """All of held.parquet, packed like the rest but not split; the number of tokens."""
    tokenizer, texts = load_tokenizer(file), pq.read_table(folder / "held.parquet")["text"]
    end: int = tokenizer.token_to_id(END_OF_TEXT)  # type: ignore[assignment]  # it was made with one
    (folder / "held").mkdir(exist_ok=True)
    ids = [
        one for encoded in tokenizer.encode_batch(texts.to_pylist()) for one in (*encoded.ids, end)
    ]
    rows = np.array(ids[: len(ids) // context * context], np.uint32)
    write_shard(folder / "held" / "shard-00000.parquet", rows, context)
    return len(rows)


def start(
    run: Asked, data: dict[str, Any], folder: Path, steps: int, every: int, card: int | None
) -> Path:
    """Under a guard of its own; the run directory."""
    recipe = run.recipe
    longer = BATCH // recipe.batch  # the same tokens
    sets = {
        "data.train": data["train"],
        "data.val": data["held"],
        "data.tokenizer": data["tokenizer"],
        "data.batch_size": recipe.batch,
        "optimizer.lr": recipe.lr,
        "optimizer.min_lr": recipe.lr / 10,
        "training.epochs": 2,
        "training.max_steps": steps * longer,
        "training.warmup_steps": steps * longer // 20,
        "training.gradient_accumulation": 1,
        "training.log_interval": 10 * longer,
        "training.stability.zclip": "false",
        "training.save_interval": 200 * longer,
        "training.checkpoint.save_every": 200 * longer,
        "training.eval_interval": every * longer,
        "training.eval_batches": -(-data["held_tokens"] // (T * recipe.batch)),
        "training.output_dir": folder / "runs",
        "guard.backoff_s": "[5]",
    }
    words = [f"{key}={value}" for key, value in sets.items()] + [*recipe.sets, *run.sets]
    overrides = [word for one in words for word in ("--set", one)]
    overrides += [] if run.seed is None else ["--seed", str(run.seed)]
    made = albor("train", "apply", recipe.config, "--name", str(run), "--detach", *overrides,
                 card=card)  # fmt: skip
    return Path(made["run"]["path"])


def wait(run: Path, step: int = sys.maxsize) -> dict[str, Any]:
    """The state once `step` is done or the run has ended."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        state = read_state(RunDir(run).state) or {}
        ended = state.get("phase") in ENDS
        if ended or state.get("global_step", 0) >= step:
            return state
        time.sleep(POLL_S)
    raise SystemExit(f"{run}: nothing for {LIMIT_S:.0f} s, see {run}/logs")


def train(
    asked: Asked,
    data: dict[str, Any],
    folder: Path,
    steps: int,
    every: int,
    card: int | None = None,
) -> dict[str, Any]:
    begun, recipe = time.monotonic(), asked.recipe
    run = start(asked, data, folder, asked.steps or steps, every, card)
    if recipe.killed_at is not None:
        state = wait(run, recipe.killed_at)
        os.kill(state["pid"], signal.SIGKILL)
        print(f"{asked}: trainer killed at step {state['global_step']}", flush=True)
    if recipe.stopped_at is not None:
        wait(run, recipe.stopped_at + 1)  # its evaluation is done then
        albor("guard", "stop", run)
    wait(run)
    spent = time.monotonic() - begun
    shown = albor("runs", "show", run)
    while shown["run"]["ended_status"] is None and time.monotonic() - begun < LIMIT_S:
        time.sleep(POLL_S)  # the guard is about to write it down
        shown = albor("runs", "show", run)
    points = shown["points"]
    rates = sorted(value for _, value, _ in points["perf/tokens_per_s"])
    return {
        "run": asked.name,
        "sets": asked.sets,
        "seed": asked.seed,
        "schedule": asked.steps or steps,
        "status": shown["run"]["ended_status"],
        "steps": shown["run"]["last_step"],
        "validation": [
            {"step": step, "tokens": step * recipe.batch * T, "loss": loss}
            for step, loss, _ in points["val/loss"]
        ],
        "not_finite": sum(value is None for _, value, _ in points["train/loss"]),
        "restarts": shown["run"]["attempts"] - 1,
        "tokens_per_s": rates[len(rates) // 2],
        "wall_s": round(spent, 1),
    }


def tell(results: list[dict[str, Any]], file: Path | None) -> None:
    """The newest as a line, and all so far in `file`: what is cut short leaves what it has."""
    print(json.dumps(results[-1]), flush=True)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(results, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=new_folder, required=True, help="corpus, shards and runs go here"
    )
    parser.add_argument("--runs", nargs="*", type=Asked.read, metavar="NAME",
                        default=[Asked(name) for name in PRODUCTS],
                        help=", ".join(RECIPES))  # fmt: skip
    parser.add_argument("--steps", type=positive, default=STEPS)
    parser.add_argument(
        "--every", type=positive, default=EVERY, help="steps of 64 rows between evaluations"
    )
    parser.add_argument("--cards", type=positive, default=1, help="GPUs to spread the runs over")
    parser.add_argument("--json", type=new_file_below)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("research/pretrain.py needs a CUDA GPU; torch sees none here\n")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["ALBOR_HOME"] = str(options.out / "home")
    begun = time.monotonic()
    data = shards(options.out)
    print(f"{torch.cuda.get_device_name()}; data made in {time.monotonic() - begun:.0f} s")

    def one(asked: Asked, card: int | None) -> dict[str, Any]:
        return train(asked, data, options.out, options.steps, options.every, card)

    cards = [*range(options.cards)] if options.cards > 1 else [None]
    results: list[dict[str, Any]] = []
    for result in over_cards(options.runs, one, cards):
        results.append(result)
        tell(results, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
