"""The points of runs in a file that other programs read, of any size: JSON lines and CSV here,
Parquet in data/points.py.

One row per point, ordered by run (as given), key and step; the columns are COLUMNS:

    run         text     the run's id
    experiment  text
    key         text     such as train/loss
    step        int64
    wall        float64  UTC seconds when the step was logged; empty where unknown
    value       float64  NaN and Inf are values: `nan`, `inf`, `-inf` in CSV and (as texts) in JSON

It is the effective history: every step once, rewinds applied. Read in pages of short transactions,
so that neither memory nor a live run's store suffers.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir
from albor_core.store.paths import local_store
from albor_core.store.reader import Reader

COLUMNS = ("run", "experiment", "key", "step", "wall", "value")
PAGE = 20_000  # rows of a page: some 5 MB in memory
Row = tuple[str, str, str, int, float | None, float]
Page = list[Row]


def pages(run: RunDir, *, keys: Sequence[str] | None = None, page: int = PAGE) -> Iterator[Page]:
    """The points of a run. `keys` None means all. Raises NotFoundError for a key that the run does
    not have and where the run's own store is gone, StoreError.
    """
    with Reader(local_store(run)) as reader:
        row = reader.run(run.id)
        known = reader.keys(run.id)
        for key in known if keys is None else keys:
            if key not in known:
                raise NotFoundError(
                    f"{run.id}: no metric {key!r}", hint=f"albor runs show {run.id}"
                )
            after: int | None = None
            while points := reader.points(run.id, key, after, limit=page):
                yield [
                    (run.id, row.experiment, key, step, wall, value) for step, value, wall in points
                ]
                after = points[-1][0] + 1


def write_jsonl(all_pages: Iterator[Page], file: TextIO) -> int:
    """One object a line; returns the number of rows."""
    rows = 0
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    for page in all_pages:
        lines = (encode(_strict(dict(zip(COLUMNS, row, strict=True)))) + "\n" for row in page)
        file.writelines(lines)
        rows += len(page)
    return rows


def _strict(record: dict[str, Any]) -> Mapping[str, Any]:
    value = record["value"]
    if not math.isfinite(value):
        record["value"] = "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return record


def write_csv(all_pages: Iterator[Page], file: TextIO) -> int:
    """A header, then one row a line; returns the number of rows."""
    rows = 0
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for page in all_pages:
        writer.writerows(page)
        rows += len(page)
    return rows


FORMATS: Mapping[str, Callable[[Iterator[Page], TextIO], int]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
}
