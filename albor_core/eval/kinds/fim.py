"""Evaluates fill-in-the-middle: whether the model fills a hole in a text letter by letter.

Items are lines of JSON {"prefix", "suffix", "middle"}, or are cut out of documents by seed: a hole
of whole lines in the middle of each, the same ones on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from albor_core.config.sections.numbers import Count, CountOrZero
from albor_core.data.load.fim import SentinelIds
from albor_core.eval.kinds.documents import TextDocument, is_json_lines, json_lines, open_documents
from albor_core.eval.result import TaskResult, mean_score
from albor_core.eval.sections import TaskSection
from albor_core.eval.target import Target, problem_of
from albor_core.eval.task import ItemWriter, Progress, TaskPlan
from albor_core.model.generate.infill import NO_SENTINELS, infill_prompt, sentinels
from albor_core.run.errors import AlborError, DataError, Problem

if TYPE_CHECKING:
    from albor_core.eval.subject import EvaluatedModel

_FORM = 'an item is {"prefix": TEXT, "suffix": TEXT, "middle": TEXT}'
_ITEMS = 32


class FimSection(TaskSection):
    """Whether a hole in a text is filled letter by letter."""

    kind: Literal["fim"] = "fim"
    column: str = "text"
    """Where Parquet holds the documents that holes are cut into."""
    order: Literal["psm", "spm"] = "psm"
    """What the model reads first: the prefix or the suffix."""
    seed: CountOrZero = 0
    """Decides the holes."""
    items: Count = 200
    """Holes that are cut, one a document."""
    max_lines: Count = 1
    """Lines of a hole at most."""
    max_new_tokens: Count = 64
    """Tokens that are written at most."""
    max_bytes: Count = 2048
    """Of a document's text around the hole, half on each side."""


@dataclass(frozen=True)
class FimItem:
    item: str
    prefix: str
    suffix: str
    middle: str


class FimTask:
    Section = FimSection
    kind = "fim"

    def __init__(self, section: FimSection) -> None:
        self.section = section
        self.name = section.title

    def plan(self, target: Target) -> TaskPlan:
        problems, tokens, number = [], 0, 0
        marks = sentinels(target.tokenizer, target.path)
        if marks is None:
            problems.append(Problem(self.name, *NO_SENTINELS))
        elif max(marks) >= target.folder.shape.vocab_size:
            what = f"the tokenizer's sentinel {max(marks)} is outside the model's vocabulary"
            problems.append(Problem(self.name, what, f"albor model verify {target.path}"))
        try:
            for hole in holes(self.section):
                number += 1
                read = len(target.encode(hole.prefix)) + len(target.encode(hole.suffix)) + 3
                tokens += read + min(self.section.max_new_tokens, len(target.encode(hole.middle)))
                if read >= target.max_context and len(problems) < 3:
                    what = f"item {hole.item} has {read:,} tokens around its hole, and the model "
                    what += f"reads {target.max_context:,}"
                    problems.append(Problem(f"{self.name}.data", what, "lower max_bytes"))
        except AlborError as error:
            problems.append(problem_of(f"{self.name}.data", error))
        return TaskPlan(number, tokens, tuple(problems))

    def run(self, subject: EvaluatedModel, items: ItemWriter, progress: Progress) -> TaskResult:
        marks = sentinels(subject.tokenizer, subject.path)
        if marks is None:
            raise DataError(f"{self.name}: {NO_SENTINELS[0]}", hint=NO_SENTINELS[1])
        whole = {one.item: one for one in holes(self.section)}

        def filled(some: list[FimItem]) -> Iterator[Mapping[str, Any]]:
            prompts = [self._prompt(subject, marks, hole) for hole in some]
            texts = subject.complete_ids(prompts, max_new_tokens=self.section.max_new_tokens)
            return map(_judged, some, texts)

        records = items.records_of(whole, filled, progress, at_once=_ITEMS)
        facts = {
            "items": len(records),
            "order": self.section.order,
            "seed": self.section.seed,
            "max_new_tokens": self.section.max_new_tokens,
            "sentinels": [*marks],
        }
        exact = mean_score(f"{self.name}/exact_match", [float(r["is_exact"]) for r in records])
        line = mean_score(f"{self.name}/line_match", [float(r["is_line"]) for r in records])
        return TaskResult(self.name, self.kind, (exact, line), items.name, facts=facts)

    def _prompt(self, subject: EvaluatedModel, marks: SentinelIds, hole: FimItem) -> list[int]:
        before, after = subject.encode(hole.prefix), subject.encode(hole.suffix)
        return infill_prompt(marks, before, after, self.section.order)


def holes(section: FimSection) -> Iterator[FimItem]:
    """The items in order. Raises NotFoundError, DataError."""
    if is_json_lines(section.data):
        yield from _given(section.data, section.limit)
        return
    limit = section.items if section.limit is None else min(section.items, section.limit)
    number = 0
    for document in open_documents(section.data, column=section.column):
        if number == limit:
            break
        if (hole := cut_out(document, section)) is not None:
            number += 1
            yield hole
    if not number:
        what = f"{section.data}: no document has three lines to cut a hole into"
        raise DataError(what, hint="name other data")


def cut_out(document: TextDocument, section: FimSection) -> FimItem | None:
    """A hole of whole non-blank lines, with a line before and one after it; None if the text has
    none. The choice depends only on the text and the seed.
    """
    lines = document.text.splitlines(keepends=True)
    able = [n for n in range(1, len(lines) - 1) if lines[n].strip()]
    if not able:
        return None
    key = hashlib.blake2b(f"{section.seed}\0{document.text}".encode(), digest_size=8).digest()
    chance = Random(int.from_bytes(key, "little"))  # noqa: S311  the same everywhere, not secret
    begin = chance.choice(able)
    end = min(begin + chance.randint(1, section.max_lines), len(lines) - 1)
    middle = "".join(lines[begin:end])
    prefix, suffix = "".join(lines[:begin]), "".join(lines[end:])
    if middle.endswith("\n"):  # the end of the line belongs to what follows
        middle, suffix = middle[:-1], "\n" + suffix
    half = section.max_bytes // 2
    before = prefix.encode()[-half:].decode(errors="ignore")
    after = suffix.encode()[:half].decode(errors="ignore")
    return FimItem(document.item, before, after, middle)


def _given(file: Path, limit: int | None) -> Iterator[FimItem]:
    found = 0
    for number, record in islice(json_lines(file), limit):
        for part in ("prefix", "suffix", "middle"):
            if not isinstance(record.get(part), str):
                raise DataError(f"{file}:{number}: {part!r} is not text", hint=_FORM)
        if not record["middle"]:
            raise DataError(f"{file}:{number}: 'middle' is empty", hint=_FORM)
        found += 1
        yield FimItem(f"{number}", record["prefix"], record["suffix"], record["middle"])
    if not found:
        raise DataError(f"{file}: no item", hint=_FORM)


def _judged(hole: FimItem, text: str) -> Mapping[str, Any]:
    """Whether the text equals the hole, ignoring blanks at both ends, and whether its first line
    does."""
    wanted, found = hole.middle.strip(), text.strip()
    first = (wanted.splitlines() or [""])[0], (found.splitlines() or [""])[0]
    return {
        "is_exact": found == wanted,
        "is_line": first[0] == first[1],
        "middle": hole.middle,
        "completion": text,
    }
