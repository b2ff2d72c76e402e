"""The points of runs in a file that other programs read, of any size: JSON lines and CSV here,
Parquet in report/parquet.py.

One row per point, ordered by run (as given), key and step; the columns are COLUMNS, described to
programs by `albor schema albor.runs.export.row`:

    run         text     the run's id
    experiment  text
    key         text     such as train/loss
    step        int64
    wall        float64  UTC seconds when the step was logged; unknown: null, in CSV empty
    value       float64  NaN and Inf are values: in Parquet as such, in CSV `nan`, `inf`, `-inf`, in
                         JSON, which has no such numbers, the texts "nan", "inf", "-inf"

It is the effective history: every step once, rewinds applied. Read in pages of short transactions,
so that neither memory nor a live run's store suffers: a page of PAGE rows is all there is at once.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TextIO

from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import local_store
from albor_core.store.query.names import meant_metric
from albor_core.store.query.reader import Reader

COLUMNS = ("run", "experiment", "key", "step", "wall", "value")
PAGE = 20_000  # rows of a page: some 5 MB in memory
Row = tuple[str, str, str, int, float | None, float]
Page = list[Row]


def pages(run: RunDir, *, keys: Sequence[str] | None = None, page: int = PAGE) -> Iterator[Page]:
    """The points of a run. `keys` None means all. Raises NotFoundError for a key that the run does
    not have and where the run's own store is gone, StoreError.

    Of a run that is alive it is what was indexed when each page was read, never a torn step.
    """
    with Reader(local_store(run)) as reader:
        row = reader.run(run.id)
        known = reader.keys(run.id)
        for key in known if keys is None else [_meant(run, key, known) for key in keys]:
            after: int | None = None
            while points := reader.points(run.id, key, after, limit=page):
                yield [
                    (run.id, row.experiment, key, step, wall, value) for step, value, wall in points
                ]
                after = points[-1][0] + 1


def _meant(run: RunDir, said: str, known: Sequence[str]) -> str:
    try:
        return meant_metric(said, known)
    except NotFoundError as error:
        error.message = f"{run.id}: {error.message}"
        error.hint = f"albor runs show {run.id}"
        raise


def write_jsonl(all_pages: Iterator[Page], file: TextIO) -> int:
    """One object a line; returns the number of rows."""
    rows = 0
    head: tuple[str, str, str] | None = None
    prefix = ""
    for page in all_pages:
        lines = []
        for run, experiment, key, step, wall, value in page:
            if (run, experiment, key) != head:  # the same for a whole series: encoded once
                head = (run, experiment, key)
                prefix = _encode(dict(zip(COLUMNS, head, strict=False)))[:-1]
            shown = float.__repr__(value) if math.isfinite(value) else f'"{value}"'
            when = "null" if wall is None else float.__repr__(wall)
            lines.append(f'{prefix},"step":{step},"wall":{when},"value":{shown}}}\n')
        file.writelines(lines)
        rows += len(page)
    return rows


_encode = json.JSONEncoder(separators=(",", ":")).encode


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
