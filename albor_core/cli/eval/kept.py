"""The kept evaluation that an argument names: a result, its folder, or a run's newest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albor_core.eval.kept import RESULT, SCHEMA
from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.rundir import RunDir, read_json


@dataclass(frozen=True)
class Kept:
    """`document` is an albor.eval/1."""

    place: Path
    document: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.document["model"]["name"])

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """By name."""
        return {one["task"]: one for one in self.document["tasks"]}

    def about(self) -> dict[str, Any]:
        """Whose it is, for a document."""
        model = self.document["model"]
        told = {key: model[key] for key in ("name", "weights", "run", "step")}
        return {**told, "path": str(self.place)}


def find_kept(reference: str) -> Kept:
    """Raises NotFoundError, DataError."""
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
    newest = max(_of_run(run), key=lambda one: one.document["created"], default=None)
    if newest is None:
        raise NotFoundError(f"{run.id} has no evaluation yet", hint=f"albor eval apply {run.id}")
    return newest


def _of_run(run: RunDir) -> Iterator[Kept]:
    for file in sorted(run.evaluations.glob(f"*/{RESULT}")):
        yield _opened(file.parent)


def _opened(place: Path) -> Kept:
    found = read_json(place / RESULT)
    if found is None or found.get("schema") != SCHEMA:
        raise DataError(f"{place / RESULT}: is not a result", hint=f"albor schema {SCHEMA[:-2]}")
    return Kept(place, found)
