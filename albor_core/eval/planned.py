"""Reads the request of an evaluation and plans it, without weights and torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from albor_core.config.sections.numbers import Count
from albor_core.config.sections.section import Section
from albor_core.config.text.strict_yaml import load_yaml, refusal
from albor_core.eval.registry import fields_of, make_tasks
from albor_core.eval.sections import section_problems
from albor_core.eval.target import Target
from albor_core.eval.task import Task, TaskPlan
from albor_core.launch.found_gpu import find_gpu
from albor_core.plan.estimates import ASSUMED_CORE_FLOPS, ASSUMED_MFU
from albor_core.run.errors import ConfigError, DataError, NotFoundError, Problem, UsageError
from albor_core.run.rundir import RunDir
from albor_core.telemetry.peaks import peak_flops


@dataclass(frozen=True)
class Settings:
    """Settings of how the model computes and samples."""

    batch_size: int = 8
    dtype: str = "auto"
    device: str = "auto"


class EvaluationFile(Section):
    """A file of tasks."""

    tasks: tuple[dict[str, Any], ...]
    """A section each: its `kind`, its `data`, and what else its kind has."""
    batch_size: Count = 8
    """Texts that are read at once."""
    dtype: Literal["auto", "fp64", "fp32", "bf16", "fp16"] = "auto"
    """What the model computes in."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it computes."""


@dataclass(frozen=True)
class EvaluationRequest:
    """Checked tasks and settings."""

    tasks: tuple[Task, ...]
    settings: Settings


def read_file(path: Path) -> EvaluationRequest:
    """Read the tasks of a YAML file. Raises NotFoundError, ConfigError with every problem."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such file", hint="check the path") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="ls -l") from error
    data = load_yaml(raw, file=str(path)).data
    if not isinstance(data, dict):
        what = "is empty" if data is None else "is not a mapping"
        raise _refusal_of(path, [Problem("", what, "it begins with `tasks:`")])
    try:
        said = EvaluationFile.model_validate(data)
    except ValidationError as error:
        problems = section_problems(error, EvaluationFile, "")
        raise _refusal_of(path, problems) from error
    if not said.tasks:
        raise _refusal_of(path, [Problem("tasks", "must not be empty")])
    try:
        tasks = make_tasks(said.tasks)
    except ConfigError as error:
        raise _refusal_of(path, error.problems) from error
    return EvaluationRequest(tasks, Settings(said.batch_size, said.dtype, said.device))


def _refusal_of(path: Path, problems: Sequence[Problem]) -> ConfigError:
    return refusal([replace(one, file=str(path)) for one in problems], file=str(path))


def told_by_words(
    words: Sequence[str],
    values: Mapping[str, Any],
    settings: Settings,
    stdin: Callable[[], str] = lambda: "",
) -> EvaluationRequest:
    """Tasks of a command line, KIND:DATA, each with those of `values` that its kind has. The text
    of `text:-` is read with `stdin`.

    Raises ConfigError, also for a value that no task has, and UsageError.
    """
    sections: list[dict[str, Any]] = []
    used: set[str] = set()
    for number, word in enumerate(words):
        kind, _, data = word.partition(":")
        if not data:
            what = f"{word!r} is not KIND:DATA"
            raise ConfigError(f"--task {what}", hint="--task text:held-out.parquet")
        mine = {
            key: value
            for key, value in values.items()
            if key in fields_of(kind, f"--task.{number}")
        }
        used |= mine.keys()
        if data == "-" and "text" not in mine:
            mine["text"] = _on_stdin(word, words, stdin)
        sections.append({"kind": kind, "data": data, **mine})
    if unused := [key for key in values if key not in used]:
        what = f"--set {unused[0]}: is not a field of any task here"
        known = sorted({key for one in sections for key in fields_of(one["kind"], "--task")})
        raise ConfigError(what, hint=f"they have: {', '.join(known)}")
    return EvaluationRequest(make_tasks(sections, "--task"), settings)


def _on_stdin(word: str, words: Sequence[str], stdin: Callable[[], str]) -> str:
    if word != "text:-":
        raise UsageError(f"--task {word}: stdin is for text alone", hint="name a file")
    if words.count(word) > 1:
        raise UsageError(f"--task {word} twice, and stdin is one text", hint="give it once")
    return stdin()


@dataclass(frozen=True)
class EvaluationPlan:
    """The needs of each task, and the time of all of them."""

    tasks: tuple[tuple[Task, TaskPlan], ...]
    problems: tuple[Problem, ...]
    seconds: float | None
    """A guess; None where the device's rate is not known."""
    assumption: str

    @property
    def items(self) -> int:
        return sum(plan.items for _, plan in self.tasks)

    @property
    def tokens(self) -> int:
        return sum(plan.tokens for _, plan in self.tasks)


def plan(target: Target, told: EvaluationRequest, *, out: Path | None = None) -> EvaluationPlan:
    """Plan the evaluation: reads data and headers, writes nothing. `out`: the folder for the
    result, if not the run.
    """
    found = tuple((task, task.plan(target)) for task in told.tasks)
    problems = [*target.problems(), *(one for _, each in found for one in each.problems)]
    problems += [] if target.run is None or out is not None else _run_problems(target.run)
    tokens = sum(each.tokens for _, each in found)
    rate, assumption = _rate(told.settings.device)
    flops = 2.0 * target.folder.shape.num_parameters * tokens
    seconds = None if rate is None else flops / rate
    return EvaluationPlan(found, tuple(problems), seconds, assumption)


def _run_problems(run: RunDir) -> Iterator[Problem]:
    """Reasons why a run would not accept its scores."""
    hint = "--out FOLDER keeps the result elsewhere"
    if run.pulled.exists():
        yield Problem("model", f"{run.id} is a copy of a run of another place", hint)
    elif not os.access(run.path, os.W_OK | os.X_OK):
        yield Problem("model", f"{run.path} is not writable", hint)


def refuse(planned: EvaluationPlan, target: Target) -> None:
    """Raise ConfigError, with the exit code of refused data, if a plan has problems."""
    if planned.problems:
        error = refusal(list(planned.problems), file=str(target.path))
        error.exit_code, error.code = DataError.exit_code, DataError.code
        raise error


def _rate(device: str) -> tuple[float | None, str]:
    """The assumed FLOP/s, and a description of them."""
    gpu = None if device == "cpu" else find_gpu()
    if gpu is not None and not gpu.obstacle:
        peak = peak_flops(gpu.name)
        if peak is None:
            return None, f"the rate of {gpu.name} is not known"
        return peak * ASSUMED_MFU, f"{ASSUMED_MFU:.0%} of the peak of {gpu.name}"
    cores = len(os.sched_getaffinity(0))
    rate = cores * ASSUMED_CORE_FLOPS
    return rate, f"{ASSUMED_CORE_FLOPS / 1e9:.0f} GFLOP/s on each of {cores} cores"


def plan_document(planned: EvaluationPlan, target: Target, settings: Settings) -> dict[str, Any]:
    """albor.eval.plan/1, without the schema's name."""
    return {
        "model": str(target.path),
        "run": None if target.run is None else target.run.id,
        "step": target.step,
        "ok": not planned.problems,
        "settings": asdict(settings),
        "tasks": [
            {
                "task": task.name,
                "kind": task.kind,
                "data": str(task.section.data),
                "items": each.items,
                "tokens": each.tokens,
            }
            for task, each in planned.tasks
        ],
        "items": planned.items,
        "tokens": planned.tokens,
        "seconds": planned.seconds,
        "assumption": planned.assumption,
    }
