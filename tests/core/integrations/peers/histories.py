"""Random histories of training, each from its seed: what the writers beside this give to the peers.

A history is what a program did: jobs one behind the other, each of which logs rows. How a peer
takes it is the writer's; what an import must give back is the writer's Truth. Nothing but the
standard library, since each peer has an environment of its own.
"""

import math
import random
from dataclasses import asdict, dataclass, field

KINDS = ("steps", "none", "resumed", "forked", "axis", "nan", "splits", "long")
ALIKE = ("steps", "nan", "splits")  # what every peer can keep as it was said
LONG = 3_000


@dataclass(frozen=True)
class Row:
    """One call of `log`; `step` is where the program meant it, whatever the peer is told."""

    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class History:
    """`jobs` of one run, the later ones after the earlier. Of kind `none` no step is given to the
    peer, of kind `axis` the step is a metric that the peer is told to take for one; of `forked` the
    second job begins anew from `fork`, and what the first had behind it is void.
    """

    name: str
    kind: str
    jobs: tuple[tuple[Row, ...], ...]
    fork: int | None = None


@dataclass
class Truth:
    """What an import must give: metric -> [[step, value], ...], and counts of what is left out."""

    name: str
    metrics: dict[str, list[list[float]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict:
        return asdict(self)


def histories(count: int, kinds: tuple[str, ...] = KINDS) -> list[History]:
    """`count` of them, of these kinds in turn. The same for the same count, and a shorter list is
    the beginning of a longer one.
    """
    return [history(index, kinds) for index in range(count)]


def history(index: int, kinds: tuple[str, ...] = KINDS) -> History:
    kind = kinds[index % len(kinds)]
    chance = random.Random(f"albor {index}")
    stride = 1 if kind == "none" else chance.choice((1, 1, 5, 10, 50, 128))
    count = LONG if kind == "long" else chance.randint(6, 40)
    start = stride * chance.randint(0, 3)
    if kind == "none":
        start = 0
    curve = _Curve(chance, kind)
    steps = [start + stride * i for i in range(count)]
    first = tuple(curve.row(step) for step in steps)
    jobs, fork = (first,), None
    if kind in ("resumed", "forked"):
        back = chance.randint(1, count // 2)  # rows since the last checkpoint
        behind = [steps[-1] + stride * (i + 1 - back) for i in range(chance.randint(back, 30))]
        jobs = (first, tuple(curve.row(step) for step in behind))
        fork = behind[0] - 1 if kind == "forked" else None
    return History(f"{kind}-{index:03d}", kind, jobs, fork)


class _Curve:
    """Values of a training: a falling loss, and beside it what the kind is about."""

    def __init__(self, chance: random.Random, kind: str) -> None:
        self._chance, self._kind = chance, kind
        self._level, self._fall = chance.uniform(2.0, 11.0), chance.uniform(0.001, 0.05)
        self._rows = 0

    def row(self, step: int) -> Row:
        self._rows += 1
        loss = self._level * math.exp(-self._fall * self._rows) + self._chance.gauss(0.0, 0.02)
        values = {"train/loss": loss, "optim/rate": 0.001 / self._rows}
        if self._kind == "nan" and self._chance.random() < 0.3:
            values["train/loss"] = self._chance.choice((math.nan, math.inf, -math.inf))
        if self._kind == "splits" or self._chance.random() < 0.2:
            values["val/loss"] = loss * 1.1
        return Row(step, values)


def placed(rows: list[tuple[int, dict[str, float]]]) -> tuple[dict[str, list[list[float]]], int]:
    """The series that rows at steps make, the last value of a step counting; and how many values
    were replaced by other ones.
    """
    found: dict[str, dict[int, float]] = {}
    replaced = 0
    for step, values in rows:
        for key, value in values.items():
            series = found.setdefault(key, {})
            replaced += step in series and repr(series[step]) != repr(value)
            series[step] = value
    ordered = {
        key: [[step, series[step]] for step in sorted(series)] for key, series in found.items()
    }
    return ordered, replaced
