"""Registry of the kinds of tasks, by name. A module is imported when a task of its kind is made."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from albor_core.config.text.strict_yaml import refusal
from albor_core.eval.sections import TaskSection, read_section
from albor_core.eval.task import Task
from albor_core.run.errors import ConfigError, Problem, UsageError

KINDS: Mapping[str, str] = {
    "text": "albor_core.eval.kinds.perplexity:TextTask",
    "choice": "albor_core.eval.kinds.choice:ChoiceTask",
    "fim": "albor_core.eval.kinds.fim:FimTask",
    "contamination": "albor_core.eval.kinds.contamination:ContaminationTask",
    "code": "albor_core.eval.code.task:CodeEvaluation",
}
"""Name -> module:class. Made of its section, which is its attribute `Section`."""


def make_task(said: Mapping[str, Any], where: str) -> Task:
    """Make a task from its section; `where` names the section in messages. Raises ConfigError."""
    made = _class_of(said.get("kind"), where)
    section: TaskSection = read_section(made.Section, said, where)
    task: Task = made(section)
    return task


def fields_of(kind: str, where: str) -> frozenset[str]:
    """The fields of a section of that kind. Raises ConfigError."""
    return frozenset(_class_of(kind, where).Section.model_fields)


def _class_of(kind: object, where: str) -> Any:
    if not isinstance(kind, str) or kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(KINDS)}"
        what = "is required" if kind is None else f"{kind!r} is not a kind of task"
        raise refusal([Problem(f"{where}.kind", what, hint)])
    module, _, name = KINDS[kind].partition(":")
    return getattr(import_module(module), name)


def make_tasks(sections: Sequence[Mapping[str, Any]], where: str = "tasks") -> tuple[Task, ...]:
    """Make all tasks. Raises ConfigError with every problem of every section, UsageError if two
    have the same name.
    """
    tasks: list[Task] = []
    problems: list[Problem] = []
    for number, said in enumerate(sections):
        try:
            tasks.append(make_task(said, f"{where}.{number}"))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise refusal(problems, file=where)
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"cannot name two tasks {twice!r}", hint="give one another name")
    return tuple(tasks)
