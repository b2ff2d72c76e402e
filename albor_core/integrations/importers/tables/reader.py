"""Plain CSV, JSON lines and JSON: a row for each step, or, as `albor runs export` writes them, a
row for each value.

`rows.py` has the names of columns for the step, the time, the run and the part (train, val, test);
`places.py` says where a row lies whose column counts something else. Columns `key` and `value`
together mean a row for each value. Every other column of numbers is a metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from albor_core.integrations.importers.foreign import DAMAGED, ForeignRun, Importer, Item, Losses
from albor_core.integrations.importers.tables.chart import chart_rows, is_chart
from albor_core.integrations.importers.tables.columns import Columns, RowReader, run_of
from albor_core.integrations.importers.tables.document import document_rows, run_name
from albor_core.integrations.importers.tables.rows import (
    Row,
    csv_rows,
    has_records,
    heading,
    is_log_line,
    json_lines,
)
from albor_core.run.errors import DataError
from albor_core.run.values.quantity import counted

MAX_RUNS = 200
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}


def read(kind: str, files: list[Path], root: Path) -> Iterator[ForeignRun]:
    """The runs of files of `kind`. Raises DataError for a file without a number."""
    for path in sorted(files):
        columns = Columns.of(_rows(kind, path, Losses()), MAX_RUNS)
        for run, experiment in _names(kind, path, columns).items():
            yield ForeignRun(
                source=kind,
                key=f"{path.resolve()}\0{run or ''}",
                name=run or run_name(path),
                experiment=experiment or kind,
                where=path,
                items=partial(_items, kind, path, run, columns),
            )


def _names(kind: str, path: Path, columns: Columns) -> dict[str | None, str | None]:
    """The runs of a file, each with its experiment if the file names one; {None: None} for one
    that names none.
    """
    found: dict[str | None, str | None] = {}
    for row in _rows(kind, path, Losses()):
        name = run_of(row)
        if name not in found:
            if len(found) >= MAX_RUNS:
                raise DataError(f"{path}: more than {MAX_RUNS} runs", hint="split the file")
            said = row.get("experiment")
            found[name] = said if isinstance(said, str) and said else None
    if not columns.places:
        raise DataError(
            f"{path}: {_why_none(kind, path)}, so no history",
            hint="name a file with a column for each metric, or a log with a record on a line",
        )
    if columns.is_list_of_runs:
        raise DataError(
            f"{path}: a list of runs with a row for each, so no history: export the history of a"
            " run, with a row for each step",
        )
    return found


def _why_none(kind: str, path: Path) -> str:
    """A description of what a file without values contains."""
    losses, rows = Losses(), 0
    reader = RowReader(Columns(), None)
    for row in _rows(kind, path, losses):
        reader.point(row, losses)
        rows += 1
    first = losses.examples.get(DAMAGED) or next(iter(losses.examples.values()), None)
    if losses.damaged:
        return f"none of its {counted(losses.damaged, 'row')} can be read (first {first})"
    if rows and first is not None:
        return f"no number in its {counted(rows, 'row')} but for steps and times (first {first})"
    if kind == "jsonl":
        return "no line of it is a record of numbers"
    return "no number in it but for steps and times" if rows else "no row below its heading"


def _items(
    kind: str, path: Path, run: str | None, columns: Columns, losses: Losses
) -> Iterator[Item]:
    reader = RowReader(columns, run)
    for row in _rows(kind, path, losses, run):
        if run_of(row) == run:
            yield reader.point(row, losses)


def _rows(kind: str, path: Path, losses: Losses, asked: str | None = None) -> Iterator[Row]:
    if kind == "json":
        return document_rows(path, losses)
    if kind == "jsonl":
        return json_lines(path, losses)
    rows = csv_rows(path, losses)
    return chart_rows(rows, losses, asked) if is_chart(heading(path)) else rows


def _may_be(kind: str, name: str) -> bool:
    return _SUFFIXES.get(Path(name).suffix.lower()) == kind


def _is_text(kind: str, path: Path, head: bytes) -> bool:
    """Whether a text is of `kind`: by its name, else by whether it begins as JSON."""
    if not head or b"\0" in head:
        return False
    said = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    begins = {b"{": "jsonl", b"[": "json"}.get(said[:1], "csv")
    suffix = _SUFFIXES.get(path.suffix.lower())
    if suffix is None and begins != "json":
        is_log = is_log_line(said.decode("utf-8", "replace")) or has_records(path)
        begins = "jsonl" if is_log else begins
    return (suffix or begins) == kind


def _importer(kind: str, title: str) -> Importer:
    return Importer(
        name=kind,
        title=title,
        read=partial(read, kind),
        may_be=partial(_may_be, kind),
        is_file=partial(_is_text, kind),
        only_asked=True,
    )


CSV = _importer("csv", "CSV")
JSONL = _importer("jsonl", "JSON lines")
JSON = _importer("json", "JSON")
