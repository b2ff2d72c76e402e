"""TensorBoard by tensorboardX: a folder for each history, a file for each job. Without steps every
value lies at 0; of `forked` the second file purges what the first had from its first step on. Each
second folder has one of `add_hparams` in it.
"""

from pathlib import Path

from histories import History, Truth, placed


def write(histories: list[History], folder: Path) -> list[Truth]:
    return [_write(history, folder / history.name, i % 2) for i, history in enumerate(histories)]


def _write(history: History, folder: Path, has_params: int) -> Truth:
    from tensorboardX import SummaryWriter

    clock = 1_767_225_600.0
    said: list[tuple[int, dict[str, float]]] = []
    counted: dict[str, int] = {}
    taken = 0
    for job, rows in enumerate(history.jobs):
        purge = rows[0].step if job and history.fork is not None else None
        writer = SummaryWriter(str(folder), filename_suffix=f".{job}", purge_step=purge)
        if purge is not None:
            taken = sum(len(values) for step, values in said if step >= purge)
            said = [(step, values) for step, values in said if step < purge]
        for row in rows:
            clock += 1
            for key, value in row.values.items():
                step = 0 if history.kind == "none" else row.step
                writer.add_scalar(key, value, step, walltime=clock)
                at = counted.get(key, 0) if history.kind == "none" else step
                counted[key] = counted.get(key, 0) + 1
                said.append((at, {key: value}))
        if has_params and job + 1 == len(history.jobs):
            writer.add_hparams({"lr": 0.001}, {"hparam/best": 0.5}, name="trial", global_step=0)
        writer.close()
        for path in folder.rglob("events.*"):  # by the order of jobs, and no name of this machine
            if "tfevents.1767" not in path.name:
                path.rename(path.parent / f"events.out.tfevents.17672256{job:02d}.host")
    metrics, replaced = placed(said)
    if has_params:
        metrics["hparam/best"] = [[0, 0.5]]
    counts = {"replaced": replaced} if replaced else {}
    if taken:
        counts["taken back"] = taken
    if history.kind == "none":
        counts["no step"] = sum(n for n in counted.values() if n > 1)
    return Truth(history.name, metrics, counts)
