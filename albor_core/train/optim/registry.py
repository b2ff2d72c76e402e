"""The optimizers, by the values of optimizer.name (config/choices.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.recipes.trainable import Trainable
from albor_core.run.errors import AlborError
from albor_core.train.optim import adamw, muon
from albor_core.train.optim.adamw import FlatAdamW, Group, Optimizer, kind_of
from albor_core.train.ranks.sharding import local


@dataclass(frozen=True)
class OptimizerEntry:
    """How an optimizer is built, and how it is checked once it is."""

    plain: type[Optimizer]
    """Over the model's parameters as they are."""
    flat: type[FlatAdamW] | None
    """The same update over flat buffers, for the fused step; state under the same names. None: it
    has none yet (config/choices.py, FUSED_OPTIMIZERS)."""
    kernels: tuple[str, ...]
    """Operations of kernels/ops that `flat` calls: the fused step needs each to pass parity."""
    settings: Callable[[OptimizerConfig], dict[str, Any]]
    """Keyword arguments of both classes."""
    expected: Callable[[OptimizerConfig], dict[str, dict[str, float]]]
    """Hyper-parameters by the kind of a group, as `groups` has to give them back."""


OPTIMIZERS: Mapping[str, OptimizerEntry] = {
    "adamw": OptimizerEntry(Optimizer, FlatAdamW, ("adamw",), adamw.settings, adamw.expected),
    "muon": OptimizerEntry(
        muon.MuonOptimizer, muon.FlatMuon, ("adamw", "muon"), muon.settings, muon.expected
    ),
}


def wrong_groups(
    groups: list[Group], wanted: OptimizerConfig, absent: frozenset[str] = frozenset()
) -> list[str]:
    """What does not agree with the config before the first step; fp32 rounding does not count.
    `absent`: kinds that the model has no parameters of.
    """
    expected = OPTIMIZERS[wanted.name].expected(wanted)
    missing = expected.keys() - {group.kind for group in groups} - absent
    wrong = [f"no group of {kind}" for kind in sorted(missing)]
    for group in groups:
        if group.kind not in expected:
            wrong.append(f"a group of {group.kind}")
        for name, value in expected.get(group.kind, {}).items():
            found = group.values.get(name, math.nan)
            if not math.isclose(found, value, rel_tol=1e-6):
                wrong.append(f"{name} of {group.kind} is {found:g}, not {value:g}")
    return wrong


def check_optimizer(
    optimizer: Optimizer | FlatAdamW,
    trainable: Trainable,
    wanted: OptimizerConfig,
    event: Callable[..., None],
    *,
    is_new: bool,
) -> None:
    """Check that the optimizer uses the hyper-parameters of the config, and that new state is zero.

    Raises AlborError. `event` is told what arrived.
    """
    groups = optimizer.groups()
    wrong = wrong_groups(groups, wanted, _absent_kinds(trainable, wanted))
    state = optimizer.tensors() if is_new else {}
    wrong += [f"{name} does not begin at zero" for name, t in state.items() if local(t).any()]
    told = [  # as many digits as fp32 holds: the rates lie on the device
        {"kind": group.kind, **{name: float(f"{x:.7g}") for name, x in group.values.items()}}
        for group in groups
    ]
    event("optimizer.ready", optimizer=wanted.name, groups=told)
    if wrong:
        raise AlborError(
            f"the optimizer is not the one of the config: {'; '.join(wrong[:5])}",
            hint="this is a mistake of Albor, please report it",
        )


def _absent_kinds(trainable: Trainable, wanted: OptimizerConfig) -> frozenset[str]:
    """Kinds of groups that a model without such parameters has not."""
    moved = {"hidden"} if wanted.name == "muon" else set()
    groups = {*trainable.groups().values()} - moved
    there = {kind_of(group, wanted.own_lr) for group in groups}
    return frozenset({"vectors", "matrices"} - there)
