"""Documents of corpora and of the steps that read and write them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from albor_core.documents.shapes import PlanAction


class SourceTally(TypedDict):
    documents_in: int
    bytes_in: int
    documents: int
    bytes: int
    dropped: dict[str, int]


class CorpusPart(TypedDict):
    file: str
    rows: int
    bytes: int
    sha256: str


class CorpusDocument(TypedDict):
    """manifest.json of a corpus (in a file's footer: without parts): the step that made it, and
    those before.
    """

    schema: Literal["albor.corpus/1"]
    step: str
    settings: dict[str, Any]
    identity: str
    data_hash: str
    documents: int
    bytes: int
    sources: dict[str, SourceTally]
    examples: dict[str, list[str]]
    extra: dict[str, float]
    findings: NotRequired[dict[str, list[dict[str, Any]]]]
    """Lists that the step has beside these, such as `hits` of a check against benchmarks."""
    history: list[dict[str, Any]]
    parts: NotRequired[list[CorpusPart]]


class TaskOverlap(TypedDict):
    document: str
    task: str
    jaccard: float
    """Shared runs over the runs of either."""
    share: float
    """Shared runs over the task's runs."""
    runs: int
    overlap: str
    """The longest stretch that both have, cut after 400 characters."""


class ResumedStep(TypedDict):
    reused: bool
    """The output held this already; nothing was written."""
    seconds: float


class CorpusStepFields(ResumedStep):
    documents_in: int
    bytes_in: int
    documents: int
    dropped: dict[str, int]
    sources: dict[str, SourceTally]
    resumed_units: int
    """Parts that an earlier, unfinished try had done."""


class ContaminationDocument(CorpusStepFields):
    """Which documents share runs of words with tasks, or with other texts. Counts are of what stays
    or would stay without them.
    """

    schema: Literal["albor.data.contamination/1"]
    paths: list[str]
    out: str | None
    """What --drop wrote."""
    words: int
    """Consecutive words that are the same."""
    against: list[str]
    tasks: int
    checked_documents: int
    contaminated_documents: int
    contaminated_tasks: int
    """Among the hits that are listed."""
    hits_found: int
    """Pairs of a document and a task; hits lists at most 10,000."""
    hits: list[TaskOverlap]
    bytes: int
    """UTF-8 bytes of text that were kept."""
    examples: dict[str, list[str]]
    """Reason: the keys (source/file) of the first documents dropped for it."""
    extra: dict[str, int]
    """Sums that the step has beside these."""
    data_hash: str | None


class SampledTally(TypedDict):
    sources: dict[str, Any]
    examples: dict[str, Any]
    extra: dict[str, Any]


class OutputPlanFields(TypedDict):
    ok: Literal[True]
    out: str
    out_bytes: int | None
    """Estimated, of the files that are written."""
    action: PlanAction


class StepPlanFields(TypedDict):
    documents: int
    bytes: int
    units: int
    sampled: SampledTally
    sampled_bytes: int
    seconds: float | None
    """Estimated for one process."""


class ContaminationPlanDocument(OutputPlanFields, StepPlanFields):
    """What a step over a corpus would read and write, and what it does with a sample."""

    schema: Literal["albor.data.contamination.plan/1"]


class KeptDocuments(CorpusStepFields):
    out: str
    bytes: int
    """UTF-8 bytes of text that were kept."""
    pass_rate: float
    """Documents kept over documents read, 0 to 1."""


class DedupDocument(KeptDocuments):
    """What a search for duplicates kept and dropped, by source and reason."""

    schema: Literal["albor.data.dedup/1"]
    examples: dict[str, list[str]]
    """Reason: the keys (source/file) of the first documents dropped for it, and of which kept one
    each is a duplicate.
    """
    extra: dict[str, int]
    """Where similar texts were looked for: pairs that were compared, and documents that had more
    candidates than were compared.
    """
    data_hash: str


class DedupPlanDocument(OutputPlanFields, StepPlanFields):
    """What a step over a corpus would read and write, and what it does with a sample."""

    schema: Literal["albor.data.dedup.plan/1"]


class FilterFields(KeptDocuments):
    examples: dict[str, list[str]]
    """Reason: the keys (source/file) of the first documents dropped for it."""
    extra: dict[str, int]
    """Sums that the step has beside these."""
    data_hash: str


class FilterDocument(FilterFields):
    """What a step over a corpus kept and dropped, by source and reason."""

    schema: Literal["albor.data.filter/1"]


class FilterPlanDocument(OutputPlanFields, StepPlanFields):
    """What a step over a corpus would read and write, and what it does with a sample."""

    schema: Literal["albor.data.filter.plan/1"]


class FillInTheMiddleDocument(CorpusStepFields):
    """What was cut for fill-in-the-middle."""

    schema: Literal["albor.data.fim/1"]
    out: str
    bytes: int
    examples: dict[str, list[str]]
    """Empty: every document stays."""
    extra: dict[str, int]
    """Documents that were cut, that were too short, and that held a sentinel."""
    data_hash: str


class FillInTheMiddlePlanDocument(OutputPlanFields, StepPlanFields):
    """What a cut for fill-in-the-middle would read, and what it does with a sample."""

    schema: Literal["albor.data.fim.plan/1"]


class ImportedSource(TypedDict):
    source: str
    kind: Literal["folder", "git", "bare", "text", "jsonl", "csv", "parquet"]
    column: str | None
    """Of the text, in a file of rows."""
    commit: str | None
    dirty: bool | None
    """Files differ from the commit's."""
    licence: str | None
    """SPDX, by its licence file's text."""
    url: str | None
    """Where it was cloned from."""
    revision: str | None
    """As the user said it."""
    sha256: str | None
    """Of a file whose origin was said."""
    documents_in: int
    bytes_in: int
    documents: int
    bytes: int
    dropped: dict[str, int]
    elsewhere: dict[str, int]
    """Another column -> rows left out that have their text there."""


class DataImportDocument(ResumedStep):
    """What an import took and left out."""

    schema: Literal["albor.data.import/1"]
    files: int
    """Documents: files, or rows."""
    bytes: int
    """UTF-8 bytes of their text."""
    skipped: dict[str, int]
    corpus_hash: str
    """Of the names and texts, in order."""
    out: str
    sources: list[ImportedSource]
    """In the order they were given."""
    examples: dict[str, list[str]]
    """Reason -> keys of the first documents that were left out for it."""
    data_hash: str
    """Of the parts' bytes, in order."""
    resumed_units: int
    """Parts that an earlier try had made."""


class DataImportPlanDocument(OutputPlanFields):
    """What an import would take in, leave out and write."""

    schema: Literal["albor.data.import.plan/1"]
    files: int
    bytes: int
    skipped: dict[str, Any]
    sources: list[dict[str, Any]]
    """As albor.data.import/1 has them."""


class MixedCorpus(TypedDict):
    path: str
    weight: float
    documents: int
    bytes: int
    copies: int
    rest: int
    documents_out: int
    bytes_out: int


class MixDocument(CorpusStepFields):
    """What each corpus gave to a mix, and what came of it by source."""

    schema: Literal["albor.data.mix/1"]
    out: str
    bytes: int
    examples: dict[str, list[str]]
    """Reason: the keys (source/file) of the first documents left out for it."""
    extra: dict[str, Any]
    data_hash: str
    inputs: list[MixedCorpus]


class MixPlanDocument(OutputPlanFields):
    """What each corpus would give to a mix: copies of all of it, and drawn documents once more."""

    schema: Literal["albor.data.mix.plan/1"]
    documents: int
    bytes: int
    inputs: list[MixedCorpus]


class QualityDocument(FilterFields):
    """What a step over a corpus kept and dropped, by source and reason."""

    schema: Literal["albor.data.quality/1"]


class QualityPlanDocument(OutputPlanFields, StepPlanFields):
    """What a step over a corpus would read and write, and what it does with a sample."""

    schema: Literal["albor.data.quality.plan/1"]


class ThresholdMeaning(TypedDict):
    key: str
    reason: str
    unit: str
    meaning: str


class ProfileThresholds(TypedDict):
    name: str
    summary: str
    thresholds: dict[str, float | None]
    """Key: number, or null where the rule is off."""


class QualityProfilesDocument(TypedDict):
    """The thresholds of `albor data quality` and the profiles that set them."""

    schema: Literal["albor.data.quality.profiles/1"]
    default: str
    thresholds: list[ThresholdMeaning]
    """In the order in which a document is held to them."""
    profiles: list[ProfileThresholds]


class SplitPartFields(TypedDict):
    folder: str
    share: float
    seed: int
    documents: int
    bytes: int
    sources: int


class SplitPart(SplitPartFields):
    data_hash: str
    reused: bool


class SplitParts(TypedDict):
    train: NotRequired[SplitPart]
    val: NotRequired[SplitPart]
    test: NotRequired[SplitPart]


class SplitDocument(TypedDict):
    """The parts that a corpus was split into, and the documents in none of them."""

    schema: Literal["albor.data.split/1"]
    out: str
    by: Literal["repository", "file"]
    parts: SplitParts
    left_out: int
    seconds: float


class PlannedPart(SplitPartFields):
    action: PlanAction


class PlannedParts(TypedDict):
    train: NotRequired[PlannedPart]
    val: NotRequired[PlannedPart]
    test: NotRequired[PlannedPart]


class SplitPlanDocument(TypedDict):
    """The parts that a corpus would be split into."""

    schema: Literal["albor.data.split.plan/1"]
    out: str
    by: Literal["repository", "file"]
    parts: PlannedParts
    out_bytes: int | None
    """Estimated, of the files that are written."""
    left_out: int
    ok: Literal[True]
