"""What a recipe computes before step 1: on every rank, in every attempt, visibly at work."""

from __future__ import annotations

from pathlib import Path

from albor_core.recipes.recipe import PrepareRoom
from albor_core.train.build import Parts, try_objective
from albor_core.train.observe.reporter import Reporter
from albor_core.train.ranks.sharding import reshard

FOLDER = "prepared"  # of a run


def prepare(parts: Parts, run: Path, *, begins: bool, reporter: Reporter | None = None) -> None:
    """`reporter`: where this rank has one. Raises ConfigError where the objective does not fit."""
    if not parts.recipe.prepares:
        return

    def report(share: float) -> None:
        if reporter is not None:
            reporter.state.fields["progress_percent"] = round(100 * share, 2)
            reporter.beat()

    if reporter is not None:
        reporter.phase("preparing", limit_s=parts.config.guard.start_limit_s)
    folder, ranks = run / FOLDER, parts.ranks
    folder.mkdir(exist_ok=True)
    room = PrepareRoom(folder, begins, ranks.rank, ranks.world_size, report)
    with parts.placement.autocast():
        parts.recipe.prepare(parts.model, room)
    reshard(parts.model)
    ranks.agree(0)  # none goes on before all are through
    try_objective(parts)
