"""A line on stderr that says how far a command is, where a person looks at it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

_GAP_S = 0.2


@contextmanager
def progress(text: Callable[[int, int], str]) -> Iterator[Callable[[int, int], None] | None]:
    """A callback for the progress of a long job, with two counts; `text` makes a line of them. None
    where stderr is not a terminal or --quiet was given. The line is gone when the job is.
    """
    is_quiet = click.get_current_context().find_root().params.get("quiet")
    if is_quiet or not sys.stderr.isatty():
        yield None
        return
    told_at = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _GAP_S:
            told_at = time.monotonic()
            click.echo(f"\r{text(done, total)}\x1b[K", err=True, nl=False)

    try:
        yield tell
    finally:
        if told_at:
            click.echo("\r\x1b[K", err=True, nl=False)
