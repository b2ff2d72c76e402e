"""The base of all tasks, and the file of a task's items. No torch."""

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
    """The needs of a task; `problems` is empty if it can be run."""

    items: int = 0
    tokens: int = 0
    """That the model would read or write, estimated where counting would take long."""
    problems: tuple[Problem, ...] = ()


class Task(Protocol):
    """An evaluation task, made from its checked section; nothing is read before `plan` or `run`."""

    @property
    def section(self) -> TaskSection: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...

    def plan(self, target: Target) -> TaskPlan:
        """Plan the task: reads data, writes nothing, loads no weights; errors of either become
        problems."""

    def run(self, subject: EvaluatedModel, items: ItemWriter, progress: Progress) -> TaskResult:
        """Run the task; items in `items.known` are not repeated. Raises AlborError."""


class ItemWriter:
    """Writes the items of one task to a file, one line of JSON each, complete once `write`
    returns: a killed evaluation continues after them.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and read existing items. Raises OSError."""
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
        """The file name for `TaskResult.items`."""
        return self.path.name

    def write(self, item: str, record: Mapping[str, Any]) -> None:
        """Append a record; `item` is its unique name within the task. Raises OSError."""
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
        """A record for each of `asked`, which are named as items: known ones, and those that
        `answer` gives for up to `at_once` together, each written as it comes.
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
        """Read existing items and return the number of bytes in complete lines."""
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
