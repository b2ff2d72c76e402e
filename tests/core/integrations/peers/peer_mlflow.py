"""MLflow: runs in a SQLite store, some in a folder of files. Without steps it records 0 for
each value; an import numbers those by their order.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from histories import History, Truth, placed

_BATCH = 900


def write(histories: list[History], folder: Path) -> list[Truth]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    from mlflow.tracking import MlflowClient

    database = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    files = MlflowClient(tracking_uri=f"file://{folder}/mlruns")
    where = {client: client.create_experiment("peers") for client in (database, files)}
    truths = [
        _write(client, where[client], history)
        for index, history in enumerate(histories)
        for client in [files if index % 8 == 1 or index // 8 % 4 == 3 else database]
    ]
    with closing(sqlite3.connect(folder / "mlflow.db")) as db:  # no path of this machine
        db.execute("UPDATE experiments SET artifact_location = 'file:///tmp/artifacts'")
        db.execute("UPDATE runs SET artifact_uri = 'file:///tmp/artifacts/' || run_uuid")
        db.commit()
        db.execute("VACUUM")
    for path in (folder / "mlruns").rglob("meta.yaml"):
        path.write_text(path.read_text().replace(str(folder), "/tmp/artifacts"))
    return truths


def _write(client, experiment: str, history: History) -> Truth:
    from mlflow.entities import Metric

    clock = 1_767_225_600_000
    run = client.create_run(experiment, run_name=history.name, start_time=clock)
    said: list[tuple[int, dict[str, float]]] = []
    counted: dict[str, int] = {}
    waiting = []
    for rows in history.jobs:
        for row in rows:
            clock += 1_000
            step = 0 if history.kind == "none" else row.step
            for key, value in row.values.items():
                waiting.append(Metric(key, value, clock, step))
                at = counted.get(key, 0) if history.kind == "none" else step
                counted[key] = counted.get(key, 0) + 1
                said.append((at, {key: value}))
    for at in range(0, len(waiting), _BATCH):
        client.log_batch(run.info.run_id, metrics=waiting[at : at + _BATCH])
    client.set_terminated(run.info.run_id, "FINISHED", clock)
    metrics, replaced = placed(said)
    counts = {"replaced": replaced} if replaced else {}
    if history.kind == "none":
        counts["no step"] = sum(n for n in counted.values() if n > 1)
    return Truth(history.name, metrics, counts)
