"""Runs one evaluation: its tasks on a model, stored as they are answered, and recorded with its
run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from albor_core.eval.kept import (
    SCHEMA,
    evaluation_id,
    keep_result,
    kept_result,
    lineage_of,
    opened_place,
    place_in,
)
from albor_core.eval.planned import Settings
from albor_core.eval.result import TaskResult
from albor_core.eval.subject import DTYPES, EvaluatedModel, find_device, load_subject
from albor_core.eval.target import Target, weights_hash
from albor_core.eval.task import ItemWriter, Task
from albor_core.run.errors import AlborError, StoreError, UsageError, remedy
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import strict_json
from albor_core.store.index.catch_up import drain_index
from albor_core.track.scores import record_scores, recorded_scores

Progress = Callable[[str, int, int], None]
"""Task, items done, items in all."""


@dataclass(frozen=True)
class Done:
    """A finished evaluation. `document` is its albor.eval/1."""

    place: Path
    document: dict[str, Any]
    is_reused: bool
    """It was there already."""


def refuse_nowhere(target: Target, out: Path | None) -> None:
    """Raise UsageError if the result has no destination."""
    if target.run is None and out is None:
        raise UsageError(
            f"{target.path} is not a checkpoint of a run: nothing says where results go",
            hint="--out FOLDER",
        )


def apply(
    target: Target,
    tasks: tuple[Task, ...],
    settings: Settings,
    *,
    out: Path | None = None,
    force: bool = False,
    progress: Progress = lambda task, done, total: None,
) -> Done:
    """Run the evaluation, or find its stored result; work of a killed process is not repeated.

    Scores of a run's checkpoint become records of the run, unless `out` names another folder for
    the result. Plan first: this raises the first AlborError that occurs.
    """
    settings = _settled(settings)
    refuse_nowhere(target, out)
    weights = weights_hash(target)
    id = evaluation_id(target, weights, tasks, asdict(settings))
    if out is None:
        assert target.run is not None
        place = place_in(target.run, target.path.name, id)
    else:
        place = out
    if not force and (found := kept_result(place, id)) is not None:
        if out is None:
            _record(target, found)
        return Done(place, found, is_reused=True)
    began = time.monotonic()
    with opened_place(place, id, force=force) as work:
        subject = load_subject(
            target,
            weights=weights,
            device=settings.device,
            dtype=settings.dtype,
            batch_size=settings.batch_size,
        )
        results = [_one(task, subject, work, progress) for task in tasks]
        document = _document(target, subject, tasks, results, id, time.monotonic() - began)
        keep_result(place, work, document)
    if out is None:
        _record(target, document)
    return Done(place, document, is_reused=False)


def _settled(settings: Settings) -> Settings:
    """The settings with the actual device and dtype. Raises UsageError."""
    device = find_device(settings.device).type
    dtype = settings.dtype
    if dtype == "auto":
        dtype = "bf16" if device == "cuda" else "fp32"
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r}: one of auto, {', '.join(DTYPES)}")
    return replace(settings, device=device, dtype=dtype)


def _one(task: Task, subject: EvaluatedModel, work: Path, progress: Progress) -> TaskResult:
    began = time.monotonic()
    file = work / f"{task.name}.jsonl"
    try:
        with ItemWriter(file) as items:
            found = task.run(subject, items, lambda done, total: progress(task.name, done, total))
    except OSError as error:
        raise AlborError(f"{file}: {error.strerror}", hint=remedy(error)) from error
    facts = {**subject.facts(), **found.facts}
    return replace(found, seconds=round(time.monotonic() - began, 3), facts=facts)


def _document(
    target: Target,
    subject: EvaluatedModel,
    tasks: tuple[Task, ...],
    results: Sequence[TaskResult],
    id: str,
    seconds: float,
) -> dict[str, Any]:
    sections = [task.section.model_dump(mode="json") for task in tasks]
    whole: dict[str, Any] = strict_json(
        {
            "schema": SCHEMA,
            "id": id,
            "created": round(time.time(), 3),
            "seconds": round(seconds, 3),
            "model": {
                "path": str(target.path),
                "name": target.name,
                "weights": subject.weights,
                "parameters": target.folder.shape.num_parameters,
                "run": None if target.run is None else target.run.id,
                "step": target.step,
            },
            "settings": subject.facts(),
            "tasks": [
                {**asdict(one), "scores": [asdict(score) for score in one.scores], "section": said}
                for one, said in zip(results, sections, strict=True)
            ],
            "lineage": lineage_of(target, subject.weights, tasks),
        }
    )
    return whole


def _record(target: Target, document: dict[str, Any]) -> None:
    """Record the scores once per evaluation, also if a process was killed between its result and
    this."""
    run = target.run
    if run is None or target.step is None:
        return
    scores = {f"eval/{one['name']}": one for task in document["tasks"] for one in task["scores"]}
    values = {key: one["value"] for key, one in scores.items() if one["value"] is not None}
    if values.keys() <= recorded_scores(run, document["id"]):
        return
    better = {key: one["better"] for key, one in scores.items()}
    stderr = {key: one["stderr"] for key, one in scores.items() if one["stderr"] is not None}
    exact = {
        key: (one["low"], one["high"]) for key, one in scores.items() if one.get("low") is not None
    }
    record_scores(
        run, target.step, values, better, id=document["id"], stderr=stderr, intervals=exact
    )
    _into_stores(run)


def _into_stores(run: RunDir) -> None:
    """Index the records of an ended run. A live run's index process does so itself."""
    with suppress(StoreError, OSError):
        drain_index(run)
