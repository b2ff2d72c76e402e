"""`albor data verify`: shards against their manifests."""

from __future__ import annotations

from pathlib import Path

import click

from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
)
from albor_core.run.errors import DataError
from albor_core.run.values.quantity import counted


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def verify(folder: Path, as_json: bool) -> None:
    """Check every shard in FOLDER (a split such as shards/train, or all splits of shards) against
    its manifest, and every byte of the caches that runs have made from it.

    Exits with 7 if something is wrong; --json lists it as `problems`, with `ok` false.
    """
    from albor_core.data.load.token_cache import verify_caches
    from albor_core.data.pack.shard_check import split_folders, verify_shards

    problems = [
        problem
        for split in split_folders(folder)
        for problem in (*verify_shards(split, hashes=True), *verify_caches(split))
    ]
    if as_json:
        emit(
            {
                "schema": "albor.data.verify/1",
                "folder": str(folder),
                "ok": not problems,
                "problems": [field_values(problem) for problem in problems],
            }
        )
        if problems:
            click.get_current_context().exit(DataError.exit_code)
        return
    for problem in problems:
        print_note(f"  - {clean(problem.file)}: {clean(problem.message)}")
    if problems:
        remedies = dict.fromkeys(problem.hint for problem in problems if problem.hint)
        raise DataError(
            f"{folder}: {counted(len(problems), 'problem')}", hint="; or ".join(remedies)
        )
    print_line(f"{clean(folder)}: ok")
