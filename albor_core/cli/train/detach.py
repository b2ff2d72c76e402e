"""`--detach`, and why a scheduler's job cannot have it."""

from __future__ import annotations

from collections.abc import Callable

import click

from albor_core.cli.common.output import F
from albor_core.run.errors import UsageError
from albor_core.run.program.scheduler import current_job


def _refuse_in_a_job(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    job = current_job() if value else None
    if job is not None:
        raise UsageError(
            f"cannot detach inside {job}: the job would be over at once, and the run left outside"
            " of it or killed with it",
            hint="leave --detach out: the job then lasts as long as the run; to watch it from"
            " elsewhere: albor monitor RUN",
        )
    return value


detach_option: Callable[[F], F] = click.option(
    "--detach", is_flag=True, callback=_refuse_in_a_job, help="Return as soon as the guard runs."
)
