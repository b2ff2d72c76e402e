"""CSV by the standard library: a file for each history; jobs write their heading again, rows of
two splits are told apart by a word in a column, and `none` has no column of steps.
"""

import csv
from pathlib import Path

from histories import History, Truth, placed


def write(histories: list[History], folder: Path) -> list[Truth]:
    return [_write(history, folder / f"{history.name}.csv") for history in histories]


def _write(history: History, path: Path) -> Truth:
    said: list[tuple[int, dict[str, float]]] = []
    with path.open("w", newline="") as file:
        for rows in history.jobs:
            names = sorted({key for row in rows for key in row.values})
            words = ["split"] if history.kind == "splits" else []
            steps = [] if history.kind == "none" else ["step"]
            keys = ["loss", "optim/rate"] if words else names
            writer = csv.DictWriter(file, [*steps, *words, *keys])
            writer.writeheader()
            for row in rows:
                at = len(said) if history.kind == "none" else row.step
                said.append((at, row.values))
                place = dict.fromkeys(steps, row.step)
                if not words:
                    writer.writerow(place | row.values)
                    continue
                rate = row.values["optim/rate"]
                train, val = row.values["train/loss"], row.values["val/loss"]
                writer.writerow(place | {"split": "train", "loss": train, "optim/rate": rate})
                writer.writerow(place | {"split": "val", "loss": val})
    metrics, replaced = placed(said)
    counts = {"replaced": replaced} if replaced else {}
    if history.kind == "none":
        counts["no step"] = sum(len(values) for _, values in said)
    return Truth(history.name, metrics, counts)
