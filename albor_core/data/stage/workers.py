"""Numbered jobs done by several processes, each result kept on disk: a killed run goes on.

A worker never outlives its parent (PR_SET_PDEATHSIG), leaves Ctrl-C to it, and says what a user can
act on; whatever the number of processes, the results are the same files.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

from albor_core.run import errors
from albor_core.run.errors import AlborError
from albor_core.run.files.whole_file import write_json
from albor_core.run.program.parent_death import die_with_parent

Job = Callable[[int], dict[str, Any]]
"""Does one piece of work by its number, and says of it what fits into JSON. Picklable: a partial
of a function at the top of a module, or a dataclass that can be called."""

_job: Job | None = None  # in a worker


def default_workers() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def each(
    numbers: Sequence[int],
    job: Job,
    kept: Path,
    *,
    workers: int,
    done: Callable[[int], None] | None = None,
    in_threads: bool = False,
) -> Iterator[dict[str, Any]]:
    """The results in the order of `numbers`, each kept as `kept`/NUMBER.json, where a result that
    is there already is taken as it is. `done` is called with a number when its job has ended, in
    any order. `in_threads`: of this process, for jobs that leave the interpreter to others most of
    the time; a process costs half a second to start. Raises what a job raised, if it is an
    AlborError; AlborError where a process died.
    """
    kept.mkdir(parents=True, exist_ok=True)
    missing = [number for number in numbers if _read(kept, number) is None]
    if done is not None:
        for number in set(numbers).difference(missing):
            done(number)
    if workers > 1 and len(missing) > 1:
        workers = min(workers, len(missing))
        if in_threads:
            with ThreadPoolExecutor(workers) as threads:
                _spread(threads, partial(_attempt, job), missing, kept, workers, done)
        else:
            with _processes(job, workers) as processes:
                _spread(processes, _work, missing, kept, workers, done)
    else:
        for number in missing:
            write_json(_file(kept, number), job(number))
            if done is not None:
                done(number)
    for number in numbers:
        result = _read(kept, number)
        if result is None:
            raise AlborError(f"{_file(kept, number)}: vanished", hint="run the same command again")
        yield result


def _file(kept: Path, number: int) -> Path:
    return kept / f"{number:05d}.json"


def _read(kept: Path, number: int) -> dict[str, Any] | None:
    try:
        document = json.loads(_file(kept, number).read_bytes())
    except (OSError, ValueError):  # a power cut may leave half of one: it is made again
        return None
    return document if isinstance(document, dict) else None


def _processes(job: Job, workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(job, os.getpid()),
    )


def _spread(
    pool: Executor,
    work: Job,
    missing: list[int],
    kept: Path,
    workers: int,
    done: Callable[[int], None] | None,
) -> None:
    waiting = iter(missing)
    running: dict[Future[dict[str, Any]], int] = {}
    try:
        while True:
            while len(running) < 2 * workers and (number := next(waiting, None)) is not None:
                running[pool.submit(work, number)] = number
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, result = running.pop(future), future.result()
                if "refused" in result:
                    raise _refusal(result)
                write_json(_file(kept, number), result)
                if done is not None:
                    done(number)
    except BrokenProcessPool as error:
        raise AlborError(
            "a worker process died; the system may have run out of memory",
            hint="run the same command again with --workers 1: what is done is kept",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(job: Job, parent: int) -> None:
    global _job  # a worker has one job for its life
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _job = job


def _work(number: int) -> dict[str, Any]:
    assert _job is not None
    return _attempt(_job, number)


def _attempt(job: Job, number: int) -> dict[str, Any]:
    try:
        return job(number)
    except AlborError as error:
        kind = type(error).__name__
        return {"refused": kind, "message": error.message, "hint": error.hint}


def _refusal(said: dict[str, Any]) -> AlborError:
    kind: type[AlborError] = getattr(errors, said["refused"], AlborError)
    return kind(said["message"], hint=said["hint"])
