"""`albor report`: runs as one page that can be mailed, archived, put beside a model card."""

from __future__ import annotations

import os
from pathlib import Path

import click

from albor_core.cli.lookup import db_option, locate, open_store_of
from albor_core.cli.output import emit, json_option, talk
from albor_core.run.errors import AlborError, UsageError, remedy


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The page to write.",
)
@click.option("--metric", default="val/loss", show_default=True, help="What the verdict is about.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@db_option
@json_option
def report(
    references: tuple[str, ...],
    out: Path,
    metric: str,
    force: bool,
    db: str | None,
    as_json: bool,
) -> None:
    """One HTML page of one to ten runs: charts, verdict, what differs.

    It holds everything it shows and asks no network.
    """
    from albor_core.report.page import render

    if len(references) > 10:
        raise UsageError("give one to ten runs", hint="albor report RUN... --out report.html")
    if out.exists() and not force:
        raise UsageError(f"{out}: exists", hint="--force replaces it")
    with open_store_of(references, db) as reader:
        ids = [locate(one, db)[0] for one in references]
        page = render(reader, ids, metric=metric).encode("utf-8", "replace")
    _write(out, page, replace=force)
    if as_json:
        emit({"schema": "albor.report/1", "runs": ids, "out": str(out), "bytes": len(page)})
    else:
        talk(f"{out}: {len(page):,} bytes")


def _write(out: Path, page: bytes, *, replace: bool) -> None:
    """The whole page or nothing."""
    from albor_core.store.whole_file import whole_file

    try:
        with (
            whole_file(out, replace=replace) as descriptor,
            os.fdopen(os.dup(descriptor), "wb") as file,
        ):
            file.write(page)
    except OSError as error:
        raise AlborError(
            f"{out}: {error.strerror}", hint=remedy(error) or "another --out"
        ) from error
