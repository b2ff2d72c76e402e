"""What a run would do and cost, and everything that would stop it: a pure function of config and
facts.

`problems` stop a run and come all at once; `warnings` are what a careful person would change;
`notes` are worth knowing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from albor_core.config.clock import Place
from albor_core.config.config import Config
from albor_core.plan.budgets import (
    Expenses,
    PlannedBudget,
    budget_notes,
    expenses,
    planned_budgets,
)
from albor_core.plan.curve import points, promise_of
from albor_core.plan.estimates import Disk, Duration, PlannedSteps, disk, duration, schedule
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.plan.memory import MemoryEstimate
from albor_core.plan.notes import plan_notes, plan_warnings
from albor_core.plan.problems import plan_problems
from albor_core.plan.recipes.cost import Cost
from albor_core.plan.recipes.registry import cost_of
from albor_core.run.errors import Problem

SCHEMA = "albor.train.plan/1"


@dataclass(frozen=True)
class Plan:
    """The answer of `albor train plan`. A run may start when `problems` is empty."""

    config: Config
    facts: PlanFacts
    schedule: PlannedSteps
    cost: Cost
    disk: Disk
    duration: Duration | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    notes: tuple[str, ...]
    andon: tuple[str, ...]
    budgets: tuple[PlannedBudget, ...] = ()
    expenses: Expenses = field(default_factory=Expenses)

    @property
    def memory(self) -> MemoryEstimate | None:
        """The memory estimate; None if only the run knows its model."""
        return self.cost.memory

    @property
    def parameters(self) -> int | None:
        """Trainable numbers."""
        return self.cost.parameters

    @property
    def max_steps(self) -> int | None:
        """Steps the run will take; None while the data is unknown and the config does not say."""
        return self.schedule.updates

    def data_facts(self) -> dict[str, Any]:
        """The facts of the run's data, for run.json."""
        facts = self.facts
        tokenizer = None if facts.tokenizer is None else asdict(facts.tokenizer)
        return {
            "train": None if self.cost.shape is None else _split_json(facts.train),
            "val": None if facts.val is None or not self.cost.shape else _split_json(facts.val),
            "tokenizer": None
            if tokenizer is None
            else {**tokenizer, "path": str(tokenizer["path"])},
        }

    def _reading(self) -> dict[str, Any]:
        """How the rows of `data` are read; null where the run's own program reads."""
        data = self.config.data
        fim = None if data.fim is None else data.fim.model_dump(mode="json")
        told = {"shuffle": data.shuffle, "fim": fim, "document_mask": data.document_mask}
        return dict.fromkeys(told) if self.cost.shape is None else told

    def _learning_rate(self) -> list[list[float]] | None:
        promise = promise_of(self.config, self.schedule.max_steps)
        return None if promise is None else [[*point] for point in points(promise)]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON of schema albor.train.plan/1: bytes, seconds, null for unknown."""
        facts, shape = self.facts, self.cost.shape
        return {
            "schema": SCHEMA,
            "config": str(facts.config_path),
            "ok": not self.problems,
            "model": {
                "mode": self.config.training.mode,
                "parameters": self.cost.parameters,
                "flops_per_token": self.cost.flops_per_token,
                "precision": self.config.training.mixed_precision,
                "architecture": None if shape is None else asdict(shape),
            },
            "memory": _memory_json(self.memory, facts),
            "distributed": {
                **asdict(self.config.share()),
                "strategy": self.config.training.distributed.strategy,
            },
            "data": self.data_facts() | self._reading(),
            "training": {**asdict(self.schedule), "learning_rate": self._learning_rate()},
            "disk": {**asdict(self.disk), "total": self.disk.total},
            "device": {
                "kind": facts.device,
                "name": facts.device_name,
                "memory_bytes": facts.device_memory_bytes,
                "cpu_count": facts.cpu_count,
            },
            "code": {"commit": facts.git_commit, "dirty": facts.git_dirty},
            "time": None if self.duration is None else asdict(self.duration),
            "measured": None if facts.measured is None else asdict(facts.measured),
            "expenses": asdict(self.expenses),
            "problems": [asdict(problem) for problem in self.problems],
            "warnings": [asdict(warning) for warning in self.warnings],
            "notes": list(self.notes),
            "andon": list(self.andon),
            "budgets": [budget.to_json() for budget in self.budgets],
        }


def plan(
    config: Config,
    facts: PlanFacts,
    andon_notes: tuple[str, ...] = (),
    extra_problems: tuple[Problem, ...] = (),
    extra_notes: tuple[str, ...] = (),
    unit: int | None = None,
    place: Place | None = None,
    written: Callable[[str], str] | None = None,
) -> Plan:
    """Decide. `andon_notes`, `extra_problems`, `extra_notes` come from rooms above and are passed
    on; `unit` and `place` as in `schedule`; `written(field)`: where the config says it, as
    `file:line`.
    """
    steps = schedule(config, facts, unit, place)
    cost = cost_of(config, facts)
    space = disk(config, facts, steps.max_steps, cost.checkpoint)
    file = str(facts.config_path)
    problems = (*extra_problems, *plan_problems(config, facts, steps, cost.memory, space))
    time = duration(config, facts, steps, cost.flops_per_token)
    spent = expenses(config, facts, time)
    budgets = planned_budgets(config, steps, time, spent, device=facts.device)
    return Plan(
        config=config,
        facts=facts,
        schedule=steps,
        cost=cost,
        disk=space,
        duration=time,
        problems=_placed(problems, file, written),
        warnings=_placed(plan_warnings(config, facts, steps, cost), file, written),
        notes=(
            *extra_notes,
            *plan_notes(config, facts, steps, cost),
            *budget_notes(budgets, steps.max_steps),
        ),
        andon=tuple(andon_notes),
        budgets=budgets,
        expenses=spent,
    )


def _placed(
    found: Iterable[Problem], file: str, written: Callable[[str], str] | None
) -> tuple[Problem, ...]:
    """Each with the place that it is written in; what names another file is right about that."""
    where = written or (lambda _: file)
    return tuple(
        replace(one, file=where(one.field)) if one.file in ("", file) else one for one in found
    )


def _memory_json(need: MemoryEstimate | None, facts: PlanFacts) -> dict[str, Any]:
    """Each figure, null where nothing is known of it."""
    if need is not None:
        return {**asdict(need), "total": need.total}
    unknown = dict.fromkeys((*(field.name for field in fields(MemoryEstimate)), "total"))
    return {**unknown, "capacity": facts.device_memory_bytes}


def _split_json(split: SplitFacts) -> dict[str, Any]:
    document = {key: value for key, value in vars(split).items() if key not in _NOT_TOLD}
    if split.parts:
        parts = [{"source": part.name, **_split_json(part)} for part in split.parts]
        document["sources"] = parts
    if split.sampled_bytes is not None:
        document |= {"sampled_bytes": split.sampled_bytes, "packing_seconds": split.packing_seconds}
    return {**document, "path": str(split.path)}


_SAMPLED = ("sampled_bytes", "packing_seconds")
_NOT_TOLD = ("problems", "parts", "name", "eos_token_id", *_SAMPLED)
