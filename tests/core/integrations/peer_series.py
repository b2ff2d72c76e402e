"""What the fixtures contain: the series that write_fixtures.py gave to each peer, by formula."""

import math

STEPS = range(1, 41)
NAN_STEP, INF_STEP = 7, 11
CONFIG = {"lr": 0.003, "layers": 4, "optimizer": "adamw", "use_bf16": True}
SECRET = "swordfish-of-the-fixtures"


def loss(step: int) -> float:
    """A falling loss with one NaN and one Inf in it."""
    if step == NAN_STEP:
        return math.nan
    if step == INF_STEP:
        return math.inf
    return 4.0 * math.exp(-step / 16.0) + 0.125 * math.sin(step)


def rate(step: int) -> float:
    """A learning rate in a cosine."""
    return 0.003 * (1.0 + math.cos(step / 40.0 * math.pi)) / 2.0


def accuracy(step: int) -> float:
    """Reported at every tenth step only."""
    return 1.0 - 1.0 / step
