"""Whether one group of figures lies below another, or is equal to it within a margin.

    python research/verdict_of_seeds.py FILE [FILE ...] --of RUN --against RUN
                                        [--margin 0.02]

compares the last validation losses of two runs of pretrain.py, as its --json has them, seed by
seed: equal within the margin where both one-sided t-tests of the differences refuse more
(Schuirmann 1987), and the step time that --of saves. Of groups the test is Welch's, as scipy has
it. Exit code 2 where a file has no such runs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import above_zero, there


def welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """t of mean(a) - mean(b), degrees of freedom, two-sided p. Two figures each at least; where
    neither group varies t is infinite, or 0 for equal ones.
    """
    va, vb = (statistics.variance(one) / len(one) for one in (a, b))
    apart = statistics.fmean(a) - statistics.fmean(b)
    if va + vb == 0:
        return (math.copysign(math.inf, apart), 1.0, 0.0) if apart else (0.0, 1.0, 1.0)
    t = apart / math.sqrt(va + vb)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return t, freedom, _beyond(t, freedom)


def _beyond(t: float, freedom: float) -> float:
    """P(|T| > |t|) of Student's T: the regularised incomplete beta function at v / (v + t^2)."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) by Lentz's continued fraction (Press et al., Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    tiny = 1e-300
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            found *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * found / a


def compare(
    ours: Sequence[float], theirs: Sequence[float], *, margin: float, p_below: float = 0.01
) -> dict[str, Any]:
    """Mean, deviation, difference, test; `holds`: ours is `margin` lower or more, and p is small.
    Without two figures of each there is no test, without three no claim.
    """
    groups = {"ours": ours, "theirs": theirs}
    about: dict[str, Any] = {
        name: {
            "n": len(one),
            "mean": statistics.fmean(one),
            "sd": statistics.stdev(one) if len(one) > 1 else None,
        }
        for name, one in groups.items()
    }
    about["difference"] = about["ours"]["mean"] - about["theirs"]["mean"]
    if min(len(ours), len(theirs)) < 2:
        return about | {"t": None, "p": None, "holds": False}
    t, freedom, p = welch(ours, theirs)
    enough = min(len(ours), len(theirs)) >= 3
    holds = enough and about["difference"] <= -margin and p < p_below
    return about | {"t": t, "freedom": freedom, "p": p, "holds": holds}


def equal(differences: Sequence[float], *, margin: float, p_below: float = 0.05) -> dict[str, Any]:
    """Whether the mean of paired differences lies within `margin` of 0: `p` is that of the worse of
    two one-sided t-tests, `p_above` that it is `margin` above 0 or more. Three pairs at least.
    """
    n, mean = len(differences), statistics.fmean(differences)
    sd = statistics.stdev(differences) if n > 1 else 0.0
    told: dict[str, Any] = {"pairs": n, "mean": mean, "sd": sd, "margin": margin}
    if n < 3 or not sd:
        return told | {"p": None, "p_above": None, "holds": False}
    p_above, p_under = (
        _upper((margin - side * mean) / (sd / math.sqrt(n)), n - 1) for side in (1, -1)
    )
    p = max(p_above, p_under)
    return told | {"p": p, "p_above": p_above, "holds": p < p_below}


def _upper(t: float, freedom: float) -> float:
    """P(T > t)."""
    return _beyond(t, freedom) / 2 if t > 0 else 1 - _beyond(t, freedom) / 2


def name_of(row: Mapping[str, Any]) -> str:
    """As --runs of pretrain.py says it, without the seed."""
    return "+".join((str(row["run"]), *row["sets"]))


def by_seed(rows: Iterable[Mapping[str, Any]], name: str) -> dict[int, Mapping[str, Any]]:
    """Its runs; of a seed that ran twice the later one."""
    return {row["seed"]: row for row in rows if name_of(row) == name}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=there, nargs="+", metavar="FILE")
    parser.add_argument("--of", required=True, metavar="RUN")
    parser.add_argument("--against", required=True, metavar="RUN")
    parser.add_argument("--margin", type=above_zero, default=0.02, help="nats a token")
    options = parser.parse_args()
    rows: list[Mapping[str, Any]] = []
    for file in options.files:
        try:
            rows += [row for row in json.loads(file.read_text()) if name_of(row) and loss_of(row)]
        except (OSError, ValueError, TypeError, LookupError) as error:
            parser.error(f"{file}: not what pretrain.py --json writes: {error!r}")
    mine, other = (by_seed(rows, name) for name in (options.of, options.against))
    seeds = sorted(mine.keys() & other.keys())
    if not seeds:
        known = ", ".join(sorted({name_of(row) for row in rows}))
        parser.error(f"no seed of both {options.of} and {options.against}; there are {known}")
    pairs = [(mine[seed], other[seed]) for seed in seeds]
    told = equal([loss_of(a) - loss_of(b) for a, b in pairs], margin=options.margin)
    saved = [1 - b["tokens_per_s"] / a["tokens_per_s"] for a, b in pairs]
    print(json.dumps({"seeds": seeds, **told, "step_time_saved": statistics.median(saved)}))
    return 0


def loss_of(row: Mapping[str, Any]) -> float:
    return float(row["validation"][-1]["loss"])


if __name__ == "__main__":
    sys.exit(main())
