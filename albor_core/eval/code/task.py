"""Evaluates a model on code tasks: it continues each prompt, and its completion is run."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from albor_core.config.sections.numbers import Count, CountOrZero, Portion, ScaleOrZero, Seconds
from albor_core.eval.code.found import task_file
from albor_core.eval.code.pass_at_k import pass_at_k
from albor_core.eval.code.sandbox.box import SEE, ProgramJob, run_program
from albor_core.eval.code.sandbox.confinement import Facts, ProgramLimits
from albor_core.eval.code.tasks import CodeTask, read_tasks
from albor_core.eval.result import Score, TaskResult, mean_score
from albor_core.eval.sections import TaskSection
from albor_core.eval.target import Target, problem_of
from albor_core.eval.task import ItemWriter, Progress, TaskPlan
from albor_core.run.errors import AlborError, Problem

if TYPE_CHECKING:
    from albor_core.eval.subject import EvaluatedModel

KS = (1, 10, 100)
_MOST_WORKERS = 16
_DECIDE = {"samples", "temperature", "top_p", "seed", "max_new_tokens", "shots", "wall_s"}


def _found(said: object) -> object:
    return task_file(Path(said)) if isinstance(said, str | Path) else said


class CodeSection(TaskSection):
    """Whether programs that the model writes pass the tests of their tasks."""

    kind: Literal["code"] = "code"
    data: Annotated[Path, BeforeValidator(_found)]
    """A file of tasks as HumanEval or MBPP keep them, or `own`, `humaneval`, `mbpp`: the tasks that
    Albor brings along, and those that an installed package or the hub's cache has."""
    samples: Count = 1
    """Completions of each task. pass@k is given for each k of 1, 10 and 100 up to this."""
    temperature: ScaleOrZero = 0.0
    """0 takes the likeliest token."""
    top_p: Portion = 1.0
    """Draw from the likeliest tokens that have this share together."""
    seed: CountOrZero = 0
    """Decides what is drawn."""
    max_new_tokens: Count = 512
    """Tokens of a completion at most."""
    shots: CountOrZero = 0
    """Tasks of the file, the first ones, that stand solved before each other one, and are not
    scored."""
    wall_s: Seconds = ProgramLimits.wall_s
    """Time that a program has for all its tests."""
    allow_weak_sandbox: bool = False
    """Run programs also where nothing keeps them from this machine's files or network."""

    def problems(self) -> Iterator[Problem]:
        if self.samples > 1 and self.temperature == 0:
            what = f"{self.samples} completions at temperature 0 are all the same one"
            yield Problem("samples", what, "set a temperature: 0.2 for pass@1, 0.8 for pass@100")


class CodeEvaluation:
    Section = CodeSection
    kind = "code"

    def __init__(self, section: CodeSection) -> None:
        self.section = section
        self.name = section.title

    def plan(self, target: Target) -> TaskPlan:
        problems: list[Problem] = []
        tokens = 0
        try:
            shown, tasks = self._tasks()
            check_sandbox(allow_weak=self.section.allow_weak_sandbox)
        except AlborError as error:
            return TaskPlan(problems=(problem_of(self.name, error),))
        for task in tasks:
            read = len(target.encode(_prompt(shown, task)))
            tokens += read + self.section.samples * self.section.max_new_tokens
            if read >= target.max_context and not problems:
                what = f"task {task.id} has a prompt of {read:,} tokens, which leaves no room in "
                what += f"the model's context of {target.max_context:,}"
                problems.append(Problem(f"{self.name}.data", what, "fewer shots, or leave it out"))
        return TaskPlan(len(tasks), tokens, tuple(problems))

    def run(self, subject: EvaluatedModel, items: ItemWriter, progress: Progress) -> TaskResult:
        said = self.section
        shown, tasks = self._tasks()
        sandbox = check_sandbox(allow_weak=said.allow_weak_sandbox)
        limits = ProgramLimits(said.wall_s)

        def run_all(some: list[CodeTask]) -> Iterator[Mapping[str, Any]]:
            return judged(some, self._completions(subject, shown, some), limits)

        by_id = {task.id: task for task in tasks}
        records = items.records_of(by_id, run_all, progress, at_once=subject.batch_size)
        facts = {
            "tasks": len(tasks),
            **said.model_dump(include=_DECIDE),
            "outcomes": dict(Counter(o for one in records for o in one["outcomes"])),
            "sandbox": asdict(sandbox),
            "python": platform.python_version(),
        }
        scores = tuple(self._scores(records))
        return TaskResult(self.name, self.kind, scores, items.name, facts=facts)

    def _tasks(self) -> tuple[tuple[CodeTask, ...], tuple[CodeTask, ...]]:
        """(tasks shown as solved examples, scored tasks). Raises AlborError."""
        said = self.section
        tasks = read_tasks(said.data)
        shown, rest = tasks[: said.shots], tasks[said.shots :][: said.limit]
        if not rest or any(not task.solution for task in shown):
            what = f"{said.data}: {said.shots} shots, and " + (
                "a task among them has no solution" if rest else f"{len(tasks)} tasks in all"
            )
            raise AlborError(what, hint="lower shots")
        return shown, rest

    def _completions(
        self, subject: EvaluatedModel, shown: Sequence[CodeTask], tasks: Sequence[CodeTask]
    ) -> list[list[str]]:
        """The completions of each task, cut at their ends."""
        said = self.section
        found: list[list[str]] = [[] for _ in tasks]
        for stop in {task.stop for task in tasks}:
            mine = [at for at, task in enumerate(tasks) if task.stop == stop]
            texts = subject.complete(
                [_prompt(shown, tasks[at]) for at in mine],
                n=said.samples, max_new_tokens=said.max_new_tokens,
                temperature=said.temperature, top_p=said.top_p, seed=said.seed, stop=stop,
            )  # fmt: skip
            for at, some in zip(mine, texts, strict=True):
                found[at] = [tasks[at].cut(text) for text in some]
        return found

    def _scores(self, records: Sequence[Mapping[str, Any]]) -> Iterator[Score]:
        for k in KS:
            if k <= self.section.samples:
                each = [pass_at_k(one["samples"], one["passed"], k) for one in records]
                yield mean_score(f"{self.name}/pass@{k}", each)


def _prompt(shown: Sequence[CodeTask], task: CodeTask) -> str:
    """The task's own prompt, after solved examples."""
    before = (f"{one.prompt}{one.solution.rstrip()}\n[DONE]\n\n" for one in shown)
    return "".join(before) + task.prompt


def judged(
    tasks: Sequence[CodeTask], completions: Sequence[Sequence[str]], limits: ProgramLimits
) -> Iterator[dict[str, Any]]:
    """A record per task, in their order. Programs run in parallel, equal completions of a task only
    once."""
    with ThreadPoolExecutor(min(_MOST_WORKERS, len(os.sched_getaffinity(0)))) as pool:
        running = [
            {
                text: pool.submit(run_program, task.job(text), limits)
                for text in dict.fromkeys(texts)
            }
            for task, texts in zip(tasks, completions, strict=True)
        ]
        try:
            for task, texts, waiting in zip(tasks, completions, running, strict=True):
                found = [waiting[text].result() for text in texts]
                yield {
                    "prompt": task.prompt,
                    "samples": len(texts),
                    "passed": sum(one.is_passed for one in found),
                    "outcomes": [one.outcome for one in found],
                    "details": [one.detail for one in found],
                    "completions": [*texts],
                }
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def check_sandbox(*, allow_weak: bool) -> Facts:
    """The protections of the sandbox on this machine, found by running a program. Raises AlborError
    if none can be run, or if nothing keeps programs from files or the network.
    """
    found = run_program(ProgramJob("def f():\n    return 1\n", "assert f() == 1", ("f",)))
    if not found.is_passed:
        what = f"cannot run a program apart: {found.outcome}: {found.detail}"
        raise AlborError(what, hint=SEE)
    missing = [name for name in found.facts.missing if name in ("files", "network")]
    if missing and not allow_weak:
        what = f"cannot run programs safely: nothing keeps them from {' and '.join(missing)} here"
        raise AlborError(what, hint="use another machine, or allow it: allow_weak_sandbox")
    return found.facts
