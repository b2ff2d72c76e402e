"""`albor data provenance`: where data comes from, held against its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from albor_core.cli.common.output import clean, emit, json_option, print_line, write_stdout
from albor_core.cli.common.progress import progress
from albor_core.cli.data.dataset.stats import split_names
from albor_core.run.errors import DataError
from albor_core.run.values.quantity import counted


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print the text of a PROVENANCE.md instead."
)
@json_option
def provenance(path: Path, as_markdown: bool, as_json: bool) -> None:
    """Show where the corpus or shards at PATH come from, step by step, and check every hash.

    Exits with 7 where a file is not what its record says; --json lists it as `problems`.
    """
    from albor_core.data.pipeline.provenance import markdown
    from albor_core.data.pipeline.provenance import provenance as work

    with progress(lambda done, total: f"{done:,} of {total:,} documents") as tell:
        found: Any = work(path, progress=tell)
    if as_json:
        emit(found)
    elif as_markdown:
        write_stdout(markdown(found))
    else:
        right = "every hash is right"
        if path.is_file():  # its record is in its own footer
            right = "its counts are right; one file has no hash beside it to hold it against"
        print_line(
            f"{clean(found['path'])}: {found['kind']} of {counted(len(found['sources']), 'source')}"
            f", {counted(len(found['files']), 'file')}; "
            + (right if found["ok"] else "not what its record says")
        )
        for step in found["steps"]:
            print_line(
                f"  {clean(step['step']):<14} {step['documents']:,} of "
                f"{counted(step['documents_in'], 'document')}{split_names(step)}"
            )
        for one in found["problems"]:
            print_line(f"  problem: {clean(one['file'])}: {clean(one['message'])}")
    if not found["ok"]:
        if as_json or as_markdown:
            click.get_current_context().exit(DataError.exit_code)
        raise DataError(
            f"{path}: {counted(len(found['problems']), 'problem')}",
            hint=found["problems"][0]["hint"] or "make it again",
        )
