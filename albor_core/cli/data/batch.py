"""`albor data batch`: what a step of a run was trained on."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import clean, emit, field_values, json_option, print_line
from albor_core.run.values.quantity import counted


@click.command()
@click.argument("run")
@click.option(
    "--step", type=Count(least=1), help="Show the batch of this step.  [default: the newest]"
)
@click.option("--rows", type=Count(least=1), help="Show at most N rows.  [default: 4; --json: all]")
@json_option
def batch(run: str, step: int | None, rows: int | None, as_json: bool) -> None:
    """Show the sequences of one step of RUN as text, with their sources and documents."""
    from albor_core.data.load.step_batch import step_batch
    from albor_core.feed.data.place import started_in
    from albor_core.store.query.resolve import find_run

    found = find_run(run)
    home = Path(started_in(str(found.path)))
    with chdir(home if home.is_dir() else Path()):  # what relative paths are relative to
        made = step_batch(found, step)
    if as_json:
        shown = [field_values(one) for one in made.rows[:rows]]
        emit({"schema": "albor.data.batch/1", "run": found.id, "step": made.step, "rows": shown})
        return
    print_line(f"{found.id}, step {made.step:,}: {counted(len(made.rows), 'sequence')}")
    for one in made.rows[: rows or 4]:
        facts = [f"row {one.row:,} of epoch {one.epoch:,}", f"{one.tokens:,} tokens"]
        facts += [counted(len(one.documents), "document"), *(("fill-in",) if one.fim else ())]
        print_line(f"\n{clean(one.source or 'train')}: {', '.join(facts)}")
        print_line(clean(one.text or "(no data.tokenizer to read it with)"))
