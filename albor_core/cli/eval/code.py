"""`albor eval validate`: whether code tasks can be solved here, by their own solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.count import Count, FiniteRange
from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
    table,
)
from albor_core.cli.common.progress import progress
from albor_core.run.errors import AlborError, UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.documents.eval import FailedTask
    from albor_core.eval.task import Task


@click.command()
@click.argument("data", metavar="FILE|own|humaneval|mbpp")
@click.option("--limit", type=Count(1), help="Run only the first N tasks.")
@click.option(
    "--wall",
    "wall_s",
    type=FiniteRange(0.1, 3600),
    default=10.0,
    show_default=True,
    help="Give each program S seconds for all its tests.",
)
@click.option(
    "--allow-weak-sandbox",
    is_flag=True,
    help="Run programs even if nothing can keep them from files or the network.",
)
@json_option
def validate(
    data: str, limit: int | None, wall_s: float, allow_weak_sandbox: bool, as_json: bool
) -> int:
    """Run the reference solution of each code task of FILE against its tests, in the sandbox.

    No model is needed. Exits with 0 if all pass, else 1: a task that its own solution fails cannot
    measure a model.
    """
    from albor_core.eval.code.found import task_file

    return _validated(task_file(Path(data)), limit, wall_s, allow_weak_sandbox, as_json)


def validate_task(tasks: Sequence[Task], *, as_json: bool) -> int:
    """`albor eval validate` for the tasks of a command line. Raises UsageError for any but one code
    task.
    """
    from albor_core.eval.code.task import CodeSection

    said = [task.section for task in tasks if isinstance(task.section, CodeSection)]
    if len(said) != 1 or len(tasks) != 1:
        raise UsageError("--validate-only takes one code task", hint="--task code:FILE")
    one = said[0]
    return _validated(one.data, one.limit, one.wall_s, one.allow_weak_sandbox, as_json)


def _validated(
    path: Path, limit: int | None, wall_s: float, allow_weak: bool, as_json: bool
) -> int:
    from albor_core.eval.code.sandbox.confinement import ProgramLimits
    from albor_core.eval.code.task import check_sandbox, judged
    from albor_core.eval.code.tasks import read_tasks

    tasks = [task for task in read_tasks(path)[:limit] if task.solution]
    if not tasks:
        raise AlborError(f"{path}: no task has a solution", hint="name a file of tasks with them")
    facts = check_sandbox(allow_weak=allow_weak)
    solutions = [[task.cut(task.solution)] for task in tasks]
    failed: list[FailedTask] = []
    with progress(lambda done, total: f"{done:,} of {total:,}") as tell:
        results = judged(tasks, solutions, ProgramLimits(wall_s))
        for done, (task, record) in enumerate(zip(tasks, results, strict=True), 1):
            if not record["passed"]:
                outcome, detail = record["outcomes"][0], record["details"][0]
                failed.append({"task": task.id, "outcome": outcome, "detail": detail})
            if tell is not None:
                tell(done, len(tasks))
    passed = len(tasks) - len(failed)
    if as_json:
        emit(
            {
                "schema": "albor.eval.validate/1",
                "data": str(path),
                "tasks": len(tasks),
                "passed": passed,
                "failed": failed,
                "sandbox": field_values(facts),
            }
        )
    else:
        if failed:
            rows = [(one["task"], one["outcome"], one["detail"]) for one in failed]
            print_line(table(("task", "outcome", "why"), rows))
        print_line(f"{passed:,} of {counted(len(tasks), 'task')} solved by their own solutions")
        print_note(f"sandbox: {clean(', '.join(asdict(facts).values()))}")
    return 0 if not failed else AlborError.exit_code
