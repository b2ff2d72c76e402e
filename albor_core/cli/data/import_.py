"""`albor data import`: source trees, repositories and files of rows in, a corpus out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import clean, emit, print_line, print_note
from albor_core.cli.common.progress import progress
from albor_core.cli.data.step_command import plan_refused, step_options
from albor_core.cli.plans.file_plan import OwnPlan, plans
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.data.read.inputs import InputSource
    from albor_core.data.read.sources import ImportPlan, ImportReport
    from albor_core.data.stage.counts import Counts


_MOST_COLUMNS = 5


@click.command(name="import")
@click.argument(
    "sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="SRC..."
)
@click.option("--exclude", multiple=True, help="Skip folders of this name; repeatable.")
@click.option(
    "--suffix",
    "suffixes",
    multiple=True,
    default=(".py",),
    show_default=True,
    help="In folders, read files with this suffix; repeatable.",
)
@click.option(
    "--column",
    help="Read the text of rows from this column.  [default: text, content, code or body]",
)
@click.option(
    "--max-bytes",
    type=Count(least=1, most=64 << 20),
    default="1_048_576",
    show_default=True,
    help="Leave out longer documents.",
)
@click.option(
    "--url", "urls", multiple=True, metavar="[SRC=]URL",
    help="Record this URL as the origin of SRC; repeatable.",
)  # fmt: skip
@click.option(
    "--revision", "revisions", multiple=True, metavar="[SRC=]WORD",
    help="Record this revision of SRC; repeatable.",
)  # fmt: skip
@click.option("--no-git", is_flag=True, help="Read repositories as plain folders.")
@step_options
@plans(lambda told: told["sources"], estimate=OwnPlan())
def import_(
    sources: tuple[Path, ...],
    out: Path,
    exclude: tuple[str, ...],
    suffixes: tuple[str, ...],
    column: str | None,
    max_bytes: int,
    urls: tuple[str, ...],
    revisions: tuple[str, ...],
    no_git: bool,
    workers: int | None,
    force: bool,
    only_plan: bool,
    as_json: bool,
) -> None:
    """Import each SRC into a corpus (text, source, file, commit, licence).

    A folder gives its text files whose names end in --suffix; a git repository those that git does
    not ignore, a bare one its HEAD; a .jsonl, .jsonl.gz, .csv, .tsv or .parquet file the texts in
    --column; any other file its text.
    """
    from albor_core.data.read.inputs import Asked, origins_of
    from albor_core.data.read.sources import import_sources, plan_import
    from albor_core.data.stage.workers import default_workers

    asked = Asked(
        suffixes,
        exclude,
        max_bytes,
        column,
        git=not no_git,
        origins=origins_of(sources, urls, revisions),
    )
    how: dict[str, Any] = {"workers": workers or default_workers(), "force": force}
    with progress(lambda files, size: f"{files:,} documents, {size:,} bytes read") as tell:
        if only_plan:
            made = plan_import(sources, out, asked, **how, progress=tell)
        else:
            report = import_sources(sources, out, asked, **how, progress=tell)
    if only_plan:
        _show_plan(made, as_json)
    else:
        _show_report(report, as_json)


def _show_plan(made: ImportPlan, as_json: bool) -> None:
    """Print the plan. Raises ConfigError, exit code 1, with every problem."""
    if made.problems:
        raise plan_refused(made.out, made.problems)
    if as_json:
        document: Any = {
            "schema": "albor.data.import.plan/1",
            "ok": True,
            "out": str(made.out),
            "files": made.files,
            "bytes": made.bytes,
            "out_bytes": made.out_bytes,
            "skipped": made.skipped,
            "action": made.action,
            "sources": _sources(made.sources, made.counts),
        }
        emit(document)
        return
    print_line(f"{clean(str(made.out))}: ok; nothing was written")
    print_line(f"  action  {made.action}")
    _tell(made)


def _show_report(report: ImportReport, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "schema": "albor.data.import/1",
                "files": report.files,
                "bytes": report.bytes,
                "skipped": report.skipped,
                "corpus_hash": report.corpus_hash,
                "out": str(report.out),
                "reused": report.reused,
                "sources": _sources(report.sources, report.counts),
                "examples": dict(sorted(report.counts.examples.items())),
                "data_hash": report.record.data_hash,
                "resumed_units": report.resumed_units,
                "seconds": report.seconds,
            }
        )
        return
    _tell(report)
    if report.reused:
        print_line("up to date: it holds these very documents; nothing was written")
    elif report.resumed_units:
        print_line(f"went on after {counted(report.resumed_units, 'part')} of an earlier try")


def _tell(made: ImportReport | ImportPlan) -> None:
    skipped = ", ".join(f"{count:,} {why}" for why, count in made.skipped.items()) or "none"
    taken = f"{counted(made.files, 'document')}, {made.bytes:,} bytes"
    print_line(f"{clean(str(made.out))}: {taken}; skipped {skipped}")
    for reason, keys in sorted(made.counts.examples.items()):
        print_line(f"  {reason:<14} such as {clean(keys[0])}")
    _tell_columns(made)
    for source in made.sources:
        if source.commit is not None:
            under = source.licence or "an unknown licence"
            print_line(f"  {clean(source.name)}: commit {source.commit[:12]}, {clean(under)}")
        if source.dirty:
            print_note(
                f"{clean(source.name)}: its files are not those of that commit (git status); "
                "the commit is recorded as dirty"
            )


def _tell_columns(made: ImportReport | ImportPlan) -> None:
    """Report files whose text column differs, and rows with their text in another column."""
    several = len({source.column for source in made.sources if source.column}) > 1
    for source in made.sources:
        counts = made.counts.sources.get(source.name)
        found = counts.elsewhere.most_common(_MOST_COLUMNS) if counts is not None else []
        if source.column and (several or found):
            print_line(f"  {clean(source.name)}: text taken from `{clean(source.column)}`")
        for column, rows in found:
            what = (
                f"{counted(rows, 'row')} {'has' if rows == 1 else 'have'} `{clean(column)}` instead"
            )
            print_line(f"    {what}: --column {clean(shlex.quote(column))} takes those")


def _sources(sources: tuple[InputSource, ...], counts: Counts) -> Any:
    found = counts.to_json()["sources"]
    none: dict[str, Any] = {"revision": None, "sha256": None, "elsewhere": {}}
    return [none | source.facts() | found.get(source.name, {}) for source in sources]
