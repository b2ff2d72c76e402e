"""Documents of tokenizers, shards, data sets and where data comes from."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from albor_core.documents.corpus import OutputPlanFields
from albor_core.documents.shapes import ProblemFields


class DecodedRow(TypedDict):
    row: int
    epoch: int
    source: str | None
    tokens: int
    documents: list[int]
    text: str | None
    fim: bool


class BatchDocument(TypedDict):
    """The sequences that one step of a run was trained on, decoded."""

    schema: Literal["albor.data.batch/1"]
    run: str
    step: int
    rows: list[DecodedRow]


class BuiltStage(TypedDict):
    stage: str
    out: str
    documents: int | None
    bytes: int | None
    tokens: int | None
    dropped: dict[str, int]
    data_hash: str
    reused: bool
    seconds: float


class ShardSplit(TypedDict):
    name: str
    documents: int | None
    tokens: int
    sequences: int
    seq_len: int
    data_hash: str


class DataBuildDocument(TypedDict):
    """What each step of a recipe left, and the shards that came of it."""

    schema: Literal["albor.data.build/1"]
    recipe: str
    name: str
    out: str
    stages: list[BuiltStage]
    shards: str
    splits: list[ShardSplit]
    tokenizer_sha256: str | None
    ok: bool
    seconds: float


class PlannedStage(TypedDict):
    stage: str
    out: str
    action: Literal["keep", "write", "resume", "after"]


class DataBuildPlanDocument(TypedDict):
    """The steps of a recipe and what would be done for each; `after` where an earlier one
    decides.
    """

    schema: Literal["albor.data.build.plan/1"]
    ok: Literal[True]
    recipe: str
    name: str
    out: str
    stages: list[PlannedStage]


class PackedSplit(TypedDict):
    folder: str | None
    sequences: int | None
    tokens: int | None
    dropped_tokens: int | None
    """The remainder that did not fill a last sequence."""
    documents: int | None
    cut_documents: int | None
    """Those that no sequence holds whole; null, as the next two, for older shards."""
    long_documents: int | None
    """Of these, longer than a sequence."""
    rows_from_start: int | None
    """Sequences that begin with a document."""
    data_hash: str | None


class PretokenizeDocument(TypedDict):
    """The shards that were packed."""

    schema: Literal["albor.data.pretokenize/1"]
    out: str | None
    seq_len: int | None
    packing: Literal["concat", "best-fit"]
    """How documents come into sequences."""
    splits: dict[str, PackedSplit]
    """By name: train and val, or those that the corpus came in."""
    skipped: dict[str, Any]
    reused: bool | None
    resumed_units: int
    """Units of text that an earlier, unfinished try had encoded."""
    seconds: float


class PretokenizePlanDocument(OutputPlanFields):
    """What packing would read and write; tokens, sequences and shares are estimates from the first
    documents.
    """

    schema: Literal["albor.data.pretokenize.plan/1"]
    splits: list[str]
    documents: int
    text_bytes: int
    vocab_size: int
    bytes_per_token: float | None
    tokens: int | None
    sequences: int | None
    seconds: float | None
    """Of encoding, on the cores here."""
    disk_bytes: int | None
    """Taken while it works, the shards included."""
    packing: Literal["concat", "best-fit"]
    """How documents come into sequences."""
    share_cut: float | None
    """Of the documents, those that no sequence holds whole; guessed, as the next."""
    share_from_start: float | None
    """Of the sequences, those that begin with a document."""


class SourceFields(TypedDict):
    source: str
    documents_in: int | None
    documents: int
    bytes: int | None
    tokens: int | None
    dropped: dict[str, int]


class SourceOrigin(SourceFields):
    kind: str | None
    commit: str | None
    dirty: bool | None
    licence: str | None
    url: str | None
    revision: str | None
    """As the user said it."""
    sha256: str | None
    """Of a file whose origin was said."""
    version: str | None


class DataStep(TypedDict):
    step: str
    splits: list[str]
    settings: dict[str, Any]
    documents_in: int
    documents: int
    dropped: dict[str, int]
    examples: dict[str, list[str]]


class HashedFile(TypedDict):
    file: str
    bytes: int
    sha256: str


class DataFacts(TypedDict):
    path: str
    kind: Literal["corpus", "shards", "dataset"]
    documents: int | None
    bytes: int | None
    tokens: int | None
    licences: dict[str, int]
    steps: list[DataStep]
    splits: list[ShardSplit]


class ProvenanceDocument(DataFacts):
    """Where data comes from, step by step, held against its bytes; the exit code is 7 where ok is
    false.
    """

    schema: Literal["albor.data.provenance/1"]
    ok: bool
    problems: list[ProblemFields]
    albor_version: str
    data_hash: str | None
    tokenizer_sha256: str | None
    sources: list[SourceOrigin]
    files: list[HashedFile]


class SourceFigures(SourceFields):
    weight: float | None
    """Copies of each document that a mix made; null where nothing was mixed."""
    duplicates: int | None


class DocumentLengths(TypedDict):
    unit: Literal["tokens", "bytes"]
    edges: list[int]
    counts: list[int]


class OverlapFound(TypedDict):
    document: str
    task: str
    jaccard: float
    share: float
    runs: int
    overlap: str


class ContaminationFound(TypedDict):
    against: list[str]
    hits: list[OverlapFound]
    """Pairs of a document that was left out and a task, as `albor data contamination`
    lists them.
    """
    checked_documents: int
    """Documents that were searched, over all splits; each counts once."""


class DataStatsDocument(DataFacts):
    """What a corpus, one split of shards or a folder of splits holds, and the steps that
    made it.
    """

    schema: Literal["albor.data.stats/1"]
    vocab_size: int | None
    seq_len: int | None
    sources: list[SourceFigures]
    histogram: DocumentLengths | None
    contamination: ContaminationFound | None
    """What all steps found that left documents out for what they share with tasks or other texts;
    null where there was none.
    """


class DataVerifyDocument(TypedDict):
    """Whether shards match their manifest, and everything that does not; the exit code is 7 where
    ok is false.
    """

    schema: Literal["albor.data.verify/1"]
    folder: str
    ok: bool
    problems: list[ProblemFields]


class DatasetRecipe(TypedDict):
    corpus_sha256: dict[str, str] | str | None
    """Of the documents; by split where the corpus came in splits."""
    end_of_text: int | None
    seed: int | None
    sentinels: dict[str, int]
    """Of documents cut for fill-in-the-middle, with their ids; absent where none was."""
    seq_len: int | None
    shard_sequences: int | None
    tokenizer_sha256: str | None
    val_fraction: float | None
    vocab_size: int | None


class DatasetDocument(TypedDict):
    """manifest.json that ties the splits of a data set together."""

    schema: Literal["albor.dataset/1"]
    recipe: DatasetRecipe
    inputs: dict[str, str]
    """The files that were read, by their content; absent in older data sets."""
    skipped: dict[str, Any]
    splits: dict[str, str | None]


class ShardsHistogram(TypedDict):
    unit: str
    edges: list[int]
    counts: list[int]


class ShardsPacking(TypedDict):
    name: Literal["concat", "best-fit"]
    cut_documents: int
    """Of those that begin in the shards, those that no sequence holds whole."""
    long_documents: int
    """Of these, longer than a sequence."""
    rows_from_start: int
    """Sequences that begin with a document."""


class ShardFile(TypedDict):
    bytes: int | None
    file: str
    sequences: int | None
    sha256: str | None


class ShardsSource(TypedDict):
    documents: int
    bytes: int
    tokens: int


class ShardsDocument(TypedDict):
    """manifest.json of one split of token shards."""

    schema: Literal["albor.shards/1"]
    corpus_sha256: str | None
    data_hash: str | None
    documents: int | None
    dropped_tokens: int | None
    eos_token_id: NotRequired[int | None]
    """What ends each document; absent in older shards."""
    bos_token_id: NotRequired[int | None]
    """The tokenizer's; it is not packed."""
    histogram: NotRequired[ShardsHistogram]
    """Documents by length in tokens; absent in older shards, as are sources, history and
    packing.
    """
    history: NotRequired[list[dict[str, Any]]]
    """Records of the steps that made them, oldest first."""
    max_id: int | None
    packing: NotRequired[ShardsPacking]
    """How documents came into sequences."""
    seq_len: int | None
    sequences: int | None
    shards: list[ShardFile]
    sources: NotRequired[dict[str, ShardsSource]]
    """Source -> what it holds; tokens with the end of each text, and the remainder."""
    split: str | None
    told_sha256: NotRequired[str]
    """Over sources, histogram, history and packing, which data_hash leaves out."""
    tokenizer_sha256: str | None
    tokens: int | None
    vocab_size: int | None


class TokenizerApplyDocument(TypedDict):
    """A trained tokenizer."""

    schema: Literal["albor.tokenizer.apply/1"]
    out: str | None
    vocab_size: int | None
    requested_vocab_size: int | None
    specials: dict[str, int | None]
    documents: int | None
    sha256: str | None
    kind: Literal["bpe", "wordpiece", "unigram"]
    files: list[str]
    """Beside it: the vocabulary in the kind's own format."""
    reused: bool
    """The output held this already; nothing was written."""


class TokenRoles(TypedDict):
    eos: int | None
    bos: int | None
    pad: int | None


class PatternCover(TypedDict):
    of: int
    covered: int
    missing: list[str]


class TokenizerCheckDocument(TypedDict):
    """Round trips, specials, patterns and fertility of a tokenizer."""

    schema: Literal["albor.tokenizer.check/1"]
    path: str
    sha256: str | None
    vocab_size: int | None
    specials: dict[str, int | None]
    samples: int | None
    failed: list[Any]
    kind: str | None
    """BPE, Unigram, WordPiece or another."""
    roles: TokenRoles
    """The special tokens that end, begin and fill up a text, where that is known."""
    promises_round_trip: bool
    """It works on bytes: a text that changes is a problem."""
    byte_tokens: int | None
    """Bytes of 256 that have a token; null for a kind that does not work on bytes."""
    patterns: PatternCover
    """Words of Python that are one token."""
    bytes_per_token: Any
    fertility: dict[str, Any] | None
    """Tokens per byte and per word of a sample of the corpus, of all and by source."""
    not_applied: list[str]
    """Settings of the file that change what a text is: left out by every command."""
    problems: list[Any]


class SampledText(TypedDict):
    bytes: int
    lines: int
    unique_characters: int
    is_all: bool


class TokenizerPlanDocument(TypedDict):
    """What tokenizer training would do."""

    schema: Literal["albor.tokenizer.plan/1"]
    corpus: str | None
    ok: bool
    out: str | None
    vocab_size: int | None
    specials: list[str | None]
    documents: int | None
    text_bytes: int | None
    kind: Literal["bpe", "wordpiece", "unigram"]
    lines: int | None
    """That are trained on, as many as the sample makes likely."""
    max_lines: int | None
    sampled: SampledText | None
    """The beginning of the text, as far as it was looked at."""
    seconds: float | None
    """That training takes, estimated from parts of the corpus that were trained on."""
