"""`--plan` of a verb that makes files: what it reads, what it writes, what it takes.

`reads` and `writes` follow from the command line and its config alone, so they are whole also where
inputs are missing: then these are problems, and what depends on them is null. Only the folders of
runs that are imported or pulled are named by their inputs, and are `*` without them. Files of
ALBOR_HOME (stores, the run list, caches) are not named. Nothing is changed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from albor_core.cli.common.output import clean, emit, print_line, rehearsed
from albor_core.run.errors import (
    AlborError,
    ConfigError,
    NotFoundError,
    Problem,
    refused_by_the_machine,
)
from albor_core.run.values.quantity import byte_size, counted, duration

if TYPE_CHECKING:
    from albor_core.documents.commands import FilePlanDocument, FilePlanProblem

F = TypeVar("F", bound=Callable[..., Any])
Parameters = Mapping[str, Any]
"""Of a verb, by name."""
Paths = Callable[[Parameters], Iterable[str | Path]]

MISSING = "missing_input"
"""The code of a problem with an input that is not there."""
_OUTPUTS = ("out", "output", "training.output_dir")
"""Fields of problems by which a verb says itself what stands in the way of its outputs."""


def relax(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Callback of --plan: what stands or lies badly at a path is for the plan to say."""
    for one in context.command.params if value else ():
        if isinstance(one.type, click.Path):
            context.call_on_close(partial(setattr, one, "type", one.type))
            one.type = click.Path(path_type=one.type.type, readable=False)
    return value


plan_option: Callable[[F], F] = click.option(
    "--plan",
    "only_plan",
    is_flag=True,
    is_eager=True,
    callback=relax,
    help="Show what would be read and written, and every problem. Changes nothing.",
)


@dataclass(frozen=True)
class Estimate:
    """Facts from the inputs; None is unknown."""

    bytes: int | None = None
    """That would be written."""
    seconds: float | None = None
    money: float | None = None
    """In the currency of monitoring.budgets."""
    problems: Sequence[Problem] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Of this verb alone."""
    writes: Sequence[Path] | None = None
    """What only the inputs tell, in the place of what the command line does."""


def show_plan(
    reads: Iterable[str | Path],
    writes: Iterable[str | Path],
    estimate: Callable[[], Estimate],
    *,
    as_json: bool,
    is_whole: bool = False,
) -> int:
    """Print the plan and return the exit code, 1 where there are problems. `estimate` is asked
    where every input is there (`is_whole`: always); what it raises is a problem.
    """
    sources = [*dict.fromkeys(map(_absolute, reads))]
    absent = [path for path in sources if not (_is_there(path) or _is_remote(path))]
    problems = [*_closed(path for path in sources if path not in absent and not _is_remote(path))]
    found = Estimate()
    if not problems and (is_whole or not absent):
        found, problems = _estimated(estimate)
    problems += [_problem("config", one) for one in found.problems]
    problems = [_as_missing(one, absent) for one in problems]
    known = {one["path"] for one in problems}
    problems += [_missing(path) for path in absent if path not in known]
    problems.sort(
        key=lambda one: absent.index(one["path"]) if one["path"] in absent else len(absent)
    )
    targets = [*map(_absolute, writes if found.writes is None else found.writes)]
    if not any(one["field"] in _OUTPUTS for one in problems):
        problems += _unwritable((one for one in targets if one not in absent), found.bytes)
    document: FilePlanDocument = {
        "schema": "albor.plan/1",
        "reads": sources,
        "writes": targets,
        "bytes": found.bytes,
        "seconds": found.seconds,
        "money": found.money,
        "problems": problems,
        "detail": dict(found.detail),
    }
    if as_json:
        emit(document)
    else:
        _print(document)
    return AlborError.exit_code if problems else 0


def _estimated(estimate: Callable[[], Estimate]) -> tuple[Estimate, list[FilePlanProblem]]:
    try:
        return estimate(), []
    except AlborError as error:
        return Estimate(), listed_problems(error)
    except OSError as error:
        if (refusal := refused_by_the_machine(error)) is None:
            raise
        return Estimate(), listed_problems(refusal)


def rehearsal(verb: Callable[..., Any], told: Parameters) -> Estimate:
    """By all of its work but the writing: the bytes are exact, `detail` is what it would print. For
    verbs that write by `out_file` alone and take seconds.
    """
    began = time.perf_counter()
    with rehearsed() as made:
        verb(**{**told, "as_json": True})
    return Estimate(made.bytes, time.perf_counter() - began, detail=made.document)


@dataclass(frozen=True)
class OwnPlan:
    """The estimate of a verb by its own plan document, which its parameter `only_plan` asks for."""

    size: Callable[[Parameters, Mapping[str, Any]], int | None] = lambda told, found: (
        0 if found.get("action") == "keep" else found.get("out_bytes")
    )
    """Bytes, of its parameters and that document."""

    def __call__(self, verb: Callable[..., Any], told: Parameters) -> Estimate:
        with rehearsed() as made:
            verb(**told)
        found = made.document
        return Estimate(self.size(told, found), found.get("seconds"), detail=found)


def no_files(verb: Callable[..., Any], told: Parameters) -> Estimate:
    """The plan of a verb that only prints."""
    return Estimate(0)


def plans(
    reads: Paths,
    writes: Paths = lambda told: [told["out"]],
    estimate: Callable[[Callable[..., Any], Parameters], Estimate] = rehearsal,
) -> Callable[[F], F]:
    """Give a verb `--plan`; what it `reads` and `writes` follows from its parameters. Of an
    `OwnPlan` people get the verb's own lines. Below `json_option`.
    """
    has_own = isinstance(estimate, OwnPlan)

    def decorated(verb: F) -> F:
        @wraps(verb)
        def planned(**told: Any) -> Any:
            only_plan = told["only_plan"] if has_own else told.pop("only_plan")
            as_json = told["as_json"]
            if not only_plan or (has_own and not as_json):
                return verb(**told)
            work = partial(estimate, verb, told)
            return show_plan(reads(told), writes(told), work, as_json=as_json, is_whole=has_own)

        return cast("F", planned if has_own else plan_option(planned))

    return decorated


def model_source(reference: str) -> Path | str:
    """The path that a DIR|RUN on the command line is read from."""
    path = Path(reference)
    return path if path.is_dir() else run_source(reference)


def run_source(reference: str) -> Path | str:
    """The path that a RUN on the command line is read from: its folder if known, else the given
    text."""
    from albor_core.store.query.resolve import find_run

    try:
        return find_run(reference).path
    except AlborError:
        return Path(reference) if os.sep in reference else reference


def listed_problems(error: AlborError) -> list[FilePlanProblem]:
    """An error as problems of a plan."""
    if isinstance(error, ConfigError) and error.problems:
        return [_problem(error.code, one) for one in error.problems]
    code = MISSING if isinstance(error, NotFoundError) else error.code
    return [_problem(code, Problem("", error.message, error.hint))]


def _problem(code: str, one: Problem, path: str = "") -> FilePlanProblem:
    return {"code": code, "path": path, "field": one.field, "message": one.message,
            "hint": one.hint, "file": one.file}  # fmt: skip


def _as_missing(problem: FilePlanProblem, absent: Sequence[str]) -> FilePlanProblem:
    """The problem, as one of a missing input where its message begins with the path of one."""
    named, colon, _ = problem["message"].partition(": ")
    path = os.path.normpath(Path(named).absolute()) if colon else ""
    return {**problem, "code": MISSING, "path": path} if path in absent else problem


def _missing(path: str) -> FilePlanProblem:
    if Path(path).is_absolute():
        return _problem(MISSING, Problem("", f"{path}: no such file or folder"), path)
    return _problem(MISSING, Problem("", f"no run is called {path!r}", "albor runs ls"), path)


def _is_there(path: str) -> bool:
    """Whether a path exists; a run that is named by a text is not checked."""
    return Path(path).is_absolute() and os.path.lexists(path)


def _closed(paths: Iterable[str]) -> Iterator[FilePlanProblem]:
    """Inputs that we may not read."""
    for path in paths:
        if not os.access(path, os.R_OK | (os.X_OK if Path(path).is_dir() else 0)):
            what = Problem("", f"{path}: cannot be read", "ls -l")
            yield _problem("unreadable_input", what, path)


def _unwritable(targets: Iterable[str], size: int | None) -> Iterator[FilePlanProblem]:
    """Problems of the output paths: what is in their place, and missing disk space."""
    for target in targets:
        if not Path(target).is_absolute():
            continue
        above = Path(target).parents
        parent = next(path for path in (Path(target), *above) if os.path.lexists(path))
        if not parent.is_dir() and str(parent) == target:
            parent = above[0]  # it is replaced, or refused by the verb itself
        what, hint = "", "name another place"
        if not parent.is_dir():
            what = f"{parent} is not a folder"
        elif not os.access(parent, os.W_OK | os.X_OK):
            what = f"{parent} is not writable"
        elif size is not None and (free := shutil.disk_usage(parent).free) < size:
            what = f"{byte_size(size)} are needed, {byte_size(free)} are free"
            hint = "free some space there"
        if what:
            yield _problem("output", Problem("", f"cannot write {target!r}: {what}", hint), target)


def _is_remote(path: str) -> bool:
    """HOST:DIR; no run has a colon in its name."""
    return ":" in path and not Path(path).is_absolute()


def _absolute(path: str | Path) -> str:
    """A text is a run that is not known, or of another host: as it was named."""
    return os.path.normpath(path.absolute()) if isinstance(path, Path) else path


def _print(document: Mapping[str, Any]) -> None:
    problems = document["problems"]
    print_line(counted(len(problems), "problem") if problems else "ok; nothing was written")
    for name in ("reads", "writes"):
        for path in document[name]:
            print_line(f"  {name:<8} {clean(path)}")
    if document["bytes"] is not None:
        print_line(f"  {'bytes':<8} {byte_size(document['bytes'])}")
    if document["seconds"] is not None:
        print_line(f"  {'time':<8} about {duration(document['seconds'])}")
    if document["money"] is not None:
        print_line(f"  {'money':<8} about {document['money']:.2f}")
    for one in problems:
        where = ": ".join(part for part in (one["file"], one["field"]) if part)
        print_line(f"  problem  {clean(where + ': ' if where else '')}{clean(one['message'])}")
        if one["hint"]:
            print_line(f"           next: {clean(one['hint'])}")
