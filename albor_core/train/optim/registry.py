"""The optimizers, by the values of optimizer.name (config/choices.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.train.optim import adamw, muon
from albor_core.train.optim.adamw import FlatAdamW, Group, Optimizer


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
