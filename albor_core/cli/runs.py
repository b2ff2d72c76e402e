"""`albor runs`: list, show and compare, finished or live."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import clean, emit, json_option, number, say, table
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir, find_run, is_run_id

if TYPE_CHECKING:
    from pathlib import Path

    from albor_core.store.reader import Reader, RunRow


@click.group(
    cls=LazyGroup,
    entries={
        "ls": (f"{__name__}:ls", "All runs, newest first."),
        "show": (f"{__name__}:show", "Everything about one run."),
        "diff": (f"{__name__}:diff", "What differs between runs, and which is better."),
        "tail": ("albor_core.cli.records:tail", "The newest records of a run."),
        "export": ("albor_core.cli.records:export", "Every point as JSON lines, CSV or Parquet."),
        "tag": ("albor_core.cli.annotate:tag", "Give a run tags."),
        "note": ("albor_core.cli.annotate:note", "Write something down beside a run."),
        "pin": ("albor_core.cli.annotate:pin", "Pin a run."),
        "rm": ("albor_core.cli.removal:rm", "Remove runs for good."),
        "gc": ("albor_core.cli.removal:gc", "Remove what killed processes left behind."),
    },
)
def runs() -> None:
    """List, show, compare, export, annotate and remove runs, finished or live."""


_db_option = click.option("--db", type=click.Path(), help="Another store file than the global one.")


@runs.command()
@click.option("--limit", default=100, show_default=True, help="At most so many runs.")
@click.option("--sort", default="created", show_default=True, help="A column of the table.")
@click.option("--experiment", help="Only runs of this experiment.")
@click.option("--name", help="Only runs whose name or id contains this.")
@click.option("--global", "everywhere", is_flag=True, help="The global store; the default.")
@_db_option
@json_option
def ls(
    limit: int,
    sort: str,
    experiment: str | None,
    name: str | None,
    everywhere: bool,
    db: str | None,
    as_json: bool,
) -> None:
    """All runs, newest first, with what each is doing now."""
    reader = _store(db)
    rows: list[RunRow] = []
    if reader is not None:
        with reader:
            rows = list(reader.runs(limit=limit, sort=sort, experiment=experiment, name=name))
    listed = [(row, _status(row)) for row in rows]
    if as_json:
        emit(
            {
                "schema": "albor.runs.ls/1",
                "runs": [{**asdict(row), "status": status} for row, status in listed],
            }
        )
        return
    if not listed:
        say("no runs yet; start one with: albor demo")
        return
    heads = ("run", "status", "step", "loss", "val loss", "val ppl", "tokens", "tok/s", "alerts")
    cells = [
        (
            row.id,
            status,
            _step(row),
            number(row.loss, ".4f"),
            number(row.val_loss, ".4f"),
            number(row.val_ppl, ",.2f"),
            number(row.tokens, ",.0f"),
            number(row.tokens_per_s, ",.0f"),
            str(row.alerts_open or "-"),
        )
        for row, status in listed
    ]
    say(table(heads, cells, right="step loss val_loss val_ppl tokens tok/s alerts"))


def _step(row: RunRow) -> str:
    return f"{row.last_step or 0}/{row.max_steps}" if row.max_steps else str(row.last_step or 0)


def _store(db: str | None) -> Reader | None:
    """The store to read; None when there is no global one yet."""
    from pathlib import Path

    from albor_core.store.paths import global_store
    from albor_core.store.reader import Reader

    path: Path = Path(db) if db is not None else global_store()
    if db is None and not path.is_file():
        return None
    return Reader(path)


def _status(row: RunRow) -> str:
    """What the run is doing, asked of the kernel: no column can know."""
    from pathlib import Path

    from albor_core.feed.status import run_status

    run = RunDir(Path(row.path))
    return run_status(run, ended=row.ended_status).word


@runs.command()
@click.argument("run")
@_db_option
@json_option
def show(run: str, db: str | None, as_json: bool) -> None:
    """Config, code, attempts, metrics, alerts and artefacts of RUN."""
    document = _document(run, db)
    if as_json:
        emit(document)
        return
    row = document["run"]
    say(f"{clean(row['id'])}  {document['status']}  experiment {clean(row['experiment'])}")
    say(f"  {row['path']}")
    say(
        f"  step {row['last_step']}/{row['max_steps'] or '?'}"
        f"  tokens {number(row['tokens'], ',.0f')}"
        f"  attempts {row['attempts']}  commit {(row['git_commit'] or '-')[:12]}"
    )
    say()
    stats = [
        (
            key,
            *(number(stat[name]) for name in ("last", "best", "minimum", "maximum")),
            str(stat["count"]),
        )
        for key, stat in document["summary"].items()
    ]
    say(
        table(
            ("metric", "last", "best", "min", "max", "points"),
            stats,
            right="last best min max points",
        )
    )
    for title, key in (("attempts", "attempts"), ("alerts", "alerts"), ("artefacts", "artifacts")):
        if document[key]:
            say(f"\n{title}")
            for item in document[key]:
                say("  " + clean("  ".join(f"{k}={v}" for k, v in item.items() if v is not None)))


def _document(reference: str, db: str | None) -> dict[str, Any]:
    from albor_core.store.paths import global_store
    from albor_core.store.reader import Reader

    run_id, local = _locate(reference)
    from pathlib import Path

    path = db or (local if local is not None and local.is_file() else global_store())
    if db is None and not Path(path).is_file():
        raise NotFoundError(f"no run {reference!r}: nothing is recorded yet", hint="albor runs ls")
    with Reader(Path(path)) as reader:
        detail = reader.detail(run_id)
        row = detail.row
        points = {key: [list(p) for p in reader.points(run_id, key)] for key in reader.keys(run_id)}
        return {
            "schema": "albor.runs.show/1",
            "run": asdict(row),
            "argv": list(detail.argv),
            "facts": detail.facts,
            "status": _status(row),
            "params": reader.params(run_id),
            "summary": {k: asdict(s) for k, s in reader.summary(run_id).items()},
            "points": points,
            "events": [asdict(e) for e in reader.events(run_id)],
            "alerts": [asdict(a) for a in reader.alerts(run_id)],
            "attempts": [asdict(a) for a in reader.attempts(run_id)],
            "artifacts": [asdict(a) for a in reader.artifacts(run_id)],
            "samples": [asdict(s) for s in reader.samples(run_id)],
            "tags": list(reader.tags(run_id)),
            "notes": [asdict(n) for n in reader.notes(run_id)],
        }


def _locate(reference: str) -> tuple[str, Path | None]:
    """The id a reference means, and its local store if the folder is still there."""
    try:
        run = find_run(reference)
    except NotFoundError:
        if is_run_id(reference):  # its folder may be gone; the global store remembers it
            return reference, None
        raise
    return run.id, run.store


@runs.command()
@click.argument("references", nargs=-1, required=True, metavar="A B [C...]")
@click.option("--metric", default="val/loss", show_default=True, help="What the verdict is about.")
@_db_option
@json_option
def diff(references: tuple[str, ...], metric: str, db: str | None, as_json: bool) -> None:
    """What differs between runs, how far each had to go, and a verdict that knows noise."""
    from albor_core.cli.diff_text import render_diff
    from albor_core.run.errors import UsageError
    from albor_core.store.diff import diff_runs

    if not 2 <= len(references) <= 10:
        raise UsageError("give two to ten runs", hint="albor runs diff A B")
    reader = _store(db)
    if reader is None:
        raise NotFoundError("there is no store yet", hint="albor demo")
    with reader:
        made = diff_runs(reader, [_locate(r)[0] for r in references], metric=metric).to_json()
    if as_json:
        emit(made)
    else:
        say(render_diff(made))
