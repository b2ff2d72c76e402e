"""`--goal METRIC:min`: which way a metric is better."""

from __future__ import annotations

from collections.abc import Callable

import click

from albor_core.cli.common.output import F

goal_option: Callable[[F], F] = click.option(
    "--goal",
    "goals",
    multiple=True,
    metavar="METRIC:min|max",
    help="Say which way a metric is better, where its name does not.",
)
