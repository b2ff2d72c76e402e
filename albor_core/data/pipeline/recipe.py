"""A recipe: what a data set is made of and by which steps, as strict YAML.

The steps are done in one order whatever the order in the file, and each takes the words that its
command has (`albor data quality --profile code` is `quality: {profile: code}`). A step that is not
named is not done, but for the import, the split, the tokenizer and the packing. The mix and the
cutting for fill-in-the-middle are of train alone: val and test stay what is measured by.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from albor_core.config.choices import PackingName
from albor_core.config.sections.numbers import convert_with
from albor_core.config.sections.section import CROSS_CHECK, Section
from albor_core.config.text.config_file import packaged_recipes, read_config_file
from albor_core.config.text.strict_yaml import MAX_BYTES, KeyPath, YamlDocument, read_yaml, refusal
from albor_core.data.mix.fim import MIN_CHARS
from albor_core.data.mix.mix import MOST_COPIES
from albor_core.data.mix.portions import Size
from albor_core.data.read.inputs import check_url
from albor_core.run.errors import NotFoundError, Problem, UsageError
from albor_core.run.values.numbers import parse_count

INSTALLED = "installed-packages"
"""As a source: the Python packages of this machine, by distribution, and the standard library."""

_Share = Annotated[float, Field(ge=0, le=1)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]
_Least1 = Annotated[int, Field(ge=1)]
_Amount = Annotated[int, BeforeValidator(convert_with(parse_count)), Field(ge=1)]
_Weight = Annotated[float, Field(gt=0, le=10**12)]
_ROUNDED = Fraction(1, 10**6)  # what shares with few digits, as 0.333333, may lack of 1


class SourceEntry(Section):
    """A source that was fetched from somewhere."""

    path: str
    """The folder, repository or file."""
    url: str | None = None
    """Where it was fetched from; goes into the provenance."""
    revision: str | None = None
    """Which revision of it this is."""

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    def problems(self) -> Iterator[Problem]:
        try:
            if self.url is not None:
                check_url(self.url)
        except UsageError as error:
            yield Problem("url", error.message, error.hint)


class ImportSection(Section):
    """Where documents come from."""

    sources: Annotated[list[SourceEntry], Field(min_length=1)]
    """Folders, repositories and files as `albor data import` takes them, or installed-packages; one
    that was fetched as {path: ..., url: ..., revision: ...}."""
    suffix: list[str] = [".py"]  # noqa: RUF012  # pydantic copies it
    """Endings of the files that are read."""
    exclude: list[str] = []  # noqa: RUF012
    """Names of folders that are not entered."""
    only: list[str] = []  # noqa: RUF012
    """Of installed-packages, the distributions to take; all where it is empty."""

    def paths(self) -> list[str]:
        """The paths of all sources."""
        return [one.path for one in self.sources]

    def problems(self) -> Iterator[Problem]:
        if INSTALLED in self.paths() and len(self.sources) > 1:
            message = f"{INSTALLED} cannot be combined with other sources"
            yield Problem("sources", message, "make two corpora and mix them: albor data mix")
        if self.only and INSTALLED not in self.paths():
            yield Problem("only", f"is of {INSTALLED} alone", "leave it out")


class QualitySection(Section):
    """Documents that are not worth training on go."""

    profile: str = "ml-training"
    """The thresholds to begin with."""
    set: dict[str, float | None] = {}  # noqa: RUF012
    """Thresholds that differ from it; null leaves a rule out."""


class FilterSection(Section):
    """Documents that may not be trained on go, or what is in them is masked."""

    secrets: Literal["drop", "mask", "keep"] = "keep"
    """Documents with keys, tokens or passwords."""
    personal_data: Literal["drop", "mask", "keep"] = "keep"
    """Documents with e-mail addresses, phone numbers, public IPv4 addresses, IBANs or cards."""
    licence: list[str] = []  # noqa: RUF012
    """The licences that may be; any where it is empty."""
    no_licence: Literal["keep", "drop"] | None = None
    """Documents without a licence: dropped where licences are named, else kept."""

    def problems(self) -> Iterator[Problem]:
        words = (self.secrets, self.personal_data, self.no_licence)
        if not self.licence and not {"drop", "mask"} & set(words):
            yield Problem("secrets", "nothing to filter by", "secrets: mask")


class SplitSection(Section):
    """Train, val and test."""

    by: Literal["repository", "file"] = "repository"
    """What falls into a part whole."""
    train: _Share = 0.9
    """Share of train."""
    val: _Share = 0.05
    """Share of val."""
    test: _Share = 0.05
    """Share of test."""
    seed_train: _Seed = 42
    """What train is drawn by."""
    seed_val: _Seed = 123
    """What val is drawn by."""
    seed_test: _Seed = 456
    """What test is drawn by."""

    def problems(self) -> Iterator[Problem]:
        total = self.train + self.val + self.test
        if not 0 < total <= 1 + 1e-9:
            message = f"train, val and test add up to {total:g}, not to more than 0 and at most 1"
            yield Problem("train", message)
        if self.train == 0:
            yield Problem("train", "the tokenizer is trained on train; it cannot be 0")


class DedupSection(Section):
    """Each part without its own duplicates, and without what a part before it holds: test first,
    then val, then train.
    """

    near: bool = True
    """Leave out similar documents too."""
    threshold: _Share = 0.8
    """The least similarity."""
    normalize: bool = False
    """Texts that differ in white space are equal."""


class BenchmarksSection(Section):
    """Documents that hold what a benchmark asks go."""

    against: Annotated[list[Path], Field(min_length=1)]
    """Tasks as JSON lines, a corpus, or a text."""
    words: Annotated[int, Field(ge=1, le=1000)] = 10
    """Consecutive words that must be the same."""


class MixSection(Section):
    """Train by the weights of its sources; val and test stay as they are."""

    weights: Annotated[dict[str, _Weight], Field(min_length=1)]
    """Of sources, as the import names them: numbers of copies (2 takes a source twice, 0.5 a drawn
    half), of those that are not named 1. Of a size they are shares of it: each source has one, and
    they sum to 1.
    """
    documents: _Amount | None = None
    """Size of the mix in documents."""
    bytes: _Amount | None = None
    """Size of the mix in bytes of text."""
    seed: _Seed = 0
    """What parts of a source are drawn by."""
    shuffle: bool = False
    """Order the documents by hash, not by source."""

    @property
    def size(self) -> Size | None:
        if self.documents is not None:
            return Size(self.documents)
        return None if self.bytes is None else Size(self.bytes, "bytes")

    def fractions(self) -> dict[str, Fraction]:
        """Exactly as they are written."""
        return {name: Fraction(str(weight)) for name, weight in self.weights.items()}

    def problems(self) -> Iterator[Problem]:
        if self.documents is not None and self.bytes is not None:
            yield Problem("bytes", "documents and bytes exclude each other", "give one of them")
        total = sum(self.fractions().values(), Fraction())
        if self.size is not None and abs(total - 1) > _ROUNDED:
            hint = "make the shares sum to 1, or leave the size out: weights are then copies"
            yield Problem("weights", f"sum to {float(total):.10g}, not 1", hint)
        for name, weight in self.weights.items():
            if self.size is None and weight > MOST_COPIES:
                message = f"{name!r} would be there {weight:g} times, more than {MOST_COPIES:,}"
                yield Problem("weights", message, "give it less weight")


class InfillSection(Section):
    """Documents of train cut in three, the middle last, for fill-in-the-middle."""

    rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the documents to cut."""
    format: Literal["psm", "spm"] = "psm"
    """What is read first: the prefix or the suffix."""
    seed: _Seed = 42
    """What is cut, and where."""
    min_chars: Annotated[int, Field(ge=0)] = MIN_CHARS
    """Documents of fewer characters stay as they are."""


class TokenizerSection(Section):
    """Trained on train; or one that is there."""

    vocab_size: _Least1 | None = None
    """Tokens of one that is trained."""
    file: Path | None = None
    """One that is there."""

    def problems(self) -> Iterator[Problem]:
        if (self.vocab_size is None) == (self.file is None):
            yield Problem("vocab_size", "name one of vocab_size and file", "vocab_size: 32768")


class PretokenizeSection(Section):
    """Shards of token ids."""

    seq_len: Annotated[int, Field(ge=2)]
    """Tokens of a sequence."""
    eos: str | None = None
    """What ends each document; the tokenizer's end of text where it is not given."""
    packing: PackingName = "concat"
    """How documents come into rows: one after the other, or whole where they fit."""


class BuildRecipe(Section):
    """A whole recipe."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """Of the data set, in ALBOR_HOME/datasets."""
    source: ImportSection = Field(alias="import")
    """The import."""
    quality: QualitySection | None = None
    """Drop what is not worth training on."""
    filter: FilterSection | None = None
    """Drop or mask what may not be trained on."""
    split: SplitSection = Field(default_factory=SplitSection)
    """Train, val and test."""
    dedup: DedupSection | None = None
    """Drop duplicates."""
    contamination: BenchmarksSection | None = None
    """Drop what benchmarks ask."""
    mix: MixSection | None = None
    """Train by the weights of its sources."""
    fim: InfillSection | None = None
    """Cut documents of train for fill-in-the-middle."""
    tokenizer: TokenizerSection
    """The vocabulary."""
    pretokenize: PretokenizeSection
    """The shards."""


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe with the hash of its file."""

    recipe: BuildRecipe
    path: Path
    sha256: str


def load_recipe(path: Path) -> LoadedRecipe:
    """A file, or the recipe of that name which comes with Albor. Raises NotFoundError, or
    ConfigError whose problems name file:line, field, cause and fix.
    """
    known = packaged_recipes()
    path = known.get(str(path), path) if not path.exists() else path
    try:
        raw = read_config_file(path, MAX_BYTES + 1)
    except OSError as error:
        raise NotFoundError(
            f"{path}: {error.strerror}", hint=f"Albor's own are {', '.join(known)}"
        ) from error
    recipe = parse_recipe(raw, file=str(path))
    return LoadedRecipe(recipe, path, hashlib.sha256(raw).hexdigest())


def parse_recipe(raw: bytes, *, file: str) -> BuildRecipe:
    """The parsed recipe. Raises ConfigError with every problem."""
    document, unread = read_yaml(raw, file=file)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of steps"
        raise refusal(unread or [Problem("", what, "see configs/data", file)], file=file)
    # `quality:` without anything is the step with its defaults; a step that is not there is not
    # done, so pydantic must not see the null as its absence
    data = {key: {} if value is None else value for key, value in document.data.items()}
    found = list(unread)
    try:
        recipe = BuildRecipe.model_validate(data)
    except ValidationError as error:
        found += _problems(error, document, file)
    if found:
        raise refusal(sorted(found, key=_line), file=file)
    return recipe


def _line(problem: Problem) -> int:
    number = problem.file.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _problems(error: ValidationError, document: YamlDocument, file: str) -> Iterator[Problem]:
    for detail in error.errors():
        path = tuple(part for part in detail["loc"])
        if detail["type"] == CROSS_CHECK:
            for one in detail["ctx"]["found"]:
                where = (*path, one.field)
                yield Problem(_dotted(where), one.message, one.hint, _place(where, document, file))
            continue
        place = _place(path, document, file)
        if detail["type"] == "extra_forbidden":
            yield Problem(_dotted(path), "is not a field", _suggestion(path), place)
        elif detail["type"] == "missing":
            yield Problem(_dotted(path), "is required", _example(path), place)
        else:
            message = detail["msg"][0].lower() + detail["msg"][1:]
            yield Problem(_dotted(path), message, file=place)


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))


def _place(path: KeyPath, document: YamlDocument, file: str) -> str:
    for length in range(len(path), 0, -1):
        if path[:length] in document.lines:
            return f"{file}:{document.lines[path[:length]]}"
    return file


def _names(section: Any) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _section_of(name: str) -> Any:
    """The class of a step."""
    for key, field in BuildRecipe.model_fields.items():
        if name in (key, field.alias):
            kinds = [field.annotation, *get_args(field.annotation)]
            return next((kind for kind in kinds if hasattr(kind, "model_fields")), None)
    return None


def _suggestion(path: KeyPath) -> str:
    section = BuildRecipe if len(path) == 1 else _section_of(str(path[0]))
    names = _names(section) if section is not None else []
    near = difflib.get_close_matches(str(path[-1]), names, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"what can be here: {', '.join(names)}" if names else ""


_EXAMPLES = {
    "name": "name: mine",
    "import": "import: {sources: [src/]}",
    "import.sources": "sources: [src/]",
    "tokenizer": "tokenizer: {vocab_size: 32768}",
    "pretokenize": "pretokenize: {seq_len: 1024}",
    "pretokenize.seq_len": "seq_len: 1024",
    "contamination.against": "against: [tasks.jsonl]",
    "mix.weights": "weights: {src: 2}",
}


def _example(path: KeyPath) -> str:
    return _EXAMPLES.get(_dotted(path), "")
