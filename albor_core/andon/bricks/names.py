"""What the timed parts of a step are called, and how those that are one program are called.

| brick | what it is the time of |
| --- | --- |
| data | reading the step's batches; on a GPU what the device waits for them |
| h2d | copying them to the device |
| forward | the model, up to its last hidden state |
| loss | output head and cross-entropy |
| backward | gradients, with those of other ranks |
| clip | their norm, and scaling them |
| optimizer | the update of the weights |
| other | what of the step's wall time is in none of these; measured, never left out |
| eval | validation and samples |
| checkpoint | what the loop itself does for one: the copy to the host, waiting for a disk |
| log | judging and writing down an interval's figures |

The first eight make up a step and are ms per step. The last three happen between steps: they are ms
of the log interval in which they end, and absent from one in which they do not.

Parts that a compiler, a CUDA graph or one kernel joins are one brick, named by all of them in this
order: `forward+loss`, `clip+optimizer`. Nothing is taken apart for the sake of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager

Brick = Callable[[str], AbstractContextManager[object]]
"""Counts the time inside towards the brick of that name; `nullcontext` for those who count none."""
OTHER = "other"
OF_STEP = ("data", "h2d", "forward", "loss", "backward", "clip", "optimizer", OTHER)
OF_INTERVAL = ("eval", "checkpoint", "log")
BRICKS = (*OF_STEP, *OF_INTERVAL)
_ORDER = {name: at for at, name in enumerate(BRICKS)}
_GIVES_ITS_BUDGET = ("forward", "optimizer", "backward", "data")
"""The parts whose budget a joined brick takes over, where it is the only one that was set: the rest
is small beside them.
"""


def brick_name(key: str) -> str:
    """The brick of a key: `data`, `data_ms` and `brick/data_ms` are the same."""
    return key.removeprefix("brick/").removesuffix("_ms")


def brick_key(brick: str) -> str:
    """The key of a brick in the journal."""
    return f"brick/{brick}_ms"


def joined(parts: Iterable[str]) -> str:
    """The name of the brick that combines these parts."""
    return "+".join(sorted(parts, key=_ORDER.__getitem__))


def parts_of(brick: str) -> tuple[str, ...]:
    """The parts of a brick: usually only itself."""
    return tuple(brick.split("+"))


def is_brick(name: str) -> bool:
    """Whether `name` is a valid brick name: one part, or several in order."""
    parts = parts_of(name)
    known = all(part in _ORDER for part in parts) and len({*parts}) == len(parts)
    return known and joined(parts) == name and (len(parts) == 1 or {*parts} <= {*OF_STEP[:-1]})


def is_of_step(brick: str) -> bool:
    """Whether the brick is part of every step; its figure is then ms per step."""
    return parts_of(brick)[0] not in OF_INTERVAL


def in_order(bricks: Iterable[str]) -> list[str]:
    """The bricks in the order of a step; other names last."""
    return sorted(bricks, key=lambda name: (_ORDER.get(parts_of(name)[0], len(_ORDER)), name))


def stands_in(brick: str, there: Collection[str]) -> str:
    """The brick of `there` that contains `brick`: itself, or the one that it is joined into, or
    itself again if none does.
    """
    if brick in there:
        return brick
    mine = {*parts_of(brick)}
    return next((found for found in there if mine <= {*parts_of(found)}), brick)


def budgets_of(section: Mapping[str, object]) -> dict[str, float]:
    """The budgets by brick in a `monitoring.bricks` section, which may be any program's."""
    return {
        brick_name(key): float(value)
        for key, value in section.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
        if is_brick(brick_name(key))
    }


def fit_budgets(budgets_ms: Mapping[str, float], there: Collection[str]) -> dict[str, float]:
    """Budgets for the bricks that are `there`.

    A joined brick gets its own budget, or else the sum of its parts'. If some parts have none, it
    gets the sum of the others', if forward, optimizer, backward or data is one of them.
    Budgets of absent bricks stay under their own names.
    """
    found: dict[str, float] = {}
    used: set[str] = set()
    for brick in there:
        parts = parts_of(brick)
        of_parts = {part: budgets_ms[part] for part in parts if part in budgets_ms}
        is_main = any(part in _GIVES_ITS_BUDGET for part in of_parts)
        if brick in budgets_ms:
            found[brick] = budgets_ms[brick]
        elif of_parts and (is_main or len(of_parts) == len(parts)):
            found[brick] = sum(of_parts.values())
        used |= {brick, *parts}
    return {**{name: ms for name, ms in budgets_ms.items() if name not in used}, **found}
