"""`albor runs digest`: where a run stands, as one hash that two runs can be compared by."""

from __future__ import annotations

import click

from albor_core.cli.common.output import emit, json_option, print_line


@click.command()
@click.argument("run")
@json_option
def digest(run: str, as_json: bool) -> None:
    """Print step and hash of RUN's newest checkpoint: weights, optimizer, random generators, data
    position and whatever else decides how the run continues, but not clocks, paths or names. Runs
    with equal digests continue alike.
    """
    from albor_core.run.errors import NotFoundError
    from albor_core.store.query.resolve import find_run
    from albor_core.train.resume.digest import digest as digest_of

    found = find_run(run)
    try:
        step, text = digest_of(found)
    except NotFoundError as error:
        error.hint = f"albor runs show {found.id}"
        raise
    if as_json:
        emit({"schema": "albor.runs.digest/1", "run": found.id, "step": step, "digest": text})
    else:
        print_line(f"{step} {text}")
