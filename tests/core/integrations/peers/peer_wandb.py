"""W&B: an offline log for each job. Jobs of one run have one id; of `resumed` the second is
numbered from 0 again and a key counts on, of `forked` it is begun with `resume_from`; of `axis` the
step is `trainer/global_step`, by which all metrics are defined.
"""

import os
from pathlib import Path

from histories import History, Row, Truth, placed

AXIS = "trainer/global_step"


def write(histories: list[History], folder: Path) -> list[Truth]:
    os.environ |= {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_DISABLE_GIT": "true",
        "WANDB_DISABLE_CODE": "true",
    }
    truths = [_write(history, folder) for history in histories]
    for path in sorted(folder.rglob("*"), reverse=True):  # the logs alone
        if path.is_symlink() or (path.is_file() and path.suffix != ".wandb"):
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return truths


def _write(history: History, folder: Path) -> Truth:
    import wandb

    said: list[tuple[int, dict[str, float]]] = []
    taken_back = 0
    for job, rows in enumerate(history.jobs):
        more: dict = {"id": history.name, "resume": "allow"}
        if job and history.fork is not None:
            more = {"resume_from": f"{history.name}?_step={history.fork}"}
        settings = wandb.Settings(
            console="off", x_disable_stats=True, x_disable_meta=True, host="host"
        )
        run = wandb.init(
            project="peers", name=history.name, dir=str(folder), settings=settings, **more
        )
        if history.kind == "axis":
            run.define_metric(AXIS, hidden=True)
            run.define_metric("*", step_metric=AXIS)
        for row in rows:
            _log(run, history, row)
        run.finish()
        if history.fork is not None and job:
            taken_back = sum(len(values) for step, values in said if step > history.fork)
            said = [(step, values) for step, values in said if step <= history.fork]
        said += _placed(history, rows, said)
    metrics, replaced = placed(said)
    counts = {"replaced": replaced} if replaced else {}
    if taken_back:
        counts["taken back"] = taken_back
    if history.kind == "resumed":
        counts["renumbered"] = sum(len(row.values) + 1 for row in history.jobs[1])
    return Truth(history.name, metrics, counts)


def _log(run, history: History, row: Row) -> None:
    if history.kind in ("none", "resumed"):
        run.log(row.values | ({"count/step": row.step} if history.kind == "resumed" else {}))
    elif history.kind == "axis":
        run.log(row.values | {AXIS: row.step})
    else:
        run.log(row.values, step=row.step)


def _placed(history: History, rows, before) -> list[tuple[int, dict[str, float]]]:
    """Where an import puts the rows of a job, `before` being placed."""
    if history.kind == "axis":
        return [(row.step, row.values | {AXIS: row.step}) for row in rows]
    if history.kind == "none":
        return [(i, row.values) for i, row in enumerate(rows)]
    if history.kind != "resumed":
        return [(row.step, row.values) for row in rows]
    said = [row.values | {"count/step": row.step} for row in rows]
    start = next((at for at, values in before if values["count/step"] >= rows[0].step), len(before))
    return [(start + i, values) for i, values in enumerate(said)]
