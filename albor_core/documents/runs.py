"""Documents of runs as the store lists and shows them, and of what people say about them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from albor_core.documents.alerts import AttentionFields, StoredAlert
from albor_core.documents.shapes import Closed, RunPlace, Scalar, Severity, StatusName


class MetricSummary(TypedDict):
    name: str
    last: float | None
    """The value that stands for it; null is unknown or not finite."""
    better: Literal["min", "max"] | None
    """Which way it is better."""
    is_pinned: bool
    """A person chose it."""
    stat: Literal["last", "min", "max"]
    """Which of its values `last` is, as the program chose."""


class AttemptFields(TypedDict):
    attempt: int | None
    started: float | None
    ended: float | None
    code: int | None
    signal: Any
    action: str | None
    reason: str | None
    step: int | None
    report: str | None


class HeadlineFields(TypedDict):
    id: str
    name: str
    experiment: str
    kind: str
    created: float | None
    path: str
    host: str | None
    seed: int | None
    ended_wall: float | None
    max_steps: int | None
    loss: float | None
    val_loss: float | None
    val_ppl: float | None
    val_bpb: float | None
    best_val_loss: float | None
    tokens_per_s: float | None
    mfu: Any
    last_wall: float | None
    alerts_open: int | None
    tags: list[Any]


class RunRowFields(HeadlineFields):
    git_commit: Any
    git_dirty: Any
    ended_status: str | None
    ended_reason: str | None
    attempts: int | None
    last_step: int | None
    tokens: float | None
    first_wall: float | None
    pinned: bool | None


class MetricFigures(TypedDict):
    last: float | None
    best: float | None
    best_step: int | None
    minimum: float | None
    maximum: float | None
    count: int | None
    first_step: int | None
    last_step: int | None
    nonfinite: int | None


class RunsDigestDocument(TypedDict):
    """Step and hash of the newest checkpoint of a run: of all that decides how it goes on."""

    schema: Literal["albor.runs.digest/1"]
    run: str
    step: int
    digest: str


class StandingFields(TypedDict):
    status: str
    silent_s: float | None
    """For how long a run at work has given no news, where that is ten times what its steps take and
    at least 30 s; null otherwise.
    """
    parent: str | None
    """The run whose checkpoint this one began from."""
    lines_lost: int
    """Lines that its program logged and no disk took."""


class ListedRun(RunRowFields, StandingFields):
    metrics: list[MetricSummary]
    """The metrics that stand for the run, at most four or all that are pinned, the first one first:
    pinned, with a goal, the house's losses, of other data, what moves most.
    """
    duration_s: float | None
    """From its beginning to its end, to now, or to its last news; of an import, between
    its values.
    """
    values: dict[str, Scalar]
    """The metric and param columns asked for, by name; null is unknown or not finite."""
    unindexed_bytes: int
    """Bytes of its journal that are not in the store: what is shown may be a part of what
    it wrote.
    """


class RunsListGroupBand(TypedDict):
    n: int
    nonfinite: int
    mean: float | None
    std: float | None
    minimum: float | None
    maximum: float | None


class RunsListGroup(TypedDict):
    key: str
    experiment: str
    name: str
    runs: list[str]
    """Those that bands and seeds are of."""
    ranks: list[str]
    """Runs of other ranks of the same jobs, or before a restart of one: no seeds, so they count in
    no band.
    """
    seeds: list[int]
    created: float | None
    pinned: bool
    bands: dict[str, RunsListGroupBand]


class RunsValueGroup(TypedDict):
    """The runs of one value. Numbers are one value however they were written, 1e-3 and 0.001."""

    label: str
    """The value as text, lists as JSON; "missing" of the runs that have none."""
    values: list[Scalar]
    """The value as the runs recorded it, once each way."""
    runs: list[str]
    """Those that the bands are of."""
    ranks: list[str]
    """Runs of other ranks of the same jobs, or before a restart of one: they count in no band."""
    state: StatusName
    """The worst of its runs."""
    states: dict[str, int]
    """How many of its runs, ranks among them, have each status."""
    bands: dict[str, RunsListGroupBand]
    """Of the columns that are numbers, and of what stands for most of the runs."""
    texts: dict[str, list[str]]
    """Of the other columns, what its runs have, each once."""


class RunsGroupedBy(TypedDict):
    key: str
    metric: str | None
    """What stands for most of the runs; null where they log nothing."""
    total: int
    """How many groups there are; at most --limit of them are given."""
    groups: list[RunsValueGroup]


class RunsListDocument(TypedDict):
    """The run table: the runs a filter keeps, pinned ones first, then in the order asked for. With
    --group or --group-by also the groups, and runs are their members.
    """

    schema: Literal["albor.runs.ls/1"]
    runs: list[ListedRun]
    total: int
    """How many runs the filter keeps; at most --limit of them are given."""
    groups: NotRequired[list[RunsListGroup]]
    """Runs of one experiment whose params are equal but for seed, name and output folder."""
    grouped_by: NotRequired[RunsGroupedBy]
    """With --group-by: runs by their value of a param, a metric or a column."""


class NoteNow(Closed):
    number: int
    """What --replace and --remove take; it stays when other notes go."""
    wall: float
    by: str
    text: str


class RunsNoteDocument(TypedDict):
    """A note beside a run as it reads now; null where it was taken back."""

    schema: Literal["albor.runs.note/1"]
    run: str
    note: NoteNow | None


class RunsPinDocument(TypedDict):
    """Whether a run is pinned now, and which of its metrics are."""

    schema: Literal["albor.runs.pin/1"]
    run: str
    pinned: bool
    metrics: list[str]


class RunsRenameDocument(TypedDict):
    """A run that was given another name."""

    schema: Literal["albor.runs.rename/1"]
    run: str
    name: str
    also_called: list[str]
    """Other runs that the name means too."""


class SinkItem(Closed):
    name: str
    ok: bool
    why: str
    since: float | None


class EventItem(TypedDict):
    id: str
    run_id: str
    source: str | None
    wall: float | None
    attempt: int | None
    step: int | None
    name: str
    severity: Severity
    data: dict[str, Any] | None


class AttemptItem(AttemptFields):
    pid: int | None
    exit_class: str | None
    delay_s: Any
    diagnostic: bool | None
    adopted: bool | None
    last_wall: float | None


class ArtifactItem(TypedDict):
    name: str
    path: str
    kind: str
    bytes: int | None
    hash: str | None
    step: int | None
    wall: float | None
    is_gone: bool
    """A checkpoint that is no longer in the run's folder: pruned, or removed."""


class MediaItem(Closed):
    key: str
    step: int | None
    kind: Literal["image", "histogram", "table", "audio", "text", "figure", "artifact"]
    hash: str
    """BLAKE3 of its contents; of a folder of its list of files."""
    bytes: int | None
    name: str
    """Of an artefact; its reference is name:vN."""
    version: int | None
    caption: str
    wall: float | None
    meta: dict[str, Any]
    """format, and by kind: width and height, rows and columns, seconds and rate, bins and count,
    role, path and files. `data` is the content of a small one, which has no file.
    """
    path: str | None
    """Its file; null where it has none, or where that was removed since (albor runs gc --media)."""


class ArtifactUse(Closed):
    name: str
    version: int
    role: Literal["made", "used"]
    made_by: list[str]
    used_by: list[str]


class NumberedNote(Closed):
    wall: float | None
    by: str
    text: str
    number: int | None
    """What --replace and --remove of `albor runs note` take; null where the run's folder
    is gone.
    """


class PatchFile(Closed):
    name: str
    added: int | None
    removed: int | None


class PatchSummary(Closed):
    files: list[PatchFile]
    """At most 200; lines are null of a binary file."""
    num_files: int
    added: int
    removed: int
    is_cut: bool
    """There was more than is kept."""


class RunCode(Closed):
    commit: str
    is_dirty: bool | None
    patch: PatchSummary | None
    """How much the uncommitted changes of tracked files are; `albor runs show RUN --patch` prints
    them.
    """
    patch_path: str
    """The JSON file whose git.patch is the whole patch."""
    untracked: int
    """Files and folders that git does not track."""
    script: str
    script_sha256: str
    script_copy: str
    """Where the script as it was lies, if no commit holds it."""


class RelatedRun(Closed):
    id: str
    name: str
    status: str
    step: int | None
    path: str


class RunRelatives(Closed):
    parent: RelatedRun | None
    children: list[RelatedRun]


class CrashSummary(Closed):
    id: str
    """Of its crash report; "" where there is none and the program said it itself."""
    path: str
    attempt: int | None
    kind: str
    reason: str
    error: str
    hang: str
    excerpt: list[str]
    """The lines that say most: a traceback, stacks, or the end of its output."""


class SentSpans(Closed):
    place: str
    sent: int
    dropped: int
    """Spans that the collector refused."""
    unsent: int
    """Spans that were left when the run ended."""
    why: str
    """What is wrong now, or was at the end."""
    refusal: str
    """Why the last spans that were refused were, in the collector's words."""
    warning: str
    """What the collector last said of spans that it took."""
    wall: float | None


class RunTrace(Closed):
    trace_id: str
    """32 hexadecimal digits; of TRACEPARENT, if it was started in one."""
    span_ids: dict[str, str]
    """16 hexadecimal digits of `run` and of each `attempt N`."""
    sent: SentSpans | None
    """What a collector has got; null where none was asked for."""


class CopyOrigin(TypedDict):
    host: str
    folder: str
    wall: float | None
    """When it last changed."""


class RunsShowDocument(StandingFields):
    """Everything recorded about one run."""

    schema: Literal["albor.runs.show/1"]
    run: RunRowFields
    argv: list[str | None]
    facts: dict[str, Any]
    watched: str
    """Of a run at work: "watched by 3 rules and 1 budget", "not watched"."""
    sinks: list[SinkItem]
    """Where its alerts are sent, and whether the last ones arrived; as the index process
    last said.
    """
    attention: list[AttentionFields]
    """What of it needs a person now, as in albor.attention."""
    params: dict[str, Scalar]
    summary: dict[str, MetricFigures]
    points: dict[str, list[list[float | None]]]
    """[step, value, wall] of each metric in order of steps, at most 2,000 unless --points says
    otherwise; NaN and Inf are null.
    """
    thinned: dict[str, int]
    """The metrics that have more points than `points` shows, and how many they have."""
    events: list[EventItem]
    alerts: list[StoredAlert]
    attempts: list[AttemptItem]
    artifacts: list[ArtifactItem]
    media: list[MediaItem]
    """Pictures, histograms, tables, sound, texts, figures and artefacts, in the order
    they were kept.
    """
    lineage: list[ArtifactUse]
    """The versions of artefacts that it made or used, and all runs of this home that did either."""
    samples: list[Any]
    tags: list[Any]
    notes: list[NumberedNote]
    code: RunCode
    """What it was made of; "" for what is not known."""
    relatives: RunRelatives
    """The run that it began from and the newest 200 that began from it; status is "" where no store
    of this home knows one.
    """
    crashes: list[CrashSummary]
    """How its attempts died, the newest first, at most 20."""
    children: list[str]
    """The runs that began from a checkpoint of this one."""
    cut_short: str
    """What its journal lacks of what a store or its last words know; empty: nothing."""
    console_bytes_lost: int
    """Bytes that its program printed and no log took."""
    trace: RunTrace | None
    """Where the run is found in OpenTelemetry traces; null in a store that is older than that."""
    pulled: CopyOrigin | None
    """Of a copy of a run of another host, or from another folder: where it is from."""


class RunsTagDocument(TypedDict):
    """The tags a run has now."""

    schema: Literal["albor.runs.tag/1"]
    run: str
    tags: list[str]


class JournalRecord(TypedDict):
    t: Literal["m", "e", "a", "b", "s", "r"]
    seq: int
    attempt: int
    wall: float | None
    step: NotRequired[int | None]
    v: NotRequired[dict[str, str | float | None]]
    name: NotRequired[str]
    severity: NotRequired[Severity]
    data: NotRequired[dict[str, Any]]


class RunsTailDocument(TypedDict):
    """The newest records of a run's journal; with --follow one such document per line."""

    schema: Literal["albor.runs.tail/1"]
    run: RunPlace
    records: list[JournalRecord]


class WaitedRun(TypedDict):
    run: str
    outcome: Literal["met", "ended", "andon", "gone", ""]
    condition: str
    value: float | None
    step: int | None
    wall: float | None
    status: StatusName
    detail: str
    host: str
    is_elsewhere: bool
    """Whether it is of another host: only its files can be seen, no process."""


class RunsWaitDocument(TypedDict):
    """How a wait for runs ended: what decided it, and how each run stands."""

    schema: Literal["albor.runs.wait/1"]
    met: bool
    outcome: Literal["met", "ended", "andon", "gone", "timeout"]
    """`ended`: a run ended and can no longer meet it; `andon`: a rule stopped it; `gone`: its
    folder went away.
    """
    condition: str
    """The one of the alternatives that was met; all of them where none was."""
    run: str
    """The last that met it, the first that no longer can, or after the time-out the first that has
    not.
    """
    value: float | None
    """What was logged; of a silence, its seconds."""
    step: int | None
    wall: float | None
    """When it was met, UTC seconds."""
    wakeups: int
    """How often the command woke up."""
    interval_s: float | None
    """How often it looked, where the kernel could not tell it of changes."""
    why_interval: str
    runs: list[WaitedRun]
