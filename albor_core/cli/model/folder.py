"""Where the model that an argument names lies: in a folder, or a run's newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from albor_core.cli.plans.file_plan import Estimate
from albor_core.config.recipes.own import own_class
from albor_core.run import checkpoints
from albor_core.run.errors import AlborError, NotFoundError, UsageError
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.query.resolve import find_run

T = TypeVar("T")


def load_newest(reference: str, load: Callable[[Path], T]) -> tuple[Path, T]:
    """Where the model lies and what `load` makes of it. A run that is running removes checkpoints:
    then the one after it is loaded. Raises as `model_folder` and `load`.
    """
    while True:
        path = model_folder(reference)
        try:
            return path, load(path)
        except (AlborError, OSError):
            if path.exists() or model_folder(reference) == path:
                raise


def opens_model(verb: Callable[..., Any], told: Mapping[str, Any]) -> Estimate:
    """The plan of a verb that only prints, with the model in `folder`."""
    from albor_core.model.hf.folder import open_model

    open_model(model_folder(told["folder"]))
    return Estimate(0)


def model_folder(reference: str) -> Path:
    """The newest checkpoint of a run; a directory that is not a run's is taken as it is. Raises
    NotFoundError, or UsageError for a run whose model nothing here can build.
    """
    run = run_of(reference)
    if run is None:
        return Path(reference)
    newest = checkpoints.newest(run.checkpoints, is_readable=True)
    if newest is None:
        hint = f"albor checkpoints ls {run.id}"
        raise NotFoundError(f"{run.id} has no checkpoint", hint=hint)
    mode = ((read_json(run.config_resolved) or {}).get("training") or {}).get("mode")
    if own_class(str(mode)) is not None and not (newest[1] / "config.json").exists():
        what = (
            f"{run.id} is a run of {mode}, a class of your own: only `albor train` builds its model"
        )
        raise UsageError(
            what, hint=f"albor train resume {run.id}, or albor checkpoints ls {run.id}"
        )
    return newest[1]


def run_of(reference: str) -> RunDir | None:
    """The run that a reference means; None for a directory of anything else. Raises
    NotFoundError.
    """
    path = Path(reference)
    if not path.is_dir():
        return _run(reference)
    return RunDir(path) if (path / "run.json").exists() else None


def _run(reference: str) -> RunDir:
    try:
        return find_run(reference)
    except NotFoundError as error:
        hint = f"name a directory of weights, or a run: {error.hint}" if error.hint else ""
        raise NotFoundError(error.message, hint=hint or "name a directory of weights") from error
