"""The kept evaluation that an argument names: a result, its folder, or a run's newest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albor_core.eval.kept import RESULT, SCHEMA
from albor_core.run.checkpoints import HALF
from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.rundir import RunDir, read_json

if TYPE_CHECKING:
    from albor_core.documents.eval import ComparedEvaluation


@dataclass(frozen=True)
class Kept:
    """`document` is an albor.eval/1; `earlier` are others of the same weights, newest first."""

    place: Path
    document: dict[str, Any]
    earlier: tuple[Kept, ...] = ()

    @property
    def name(self) -> str:
        return str(self.document["model"]["name"])

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """The newest result of each, by name."""
        all_ = (*reversed(self.earlier), self)
        return {one["task"]: one for kept in all_ for one in kept.document["tasks"]}

    def of(self, task: str) -> Kept:
        """The evaluation that has the newest result of a task."""
        both = (self, *self.earlier)
        return next(x for x in both if any(one["task"] == task for one in x.document["tasks"]))

    def about(self) -> ComparedEvaluation:
        """Whose it is, for a document."""
        model = self.document["model"]
        return {
            "name": model["name"],
            "weights": model["weights"],
            "run": model["run"],
            "step": model["step"],
            "path": str(self.place),
        }


def find_kept(reference: str, *, each_task: bool = False) -> Kept:
    """With `each_task` those before a run's newest, of the same weights, lie in `earlier`.

    Raises NotFoundError, DataError.
    """
    path = Path(reference)
    if path.name == RESULT and path.is_file():
        return _opened(path.parent)
    if (path / RESULT).is_file():
        return _opened(path)
    from albor_core.cli.model.folder import run_of

    run = run_of(reference)
    if run is None:
        what = f"{path}: holds no {RESULT}"
        raise NotFoundError(what, hint="name the folder that `albor eval apply` named, or a run")
    found = sorted(_of_run(run), key=lambda one: one.document["created"], reverse=True)
    if not found:
        raise NotFoundError(f"{run.id} has no evaluation yet", hint=f"albor eval apply {run.id}")
    newest = found[0]
    if not each_task:
        return newest
    weights = newest.document["model"]["weights"]
    same = (one for one in found[1:] if one.document["model"]["weights"] == weights)
    return replace(newest, earlier=tuple(same))


def _of_run(run: RunDir) -> Iterator[Kept]:
    for file in sorted(run.evaluations.glob(f"*/{RESULT}")):
        if file.parent.suffix != HALF:
            yield _opened(file.parent)


def _opened(place: Path) -> Kept:
    found = read_json(place / RESULT)
    if found is None or found.get("schema") != SCHEMA:
        raise DataError(f"{place / RESULT}: is not a result", hint=f"albor schema {SCHEMA[:-2]}")
    return Kept(place, found)
