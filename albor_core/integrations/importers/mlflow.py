"""MLflow: its SQLite store and its older folder of files (`mlruns/`).

Deleted runs are left out. A tag `K=V` of the user becomes the tag `K=V`; tags of `mlflow.` are read
for the name, the note, the commit and the program. NaN is a flag there and an infinity the largest
double. Where no step was given all values of a metric lie on one, and their order is the step.
Source: mlflow/store/tracking/dbmodels/models.py and file_store.py of MLflow 3.17.
"""

from __future__ import annotations

import math
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

from albor_core.integrations.importers.foreign import (
    Example,
    ForeignMedium,
    ForeignRun,
    Importer,
    Item,
    Losses,
    Point,
)
from albor_core.integrations.importers.formats.sqlite_file import columns, may_be_database, opened
from albor_core.integrations.importers.media.kept import inside, picture, table_file, words
from albor_core.integrations.importers.steps.order import numbered, stepless
from albor_core.run.values.lenient import is_number

SOURCE = "mlflow"
_STATUS = {"FINISHED": "completed", "FAILED": "failed", "KILLED": "stopped"}
_BY_NUMBER = {3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_MAX_META_BYTES = 1 << 20
_MAX_TAG_CHARS = 64
_THUMBNAIL = "*%compressed.webp"  # a smaller copy of a picture beside it
_OF_STEP = re.compile(r"images/(.+?)%step%(\d{1,15})%timestamp%(\d{1,15})%[^/%]*\.\w+")


def is_store(db: sqlite3.Connection) -> bool:
    """Whether a database has MLflow's tables."""
    return {"run_uuid", "is_nan"} <= columns(db, "metrics") and "run_uuid" in columns(db, "runs")


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is a run of a file store."""
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def read(files: list[Path], root: Path) -> Iterator[ForeignRun]:
    """The runs of databases and of run folders."""
    for path in sorted(files):
        if path.is_dir():
            yield from _folder(path)
        else:
            yield from _database(path)


def _database(path: Path) -> Iterator[ForeignRun]:
    with opened(path) as db:
        rows = db.execute(
            "SELECT r.run_uuid, r.name, r.status, r.start_time, r.end_time, e.name FROM runs r"
            " LEFT JOIN experiments e USING (experiment_id)"
            " WHERE coalesce(r.lifecycle_stage, '') <> 'deleted' ORDER BY r.start_time, r.run_uuid"
        ).fetchall()
        for run, name, status, start, end, experiment in rows:
            tags = _pairs(db, "tags", run)
            yield _run(
                path,
                run,
                tags.get("mlflow.runName") or name,
                experiment,
                (str(status), start, end),
                tags,
                _pairs(db, "params", run),
                partial(_rows, path, run),
            )


def _pairs(db: sqlite3.Connection, table: str, run: str) -> dict[str, str]:
    sql = f"SELECT key, value FROM {table} WHERE run_uuid = ? ORDER BY key"
    return {str(key): str(value) for key, value in db.execute(sql, (run,))}


def _run(
    where: Path,
    run: str,
    name: str | None,
    experiment: str | None,
    course: tuple[str, Any, Any],
    tags: Mapping[str, str],
    params: Mapping[str, str],
    items: Any,
) -> ForeignRun:
    status, start, end = course
    known = _STATUS.get(status)
    words = {f"{key}={value}" for key, value in tags.items() if not key.startswith("mlflow.")}
    return ForeignRun(
        source=SOURCE,
        key=run,
        name=str(name or run),
        experiment=str(experiment or "mlflow"),
        where=where,
        items=items,
        created=_ms(start),
        ended=_ms(end),
        status=known or "failed",
        ending=f"status {status}" if known else f"status {status}: killed, or it still runs",
        params={key: _value(value) for key, value in params.items()},
        tags=tuple(sorted(word for word in words if len(word) <= _MAX_TAG_CHARS)),
        notes=tags.get("mlflow.note.content", ""),
        facts={
            "id": run,
            "commit": tags.get("mlflow.source.git.commit", ""),
            "program": tags.get("mlflow.source.name", ""),
            "parent": tags.get("mlflow.parentRunId", ""),
        },
    )


def _value(said: str) -> bool | int | float | str:
    """MLflow keeps every parameter as text; numbers and truths come back where the text is
    exactly theirs.
    """
    if said in ("True", "False"):
        return said == "True"
    for kind in (int, float):
        try:
            number: int | float = kind(said)
        except ValueError:
            continue
        if str(number) == said:
            return number
    return said


def _ms(value: Any) -> float | None:
    try:
        return value / 1000.0 if is_number(value) else None
    except OverflowError:  # of four hundred digits
        return None


def _figure(value: Any) -> float:
    """The number of a value. Raises ValueError or TypeError if it is not one."""
    number = float(value)
    if abs(number) >= sys.float_info.max:  # how the store spells an infinity
        return math.copysign(math.inf, number)
    return number


def _artifacts(uri: object, beside: Path, losses: Losses) -> Iterator[ForeignMedium]:
    """What a run logged as files: pictures, tables and texts are kept, the others counted. Only
    what lies below the store's own folder `beside` is read, wherever a store may say that it is.
    """
    if not isinstance(uri, str) or not uri:
        return
    scheme, separator, rest = uri.partition("://")
    if separator and scheme != "file":
        losses.note("artifacts elsewhere", example=Example(uri))
        return
    folder = beside / unquote(rest if separator else uri)
    files = _regular(folder) if folder.is_dir() else []
    is_ours = folder.resolve().is_relative_to(beside.resolve())
    for path in files:
        name = str(path.relative_to(folder))
        content = inside(folder, name) if is_ours and not path.match(_THUMBNAIL) else None
        medium = None if content is None else _medium(name, content)
        if medium is not None:
            yield medium
        elif not path.match(_THUMBNAIL):
            losses.note("artifact", example=Example(name))


def _medium(name: str, content: bytes) -> ForeignMedium | None:
    """A file that `log_image`, `log_table` or `log_text` wrote, or `log_artifact`. The name of a
    picture of a step is `images/KEY%step%N%timestamp%MS%ID.png`, with # for / in the key.
    """
    step, wall, key = None, None, name
    found = _OF_STEP.fullmatch(name)
    if found is not None:
        key = found[1].replace("#", "/")
        step, wall = int(found[2]), _ms(int(found[3]))
    at = step, wall
    if name.endswith(".json"):
        return table_file(at, key, content)
    if name.endswith((".txt", ".md")):
        return words(at, key, content.decode("utf-8", "replace"))
    return picture(at, key, content)


def _rows(path: Path, run: str, losses: Losses) -> Iterator[Item]:
    with opened(path) as db:
        if "artifact_uri" in columns(db, "runs"):
            sql = "SELECT artifact_uri FROM runs WHERE run_uuid = ?"
            yield from _artifacts(db.execute(sql, (run,)).fetchone()[0], path.parent, losses)
        keys = stepless(_values(db, run, Losses()))
        yield from _joined(numbered(_values(db, run, losses), keys, losses))


def _values(db: sqlite3.Connection, run: str, losses: Losses) -> Iterator[Point]:
    rows = db.execute(
        "SELECT step, timestamp, key, value, is_nan FROM metrics WHERE run_uuid = ?"
        " ORDER BY step, timestamp, rowid",
        (run,),
    )
    for step, stamp, key, value, is_nan in rows:
        try:
            number = math.nan if is_nan else _figure(value)
        except (TypeError, ValueError):  # a column takes any text
            losses.spoil(str(key), value, step)
            continue
        yield Point(step, _ms(stamp), {key: number})


def _joined(items: Iterable[Item]) -> Iterator[Item]:
    """Values of one step in one row, at the time of the first."""
    waiting: Point | None = None
    for item in items:
        if not isinstance(item, Point):
            yield item
        elif (
            waiting is not None
            and (waiting.step, waiting.axis) == (item.step, item.axis)
            and waiting.values.keys().isdisjoint(item.values)
        ):
            waiting = replace(waiting, values={**waiting.values, **item.values})
        else:
            if waiting is not None:
                yield waiting
            waiting = item
    if waiting is not None:
        yield waiting


def _folder(path: Path) -> Iterator[ForeignRun]:
    meta = _meta(path / "meta.yaml")
    run = str(meta.get("run_id") or meta.get("run_uuid") or path.name)
    if meta.get("lifecycle_stage") == "deleted":
        return
    tags = _texts(path / "tags")
    status = meta.get("status")
    word = str(_BY_NUMBER.get(status, status) if isinstance(status, int) else status)
    yield _run(
        path,
        run,
        tags.get("mlflow.runName") or meta.get("run_name"),
        _meta(path.parent / "meta.yaml").get("name"),
        (word, meta.get("start_time"), meta.get("end_time")),
        tags,
        _texts(path / "params"),
        partial(_files, path / "metrics"),
    )


def _meta(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = yaml.safe_load(file.read(_MAX_META_BYTES))
    except (OSError, yaml.YAMLError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _texts(folder: Path) -> dict[str, str]:
    found = {}
    for path in _regular(folder):
        with path.open("rb") as file:
            said = file.read(_MAX_META_BYTES).decode("utf-8", "replace")
        found[str(path.relative_to(folder))] = said
    return found


def _regular(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _files(folder: Path, losses: Losses) -> Iterator[Item]:
    """Artifacts, then the values of metric files: one per key, lines `milliseconds value step`."""
    yield from _artifacts("artifacts", folder.parent, losses)
    for path in _regular(folder):
        key = str(path.relative_to(folder))
        keys = stepless(_lines(path, key, Losses()))
        yield from numbered(_lines(path, key, losses), keys, losses)


def _lines(path: Path, key: str, losses: Losses) -> Iterator[Point]:
    with path.open(encoding="utf-8", errors="replace") as file:
        while line := file.readline(4096):
            words = line.split()
            try:
                stamp, value = int(words[0]), float(words[1])
                step = int(words[2]) if len(words) > 2 else 0
                wall = stamp / 1000.0
            except (ValueError, IndexError, OverflowError):
                losses.spoil(key, line)
                continue
            yield Point(step, wall, {key: value})


IMPORTER = Importer(
    name=SOURCE,
    title="MLflow",
    read=read,
    may_be=may_be_database,
    is_database=is_store,
    is_folder=is_run_folder,
    folder_mark="meta.yaml",
)
