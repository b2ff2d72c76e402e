"""Evaluates each new checkpoint of a run beside its training, until the run has ended.

Stored results show what is done: a killed and restarted watch continues with its checkpoint, and
none is evaluated twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from albor_core.eval.evaluate import Done, Progress, apply
from albor_core.eval.planned import EvaluationRequest, plan, refuse
from albor_core.eval.target import open_target
from albor_core.run import checkpoints
from albor_core.run.errors import AlborError, InUseError
from albor_core.run.rundir import RunDir, read_json

POLL_S = 2.0


def watch(
    run: RunDir,
    told: EvaluationRequest,
    *,
    progress: Progress = lambda task, done, total: None,
    missed: Callable[[str], None] = lambda text: None,
    wait: Callable[[], None] = lambda: time.sleep(POLL_S),
) -> Iterator[Done]:
    """The result of each checkpoint, oldest first; an earlier result comes with `is_reused`.
    `missed` is called for checkpoints that were pruned or set aside before their evaluation.

    Raises ConfigError if tasks and model do not match, AlborError.
    """
    seen: set[tuple[str, str]] = set()
    while True:
        is_over = not run.liveness().is_alive  # asked first: what it saved is there by now
        new = next((one for one in _there(run) if one not in seen), None)
        if new is None:
            if is_over:
                return
            wait()
            continue
        path = run.checkpoints / new[0]
        try:
            yield _evaluated(path, told, progress)
        except InUseError:  # by another process, whose result is found then
            wait()
            continue
        except (AlborError, OSError) as error:
            if new in _there(run):
                raise
            missed(f"{path.name} is gone: {error}")
        seen.add(new)


def _there(run: RunDir) -> list[tuple[str, str]]:
    """Names and ids of readable checkpoints; one that is written again has another id."""
    found = []
    for path in reversed(checkpoints.published(run.checkpoints)):
        manifest = read_json(path / checkpoints.MANIFEST)
        if manifest is not None:
            found.append((path.name, str(manifest.get("id"))))
    return found


def _evaluated(path: Path, told: EvaluationRequest, progress: Progress) -> Done:
    target = open_target(path)
    refuse(plan(target, told), target)
    return apply(target, told.tasks, told.settings, progress=progress)
