"""Checks that a run may start, and hands it to a launcher, after `planned.py` and `run_folder.py`.

It runs in the process of the command or cockpit that asks, which does not load torch.
"""

from __future__ import annotations

import sys
from contextlib import chdir

from albor_core.config.config import Config
from albor_core.config.kept_config import config_of, read_resolved
from albor_core.guard.launch import already_guarded
from albor_core.launch.edits import apply_edits, is_unbegun
from albor_core.launch.environment import rank_environment, trainer_environment
from albor_core.launch.launcher import Launcher, Submission
from albor_core.launch.local import LOCAL
from albor_core.launch.planned import crowd_problems, lacking_weights
from albor_core.launch.run_folder import home_of_paths
from albor_core.plan.start_weights import start_weights
from albor_core.run.errors import ConfigError, InUseError
from albor_core.run.files.pulled_file import refuse_pulled
from albor_core.run.home.registry import refuse_unlaunched, resumed_by_config
from albor_core.run.program.launched_rank import LaunchedRank
from albor_core.run.rundir import RunDir


def start(
    run: RunDir,
    *,
    allow_config_change: bool = False,
    forgets: bool = False,
    stop_after: int | None = None,
    launched: LaunchedRank | None = None,
    where: Launcher = LOCAL,
) -> None:
    """Hand `run` to a detached guard.

    `forgets`: the guard does not count the restarts of a killed one. `stop_after`: attempts save
    and exit after this step. `launched`: this process is rank 0 of ranks that a launcher starts and
    restarts, so that the guard restarts nothing.

    Raises InUseError if the run is guarded already, or trained by an attempt that `stop_after`
    would not reach, and ConfigError if its config.yaml was edited without permission or is wrong,
    if its config.resolved.json is damaged, if its ranks are too many for one machine, or if the
    weights that it begins from are gone.
    """
    refuse_pulled(run, "start", f"albor train resume {run.own_id}")
    refuse_unlaunched(run, "start", resumed_by_config(run.path))
    alive = run.liveness()
    if alive.guard is not None:
        raise already_guarded(run, alive.guard)
    if alive.trainer is not None and stop_after is not None:
        raise InUseError(
            f"cannot stop {run.id} after step {stop_after}: already active without that limit",
            hint=f"albor train resume {run.id} to guard it again, then: albor guard stop {run.id}",
        )
    apply_edits(run, read_resolved(run), is_allowed=allow_config_change)
    config = config_of(run)
    if launched is None:
        _refuse_crowd(run, config, where)
    if alive.trainer is None and is_unbegun(run):
        _refuse_lost_weights(run, config)
    told = ["--allow-config-change"] if allow_config_change else []
    told += [] if stop_after is None else ["--stop-after", str(stop_after)]
    program = Submission(
        # -P: a random.py in the user's folder is none of ours
        argv=[sys.executable, "-P", "-m", "albor_core.train", str(run.path), *told],
        cwd=home_of_paths(run),
        env=trainer_environment() | rank_environment(launched),
        options=config.resolved()["guard"] | ({} if launched is None else {"restarts": 0}),
        max_steps=run.metadata().get("max_steps"),
        kind="train",
        index=config.monitoring.tracking.enabled,
        forgets=forgets,
    )
    where.submit(run, program)


def _refuse_crowd(run: RunDir, config: Config, where: Launcher) -> None:
    for problem in crowd_problems(config, str(run.config_yaml), where):
        raise ConfigError(
            f"cannot start {run.id}: {problem.message}",
            hint=f"{problem.hint}; or albor train resume {run.id} --world-size N",
            problems=(problem,),
        )


def _refuse_lost_weights(run: RunDir, config: Config) -> None:
    """Raise ConfigError if a run without a checkpoint cannot begin from model.path."""
    if start_weights(config.model) is None:
        return
    with chdir(home_of_paths(run)):
        problems = lacking_weights(config, str(run.config_yaml), checks_hash=False)
    if problems:
        first, resume = problems[0], f"albor train resume {run.id}"
        raise ConfigError(
            f"{run.id} has no checkpoint yet and cannot begin: {first.field}: {first.message}",
            hint=f"put the weights back, then: {resume}; for others edit {run.config_yaml} and add"
            " --allow-config-change",
            problems=problems,
        )
