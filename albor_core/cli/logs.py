"""`albor logs`: what a run's program wrote on its standard output and error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import emit, json_option, say
from albor_core.feed.archive.log_file import LogFile, LogShelf
from albor_core.feed.run.tail import LogFollower
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir
from albor_core.store.query.resolve import find_run

_POLL_S = 0.2
_AT_ONCE = 1000


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.option("--follow", "-f", is_flag=True, help="Follow until the run ends.")
@click.option("--tail", type=Count(0), metavar="N", help="Show only the last N lines.")
@click.option(
    "--attempt", type=Count(1), metavar="N", help="Show this attempt.  [default: the newest]"
)
@json_option
def logs(run_ref: str, follow: bool, tail: int | None, attempt: int | None, as_json: bool) -> None:
    """The output of RUN's program, with control characters made visible and progress bars folded.

    With --follow it goes on over restarts. --json prints one document a line.
    """
    run = find_run(run_ref)
    names = [n for n in LogShelf(run.logs).names() if attempt in (None, n.attempt)]
    may_come = follow and run.liveness().is_alive and not _has_none(run)
    if not names and not may_come:
        raise _without(run, attempt)
    newest = names[-1].attempt if names else 1
    chosen = [name for name in names if name.attempt == newest]
    files = [_counted(run.logs / name.file) for name in chosen]
    for line in _lines(files, tail):
        _show(line, newest, as_json)
    if follow:
        rest = LogFollower(run.logs if attempt is None else run.log(attempt))
        if files:
            rest.begin_at(files[-1].path, files[-1].num_bytes)
        _follow(run, rest, as_json)


def _without(run: RunDir, attempt: int | None) -> NotFoundError:
    if attempt is not None:
        return NotFoundError(
            f"{run.id} has no log of attempt {attempt}", hint=f"albor logs {run.id}"
        )
    if _has_none(run):
        return NotFoundError(
            f"{run.id} has no log: only a program under a guard has its output recorded",
            hint="albor guard run -- CMD",
        )
    return NotFoundError(f"{run.id} has no log yet", hint=f"albor guard status {run.id}")


def _has_none(run: RunDir) -> bool:
    """Whether nothing ever records the output of a run's program."""
    return run.metadata().get("kind") in ("track", "imported")


def _counted(path: Path) -> LogFile:
    file = LogFile(path)
    file.look()
    while file.is_partial:
        file.look()
    return file


def _lines(files: list[LogFile], tail: int | None) -> Iterator[str]:
    """Of the files that one log became, oldest first."""
    left_out = 0 if tail is None else max(0, sum(file.total for file in files) - tail)
    for file in files:
        first, left_out = min(left_out, file.total), max(0, left_out - file.total)
        for at in range(first, file.total, _AT_ONCE):
            yield from file.lines(at, _AT_ONCE)


def _follow(run: RunDir, tail: LogFollower, as_json: bool) -> None:
    while True:
        is_over = not run.liveness().is_alive
        for line in tail.read():
            _show(line, _attempt_of(tail.current), as_json)
        if is_over:
            return
        time.sleep(_POLL_S)


def _attempt_of(path: Path | None) -> int | None:
    digits = "" if path is None else path.name.removeprefix("a").partition(".")[0]
    return int(digits) if digits.isdigit() else None


def _show(line: str, attempt: int | None, as_json: bool) -> None:
    if as_json:
        emit({"schema": "albor.logs/1", "attempt": attempt, "line": line})
    else:
        say(line)
