"""Reads code tasks in the formats of HumanEval and MBPP: a prompt, tests, and a solution that
passes them."""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albor_core.eval.code.sandbox.box import ProgramJob
from albor_core.run.errors import DataError, NotFoundError

OWN = Path(__file__).parent / "own.jsonl"
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")

STOP_AFTER_FUNCTION = ("\nclass ", "\ndef ", "\nif ", "\nprint(", "\n#", "\n@", "\n```")
STOP_AFTER_PROGRAM = ("\nassert ", "\nif __name__", "\nprint(", '\n"""', "\n```", "\n[DONE]")
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class CodeTask:
    """One code task."""

    id: str
    prompt: str
    """What the model reads; what it writes goes on from there."""
    solution: str
    """Goes on from the prompt as a completion does; "" where the file has none."""
    tests: str
    names: tuple[str, ...] = ()
    """What the tests are about: functions that a completion defines."""
    is_function: bool = True
    """Whether a completion is the rest of a function that the prompt began, or a whole program."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a completion."""
        return STOP_AFTER_FUNCTION if self.is_function else STOP_AFTER_PROGRAM

    def cut(self, completion: str) -> str:
        """The completion up to the first of `stop`. A program may begin with one of them."""
        begin = 0 if self.is_function else len(completion) - len(completion.lstrip())
        ends = [at for word in self.stop if (at := completion.find(word, begin)) >= 0]
        return completion[: min(ends)] if ends else completion

    def job(self, completion: str) -> ProgramJob:
        """The program and tests that judge a completion, which has been cut."""
        helpers = f"{self.prompt}\n    pass\n" if self.is_function else ""
        return ProgramJob(f"{self.prompt}{completion}\n", self.tests, self.names, helpers)


def read_tasks(path: Path) -> tuple[CodeTask, ...]:
    """Read the tasks of a file. Raises NotFoundError, DataError naming file, line and field."""
    tasks, seen = [], dict[str, str]()
    for where, record in _records(path):
        task = _task(record, where)
        if task.id in seen:
            what = f"{where}: task {task.id!r} is there already, in {seen[task.id]}"
            raise DataError(what, hint="remove one of the two")
        seen[task.id] = where
        tasks.append(task)
    if not tasks:
        raise DataError(f"{path}: holds no task", hint="one JSON object a line, as HumanEval's")
    return tuple(tasks)


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not path.is_file():
        what = "is not a file" if path.exists() else "no such file"
        raise NotFoundError(f"{path}: {what}", hint="check the path")
    if not path.name.endswith(SUFFIXES):
        what = f"{path}: is not a file of tasks ({', '.join(SUFFIXES)})"
        raise DataError(what, hint="one JSON object a line, as HumanEval's")
    if path.suffix == ".parquet":
        yield from _rows(path)
        return
    text = _text(path)
    if path.suffix == ".json":
        listed = _json(text, str(path))
        if not isinstance(listed, list):
            raise DataError(f"{path}: is not a list of tasks", hint="or one object a line: .jsonl")
        lines: Iterator[tuple[str, Any]] = ((f"{path}[{n}]", one) for n, one in enumerate(listed))
    else:
        numbered = enumerate(text.split("\n"), 1)
        lines = ((f"{path}:{n}", _json(one, f"{path}:{n}")) for n, one in numbered if one.strip())
    for where, record in lines:
        if not isinstance(record, dict):
            raise DataError(f"{where}: is not a JSON object", hint="repair or remove that line")
        yield where, record


def _text(path: Path) -> str:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                raw = file.read(_MOST_BYTES)
        else:
            raw = path.read_bytes()
        return raw.decode("utf-8-sig")  # some editors put a mark before the first line
    except (OSError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: cannot be read: {reason}", hint="fetch it again") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text", hint="fetch it again") from error


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        what = f"{where}: is not JSON: {error}"
        raise DataError(what, hint="repair or remove that line") from error


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow as pa  # noqa: PLC0415  for this kind of file alone
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        rows = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        what = f"{path}: cannot be read as Parquet: {error}"
        raise DataError(what, hint="fetch it again") from error
    yield from ((f"{path}[{n}]", row) for n, row in enumerate(rows))


def _task(record: Mapping[str, Any], where: str) -> CodeTask:
    """The task of a record: HumanEval's format if it has `test`, MBPP's if it has `test_list`."""
    if "test_list" in record:
        return _program_task(record, where)
    if "test" not in record:
        has = ", ".join(map(str, record)) or "none"
        what = f"{where}: no field 'test' (HumanEval) or 'test_list' (MBPP); it has {has}"
        raise DataError(what, hint="a task has task_id, prompt and test, or test_list")
    prompt = _string(record, where, "prompt")
    test = _string(record, where, "test")
    begun = _functions(f"{prompt}\n    pass\n")
    call = _string(record, where, "entry_point", or_else="") or "".join(begun[-1:])
    if re.search(r"^def check\(", test, re.M):
        if not call:
            what = f"{where}: no field 'entry_point', and the prompt begins no function"
            raise DataError(what, hint="name the function that `check` is to be given")
        test += f"\ncheck({call})\n"
    solution = _string(record, where, "canonical_solution", or_else="")
    return CodeTask(_id(record, where), prompt, solution, test, (call,) if call else ())


def _program_task(record: Mapping[str, Any], where: str) -> CodeTask:
    """A task whose prompt is a docstring with the task and its first test, as zero-shot evaluations
    of MBPP have it (Fried et al. 2022): without a test no model could know the function's name.
    """
    field = "text" if "text" in record else "prompt"
    tests = [*_strings(record, where, "test_list"), *_strings(record, where, "challenge_test_list")]
    if not tests:
        raise DataError(f"{where}: 'test_list' is empty", hint="repair or remove that line")
    before = [*_strings(record, where, "test_imports")]
    before.append(_string(record, where, "test_setup_code", or_else=""))
    text = _string(record, where, field).replace('"""', "'''").strip()
    prompt = f'"""\n{text}\n{tests[0]}\n"""\n'
    solution = _string(record, where, "code", or_else="").replace("\r\n", "\n")
    whole = "\n".join([*before, *tests])
    names = tuple(one for one in _functions(solution) if re.search(rf"\b{one}\b", whole))
    return CodeTask(_id(record, where), prompt, solution, whole, names, is_function=False)


def _id(record: Mapping[str, Any], where: str) -> str:
    found = record.get("task_id")
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return _string(record, where, "task_id")


def _string(
    record: Mapping[str, Any], where: str, field: str, *, or_else: str | None = None
) -> str:
    found = record.get(field, or_else)
    if isinstance(found, str):
        return found
    what = f"no field {field!r}" if found is None else f"field {field!r} is not text"
    raise DataError(f"{where}: {what}", hint="repair or remove that line")


def _strings(record: Mapping[str, Any], where: str, field: str) -> Sequence[str]:
    found = record.get(field)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        what = f"{where}: field {field!r} is not a list of texts"
        raise DataError(what, hint="repair or remove that line")
    return found


def _functions(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    return [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
