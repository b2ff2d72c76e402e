"""Measures contamination: runs of ten words that a training corpus and a task share.

It counts items of which the corpus holds a run, and documents of the corpus that hold one of any
item. Words are letters, digits and underscores, in lower case. The corpus is streamed; in memory
are the task's runs, and a record of each document that holds one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from albor_core.config.sections.numbers import Count
from albor_core.data.clean.ngrams import (
    MOST_RUNS,
    ItemRuns,
    in_order,
    in_parts,
    runs_in,
    strings_in,
)
from albor_core.eval.kinds.documents import (
    TextDocument,
    TextDocuments,
    is_json_lines,
    json_lines,
    open_documents,
)
from albor_core.eval.result import Score, TaskResult, mean_score
from albor_core.eval.sections import TaskSection
from albor_core.eval.target import Target, problem_of
from albor_core.eval.task import ItemWriter, Progress, TaskPlan
from albor_core.run.errors import AlborError, DataError

if TYPE_CHECKING:
    from albor_core.eval.subject import EvaluatedModel


class ContaminationSection(TaskSection):
    """Whether a corpus holds what a task asks."""

    kind: Literal["contamination"] = "contamination"
    against: Path
    """The corpus: Parquet, JSON lines or texts."""
    column: str = "text"
    """Where the corpus holds its texts."""
    n: Count = 10
    """Words of a run."""


class ContaminationTask:
    Section = ContaminationSection
    kind = "contamination"

    def __init__(self, section: ContaminationSection) -> None:
        self.section = section
        self.name = section.title

    def plan(self, target: Target) -> TaskPlan:
        problems, items = [], 0
        try:
            items = len(_items(self.section).names)
        except AlborError as error:
            problems.append(problem_of(f"{self.name}.data", error))
        try:
            self._corpus()
        except AlborError as error:
            problems.append(problem_of(f"{self.name}.against", error))
        return TaskPlan(items, 0, tuple(problems))

    def _corpus(self) -> TextDocuments:
        return open_documents(self.section.against, column=self.section.column)

    def run(self, subject: EvaluatedModel, items: ItemWriter, progress: Progress) -> TaskResult:
        asked, documents = _items(self.section), 0
        seen = _Seen(asked)
        corpus = self._corpus()
        total = corpus.count()
        hits: list[Mapping[str, Any]] = []
        for several in in_parts(corpus, lambda document: document.text):
            found = asked.found_in(runs_in([document.text for document in several], self.section.n))
            for document, (runs, _) in zip(several, found, strict=True):
                if len(runs):
                    told = seen.add(document, in_order(runs))
                    hits.append({"item": f"document:{document.item}", **told})
            documents += len(several)
            progress(documents, total)
        records = list(seen.records())
        for record in (*records, *hits):
            if record["item"] not in items.known:  # the same in every process
                items.write(record["item"], record)
        judged = [bool(one["found"]) for one in records if one["runs"]]
        share = mean_score(f"{self.name}/contaminated", [float(one) for one in judged], "min")
        back = len(hits) / documents if documents else 0.0
        facts = {
            "n": self.section.n,
            "against": str(self.section.against),
            "items": len(records),
            "items_contaminated": sum(judged),
            "items_too_short": len(records) - len(judged),
            "documents": documents,
            "documents_contaminated": len(hits),
        }
        scores = (share, Score(f"{self.name}/contaminated_documents", back, "min", documents))
        return TaskResult(self.name, self.kind, scores, items.name, facts=facts)


class _Seen:
    """The parts of items that were found in documents."""

    def __init__(self, items: ItemRuns) -> None:
        self.items = items
        self.first = [""] * len(items.names)
        """The first document that holds one of an item's runs."""
        self._runs = np.zeros(len(items.runs), bool)

    def add(self, document: TextDocument, runs: Sequence[int]) -> dict[str, Any]:
        """Add a document; return the parts of items that it holds."""
        hit: dict[str, int] = {}
        for run in runs:
            self._runs[run] = True
            for item in self.items.owners(run):
                self.first[item] = self.first[item] or document.item
                name = self.items.names[item]
                hit[name] = hit.get(name, 0) + 1
        return {"runs": len(runs), "items": hit}

    def records(self) -> Iterator[dict[str, Any]]:
        found = self.items.owned(self._runs)
        for number, name in enumerate(self.items.names):
            size = int(self.items.sizes[number])
            yield {
                "item": f"item:{name}",
                "runs": size,
                "found": found[number],
                "share": found[number] / size if size else None,
                "first_document": self.first[number] or None,
            }


def _items(section: ContaminationSection) -> ItemRuns:
    """The runs of words of all items. Raises DataError, NotFoundError."""

    def refusal(most: int) -> DataError:
        what = f"{section.data}: more than {most:,} runs of {section.n} words"
        return DataError(what, hint="take fewer items: --set limit=N")

    items = ItemRuns.of(_texts(section), section.n, most=MOST_RUNS, refusal=refusal)
    if not items.names:
        raise DataError(f"{section.data}: no item", hint="name other data")
    return items


def _texts(section: ContaminationSection) -> Iterator[tuple[str, str]]:
    """(name, all texts) of each item; of JSON lines every text field."""
    if is_json_lines(section.data):
        named = ((f"{number}", "\n".join(strings_in(r))) for number, r in json_lines(section.data))
    else:
        documents = open_documents(section.data, column=section.column)
        named = ((one.item, one.text) for one in documents)
    yield from islice(named, section.limit)
