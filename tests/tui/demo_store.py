"""A home full of runs, the same on every machine: for work on screens without a GPU.

    python tests/tui/demo_store.py            builds it in a temporary folder, opens the cockpit
    python tests/tui/demo_store.py --home DIR --runs 200 --live 0

200 runs: completed, stopped, failed and lost ones, with alerts, tags, notes, NaN, long, hostile
and non-Latin names; three of them are written at this moment by real processes under real guards,
which obey pause, checkpoint and stop. Everything is removed when the cockpit is left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from albor_core.run.control import send
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.program.argv import module_argv, module_env
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.index.indexer import Indexer

HERE = Path(__file__).resolve().parent
RUNS, LIVE = 200, 3
DAY_S = 86_400.0
NAMES = (
    "code-125m", "code-350m", "sweep-lr", "distill-50m", "fim-mix", "long-context", "ablate-rope",
    "baseline", "wide", "deep", "warmup-2k", "dedup-v2",
)  # fmt: skip
ODD_NAMES = (
    "\u0434\u0438\u0441\u0442\u0438\u043b\u043b\u044f\u0446\u0438\u044f",
    "\u8a00\u8a9e\u30e2\u30c7\u30eb-125m",
    "\ucf54\ub4dc-\ubaa8\ub378",
    "\u0646\u0645\u0648\u0630\u062c-\u0644\u063a\u0648\u064a",
    "mod\u00e8le-de-r\u00e9f\u00e9rence",
    "a-very-long-name-that-somebody-gave-a-run-because-it-says-every-hyperparameter-lr3e-4-wd0.1",
    "[bold red]not markup[/]",
    "bell\x07-and-\x1b[31mescape",
    "rtl \u202eoverride",
    "zero\u200bwidth",
)
EXPERIMENTS = ("pretrain", "sweep", "distill", "ablation")
TAGS = ("ablation", "keep", "paper", "suspicious")
ENDS = ("completed",) * 12 + ("stopped",) * 3 + ("failed",) * 3 + ("lost",) * 2
ERRORS = (
    "CUDA out of memory: tried to allocate 2.50 GiB",
    "loss is NaN for 10 steps",
    "NCCL watchdog timeout after 600 s",
    "No space left on device",
)
RULES = [
    {"condition": "loss > 9", "action": "stop", "message": "loss exploded"},
    {"condition": "gradient_norm > 5", "action": "warn", "message": "gradients are large"},
]


def build(home: Path, *, runs: int = RUNS, seed: int = 7, now: float | None = None) -> None:
    """Fill `home` (made the ALBOR_HOME of this process) with `runs` ended runs."""
    os.environ["ALBOR_HOME"] = str(home)
    rng = random.Random(seed)
    now = time.time() if now is None else now
    for number in range(runs):
        created = now - (runs - number) * DAY_S / 8 - 600
        run = _history(home / "runs", number, rng, created)
        with Indexer(run, global_store()) as indexer:
            indexer.drain()


def _history(parent: Path, number: int, rng: random.Random, created: float) -> RunDir:
    odd = number % 20 == 11
    name = ODD_NAMES[number // 20 % len(ODD_NAMES)] if odd else f"{rng.choice(NAMES)}-{number:03d}"
    end, lr = rng.choice(ENDS), rng.choice((1e-4, 3e-4, 1e-3, 3e-3))
    max_steps = rng.choice((1_000, 2_000, 10_000))
    resolved = {
        "optimizer": {"lr": lr, "weight_decay": rng.choice((0.0, 0.1))},
        "model": {"architecture": {"hidden_size": rng.choice((512, 768, 1024))}},
        "training": {"seed": number, "max_steps": max_steps, "warmup_steps": 0},
        "monitoring": {"alerts": RULES},
    }
    run = create_run(
        parent,
        f"demo-{number:03d}",
        experiment=rng.choice(EXPERIMENTS),
        name=name,
        kind="train",
        argv=["albor", "train", "apply", "configs/demo.yaml"],
        seed=number,
        config=b"# a demo\n",
        resolved=resolved,
        facts={"max_steps": max_steps},
        created=created,
    )
    share = 1.0 if end == "completed" else rng.uniform(0.05, 0.95)
    _journal(run, rng, created, resolved, round(max_steps * share), end)
    if end != "lost":
        _last_words(run, end, round(max_steps * share), created + 3_600, rng)
    for tag in rng.sample(TAGS, rng.choice((0, 0, 1, 2))):
        annotate(run, "tag", tag)
    if number % 40 == 3:
        annotate(run, "pin")
        annotate(run, "note", "the one that the others are compared with")
    return run


def _journal(
    run: RunDir,
    rng: random.Random,
    created: float,
    resolved: dict[str, Any],
    last: int,
    end: str,
) -> None:
    journal = Journal(run.journal, attempt=1)
    try:
        journal.append("e", step=0, name="run.start", severity="info", data={}, wall=created)
        for key, value in _flat(resolved):
            journal.append("p", key=key, value=value, wall=created)
        lr = resolved["optimizer"]["lr"]
        spike = rng.randrange(40, 120) if rng.random() < 0.35 else -1
        points = 150
        for i in range(1, points + 1):
            step, wall = max(1, last * i // points), created + 3_600 * i / points
            loss = 2.0 + 0.2 * abs(math.log10(lr / 5e-4)) + 8.5 / (1 + i / 4) ** 0.9
            norm = 0.4 + abs(rng.gauss(0, 0.12)) + (7.0 if i == spike else 0.0)
            broken = end == "failed" and i > points - 8
            values = {
                "train/loss": math.nan if broken else loss + rng.gauss(0, 0.06),
                "optim/lr": lr * min(1.0, i / 10) * (0.55 + 0.45 * math.cos(math.pi * i / points)),
                "optim/grad_norm": math.inf if broken else norm,
                "perf/tokens_per_s": 187_000 + rng.gauss(0, 1_500),
                "perf/mfu": 0.41 + rng.gauss(0, 0.004),
                "train/tokens": step * 65_536,
            }
            if i % 15 == 0:
                values["val/loss"] = loss + 0.08
                values["val/ppl"] = math.exp(loss + 0.08)
            journal.metrics(step, values, wall=wall)
            if i == spike:
                _alert(journal, "gradient_norm-gt-5", "warn", norm, 5.0, step, wall)
            if broken and i == points - 7 and rng.random() < 0.7:
                _alert(journal, "loss-gt-9", "stop", math.inf, 9.0, step, wall)
    finally:
        journal.close()


def _alert(
    journal: Journal, rule: str, action: str, value: float, limit: float, step: int, wall: float
) -> None:
    metric = "train/loss" if rule.startswith("loss") else "optim/grad_norm"
    severity = "warning" if action == "warn" else "error"
    data = {
        "id": f"{rule}@1.{step}",
        "rule": rule,
        "kind": "rule",
        "severity": severity,
        "action": action,
        "metric": metric,
        "value": value if math.isfinite(value) else "inf",
        "threshold": limit,
        "message": f"{metric} {value:.2f} is above {limit:g} at step {step:,}",
        "step": step,
    }
    journal.append("e", step=step, name="andon.alert", severity=severity, data=data, wall=wall)


def _last_words(run: RunDir, end: str, step: int, wall: float, rng: random.Random) -> None:
    error = rng.choice(ERRORS) if end == "failed" else ""
    write_json(
        run.exit,
        {
            "schema": "albor.exit/1",
            "run_id": run.id,
            "attempt": 1,
            "nonce": "demo",
            "code": 1 if error else 0,
            "reason": end,
            "step": step,
            "message": error,
            "error": None,
            "wall": wall,
        },
    )


def _flat(data: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(data, dict):
        return [(prefix, data if not isinstance(data, list) else json.dumps(data))]
    pairs = ((f"{prefix}.{key}".lstrip("."), value) for key, value in data.items())
    return [leaf for key, value in pairs for leaf in _flat(value, key)]


def start_live(count: int = LIVE) -> list[RunDir]:
    """Runs that are written while you look, each under a guard of its own."""
    started = []
    for number in range(count):
        simulated = [
            sys.executable, str(HERE / "sim_run.py"),
            "--rate", str((8, 4, 2)[number % 3]), "--steps", "20000",
            "--seed", str(number), "--rich",
        ]  # fmt: skip
        argv = module_argv(
            "albor_core.cli", "guard", "run", "--name", f"live-{number}", "--detach", "--json",
            "--", *simulated,
        )  # fmt: skip
        done = subprocess.run(argv, env=module_env(), stdout=subprocess.PIPE, check=True)
        started.append(RunDir(Path(json.loads(done.stdout)["run"]["path"])))
    return started


def stop_live(runs: list[RunDir], timeout_s: float = 15.0) -> None:
    """End them and wait until nobody holds their locks."""
    for run in runs:
        send(run, "stop_now", sender="demo-store")
    deadline = time.monotonic() + timeout_s
    while any(run.liveness().is_alive for run in runs) and time.monotonic() < deadline:
        time.sleep(0.1)


def _fake_gpus(folder: Path) -> Path:
    """Two GPUs at work, for machines that have none: what ALBOR_FAKE_NVML names."""
    gpus = [
        {
            "index": index,
            "uuid": f"GPU-demo-{index}",
            "name": "NVIDIA H200",
            "util_percent": (97, 88)[index],
            "memory_used_bytes": (61 << 30, 118 << 30)[index],
            "memory_total_bytes": 140 << 30,
            "temperature_c": (64, 83)[index],
            "power_w": (612, 688)[index],
            "power_limit_w": 700,
            "sm_clock_mhz": (1830, 1545)[index],
            "memory_clock_mhz": 3201,
            "throttle_reasons": [[], ["thermal"]][index],
        }
        for index in range(2)
    ]
    path = folder / "nvml.json"
    write_json(path, {"gpus": gpus})
    return path


def open_cockpit(
    *, home: Path | None = None, runs: int = RUNS, live: int = LIVE, argv: tuple[str, ...] = ()
) -> int:
    """Build, open, clean up; the cockpit's exit code."""
    # a guard may still write its last words into the store when all else is over
    with tempfile.TemporaryDirectory(prefix="albor-ui-", ignore_cleanup_errors=True) as folder:
        place = home or Path(folder) / "home"
        began = time.monotonic()
        if not (place / "experiments.db").is_file():
            print(f"making {runs} runs", file=sys.stderr, flush=True)
            build(place, runs=runs)
            print(f"made in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        os.environ["ALBOR_HOME"] = str(place)
        os.environ.setdefault("ALBOR_FAKE_NVML", str(_fake_gpus(Path(folder))))
        started = start_live(live)
        try:
            return subprocess.run(module_argv("albor_tui.main", *argv), env=module_env()).returncode
        finally:
            stop_live(started)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--home", type=Path, help="where to; kept, and used again if it is there")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--live", type=int, default=LIVE)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("argv", nargs="*", help="arguments of albor-tui, after --")
    options = parser.parse_args()
    if options.build_only:
        build(options.home, runs=options.runs)
        return
    raise SystemExit(
        open_cockpit(
            home=options.home, runs=options.runs, live=options.live, argv=tuple(options.argv)
        )
    )


if __name__ == "__main__":
    main()
