"""How long the run table takes over ten thousand runs, beside the same question to other trackers.

    python benchmarks/tracker/history.py [--root DIR] [--rounds 7] [--peers DIR] [--peer-runs 10000]

Whole processes, interleaved round by round: a drifting machine hits all alike. Without --root, or
with an empty one, the history is generated first (make_history.py). --peers names a folder with one
virtual environment per tracker (DIR/mlflow/bin/python, DIR/trackio/bin/python); a peer's store
starts with a run made through its own API, cloned row by row with values of its own: a loss and
three params a run, so it holds less than Albor's. Peers print their 100 newest runs with the final
loss from Python; Albor does it through its command line.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import make_history

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_folder, positive, there

BARE = [sys.executable, "-c", "pass"]
ALBOR = [str(Path(sys.executable).parent / "albor"), "runs", "ls", "--json"]
FILTERS = (
    ("train/loss<3",),
    ("status:running",),
    ("status:lost",),
    ("tag:ablation",),
    ("lr>=1e-3",),
    ("optimizer.name:lion", "val/loss:min<=2.5"),
    ("gradient", "spikes"),
    ("-name:sweep-00", "host:gpu3", "has:nan"),
    ("since:2025-08-01", "--sort", "val/loss:min"),
    ("--sort", "lr", "--columns", "id,loss,lr,val/loss:min"),
    ("loss<2.5", "--limit", "10000"),
)
MLFLOW_MAKE = """
import logging, sqlite3, sys, uuid
logging.disable(logging.WARNING)
import mlflow
folder, runs = sys.argv[1], int(sys.argv[2])
mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
experiment = mlflow.create_experiment("p", artifact_location=f"{folder}/artifacts")
with mlflow.start_run(experiment_id=experiment, run_name="run-0") as first:
    mlflow.log_params({"lr": 1e-4, "batch": 64, "seed": 0})
    mlflow.log_metric("loss", 2.0, step=999)
db = sqlite3.connect(f"{folder}/mlflow.db")
for number in range(1, runs):
    new = uuid.uuid4().hex
    for table in ("runs", "latest_metrics", "metrics", "params", "tags"):
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        given = {"run_uuid": "?", "start_time": "start_time + ?"}
        picked = ", ".join(given.get(name, name) for name in names)
        bound = [{"run_uuid": new, "start_time": number}[n] for n in names if n in given]
        db.execute(f"INSERT INTO {table} SELECT {picked} FROM {table} WHERE run_uuid = ?",
                   (*bound, first.info.run_id))
    db.execute("UPDATE latest_metrics SET value = ? WHERE run_uuid = ?", (2 + number / 9999, new))
    db.execute("UPDATE runs SET name = ? WHERE run_uuid = ?", (f"run-{number}", new))
db.commit()
"""
MLFLOW_ASK = """
import logging, sys
logging.disable(logging.WARNING)
import mlflow
client = mlflow.MlflowClient(f"sqlite:///{sys.argv[1]}/mlflow.db")
experiments = [found.experiment_id for found in client.search_experiments()]
for run in client.search_runs(experiments, sys.argv[2], max_results=100):
    print(run.info.run_name, run.info.status, run.data.metrics.get("loss"))
"""
TRACKIO_MAKE = """
import os, sys
os.environ["TRACKIO_DIR"], runs = sys.argv[1], int(sys.argv[2])
from trackio.sqlite_storage import SQLiteStorage
for number in range(runs):  # ten steps each: the fewer, the better for it
    SQLiteStorage.bulk_log(
        "p", f"run-{number}", [{"loss": 2 + number / 9999 + 1 / (s + 1)} for s in range(10)],
        steps=list(range(10)), config={"lr": 1e-4, "batch": 64, "seed": number})
"""
TRACKIO_ASK = """
import os, sys
os.environ["TRACKIO_DIR"] = sys.argv[1]
from trackio.sqlite_storage import SQLiteStorage
where = f"HAVING l {sys.argv[2]}" if sys.argv[2] else ""
found = SQLiteStorage.query_project("p", "SELECT run_name, max(step) AS s, max(id),"
    f" json_extract(metrics, '$.loss') AS l FROM metrics GROUP BY run_name {where}"
    " ORDER BY max(id) DESC LIMIT 100")
for row in found["rows"]:
    print(row["run_name"], row["l"])
"""
PEERS = {  # maker, question, the words that mean a loss below 2.5
    "mlflow": (MLFLOW_MAKE, MLFLOW_ASK, "metrics.loss < 2.5"),
    "trackio": (TRACKIO_MAKE, TRACKIO_ASK, "< 2.5"),
}


def timed(argv: list[str], env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(argv, env=env, capture_output=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{argv}: {done.stderr.decode()[-2000:]}")
    return took


def peers_of(folder: Path | None, runs: int, root: Path) -> dict[str, list[str]]:
    """The question to each peer that is installed, over a store made now."""
    questions: dict[str, list[str]] = {}
    for name, (maker, question, below) in PEERS.items() if folder is not None else ():
        assert folder is not None
        python, store = folder / name / "bin" / "python", root / name
        if not python.exists():
            print(f"{name}: not installed in {folder}")
            continue
        if not store.exists():
            store.mkdir(parents=True)
            took = timed([str(python), "-c", maker, str(store), str(runs)], os.environ)
            print(f"{name}: {runs} runs made in {took:.0f} s")
        ask = [str(python), "-c", question, str(store)]
        questions[f"{name}: 100 newest, final loss"] = [*ask, ""]
        questions[f"{name}: loss below 2.5"] = [*ask, below]
    return questions


def report(times: Mapping[str, list[float]]) -> None:
    bare = times["bare interpreter"]
    print(f"{'':58}{'median ms':>10}{'worst ms':>10}{'over bare':>10}")
    for name, took in times.items():
        over = statistics.median(a - b for a, b in zip(took, bare, strict=True))
        middle, worst = statistics.median(took), max(took)
        print(f"{name[:57]:58}{1e3 * middle:10.0f}{1e3 * worst:10.0f}{1e3 * over:10.0f}")
    pairs = (("100 newest, final loss", FIRST), ("loss below 2.5", BELOW))
    for name, took in times.items():
        for question, ours in pairs:
            if name.endswith(question) and ":" in name and name != ours:
                ratios = statistics.median(a / b for a, b in zip(took, times[ours], strict=True))
                print(f"{name} takes {ratios:.1f} x as long as {ours}")


FIRST, BELOW = "runs ls --json", "runs ls --json loss<2.5"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=new_folder)
    parser.add_argument("--runs", type=positive, default=10_000)
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--peers", type=there)
    parser.add_argument("--peer-runs", type=positive, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = (given.root or Path(temporary)).absolute()
        store = root / "home" / "experiments.db"
        if not store.is_file():
            began = time.perf_counter()
            make_history.make(root, given.runs, 1000)
            print(
                f"{given.runs} runs x 1000 steps x 8 metrics in {time.perf_counter() - began:.0f} s"
            )
        print(f"global store: {store.stat().st_size / 1e6:.0f} MB")
        asked = {"bare interpreter": BARE, FIRST: ALBOR, BELOW: [*ALBOR, "loss<2.5"]}
        asked |= {f"runs ls --json {' '.join(words)}": [*ALBOR, *words] for words in FILTERS}
        asked["runs ls --json --group"] = [*ALBOR, "--group"]
        asked |= peers_of(given.peers, given.peer_runs, root / "peers")
        env = {**os.environ, "ALBOR_HOME": str(root / "home")}
        times: dict[str, list[float]] = {name: [] for name in asked}
        for number in range(given.rounds + 1):
            for name, argv in asked.items():
                took = timed(argv, env)
                if number:  # the first round warms the page cache
                    times[name].append(took)
        print(f"{given.rounds} rounds, load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")
        report(times)


if __name__ == "__main__":
    main()
