"""What a training begins with, before a checkpoint says otherwise: reporter, alerts, totals."""

from __future__ import annotations

from dataclasses import replace

from albor_core.andon.health.facts import HealthFacts
from albor_core.run.journal import last_event
from albor_core.run.rundir import read_json
from albor_core.run.state import StateWriter
from albor_core.store.file.paths import global_store
from albor_core.store.index.earlier_runs import earlier_losses
from albor_core.train.build import Parts
from albor_core.train.observe.alert_monitor import AlertMonitor
from albor_core.train.observe.reporter import Reporter
from albor_core.train.process.attempt import Attempt
from albor_core.train.resume.train_state import TrainState
from albor_core.train.step.interval_totals import IntervalTotals
from albor_core.train.step.spikes import SpikeWatch


def new_state(attempt: Attempt, parts: Parts, writer: StateWriter) -> TrainState:
    """The train state of a run at step 0. Raises ConfigError for an alert rule that cannot be
    read."""
    reporter = Reporter(attempt, parts.config, writer, num_steps=parts.clock.planned)
    monitor = _alert_monitor(attempt, parts)
    reporter.show_budgets(monitor.budgets_ms)
    num_gpus = parts.ranks.world_size if parts.placement.is_gpu else 0
    monitor.budgets.begin(writer.fields.get("budgets"), num_gpus=num_gpus)
    recipe, highest = parts.recipe, parts.config.training.stability.loss_spike
    spikes = SpikeWatch(None if recipe.allows_loss(-1.0) else highest)  # by its logarithm
    totals = IntervalTotals(
        parts.placement.device,
        spikes,
        recipe.columns,
        recipe.loss_fault if recipe.judges_loss else lambda loss: "",
    )
    return TrainState(parts, reporter, monitor, totals)


def _alert_monitor(attempt: Attempt, parts: Parts) -> AlertMonitor:
    config = parts.config
    found = AlertMonitor(
        config.resolved()["monitoring"],
        warmup_steps=config.training.warmup_steps,
        attempt=attempt.number,
        facts=_health_facts(attempt, parts),
    )
    if parts.clock.ramp:  # then steps are not those that the config counts
        tokens = parts.clock.unit * config.data.seq_len
        found.on_clock(num_steps=parts.clock.planned, tokens_per_planned_step=tokens)
    overruled = last_event(attempt.run.journal, "jidoka.overruled") or {}
    found.recall(overruled.get("data") or {})
    return found


def _health_facts(attempt: Attempt, parts: Parts) -> HealthFacts:
    """What the health of the training is judged against: its config, its model, earlier runs of
    it. Whatever cannot be found is unknown, and is not judged.
    """
    resolved, about = parts.config.resolved(), read_json(attempt.run.run_json) or {}
    same_lr = resolved["monitoring"]["health"]["same_lr"]
    earlier = earlier_losses(
        global_store(),
        attempt.run.id,
        experiment=str(about.get("experiment") or ""),
        config=resolved,
        same_lr=same_lr,
    )
    found = HealthFacts.from_config(
        resolved,
        attempt=attempt.number,
        num_steps=parts.clock.planned,
        parameters=parts.recipe.num_parameters(parts.model),
        earlier=earlier,
    )
    return replace(found, may_be_zero=parts.recipe.allows_loss(0.0))
