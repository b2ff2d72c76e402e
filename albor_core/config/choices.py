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
ScheduleName = Literal["cosine", "linear", "sqrt", "constant"]
"""training.lr_scheduler -> train/optim/schedules.py"""
PackingName = Literal["concat", "best-fit"]
"""data.packing -> data/pack/work/pieces.py (PACKINGS)"""
ShuffleName = Literal["rows", "documents"]
"""data.shuffle -> data/load/source.py"""
AlertAction = Literal["notify", "command", "checkpoint", "pause", "rollback", "stop"]
"""action of a rule -> andon/actions.py, in order of strength"""
BudgetAction = Literal["notify", "checkpoint", "pause", "stop"]
"""action of a budget: some of those"""
Severity = Literal["info", "warning", "error", "critical"]
"""severity of a rule -> andon/severity.py"""
HealthCheck = Literal[
    "gpu", "plateau", "expected_loss", "gradients", "noise", "schedule", "drift", "speed"
]
"""monitoring.health.ignore -> andon/health/facts.py (CHECKS)"""
SinkKind = Literal["webhook", "command", "desktop", "console"]
"""monitoring.notify.kind -> run/values/sink_fields.py (SINK_KINDS)"""
WebhookFormat = Literal["json", "slack", "discord", "ntfy"]
"""monitoring.notify.format -> run/values/sink_fields.py (FORMATS)"""
SinkSeverity = Literal["info", "warning", "error", "critical"]
"""monitoring.notify.severity -> run/values/sink_fields.py (THRESHOLDS), mildest first"""
