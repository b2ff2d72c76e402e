"""Which run goes on, and whether it may."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from albor_core.cli.common.output import emit, print_note
from albor_core.run.errors import NotFoundError, UsageError
from albor_core.run.home.runs import runs_in
from albor_core.run.program.launched_rank import LaunchedRank
from albor_core.run.rundir import RunDir, folder_of, read_json

if TYPE_CHECKING:
    from albor_core.config.load import LoadedConfig


def refuse_foreign(run: RunDir) -> None:
    """Raise UsageError for a run that another program trained, with how that one goes on."""
    from albor_core.feed.run.offers import offer, subject_of_run

    if (kind := run.metadata().get("kind") or "train") == "train":
        return
    found = offer("retry", subject_of_run(run))
    is_guarded = kind == "guard" and found.is_possible
    why = found.why_not or "it is a program of its own, not a run of `albor train`"
    raise UsageError(
        f"cannot resume {run.id}: {why}",
        hint=f"albor guard retry {run.id}" if is_guarded else found.instead,
    )


def is_told_complete(run: RunDir, *, as_json: bool) -> bool:
    """Whether `run` has nothing to go on with, which is said then."""
    from albor_core.cli.common.follow import document
    from albor_core.cli.common.run_ending import ended_at, is_complete
    from albor_core.config.resume_changes import edited

    if not is_complete(run) or edited(run) is not None:
        return False
    if as_json:
        emit(document(run, "ended", 0))
    print_note(f"{run.id} is {ended_at(run)}: nothing to resume")
    return True


def run_to_resume(loaded: LoadedConfig, wish: str, launched: LaunchedRank | None) -> RunDir | None:
    """The run that --resume means; None for a new one."""
    from albor_core.cli.common.run_ending import is_complete

    if wish == "never":
        return None
    if wish != "auto":
        return run_inside(loaded, wish, launched)
    wanted = loaded.config.resolved()
    for run in runs_in(Path(loaded.config.training.output_dir)):
        unfinished = not run.liveness().is_alive and not is_complete(run)
        if unfinished and read_json(run.config_resolved) == wanted:
            print_note(f"resuming {run.id}")
            return run
    return None


def run_inside(loaded: LoadedConfig, wish: str, launched: LaunchedRank | None) -> RunDir:
    """The run of this config that a path is inside of; what a launcher started may be another
    number of ranks than before. Raises NotFoundError, or ConfigError where it is a run of another
    config.
    """
    from albor_core.config.kept_config import config_of
    from albor_core.config.resume_changes import change_refused
    from albor_core.run.values.flatten import diff_configs

    folder = folder_of(wish)
    places = () if folder is None else (folder.resolve(), *folder.resolve().parents)
    inside = next((place for place in places if (place / "run.json").is_file()), None)
    if inside is None:
        raise NotFoundError(
            f"--resume {wish}: neither auto, never, nor inside a run directory",
            hint="albor runs ls",
        )
    run = RunDir(inside)
    own = config_of(run)
    if launched is not None:
        own = own.on_ranks(launched.world_size)
    if changes := diff_configs(own.resolved(), loaded.config.resolved()):
        raise change_refused(
            f"CONFIG and --set differ from the config of {run.id}",
            changes,
            file=str(loaded.path),
            hint=f"albor train resume {run.id} keeps the run's own; to change that edit"
            f" {run.config_yaml} and add --allow-config-change",
        )
    return run


def adopt_foreign_run(run: RunDir, loaded: LoadedConfig) -> None:
    """Let a run that was not launched from this home go on by the user's own CONFIG. Raises
    InUseError where its class would come from another folder than that, OSError.
    """
    from albor_core.plan.recipes.own import folder_of
    from albor_core.run.home.registry import is_launched_here, mark_launched_here, refuse_unlaunched

    if is_launched_here(run):
        return
    recorded = folder_of(run)
    if recorded is not None and recorded != loaded.path.parent.absolute():
        hint = f"read {recorded} first, then give the CONFIG in it"
        refuse_unlaunched(run, "resume", hint)
    mark_launched_here(run)
