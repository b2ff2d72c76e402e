"""What every task can do, and the file of its items. No torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from albor_core.eval.result import TaskResult
from albor_core.eval.sections import TaskSection
from albor_core.eval.target import Target
from albor_core.run.errors import Problem
from albor_core.run.values.lenient import strict_json

if TYPE_CHECKING:
    from albor_core.eval.subject import EvaluatedModel

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Items done, items in all."""


@dataclass(frozen=True)
class TaskPlan:
    """What a task would take; `problems` is empty where it can be run."""

    items: int = 0
    tokens: int = 0
    """That the model would read or write, estimated where counting would take long."""
    problems: tuple[Problem, ...] = ()


class Task(Protocol):
    """Made from its section, which has been checked; nothing is read before `plan` or `run`."""

    @property
    def section(self) -> TaskSection: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...

    def plan(self, target: Target) -> TaskPlan:
        """Reads data, writes nothing, loads no weights; what is wrong with either is a problem."""

    def run(self, subject: EvaluatedModel, items: ItemWriter, progress: Progress) -> TaskResult:
        """Items that `items.known` has are not done again. Raises AlborError."""


class ItemWriter:
    """The items of one task in a file of its own, a line of JSON each, whole from the moment that
    `write` returned: an evaluation that was killed goes on after them.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        """By item: what an earlier process found."""
        whole = self._read()
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        os.ftruncate(self._fd, whole)  # half a line of a killed process
        os.lseek(self._fd, whole, os.SEEK_SET)

    @property
    def name(self) -> str:
        """What `TaskResult.items` is to say."""
        return self.path.name

    def write(self, item: str, record: Mapping[str, Any]) -> None:
        """`item` is its name within the task, said once. Raises OSError."""
        whole = {"item": item, **record}
        line = json.dumps(strict_json(whole), allow_nan=False, separators=(",", ":")).encode()
        left = memoryview(line + b"\n")
        while left:
            left = left[os.write(self._fd, left) :]
        self.known[item] = whole

    def records_of(
        self,
        asked: Mapping[str, T],
        answer: Callable[[list[T]], Iterable[Mapping[str, Any]]],
        progress: Progress,
        *,
        at_once: int,
    ) -> list[dict[str, Any]]:
        """A record of each of `asked`, which are named as items: those that are known, and those
        that `answer` gives of up to `at_once` together, each written as it comes.
        """
        left = [item for item in asked if item not in self.known]
        done = len(asked) - len(left)
        progress(done, len(asked))
        for start in range(0, len(left), at_once):
            some = left[start : start + at_once]
            for item, record in zip(some, answer([asked[item] for item in some]), strict=True):
                self.write(item, record)
                done += 1
                progress(done, len(asked))
        return [self.known[item] for item in asked]

    def _read(self) -> int:
        """Bytes that are whole lines."""
        end = 0
        if not self.path.is_file():
            return 0
        with self.path.open("rb") as file:
            for line in file:
                try:
                    found = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    found = None
                if not isinstance(found, dict) or not isinstance(found.get("item"), str):
                    break
                self.known[found["item"]] = found
                end += len(line)
        return end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)
