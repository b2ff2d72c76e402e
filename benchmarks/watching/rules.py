"""Every kind of rule over one run of many steps: `python benchmarks/watching/rules.py [STEPS]`.

Prints CPU seconds of each rule, and of all; one thread does it. Needs numpy, as `albor alerts test`
does for this pace.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from albor_core.andon.rules.columns import replay_columns
from albor_core.andon.rules.engine import RuleEngine
from albor_core.andon.rules.sources import rules_from

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

RULES = (
    "loss > 10",
    "gradient_norm > 100 for 3",
    "loss is nan",
    "val_loss rises 3",
    "tokens_per_second < 0.7 * median(200)",
    "plateau(loss, 2000) < 0.5%",
    "ema(loss, 100) rises 5% over 500",
)
CLOCK_RULES = (
    "gpu.temperature > 85 for 60s",
    "gpu.utilization < 70% for 10m",
    "no step for 120s",
    "disk_free < 20GB",
)
STEP_S, SAMPLE_S = 0.25, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", type=positive, nargs="?", default=1_000_000)
    count = parser.parse_args().steps
    dice = np.random.default_rng(27)
    steps = np.arange(1, count + 1)
    walls = steps * STEP_S
    series = {
        "train/loss": 2 + 8 * steps**-0.2 + 0.05 * dice.standard_normal(count),
        "optim/grad_norm": np.exp(0.5 * dice.standard_normal(count)),
        "perf/tokens_per_s": 1e5 * (1 + 0.03 * dice.standard_normal(count)),
    }
    slow = dice.random(count) < 1e-4
    series["perf/tokens_per_s"] = np.where(slow, 5e4, series["perf/tokens_per_s"])
    val = slice(999, None, 1000)
    total = 0.0
    for rule in rules_from({"alerts": [{"condition": text} for text in RULES]}, warmup_steps=2000):
        key = rule.condition.metric
        if key == "val/loss":
            columns = (steps[val], series["train/loss"][val], walls[val])
        else:
            columns = (steps, series[key], walls)
        began = time.process_time()
        found = replay_columns(rule, *columns)
        total += told(str(rule.condition), began, len(found or ()))
        assert found is not None
    samples = np.arange(0, count * STEP_S, SAMPLE_S).tolist()
    figures = [
        (wall, {"gpu0.temperature": 70.0, "gpu0.utilization": 97.0, "disk_free": 1e11,
                "seconds_since_step": 0.2})
        for wall in samples
    ]  # fmt: skip
    entries = [{"condition": text} for text in CLOCK_RULES]
    for rule in rules_from({"alerts": entries}, warmup_steps=0):
        began, engine = time.process_time(), RuleEngine((rule,))
        fired = sum(len(engine.take_clock(wall, values)) for wall, values in figures)
        total += told(str(rule.condition), began, fired)
    print(f"{total:7.2f} s  {len(RULES) + len(CLOCK_RULES)} rules over {count:,} steps")


def told(text: str, began: float, alerts: int) -> float:
    seconds = time.process_time() - began
    print(f"{seconds:7.2f} s  {text}  ({alerts} said)")
    return seconds


if __name__ == "__main__":
    main()
