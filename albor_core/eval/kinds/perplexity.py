"""Measures how well a model predicts text: bits per byte and perplexity, of documents and of
groups."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from albor_core.config.sections.numbers import Count
from albor_core.eval.kinds.documents import TextDocument, TextDocuments, open_documents
from albor_core.eval.kinds.windows import windows
from albor_core.eval.result import Score, TaskResult
from albor_core.eval.sections import STDIN, TaskSection, name_part
from albor_core.eval.target import Target, problem_of
from albor_core.eval.task import ItemWriter, Progress, TaskPlan
from albor_core.run.errors import AlborError, DataError, Problem

if TYPE_CHECKING:
    from albor_core.eval.subject import EvaluatedModel

_SAMPLE_BYTES = 1 << 20  # of text that a plan tokenises
_LN2 = math.log(2)
_DOCUMENTS = 16  # whose windows share batches
MOST_GROUPS = 32  # that have scores of their own: each is a metric of the run


class TextSection(TaskSection):
    """How well the model predicts texts."""

    kind: Literal["text"] = "text"
    text: str | None = Field(None, exclude=True)
    """The text itself, where `data` is `-`: what came on stdin. Results have its hash alone."""
    column: str = "text"
    """Where Parquet and JSON lines hold the texts."""
    by: str | None = None
    """A column of packages: each gets scores of its own. Of plain texts the folders do."""
    window: Count | None = None
    """Tokens that are read at once. By default the model's context."""
    stride: Count | None = None
    """Tokens that each further window scores; what is left of it is context. By default half the
    window."""
    prefix: Literal["bos", "none"] = "bos"
    """What stands before the first token of a document: the token that begins a text (without one,
    the one that ends it), or nothing: then the first one is not scored, nor its bytes counted."""

    def problems(self) -> Iterator[Problem]:
        if (self.text is not None) != (self.data == STDIN):
            what = (
                "is stdin for --task alone" if self.text is None else "is not -, and text is given"
            )
            yield Problem("data", what, "name a file, or give `text` with data `-`")
        if self.window is not None and self.stride is not None and self.stride > self.window:
            yield Problem("stride", f"{self.stride} is above window {self.window}", "lower it")


class TextTask:
    Section = TextSection
    kind = "text"

    def __init__(self, section: TextSection) -> None:
        self.section = section
        self.name = section.title

    def _open(self) -> TextDocuments:
        said = self.section
        if said.text is not None:
            return TextDocuments(STDIN, (STDIN,), said.column, None, said.limit, said.text)
        return open_documents(said.data, column=said.column, by=said.by, limit=said.limit)

    def _sizes(self, max_context: int) -> tuple[int, int]:
        """Window and stride in tokens."""
        window = self.section.window or max_context
        return window, self.section.stride or (window + 1) // 2

    def plan(self, target: Target) -> TaskPlan:
        problems = []
        window, stride = self._sizes(target.max_context)
        if window > target.max_context:
            what = f"{window} is above the model's context of {target.max_context}"
            problems.append(Problem(f"{self.name}.window", what, "lower it"))
        elif stride > window:
            what = f"{stride} is above the window of {window}"
            problems.append(Problem(f"{self.name}.stride", what, "lower it"))
        if self.section.prefix == "bos" and target.ids.first is None:
            problems.append(Problem(f"{self.name}.prefix", *_NO_PREFIX))
        items = size = sampled = tokens = 0
        try:
            for document in self._open():
                items, size = items + 1, size + document.num_bytes
                if sampled < _SAMPLE_BYTES:
                    sampled += document.num_bytes
                    tokens += len(target.encode(document.text))
        except AlborError as error:
            problems.append(problem_of(f"{self.name}.data", error))
        else:
            if not items or (self.section.text is not None and not size):
                what = "no text to evaluate"
                problems.append(Problem(f"{self.name}.data", what, "name another"))
        each = tokens * size // sampled if sampled else 0
        return TaskPlan(items, each * window // max(1, stride), tuple(problems))

    def run(self, subject: EvaluatedModel, items: ItemWriter, progress: Progress) -> TaskResult:
        window, stride = self._sizes(subject.max_context)
        first = subject.ids.first if self.section.prefix == "bos" else None
        if self.section.prefix == "bos" and first is None:
            raise DataError(f"{self.name}: {_NO_PREFIX[0]}", hint=_NO_PREFIX[1])
        documents = self._open()
        total, order = documents.count(), list[str]()
        rest = iter(documents)
        while some := [*islice(rest, _DOCUMENTS)]:
            left = [one for one in some if one.item not in items.known]
            found = _scored(subject, left, first, window, stride)
            for document, record in zip(left, found, strict=True):
                items.write(document.item, record)
            order += [one.item for one in some]
            progress(len(order), total)
        records = [items.known[item] for item in order]
        facts = {
            "window": window,
            "stride": stride,
            "prefix": self.section.prefix,
            "prefix_token": first,
            "documents": len(records),
            "tokens": sum(one["tokens"] for one in records),
            "bytes": sum(one["bytes"] for one in records),
            "groups": _groups(records),
        }
        return TaskResult(
            self.name, self.kind, tuple(_scores(self.name, records)), items.name, facts=facts
        )


_NO_PREFIX = (
    "the tokenizer names no token that begins or ends a text",
    "--set prefix=none scores from the second token on",
)


def _scored(
    subject: EvaluatedModel,
    documents: list[TextDocument],
    first: int | None,
    window: int,
    stride: int,
) -> Iterator[dict[str, Any]]:
    """A record per document: ln p of its tokens, their number, and the bytes they stand for."""
    pairs, counts, sizes = [], [], []
    for document in documents:
        encoded = subject.tokenizer.encode(document.text, add_special_tokens=False)
        mine = [*windows(encoded.ids, first=first, window=window, stride=stride)]
        skipped = 0
        if first is None and encoded.ids:
            skipped = len(document.text[: encoded.offsets[0][1]].encode())
        pairs += mine
        counts.append(len(mine))
        sizes.append(document.num_bytes - skipped)
    likely = iter(subject.logprobs(pairs))
    for document, count, size in zip(documents, counts, sizes, strict=True):
        found = [next(likely) for _ in range(count)]
        total, tokens = math.fsum(one.sum for one in found), sum(one.tokens for one in found)
        yield {
            "group": document.group,
            "logprob": total,
            "tokens": tokens,
            "bytes": size,
            "bits_per_byte": -total / _LN2 / size if size else None,
        }


def _scores(task: str, records: list[dict[str, Any]]) -> Iterator[Score]:
    total = math.fsum(one["logprob"] for one in records)
    tokens, n = sum(one["tokens"] for one in records), len(records)
    nats = -total / tokens if tokens else math.nan
    yield _bits(f"{task}/bpb", records)
    yield Score(f"{task}/ppl", _exp(nats), "min", n)
    yield Score(f"{task}/loss", nats, "min", n)
    by_group = _by_group(records)
    if 1 < len(by_group) <= MOST_GROUPS:
        for group, mine in by_group.items():
            yield _bits(f"{task}/{name_part(group)}/bpb", mine)


def _bits(name: str, records: list[dict[str, Any]]) -> Score:
    """Bits per byte over all bytes, not the mean over documents; its standard error is that of a
    ratio of sums, by the delta method over documents.
    """
    size, n = sum(one["bytes"] for one in records), len(records)
    if not size:
        return Score(name, math.nan, "min", n)
    value, stderr = -math.fsum(one["logprob"] for one in records) / _LN2 / size, None
    if n > 1:
        off = [-one["logprob"] / _LN2 - value * one["bytes"] for one in records]
        stderr = math.sqrt(math.fsum(far * far for far in off) * n / (n - 1)) / size
    return Score(name, value, "min", n, stderr)


def _by_group(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in records:
        found[one["group"]].append(one)
    return dict(sorted(found.items()))


def _groups(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures of each group; empty if there is only one."""
    by_group = _by_group(records)
    return [
        {
            "group": group,
            "documents": len(mine),
            "bytes": sum(one["bytes"] for one in mine),
            "tokens": sum(one["tokens"] for one in mine),
            "bpb": _bits("", mine).value,
        }
        for group, mine in (by_group.items() if len(by_group) > 1 else ())
    ]


def _exp(nats: float) -> float:
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
