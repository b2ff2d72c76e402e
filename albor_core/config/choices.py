"""The names that a config chooses an implementation by.

The implementations stand in tables that may need torch, which a config must not load; a test holds
each list here to its table.
"""

from __future__ import annotations

from typing import Literal

OptimizerName = Literal["adamw", "muon"]
"""optimizer.name -> train/optim/registry.py"""
FUSED_OPTIMIZERS = frozenset(("adamw", "muon"))
"""Those that the fused step can take; a run with another trains in a plain one."""
ScheduleName = Literal["cosine", "linear", "constant"]
"""training.lr_scheduler -> train/optim/schedules.py"""
AlertAction = Literal["warn", "pause", "stop"]
"""action of a rule or a budget -> andon/actions.py, in order of strength"""
