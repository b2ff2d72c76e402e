"""Multiple choice tasks: which answer is the most likely one after its context.

A line of JSON an item: {"context": TEXT, "choices": [TEXT, ...], "answer": NUMBER}, the first
choice being 0, or its text. A choice directly follows its context: a blank between them belongs to
one of the two. Both are encoded as one text and split where the context ends; trailing blanks of
the context go to the choice, as in lm-evaluation-harness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from albor_core.eval.kinds.documents import json_lines
from albor_core.eval.result import Score, TaskResult, mean_score
from albor_core.eval.sections import TaskSection
from albor_core.eval.target import Target, problem_of
from albor_core.eval.task import ItemWriter, Progress, TaskPlan
from albor_core.run.errors import AlborError, DataError, Problem

if TYPE_CHECKING:
    from albor_core.eval.subject import EvaluatedModel

_ITEMS = 64  # whose choices share batches
_FORM = 'an item is {"context": TEXT, "choices": [TEXT, TEXT], "answer": NUMBER}'


class ChoiceSection(TaskSection):
    """Which of some answers is the likeliest."""

    kind: Literal["choice"] = "choice"


@dataclass(frozen=True)
class Question:
    """`answer` is the number of the right choice, from 0."""

    item: str
    context: str
    choices: tuple[str, ...]
    answer: int


class ChoiceTask:
    Section = ChoiceSection
    kind = "choice"

    def __init__(self, section: ChoiceSection) -> None:
        self.section = section
        self.name = section.title

    def plan(self, target: Target) -> TaskPlan:
        try:
            questions = read_questions(self.section.data, self.section.limit)
        except AlborError as error:
            return TaskPlan(problems=(problem_of(f"{self.name}.data", error),))
        problems: list[Problem] = []
        tokens = 0
        for one in questions:
            for choice in one.choices:
                context, continuation = parted(target.encode, one.context, choice, 0)
                tokens += len(context) + len(continuation)
                if len(continuation) > target.max_context and not problems:
                    what = f"item {one.item} has a choice of {len(continuation):,} tokens, above "
                    what += f"the model's context of {target.max_context:,}"
                    problems.append(Problem(f"{self.name}.data", what, "leave it out"))
        if target.ids.first is None and any(not one.context for one in questions):
            problems.append(Problem(f"{self.name}.data", *_NO_CONTEXT))
        return TaskPlan(len(questions), tokens, tuple(problems))

    def run(self, subject: EvaluatedModel, items: ItemWriter, progress: Progress) -> TaskResult:
        asked = read_questions(self.section.data, self.section.limit)
        questions = {one.item: one for one in asked}
        answer = partial(_answered, subject)
        records = items.records_of(questions, answer, progress, at_once=_ITEMS)
        facts = {
            "items": len(records),
            "ties": sum(one["ties"] for one in records),
            "cut": sum(one["cut"] for one in records),
            "normalised_by": "characters of the choice",
            "ties_go_to": "the first of the likeliest",
        }
        return TaskResult(
            self.name, self.kind, tuple(_scores(self.name, records)), items.name, facts=facts
        )


_NO_CONTEXT = (
    "an item has no context, and the tokenizer names no token that begins a text",
    "give each item a context",
)


def read_questions(file: Path, limit: int | None = None) -> list[Question]:
    """Read the questions of a file. Raises NotFoundError, DataError naming file:line."""
    lines = islice(json_lines(file), limit)
    found = [_question(file, number, record) for number, record in lines]
    if not found:
        raise DataError(f"{file}: no item", hint=_FORM)
    return found


def _question(file: Path, number: int, record: Mapping[str, Any]) -> Question:
    def refuse(what: str) -> DataError:
        return DataError(f"{file}:{number}: {what}", hint=_FORM)

    context, choices = record.get("context"), record.get("choices")
    if not isinstance(context, str):
        raise refuse("'context' is not text")
    if not isinstance(choices, list) or len(choices) < 2:
        raise refuse("'choices' is not a list of two or more")
    if not all(isinstance(one, str) and one for one in choices):
        raise refuse("a choice is empty or is not text")
    answer = record.get("answer")
    if isinstance(answer, str) and choices.count(answer) == 1:
        answer = choices.index(answer)
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise refuse(f"'answer' {answer!r} is not one of the {len(choices)} choices, from 0")
    return Question(f"{number}", context, tuple(choices), answer)


def parted(
    encode: Callable[[str], list[int]], context: str, choice: str, first: int | None
) -> tuple[list[int], list[int]]:
    """The ids of context and choice, encoded as one text; `first` takes the place of an empty
    context."""
    bare = context.rstrip()
    choice = context[len(bare) :] + choice
    if not bare:
        return [] if first is None else [first], [*encode(choice)]
    before = len(encode(bare))
    whole = [*encode(bare + choice)]
    if len(whole) <= before:  # the choice was swallowed by the last token of the context
        return whole[:-1] or whole[:1], whole[-1:]
    return whole[:before], whole[before:]


def _answered(subject: EvaluatedModel, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    pairs = [
        parted(subject.encode, one.context, choice, subject.ids.first)
        for one in questions
        for choice in one.choices
    ]
    if any(not context for context, _ in pairs):
        raise DataError(_NO_CONTEXT[0], hint=_NO_CONTEXT[1])
    likely = iter(subject.logprobs(pairs))
    lengths = iter([len(context) + len(choice) for context, choice in pairs])
    for one in questions:
        found = [next(likely) for _ in one.choices]
        cut = sum(next(lengths) > subject.max_context + 1 for _ in found)
        sums = [each.sum for each in found]
        sizes = [len(choice) for choice in one.choices]
        normalised = [total / size for total, size in zip(sums, sizes, strict=True)]
        chosen, by_length = _likeliest(sums), _likeliest(normalised)
        yield {
            "answer": one.answer,
            "chosen": chosen,
            "chosen_norm": by_length,
            "is_right": chosen == one.answer,
            "is_right_norm": by_length == one.answer,
            "logprobs": sums,
            "ties": int(sums.count(max(sums)) > 1),
            "cut": cut,
        }


def _likeliest(values: Sequence[float]) -> int:
    """The index of the largest value, the first of several equal ones."""
    return max(range(len(values)), key=lambda i: values[i])


def _scores(task: str, records: Sequence[Mapping[str, Any]]) -> Iterator[Score]:
    yield mean_score(f"{task}/accuracy", [float(one["is_right"]) for one in records])
    yield mean_score(f"{task}/accuracy_norm", [float(one["is_right_norm"]) for one in records])
