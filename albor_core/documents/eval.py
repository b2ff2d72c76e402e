"""Documents of evaluations, their comparisons and what raters say."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from albor_core.documents.shapes import Closed, Count, Positive, Share, TaskKind, keywords


class ComparedEvaluation(Closed):
    name: str
    weights: str
    run: str | None
    step: int | None
    path: str


class ComparedFigure(Closed):
    figure: str
    better: Literal["min", "max"]
    n: Count
    """items that both have"""
    only_in_a: Count
    only_in_b: Count
    a: float
    b: float
    difference: float
    """B minus A; low and high bound it with 95 %, by bootstrap over items; null for one item"""
    low: float | None
    high: float | None
    a_higher: Count
    b_higher: Count
    method: Literal["mcnemar", "sign-flip", "sign-flip sampled"]
    p: Share
    p_adjusted: Share
    """Holm, over the figures of this document"""
    most_differing: float | None
    """where no item differs: the share that may all the same, exactly (95 %)"""
    can_show: bool
    """whether so many items could show a difference, were all of them for one side"""
    verdict: Literal["better", "worse", "indistinguishable"]
    """of B against A, at the 5 % level"""


class OtherDifference(Closed):
    where: str
    field: str
    a: Any
    b: Any


class EvalCompareDocument(Closed):
    """Two kept evaluations, item by item: figures of tasks that both have, and whether what B gains
    over A could be chance.
    """

    schema: Literal["albor.eval.compare/1"]
    a: ComparedEvaluation
    b: ComparedEvaluation
    level: float
    seed: Count
    figures: list[ComparedFigure]
    other: list[OtherDifference]
    """what else differs between the two: settings, and fields of tasks but for their data"""


_CorrelatedPointWith = TypedDict("_CorrelatedPointWith", {"with": float})


class CorrelatedPoint(_CorrelatedPointWith, Closed):
    step: int
    value: float


class CorrelatedScore(Closed):
    score: str
    n: Count
    spearman: float | None
    """null where one of the two does not move"""
    spearman_p: Share | None
    pearson: float | None
    pearson_p: Share | None
    least_p: Share
    """the smallest p that so few points can give"""
    points: list[CorrelatedPoint]


_EvalCorrelateWith = TypedDict(
    "_EvalCorrelateWith", {"with": Annotated[str, keywords(description="the metric")]}
)


class EvalCorrelateDocument(_EvalCorrelateWith, Closed):
    """Scores of a run's checkpoints held against one of its metrics."""

    schema: Literal["albor.eval.correlate/1"]
    run: str
    scores: list[CorrelatedScore]


class ScoredModel(Closed):
    path: str
    name: str
    weights: Annotated[str, keywords(pattern="^[0-9a-f]{64}$")]
    parameters: Count
    run: str | None
    step: Count | None


class TaskFacts(TypedDict):
    batch_size: Positive
    dtype: Literal["fp64", "fp32", "bf16", "fp16"]
    device: Literal["cpu", "cuda"]
    backend: str
    path: NotRequired[Literal["fused", "plain"] | None]
    path_reason: NotRequired[str | None]


class EvalSettings(TaskFacts, Closed):
    pass


class TaskScore(Closed):
    name: str
    value: float | None
    better: Literal["min", "max"]
    n: Count
    stderr: float | None
    low: float | None
    high: float | None


class TaskChoice(TypedDict):
    kind: TaskKind
    name: str
    data: str
    limit: Count | None


class EvaluatedTask(Closed):
    task: str
    kind: TaskKind
    scores: list[TaskScore]
    items: str
    seconds: float
    facts: TaskFacts
    section: TaskChoice


class EvalDocument(Closed):
    """One evaluation of a model: how it was asked, and the scores of each task. Kept as
    result.json; the items of a task are in the file that `items` names beside it.
    """

    schema: Literal["albor.eval/1"]
    id: Annotated[str, keywords(pattern="^[0-9a-f]{16}$")]
    created: float
    seconds: float
    model: ScoredModel
    settings: EvalSettings
    tasks: list[EvaluatedTask]
    lineage: NotRequired[
        Annotated[dict[str, Any], keywords(required=["inputs", "argv", "seed", "versions"])]
    ]
    """From what it was made: inputs by BLAKE3, argv, seeds, versions. Not in results of earlier
    versions.
    """


class PairKey(Closed):
    item: str
    left: Literal["a", "b"]


class EvalKeyDocument(Closed):
    """Which side of each pair of a sheet is whose: a file beside the sheet, for whoever reads what
    raters said.
    """

    schema: Literal["albor.eval.key/1"]
    a: str
    b: str
    seed: Count
    pairs: dict[str, PairKey]


class AskedSettings(Closed):
    batch_size: Positive
    dtype: Literal["auto", "fp64", "fp32", "bf16", "fp16"]
    device: Literal["auto", "cpu", "cuda"]


class PlannedTask(Closed):
    task: str
    kind: TaskKind
    data: str
    items: Count
    tokens: Count


class EvalPlanDocument(Closed):
    """What an evaluation would take. Tokens are estimated where counting would take long, seconds
    always; null where the device's rate is not known.
    """

    schema: Literal["albor.eval.plan/1"]
    model: str
    run: str | None
    step: Count | None
    ok: Literal[True]
    settings: AskedSettings
    tasks: list[PlannedTask]
    items: Count
    tokens: Count
    seconds: float | None
    assumption: str


class EvalRatingsDocument(Closed):
    """What raters said of pairs: how often B won, and how far they agree."""

    schema: Literal["albor.eval.ratings/1"]
    a: str
    b: str
    raters: Count
    judged: Count
    left_open: Count
    a_wins: Count
    b_wins: Count
    ties: Count
    win_rate: Share
    """of B, ties as a half, each item once"""
    low: Share
    high: Share
    p: Share
    """exact sign test over items"""
    items: Count
    agreement: float | None
    """Krippendorff's alpha between raters; null of one alone"""
    same_again: Share | None
    """of pairs shown twice, the share judged alike"""
    left_share: Share | None
    """how often the left side won where one did"""
    verdict: Literal["better", "worse", "indistinguishable"]
    """of B against A, by the sign test at the 5 % level"""


class EvalSheetDocument(Closed):
    """A sheet of pairs for people to judge, as it was written."""

    schema: Literal["albor.eval.sheet/1"]
    sheet: str
    key: str
    task: str
    pairs: Count
    rows: Count
    """pairs, and those that come twice"""
    alike: Count
    """items left out, of which both wrote the same"""
    seed: Count


class FailedTask(Closed):
    task: str
    outcome: Literal["failed", "error", "timeout", "memory", "processes", "output", "disk"]
    detail: str


class SandboxFacts(Closed):
    processes: str
    network: str
    files: str
    calls: str
    user: str


class EvalValidateDocument(TypedDict):
    """Code tasks whose own solutions were run against their tests, and by what programs
    were kept in.
    """

    schema: Literal["albor.eval.validate/1"]
    data: str
    tasks: int
    """those that have a solution"""
    passed: int
    failed: list[FailedTask]
    sandbox: SandboxFacts
