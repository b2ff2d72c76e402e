"""`--goal METRIC:min`: which way a metric is better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

goal_option: Callable[[F], F] = click.option(
    "--goal",
    "goals",
    multiple=True,
    metavar="METRIC:min|max",
    help="Say which way a metric is better, where its name does not.",
)
