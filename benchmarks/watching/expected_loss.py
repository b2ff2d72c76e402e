"""How often the expected loss speaks of equal runs, and how early of a tenth of the learning rate.

    python benchmarks/watching/expected_loss.py [--runs 100] [--seed 0] [--json]

Simulated runs: the reducible loss falls as a power of the summed learning rate (so that a tenth of
the rate makes a tenth of the way), with a warm-up and a cosine; the noise is that of batches
(white) and of data that stays for a while (AR(1), up to 0.97, and a slow wave), each seed has a
speed and a level of its own. Every kind of noise, length and exponent is drawn anew for each pair.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from pathlib import Path

from albor_core.andon.health.curve import Curve
from albor_core.andon.health.expected_loss import ABOVE, ON_TRACK, ExpectedLoss

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

EARLY = 0.15


def recipe(rng: random.Random) -> dict:
    """What the runs of one config have in common."""
    return {
        "steps": rng.choice((1_000, 3_000, 10_000)),
        "floor": rng.uniform(0.8, 2.5),
        "reducible": rng.uniform(4.0, 8.0),
        "exponent": rng.uniform(0.2, 0.6),
        "start": rng.uniform(0.002, 0.01),
        "warmup": rng.choice((0.0, 0.01, 0.02, 0.05)),
        "white": rng.uniform(0.005, 0.04),
        "memory": rng.choice((0.5, 0.8, 0.9, 0.97)),
        "remembered": rng.uniform(0.002, 0.02),
        "wave": rng.uniform(0.0, 0.004),
        "log_every": rng.choice((1, 5, 10)),
    }


def simulate(rng: random.Random, of: dict, *, rate: float = 1.0) -> Curve:
    """One run of it, with `rate` times the learning rate."""
    steps, values, done, drift = [], [], 0.0, 0.0
    speed, level = 1 + rng.gauss(0, 0.02), 1 + rng.gauss(0, 0.004)
    phase, period = rng.uniform(0, math.tau), rng.uniform(0.05, 0.3)
    for step in range(1, of["steps"] + 1):
        share = step / of["steps"]
        warm = min(1.0, share / of["warmup"]) if of["warmup"] else 1.0
        done += rate * speed * warm * (0.55 + 0.45 * math.cos(math.pi * share)) / of["steps"]
        if step % of["log_every"]:
            continue
        loss = of["floor"] + of["reducible"] * (1 + done / of["start"]) ** -of["exponent"]
        scale = of["remembered"] * math.sqrt(1 - of["memory"] ** 2)
        drift = of["memory"] * drift + rng.gauss(0, scale)
        wave = of["wave"] * math.sin(phase + math.tau * share / period)
        steps.append(float(step))
        values.append(level * loss * math.exp(drift + wave + rng.gauss(0, of["white"])))
    return Curve(steps, values)


def judged(references: list[Curve], curve: Curve, num_steps: int) -> list[tuple[float, str]]:
    """(share of the run, word) at every change of the word."""
    judge, found = ExpectedLoss(references, num_steps=num_steps), []
    for step, value in zip(curve.steps, curve.values, strict=True):
        said = judge.take(step, value)
        if said is not None and (not found or found[-1][1] != said.word):
            found.append((step / num_steps, said.word))
    return found


def measure(runs: int, seed: int, *, references: int = 1) -> dict:
    """Of `runs` recipes: equal runs that are spoken of, tenths that are seen early."""
    spoken, early, late = 0, 0, []
    for number in range(runs):
        rng = random.Random(f"{seed}/{number}")
        of = recipe(rng)
        earlier = [simulate(rng, of) for _ in range(references)]
        equal = judged(earlier, simulate(rng, of), of["steps"])
        spoken += any(word != ON_TRACK for _, word in equal)
        tenth = judged(earlier, simulate(rng, of, rate=0.1), of["steps"])
        first = next((share for share, word in tenth if word == ABOVE), math.inf)
        early += first <= EARLY
        late.append(first)
    own = sum(
        any(word != ON_TRACK for _, word in judged([], simulate(rng, of), of["steps"]))
        for rng in (random.Random(f"own/{seed}/{n}") for n in range(runs))
        for of in (recipe(rng),)
    )
    late.sort()
    return {
        "runs": runs,
        "seed": seed,
        "references": references,
        "equal_runs_spoken_of": spoken,
        "tenth_rate_above_within_15_percent": early,
        "median_share_at_which_a_tenth_is_above": late[len(late) // 2],
        "equal_runs_spoken_of_by_their_own_curve": own,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=positive, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for references in (1, 3):
        found = measure(options.runs, options.seed, references=references)
        print(
            json.dumps(found)
            if options.json
            else "\n".join(f"{k:45} {v}" for k, v in found.items())
        )


if __name__ == "__main__":
    main()
