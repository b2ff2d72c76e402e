"""The section `data`: token shards, how they are mixed and read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, create_model, field_validator

from albor_core.config.choices import PackingName, ShuffleName
from albor_core.config.sections.numbers import Count, CountOrZero, Portion, Weight
from albor_core.config.sections.section import Section
from albor_core.run.errors import Problem


class MixtureSource(Section):
    """Shards that a part of the sequences is drawn from."""

    path: Path
    """Directory of shards."""
    weight: Weight
    """Its share of the sequences, against the weights of the others."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")] | None = None
    """What curves and `curriculum` call it; without it the last folder of `path` but for `train`
    and `val`."""

    @property
    def title(self) -> str:
        """`name`, or what stands for it."""
        parts = [part for part in self.path.parts if part not in ("train", "val", "/", "..")]
        return self.name or re.sub(r"[^A-Za-z0-9._-]", "_", (parts or ["source"])[-1])[:40]


def _source_problems(sources: tuple[MixtureSource, ...], field: str) -> Iterator[Problem]:
    titles: list[str] = []
    for index, one in enumerate(sources):
        if one.title in titles:
            message = f"two sources are called {one.title}"
            yield Problem(f"{field}.{index}", message, "give each a name of its own")
        titles.append(one.title)
    if sources and not sum(one.weight for one in sources):
        yield Problem(field, "all weights are 0", "give one a weight above 0")


class _Stage(Section):
    """Other weights from a sequence of the run on."""

    weights: dict[str, Weight] = Field(min_length=1)
    """Weight of each source by its name; of one that is not named, 0."""

    @property
    def first(self) -> int:
        return int(getattr(self, "from"))


if TYPE_CHECKING:
    CurriculumStage = _Stage
else:  # `from` is a word of Python
    CurriculumStage = create_model(
        "CurriculumStage",
        __base__=_Stage,
        __doc__=_Stage.__doc__,
        **{
            "from": (
                CountOrZero,
                Field(
                    description="Number of the sequence from which they hold, counted from 0 as "
                    "the data are read: step x data.batch_size x gradient_accumulation."
                ),
            )
        },
    )


class FimConfig(Section):
    """Fill-in-the-middle: documents cut in three, the middle read last. Which documents are cut,
    and where, differs between epochs and depends on the seed alone; a row keeps its length, and
    what the three tokens push out at its end is left out. Needs data.tokenizer; validation is
    without it."""

    rate: Portion
    """Share of the documents that are cut."""
    format: Literal["psm", "spm"] = "psm"
    """What is read first: the prefix or the suffix."""
    prefix: str = "<|fim_prefix|>"
    """Token before the prefix."""
    suffix: str = "<|fim_suffix|>"
    """Token before the suffix."""
    middle: str = "<|fim_middle|>"
    """Token before the middle."""


class DataConfig(Section):
    """Token shards in. Relative paths are relative to the directory the command is run in."""

    train: Path = Path()
    """Directory of training shards; a `mixture` or a class of your own in training.mode does
    without. A corpus of text (a column text, content or code, and none of ids) is packed once with
    `tokenizer`, here and in `val`."""
    val: Path | None = None
    """Directory of validation shards; without it nothing is evaluated."""
    mixture: tuple[MixtureSource, ...] = ()
    """Several directories of training shards in the place of `train`, each with its weight, by
    which every sequence is drawn from one of them. An epoch is as many sequences as all hold; a
    source of more weight than it has sequences for is read again sooner, in another order."""
    val_mixture: tuple[MixtureSource, ...] = ()
    """Several directories of validation shards in the place of `val`: as much of each as its weight
    says and none twice."""
    curriculum: tuple[CurriculumStage, ...] = ()
    """Other weights for the sources of `mixture`, each stage from a sequence of the run on. Before
    the first stage the sources have their own."""
    fim: FimConfig | None = None
    """Documents that are filled in the middle; without it none."""
    batch_size: Count
    """Sequences per micro-batch."""
    seq_len: Count
    """Tokens per sequence, at least 2 of shards, whose longer rows are cut into several."""
    tokenizer: Path | None = None
    """tokenizer.json the shards were made with, or its folder; needed for samples and for the
    vocabulary check."""
    packing: PackingName = "concat"
    """How text in `train` comes into rows: documents one after the other, cut where a row ends, or
    by `best-fit`, which keeps whole what fits into a row. Shards are as they were packed: best-fit
    asks for such. Text in `val` is always packed by concat, so that losses compare."""
    shuffle: ShuffleName = "rows"
    """What comes in another order in each epoch: `rows` as they were packed, or `documents`, which
    are joined and cut into rows anew, so that no two epochs have the same neighbours and cuts. For
    shards of `concat`; looks through all tokens at the start. Validation is as packed."""
    input_column: str = "input_ids"
    """Column of the shards that holds the token ids; without one called so, `token_ids`."""
    document_mask: bool = False
    """Whether training keeps the documents of a row apart: a token sees those of its own document
    alone, and what follows the end of one is not scored. Documents are told apart by the token
    that the shards were packed with. Validation sees whole rows, as ever."""

    @property
    def has_val(self) -> bool:
        return self.val is not None or bool(self.val_mixture)

    @property
    def is_named(self) -> bool:
        """Whether it says what to train on."""
        return "train" in self.model_fields_set or bool(self.mixture)

    def stages(self) -> tuple[tuple[int, dict[str, float]], ...]:
        """(number from which it holds, weight of each source by its name), from 0 on; none without
        a mixture.
        """
        if not self.mixture:
            return ()
        own = {one.title: one.weight for one in self.mixture}
        stages = [
            (one.first, {name: one.weights.get(name, 0.0) for name in own})
            for one in self.curriculum
        ]
        return tuple(stages if stages and stages[0][0] == 0 else [(0, own), *stages])

    @field_validator("tokenizer")
    @classmethod
    def _in_its_folder(cls, value: Path | None) -> Path | None:
        """As transformers, which is given folders."""
        inside = None if value is None else value / "tokenizer.json"
        return inside if inside is not None and inside.is_file() else value

    def problems(self) -> Iterator[Problem]:
        for field, other, sources in (
            ("mixture", "train", self.mixture),
            ("val_mixture", "val", self.val_mixture),
        ):
            yield from _source_problems(sources, field)
            if sources and other in self.model_fields_set and getattr(self, other) is not None:
                message = f"stands beside data.{other}, which it takes the place of"
                yield Problem(field, message, "keep one of them")
        yield from self._curriculum_problems()
        if self.shuffle == "documents" and self.packing == "best-fit":
            message = "joins documents as concat does, and data.packing is best-fit"
            yield Problem("shuffle", message, "leave one of them out")
        if self.fim is not None and self.tokenizer is None:
            message = "needs the ids of its tokens, and data.tokenizer is not set"
            yield Problem("fim", message, "set data.tokenizer")
        if self.fim is not None and len({self.fim.prefix, self.fim.suffix, self.fim.middle}) < 3:
            message = "prefix, suffix and middle are not three tokens"
            yield Problem("fim", message, "name another for each")

    def _curriculum_problems(self) -> Iterator[Problem]:
        if self.curriculum and not self.mixture:
            message = "says how the sources of data.mixture are weighed, and there are none"
            yield Problem("curriculum", message, "give data.mixture, or leave it out")
            return
        if any(b.first <= a.first for a, b in pairwise(self.curriculum)):
            yield Problem("curriculum", "stages must ascend", "a later from in each")
        known = {one.title for one in self.mixture}
        for index, stage in enumerate(self.curriculum):
            if unknown := sorted(set(stage.weights) - known):
                message = f"{unknown[0]} is not a source of data.mixture"
                hint = f"its sources are {', '.join(sorted(known))}"
                yield Problem(f"curriculum.{index}.weights", message, hint)
            elif not sum(stage.weights.values()):
                hint = "give one a weight above 0"
                yield Problem(f"curriculum.{index}.weights", "all weights are 0", hint)
