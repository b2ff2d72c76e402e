"""Documents of runs and their figures on the way in, out and elsewhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from albor_core.documents.shapes import Closed, NotFinite, Scalar, StatusName, keywords


class PulledDocument(TypedDict):
    """RUN_DIR/pulled.json: that the folder is a copy of a run elsewhere, and read-only."""

    schema: Literal["albor.pulled/1"]
    host: str
    folder: str
    """The run directory there."""
    wall: float | None
    """When the copy last changed, UTC seconds; null before the first was whole."""


class ExportedEvent(Closed):
    """A row of albor runs export --what events: something that happened to one run. JSON lines are
    such objects, the columns of CSV and Parquet have these names and this order; rows are ordered
    by run and time.
    """

    run: str
    """The run's id."""
    experiment: str
    wall: float | None
    """UTC seconds."""
    step: int | None
    attempt: int | None
    name: str
    """Such as checkpoint.saved: docs/reference/events.md."""
    severity: str
    source: str
    """Which file of the run tells of it."""
    data: dict[str, Any]
    """CSV and Parquet: JSON text."""


class RunsExportDocument(TypedDict):
    """What was exported of runs, and where it was written; each row has these columns."""

    schema: Literal["albor.runs.export/1"]
    path: str
    format: Literal["jsonl", "csv", "parquet", "otlp"]
    what: Literal["points", "runs", "params", "events", "media", "spans"]
    runs: list[str]
    columns: list[str]
    rows: int


class ExportedMedia(Closed):
    """A row of albor runs export --what media: one picture, table, sound, text or file of one run.
    JSON lines are such objects, the columns of CSV and Parquet have these names and this order;
    rows are ordered by run and as they were recorded.
    """

    run: str
    """The run's id."""
    experiment: str
    key: str
    step: int | None
    kind: str
    """image, histogram, table, audio, text, figure or artifact."""
    hash: str
    """BLAKE3 of the content."""
    bytes: int | None
    name: str
    """Of an artefact."""
    version: int | None
    """Of an artefact."""
    caption: str
    path: str | None
    """Where its file lies; null where it has none, or that was removed."""
    wall: float | None
    """UTC seconds."""
    meta: dict[str, Any]
    """CSV and Parquet: JSON text."""


class ExportedParam(Closed):
    """A row of albor runs export --what params: one param of one run. JSON lines are such objects,
    the columns of CSV and Parquet have these names and this order.
    """

    run: str
    """The run's id."""
    experiment: str
    key: str
    """Dotted, such as optimizer.lr."""
    value: Scalar
    """As recorded. CSV and Parquet: a text as it is, anything else as JSON text."""
    number: float | NotFinite | None
    """The value where that is a number. Parquet: double."""


class ExportedPoint(Closed):
    """A row of albor runs export: one point of one series. JSON lines are such objects, the columns
    of CSV and Parquet have these names and this order. Rows are ordered by run (as given), key and
    step; every step is there once, rewinds applied.
    """

    run: str
    """The run's id. Parquet: string."""
    experiment: str
    """Parquet: string."""
    key: str
    """Name of the metric, such as train/loss. Parquet: string."""
    step: int | None
    """Optimizer step; of figures of the machine, which are seen by the second, the one where the
    run was then: there a step may have several rows. Null, in CSV empty, for those of a run that
    logged no step. Parquet: int64.
    """
    wall: float | None
    """UTC seconds when the step was logged; null, in CSV empty, where unknown. Parquet: double."""
    value: float | NotFinite
    """NaN and Inf are data: in Parquet as such, in CSV nan, inf, -inf, in JSON the texts. Parquet:
    double.
    """


class ExportedRun(Closed):
    """A row of albor runs export --what runs: one run. JSON lines are such objects, the columns of
    CSV and Parquet have these names; the order is that of the runs. What is unknown is null, in CSV
    empty.
    """

    id: str
    name: str
    experiment: str
    kind: str
    status: str
    """What it does now: a word of docs/reference/events.md."""
    created: float | None
    """UTC seconds."""
    ended: float | None
    """UTC seconds."""
    attempts: int | None
    step: int | None
    """The last one."""
    max_steps: int | None
    host: str | None
    seed: int | None
    commit: str | None
    tags: list[str]
    """Parquet: list of string; CSV: JSON text."""
    path: str


class Leftover(TypedDict):
    path: str
    bytes: int
    why: str


class RunsGcDocument(TypedDict):
    """Leftovers that were removed or, in a dry run, would be."""

    schema: Literal["albor.runs.gc/1"]
    dry_run: bool
    items: list[Leftover]
    bytes: int


class ImportExample(TypedDict):
    metric: str
    step: int | None
    value: str | float | None


class ImportedHistory(TypedDict):
    run: str
    source: Annotated[str, keywords(enum="albor_core.integrations.importers.find:SOURCES")]
    """The kind of history."""
    origin: str
    """The file or folder it came from."""
    name: str
    experiment: str
    path: str
    """The run directory."""
    change: Literal["new", "extended", "replaced", "unchanged", "here"]
    """What this import did to the run; `here`: this home has the run itself."""
    status: StatusName
    points: int
    """Values read, repeated ones included."""
    last_step: int | None
    keys: int
    media: int
    """Pictures, histograms, tables, texts and the like that were kept."""
    damaged: int
    """Records whose bytes are not what was written; they were skipped."""
    unmapped: dict[str, int]
    """What did not come as it was, by kind: has no place here; `replaced` by a later value of its
    step; `taken back` by the source; of `no step`, and numbered by order.
    """
    odd: dict[str, int]
    """Values and steps treated as the tracker treats odd ones, by kind."""
    examples: dict[str, ImportExample]
    """The first value of a kind that `unmapped`, `odd` or `damaged` counts, where it is known: a
    text if it is not a number.
    """


class TransferProblem(TypedDict):
    path: str
    message: str


class RunsImportDocument(TypedDict):
    """History of other trackers, or runs from another folder, that were brought in."""

    schema: Literal["albor.runs.import/1"]
    runs: list[ImportedHistory]
    problems: list[TransferProblem]
    """What looked like history and could not be read; the exit code is 7 then."""


class MovedRun(TypedDict):
    run: str
    old: str
    path: str
    bytes: int
    copied: bool
    """Across file systems: copied, compared, removed."""
    indexed: bool
    """Whether both stores know the new place already."""


class RunsMoveDocument(TypedDict):
    """Runs that lie elsewhere from now on."""

    schema: Literal["albor.runs.mv/1"]
    moved: list[MovedRun]


class RunsPlotDocument(TypedDict):
    """Where the plot of a metric was written, and of which runs it is."""

    schema: Literal["albor.runs.plot/1"]
    path: str
    format: Literal["svg", "png"]
    metric: str
    """The metric's whole name."""
    x: Literal["step", "tokens", "wall"]
    log: bool
    """Whether the values are on a logarithmic axis."""
    runs: list[str]
    left_out: list[str]
    """Runs of the filter that do not have the metric."""


class CopiedRun(TypedDict):
    run: str
    """Its id in this home: its own, or ID@HOST where another run has that."""
    own_id: str
    host: str
    name: str
    path: str
    """The folder of the copy."""
    change: Literal["new", "updated", "unchanged", "here"]
    """`here`: this home has the run itself, and nothing was done."""
    status: str
    """Empty where it was not copied yet."""
    files: int
    """Files that were new or had changed."""
    bytes: int
    """Their size; rsync sends only what differs."""


class RunsPullDocument(TypedDict):
    """Runs of another host that were copied into this home."""

    schema: Literal["albor.runs.pull/1"]
    host: str
    folder: str
    """As it was given; empty for the home of the host."""
    by: Literal["rsync", "tar"]
    """What brought the files."""
    dry_run: bool
    """Whether it only says what would be copied."""
    filtered_out: int
    """Runs that the filter left out."""
    skipped: int
    """Runs left out since they are copies of runs of other hosts."""
    runs: list[CopiedRun]
    problems: list[TransferProblem]
    """Runs that could not be copied; the exit code is 1 then."""


class RunRewind(TypedDict):
    at: int
    """Byte of journal.jsonl where the rewind is."""
    metrics: int
    points: int
    first_step: int
    last_step: int
    wall: float | None
    """When the last of them was logged."""


class RunsRestoreDocument(TypedDict):
    """Rewinds of a run that took points back, and whether these count again now."""

    schema: Literal["albor.runs.restore/1"]
    run: str
    is_restored: bool
    """False with --list, which changes nothing."""
    rewinds: list[RunRewind]
    left: int
    """Rewinds that still have something taken back."""


class RemovedRun(TypedDict):
    run: str
    path: str | None
    bytes: int
    history_kept: bool


class RunsRemoveDocument(TypedDict):
    """Runs that were removed; path is null where only rows were left."""

    schema: Literal["albor.runs.rm/1"]
    removed: list[RemovedRun]


# A row of an export does not name its schema.
ROWS = {
    "albor.runs.export.events": ExportedEvent,
    "albor.runs.export.media": ExportedMedia,
    "albor.runs.export.params": ExportedParam,
    "albor.runs.export.row": ExportedPoint,
    "albor.runs.export.runs": Annotated[
        ExportedRun,
        keywords(
            patternProperties={
                "^params[.]": {
                    "type": ["string", "number", "boolean", "null"],
                    "description": "A param, as recorded. Parquet: of the type that all runs have, "
                    "else string.",
                },
                "^metrics[.]": {
                    "anyOf": [{"type": ["number", "null"]}, {"enum": ["nan", "inf", "-inf"]}],
                    "description": "The last value of a metric. Parquet: double.",
                },
            }
        ),
    ],
}
