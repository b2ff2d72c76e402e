"""Scores of a checkpoint become records of its run, whether that lives or has ended.

They are said beside the journal, which has one writer, in annotations.jsonl: a run's index process,
or whoever looks at it next, brings them in as metrics of the checkpoint's step.
"""

from __future__ import annotations

from collections.abc import Mapping

from albor_core.run.control import user_name
from albor_core.run.errors import StoreError, remedy
from albor_core.run.files.pulled_file import refuse_pulled
from albor_core.run.rundir import RunDir
from albor_core.run.values.quantity import is_finite

_KIND = "scores"
_MOST = 40  # of one line


def record_scores(
    run: RunDir,
    step: int,
    scores: Mapping[str, float],
    better: Mapping[str, str],
    *,
    id: str,
    stderr: Mapping[str, float] | None = None,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Durably, under the metrics' names; `better` says of each whether `min` or `max` is, `stderr`
    what is known of their standard errors, `intervals` exact ones of 95 %. Said again they are
    replaced; `id` is the evaluation's.

    Raises UsageError for a copy of a run, StoreError where the file cannot be written.
    """
    from albor_core.store.index.annotations import (  # noqa: PLC0415  for who says any
        append_annotation,
    )

    refuse_pulled(run, "record scores", f"albor runs show {run.own_id}")
    names, known, bounds = sorted(scores), stderr or {}, intervals or {}
    for start in range(0, len(names), _MOST):
        some = names[start : start + _MOST]
        value = {
            "id": id,
            "step": step,
            "v": {name: scores[name] for name in some if is_finite(scores[name])},
            "better": {name: better[name] for name in some if name in better},
            "stderr": {name: known[name] for name in some if is_finite(known.get(name))},
            "interval": {name: [*bounds[name]] for name in some if name in bounds},
        }
        try:
            append_annotation(run, _KIND, value, by=user_name())
        except OSError as error:
            raise StoreError(f"{run.annotations}: {error.strerror}", hint=remedy(error)) from error


def recorded_scores(run: RunDir, id: str) -> frozenset[str]:
    """The names of those of an evaluation that have been recorded: a part, after a kill."""
    from albor_core.store.index.annotations import read_annotations  # noqa: PLC0415

    found: set[str] = set()
    for one in read_annotations(run):
        if one.kind == _KIND and isinstance(one.value, dict) and one.value.get("id") == id:
            values = one.value.get("v")
            found |= values.keys() if isinstance(values, dict) else set()
    return frozenset(found)
