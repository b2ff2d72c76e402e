"""`albor logs`: what a run's program wrote on its standard output and error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import emit, json_option, print_line, print_note
from albor_core.cli.common.time_span import MOMENT
from albor_core.feed.archive.log_file import LogFile, LogShelf, offset_since
from albor_core.feed.run.tail import LogFollower
from albor_core.run.errors import NotFoundError
from albor_core.run.exit import read_exit
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import whole_of
from albor_core.run.values.quantity import counted
from albor_core.store.query.resolve import find_run

_POLL_S = 0.2
_AT_ONCE = 1000
_MOST_TOLD = 8


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.option("--follow", "-f", is_flag=True, help="Follow until the run ends.")
@click.option("--tail", type=Count(0), metavar="N", help="Show only the last N lines.")
@click.option(
    "--attempt", type=Count(1), metavar="N", help="Show this attempt.  [default: the newest]"
)
@click.option(
    "--since",
    type=MOMENT,
    metavar="TIME",
    help="Show output of all attempts since this time: 10m, 2h, or in UTC 2026-01-31T08:00.",
)
@json_option
def logs(
    run_ref: str,
    follow: bool,
    tail: int | None,
    attempt: int | None,
    since: float | None,
    as_json: bool,
) -> None:
    """Show the output of RUN's program, with control characters made visible and progress bars
    folded.

    --follow continues over restarts. --json prints one document per line.
    """
    run = find_run(run_ref)
    every = LogShelf(run.logs).names()
    names = [n for n in every if attempt in (None, n.attempt)]
    may_come = follow and run.liveness().is_alive and run.metadata().get("kind") != "imported"
    if not names and not may_come:
        raise _without(run, attempt)
    newest = names[-1].attempt if names else 1
    chosen = [name for name in names if name.attempt == newest or since is not None]
    if since is None:
        _tell_of_others(run, newest, sorted({name.attempt for name in every} - {newest}))
    files = [_counted(run.logs / name.file) for name in chosen]
    shown = dict(zip(map(id, files), chosen, strict=True))
    end = files[-1].num_bytes if files else 0  # it may grow while its lines are shown
    for file, line in _lines(files, tail, since):
        _show(line, shown[id(file)].attempt, as_json)
    _tell_lost(run, newest)
    if follow:
        rest = LogFollower(run.logs if attempt is None else run.log(attempt), is_whole=True)
        if files:
            rest.begin_at(files[-1].path, end)
        _follow(run, rest, as_json)


def _tell_of_others(run: RunDir, shown: int, others: list[int]) -> None:
    if not others:
        return
    told = ", ".join(map(str, others[-_MOST_TOLD:]))
    earlier = "..., " if len(others) > _MOST_TOLD else ""
    print_note(
        f"attempt {shown} of {max(shown, *others)}; the others ({earlier}{told}):"
        f" albor logs {run.id} --attempt N"
    )


def _tell_lost(run: RunDir, attempt: int) -> None:
    """Report that the log lacks some of the output, as the program recorded at its end."""
    words = read_exit(run) or {}
    lost = whole_of(words.get("console_bytes_lost"))
    if lost and words.get("attempt") == attempt:
        print_note(f"{counted(lost, 'byte')} that {run.id} printed are not in this log")


def _without(run: RunDir, attempt: int | None) -> NotFoundError:
    if attempt is not None:
        return NotFoundError(
            f"{run.id} has no log of attempt {attempt}", hint=f"albor logs {run.id}"
        )
    kind = run.metadata().get("kind")
    if kind == "imported":
        return NotFoundError(
            f"{run.id} has no log: it was imported", hint=f"albor runs show {run.id}"
        )
    if kind == "track":
        return NotFoundError(
            f"{run.id} has no log: its console was not recorded",
            hint="start it without console=False, and without ALBOR_CONSOLE=0",
        )
    return NotFoundError(f"{run.id} has no log yet", hint=f"albor guard status {run.id}")


def _counted(path: Path) -> LogFile:
    file = LogFile(path)
    file.look()
    while file.is_partial:
        file.look()
    return file


def _lines(
    files: list[LogFile], tail: int | None, since: float | None
) -> Iterator[tuple[LogFile, str]]:
    """The lines of a log and its rotated files, oldest first."""
    begins = [0 if since is None else _first_since(file, since) for file in files]
    total = sum(file.total - begin for file, begin in zip(files, begins, strict=True))
    left_out = 0 if tail is None else max(0, total - tail)
    for file, begin in zip(files, begins, strict=True):
        first = min(begin + left_out, file.total)
        left_out -= first - begin
        for at in range(first, file.total, _AT_ONCE):
            for line in file.lines(at, min(_AT_ONCE, file.total - at)):
                yield file, line


def _first_since(file: LogFile, wall: float) -> int:
    """The first line that was written at `wall` or later."""
    offset = offset_since(file.path, wall)
    if offset is None:  # the log of an earlier version
        with suppress(OSError):
            if file.path.stat().st_mtime < wall:
                return file.total
        print_note(f"{file.path.name} has no times beside it: all of it is shown")
        return 0
    return file.total if offset >= file.num_bytes else file.line_at(offset)


def _follow(run: RunDir, tail: LogFollower, as_json: bool) -> None:
    is_over = False
    while True:
        was_over, is_over = is_over, not run.liveness().is_alive
        for line in tail.read():
            _show(line, _attempt_of(tail.current), as_json)
        if tail.behind:
            continue
        if was_over:  # a look after the end, for the last words of a program that was killed
            for line in tail.take_rest():
                _show(line, _attempt_of(tail.current), as_json)
            return
        time.sleep(_POLL_S)


def _attempt_of(path: Path | None) -> int | None:
    digits = "" if path is None else path.name.removeprefix("a").partition(".")[0]
    return int(digits) if digits.isdigit() else None


def _show(line: str, attempt: int | None, as_json: bool) -> None:
    if as_json:
        emit({"schema": "albor.logs/1", "attempt": attempt, "line": line})
    else:
        print_line(line)
