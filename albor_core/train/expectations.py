"""What the health of a training is judged against: its config, its model, earlier runs of it."""

from __future__ import annotations

from dataclasses import replace

from albor_core.andon.health.facts import HealthFacts
from albor_core.config.config import Config
from albor_core.run.rundir import read_json
from albor_core.store.file.paths import global_store
from albor_core.store.index.earlier_runs import earlier_losses
from albor_core.train.build import Parts
from albor_core.train.process.attempt import Attempt


def health_facts(life: Attempt, config: Config, parts: Parts) -> HealthFacts:
    """Of a run that begins or goes on. Whatever cannot be found is unknown, and is not judged."""
    resolved, about = config.resolved(), read_json(life.run.run_json) or {}
    same_lr = resolved["monitoring"]["health"]["same_lr"]
    earlier = earlier_losses(
        global_store(),
        life.run.id,
        experiment=str(about.get("experiment") or ""),
        config=resolved,
        same_lr=same_lr,
    )
    found = HealthFacts.from_config(
        resolved,
        attempt=life.attempt,
        num_steps=parts.clock.planned,
        parameters=parts.recipe.num_parameters(parts.model),
        earlier=earlier,
    )
    return replace(found, may_be_zero=parts.recipe.allows_loss(0.0))
