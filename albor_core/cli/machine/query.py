"""`albor db query`: SQL on a store, as a table, CSV, JSON or JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.lookup import db_option, locate
from albor_core.cli.common.output import (
    emit,
    json_option,
    number,
    print_line,
    print_note,
    report,
    table,
    write_stdout,
)
from albor_core.run.errors import AlborError, NotFoundError, UsageError

if TYPE_CHECKING:
    from albor_core.store.query.sql import QueryResult

_MOST = 1_000_000


@click.command()
@click.argument("sql")
@click.option(
    "-p", "--param", "given", multiple=True, metavar="NAME=VALUE",
    help="Bind :NAME to a number, NULL or a text; repeatable.",
)  # fmt: skip
@click.option(
    "--run", "reference", metavar="RUN", help="Query the run's own store, which has every point."
)
@click.option("--limit", metavar="N", default=10_000, type=Count(1, _MOST), show_default=True,
              help="Show at most N rows.")  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header line.")
@click.option("--jsonl", "as_lines", is_flag=True, help="Print one JSON object per row.")
@db_option
@json_option
def query(
    sql: str,
    given: tuple[str, ...],
    reference: str | None,
    limit: int,
    as_csv: bool,
    as_lines: bool,
    db: str | None,
    as_json: bool,
) -> None:
    """Ask the store of all runs in SQL: one SELECT, read-only, at most two seconds.

    \b
      albor db query "SELECT run, val_loss FROM runs WHERE val_loss < :most ORDER BY 2" -p most=3
      albor db query --run RUN "SELECT step, value FROM metrics JOIN keys USING (run_id, key_id)
                                WHERE keys.name = 'train/loss'"

    The tables are those of experiments.db.schema; NaN is NULL there.
    """
    from albor_core.store.file.access import no_longer
    from albor_core.store.query.sql import ASK_FOR_LESS
    from albor_core.store.query.sql import query as ask

    if as_csv + as_lines + as_json > 1:
        raise UsageError("--csv, --jsonl and --json: choose one", hint="albor db query --help")
    path, parameters = _store(reference, db), _parameters(given)
    with no_longer(_end, hint=ASK_FOR_LESS):
        answer = ask(path, sql, parameters, limit=limit)
    if as_json:
        rows = [_plain(row) for row in answer.rows]
        emit({"schema": "albor.db.query/1", "columns": [*answer.columns], "rows": rows,
              "is_cut": answer.is_cut})  # fmt: skip
    elif as_csv:
        write_stdout(_csv(answer))
    elif as_lines:
        write_stdout(
            "".join(f"{json.dumps(_plain(row), allow_nan=False)}\n" for row in answer.rows)
        )
    else:
        _print_table(answer)
    if answer.is_cut:
        print_note(f"the first {len(answer.rows):,} rows; more with --limit")


def _end(error: AlborError) -> None:
    """Say it and leave: the thread that waits for SQLite cannot be stopped, and it only reads."""
    code = report(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _store(reference: str | None, db: str | None) -> Path:
    if reference is not None:
        if db is not None:
            raise UsageError("--run and --db: choose one", hint="albor db query --help")
        run, local = locate(reference)
        if local is None or not local.is_file():
            raise NotFoundError(f"{run} has no store of its own", hint="albor db rebuild")
        return local
    from albor_core.store.file.home_store import present_store

    path = Path(db) if db is not None else present_store()
    if path is None:
        raise NotFoundError("no store yet", hint="albor demo")
    return path


def _parameters(given: tuple[str, ...]) -> dict[str, Any]:
    from albor_core.store.query.sql import number_or_text

    found = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        name = name.lstrip(":@$")
        if not equals or not name:
            raise UsageError(
                f"-p {pair!r} is not NAME=VALUE", hint="-p most=3, as :most in the SQL"
            )
        found[name] = number_or_text(value)
    return found


def _plain(row: Any) -> dict[str, Any]:
    """A row as JSON has it: no infinities, bytes as base64."""
    from albor_core.run.values.lenient import strict_json

    made: dict[str, Any] = strict_json({name: _value(value) for name, value in row.items()})
    return made


def _value(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    import base64

    return {"$base64": True, "encoded": base64.b64encode(value).decode()}


def _csv(answer: QueryResult) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([_cell(value, "") for value in row.values()] for row in answer.rows)
    return text.getvalue()


def _print_table(answer: QueryResult) -> None:
    rows = [
        [number(v) if isinstance(v, float) else _cell(v, "-") for v in row.values()]
        for row in answer.rows
    ]
    values = {name: [row[name] for row in answer.rows] for name in answer.columns}
    numbers = [
        name
        for name, column in values.items()
        if all(isinstance(value, int | float | None) for value in column)
    ]
    print_line(table(answer.columns, rows, right=numbers))


def _cell(value: Any, nothing: str) -> str:
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    return nothing if value is None else str(value)
