"""Neptune, as its exporter leaves it: Parquet files `RUN_part_N.parquet`, a row for each value.

Columns: project_id, run_id, attribute_path, attribute_type, step (decimal), timestamp, and a column
for each type of value. Rows of `float_series` are metrics, those without a step params; files,
texts, histograms and their series are counted as left out. Steps that are not whole are multiplied
by the power of ten that makes all of their run whole. Source: the exporter's README and model.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import (
    UNTOLD,
    ForeignRun,
    Importer,
    Losses,
    Point,
    Rewind,
)
from albor_core.run.errors import AlborError, DataError
from albor_core.run.values.lenient import is_number

SOURCE = "neptune"
_PART = re.compile(r"(.*?)_?part_\d+\.parquet", re.DOTALL)
_COLUMNS = ("project_id", "run_id", "attribute_path", "attribute_type")
_SERIES = (*_COLUMNS, "step", "timestamp", "float_value")
_VALUES = {
    "float": "float_value",
    "int": "int_value",
    "string": "string_value",
    "bool": "bool_value",
    "datetime": "datetime_value",
    "string_set": "string_set_value",
}
_TAIL_BYTES = 1 << 16
_SYSTEM = "sys/"
_MOST_DECIMALS = 6  # of the exporter's steps
Name = tuple[str, str]


@dataclass
class _About:
    """The data of one run besides its series."""

    system: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    decimals: int = 0


def is_export(path: Path, head: bytes) -> bool:
    """Whether a Parquet file has the exporter's columns, which its last bytes name."""
    if not head.startswith(b"PAR1"):
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = file.read()
    return all(name.encode() in tail for name in _COLUMNS)


def read(files: list[Path], root: Path) -> Iterator[ForeignRun]:
    """The runs of files. Raises AlborError where Parquet cannot be read here."""
    files = sorted(files, key=_part_number)
    for (project, run), about in _described(files).items():
        told = about.system.get
        created, name = told("sys/creation_time"), told("sys/name")
        tags = [*(told("sys/tags") or ()), *(told("sys/group_tags") or ())]
        has_failed = told("sys/failed") is True
        facts = {"id": run, "short_id": told("sys/id"), "parent": told("sys/forking/parent")}
        if about.decimals:
            facts["step_multiplier"] = 10**about.decimals
        yield ForeignRun(
            source=SOURCE,
            key=f"{project}/{run}",
            name=str(name or run),
            experiment=project,
            where=files[0],
            items=partial(_items, files, (project, run), about),
            created=created if is_number(created) else None,
            status="failed" if has_failed else "completed",
            ending="Neptune recorded that it failed" if has_failed else UNTOLD,
            params=about.params,
            tags=tuple(map(str, tags)),
            notes=str(told("sys/description") or ""),
            facts=facts,
        )


def _described(files: Sequence[Path]) -> dict[Name, _About]:
    found: dict[Name, _About] = {}
    for path in files:
        for row in _rows(path, (*_COLUMNS, "step", *dict.fromkeys(_VALUES.values()))):
            about = found.setdefault((str(row["project_id"]), str(row["run_id"])), _About())
            kind, key = row["attribute_type"], row["attribute_path"]
            if kind == "float_series":
                about.decimals = max(about.decimals, _decimals(row["step"]))
            elif kind in _VALUES and isinstance(key, str):
                value = row[_VALUES[kind]]
                value = value.timestamp() if isinstance(value, datetime) else value
                if value is not None:
                    (about.system if key.startswith(_SYSTEM) else about.params)[key] = value
            else:
                about.left_out[str(kind).replace("_", " ")] += 1
    return found


def _items(
    files: Sequence[Path], name: Name, about: _About, losses: Losses
) -> Iterator[Point | Rewind]:
    for kind, count in about.left_out.items():
        losses.note(kind, count)
    scale = 10**about.decimals
    for path in files:
        for row in _rows(path, _SERIES):
            is_mine = (row["project_id"], row["run_id"]) == name
            if not is_mine or row["attribute_type"] != "float_series":
                continue
            value, stamp, key = row["float_value"], row["timestamp"], row["attribute_path"]
            if value is None or not isinstance(key, str):
                losses.spoil(str(key), value, row["step"])
                continue
            step = row["step"]
            wall = stamp.timestamp() if isinstance(stamp, datetime) else None
            yield Point(None if step is None else int(step * scale), wall, {key: value})


def _rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows as dictionaries, a batch in memory at a time; a column that is not there is None."""
    try:
        import pyarrow  # noqa: PLC0415  0.1 s, where there is Parquet to read
        import pyarrow.parquet as parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise AlborError(
            f"cannot read {path}: Parquet needs pyarrow, which is not installed",
            hint="pip install 'pyarrow>=21', then import again",
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            absent = dict.fromkeys(set(columns) - set(there))
            for batch in file.iter_batches(batch_size=1 << 14, columns=there):
                for row in batch.to_pylist():
                    yield {**absent, **row}
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a whole Parquet file: {error}") from error


def _decimals(step: Any) -> int:
    """Digits behind the point that a step needs."""
    if not isinstance(step, Decimal) or step == step.to_integral_value():
        return 0
    exponent = step.normalize().as_tuple().exponent
    return min(_MOST_DECIMALS, -exponent) if isinstance(exponent, int) else 0


def _group(path: Path) -> Path:
    """Parts of one run are read together."""
    found = _PART.fullmatch(path.name)
    return path if found is None else path.with_name(found[1] or "part")


def _part_number(path: Path) -> tuple[int, str]:
    found = re.search(r"part_(\d+)\.parquet$", path.name)
    return (int(found[1]) if found else 0, path.name)


IMPORTER = Importer(
    name=SOURCE,
    title="Neptune (exported)",
    read=read,
    may_be=lambda name: name.endswith(".parquet"),
    is_file=is_export,
    group=_group,
)
