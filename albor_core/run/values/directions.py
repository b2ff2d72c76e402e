"""Which way a metric is better: by what a run declared, or by its name; None where neither says.

Names are read in whole words (`val/top5_error`, `evalLoss`, `Accuracy/val`), the last part of a
path first. A name that no table knows has no direction: nothing is called best by a guess. The same
words say what a metric is about: the model, or what training it costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

from albor_core.run.errors import UsageError
from albor_core.run.headlines import HEADLINES, HOUSE_NAMES
from albor_core.run.values.metrics import MAX_KEY_CHARS

Direction = Literal["min", "max"]
Goals = Mapping[str, Direction]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOWER = _words("""
    loss losses logloss nll ce bce xent crossentropy ppl perplexity bpb bpc bpw deviance
    mse mae rmse msle rmsle nrmse mape smape mase mdae error errors err epe ade fde brier crps
    wer cer eer ter hter fpr fnr far frr ece mce regret cost penalty hamming hausdorff chamfer
    fid kid fvd kl kld jsd divergence wasserstein emd distance lpips levenshtein
""")
_COSTS = _words("""
    latency runtime walltime seconds secs sec duration time elapsed ms us ns
    memory mem bytes kib mib gib kb mb gb rss vram
""")
_SPEEDS = _words("mfu hfu throughput tps qps fps sps")
_REWARDS = _words("reward rewards rew return returns")
_HIGHER = (
    _words("""
    acc accuracy accuracies top1 top5 f1 f2 fbeta precision recall sensitivity specificity tpr tnr
    auc auroc rocauc auprc aupr prauc ap map ndcg mrr hits bleu sacrebleu rouge rouge1 rouge2 rougel
    rougelsum meteor chrf cider spice bertscore comet em score scores
    win winrate success elo sharpe iou miou dice jaccard r2 psnr ssim
    msssim pesq stoi kappa mcc pearson spearman kendall correlation similarity likelihood elbo
""")
    | _REWARDS
)
_FAST = _SPEEDS | {one.name for one in HEADLINES if one.better == "max"}
_PHRASES: Mapping[tuple[str, str], Direction] = {
    ("cross", "entropy"): "min",
    ("bits", "per"): "min",
    ("exact", "match"): "max",
    ("pass", "at"): "max",
    ("solve", "rate"): "max",
    ("hit", "rate"): "max",
    ("explained", "variance"): "max",
}
_VALIDATION = _words("""
    val valid validation validate eval evaluation evaluate dev test testing heldout holdout
""")
# what goes on with every step whatever is trained, or is set by somebody
_COUNTERS = _words("""
    step steps epoch epochs iter iters iteration iterations timestep timesteps batch batches update
    updates episodes rollouts samples tokens examples time wall timestamp datetime id seed rank
    lr momentum beta betas decay progress percent count num total
""")
_MACHINE = ("brick", "gpu", "host", "perf", "program", "system", "time", "timing", "optim")
_MEASURED = re.compile(r"(?:brick|gpu[0-9]*|host|program)/")  # by whoever watches a run
_MACHINE_PART = re.compile(rf"(?:{'|'.join(_MACHINE)})[0-9]*\Z")

# what is said about a figure, and turns it into another one that nobody wants large or small
_ABOUT = _words("""
    scale weight weights coef coeff coefficient factor target threshold limit budget std stdev var
    variance stderr id index step steps
""")
_NEGATIONS = _words("neg negative minus")
_TIMES = _words("s sec secs second seconds min minute minutes h hour hours day")
_SETTINGS = frozenset(one.key for one in HEADLINES if one.better is None)
_WORD = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")
_OTHER: Mapping[str, Direction] = {"min": "max", "max": "min"}


def direction(metric: str, goals: Goals | None = None) -> Direction | None:
    """`min` or `max`; `goals` win over what the name says."""
    if goals and (declared := goals.get(metric)) is not None:
        return declared
    return _by_name(metric)


def is_about_model(metric: str) -> bool:
    """Whether the name says how good the model is."""
    return direction(metric) is not None and not is_background(metric)


def is_validation(metric: str) -> bool:
    """Whether it is measured on data that the model is not trained on."""
    return not is_background(metric) and not _VALIDATION.isdisjoint(_all_words(metric))


def is_score(metric: str) -> bool:
    """Whether an evaluation of a checkpoint found it: eval/TASK/SCORE."""
    return metric.startswith("eval/") and metric.count("/") > 1


def is_reward(metric: str) -> bool:
    """Whether it is what a learner from rewards is judged by."""
    return is_about_model(metric) and not _REWARDS.isdisjoint(_all_words(metric))


@lru_cache(maxsize=4096)
def is_background(metric: str) -> bool:
    """Whether it is of the machine, the clock or the settings: what is looked at for its own sake
    last, and grows with every run.
    """
    first, _, rest = metric.lower().partition("/")
    if rest and _MACHINE_PART.fullmatch(first):
        return True
    words = [word.lower() for word in _WORD.findall(metric.rpartition("/")[2])]
    if not words or words[-1] in _COUNTERS or metric in _SETTINGS:
        return True
    pairs = {*pairwise(words)}
    if ("learning", "rate") in pairs or any(a == "per" and b in _TIMES for a, b in pairs):
        return True
    return not (_COSTS | _FAST | {"lr"}).isdisjoint(words)


def is_of_machine(metric: str) -> bool:
    """Whether it is measured of the machine beside a run, also where its program logs nothing."""
    return _MEASURED.match(metric) is not None


def unknown_direction(metric: str) -> str:
    """What to do about a metric that has none."""
    return f"--goal {metric}:min or {metric}:max; in the script: track.start(goals={{...}})"


def parse_goals(texts: Iterable[str]) -> dict[str, Direction]:
    """`METRIC:min` and `METRIC:max` as people write them. Raises UsageError."""
    found: dict[str, Any] = {}
    for text in texts:
        metric, _, way = text.rpartition(":")
        if not metric or way not in _OTHER:
            raise UsageError(f"{text[:80]!r} is not a goal", hint="--goal wer:min, or acc:max")
        if found.get(metric, way) != way:
            raise UsageError(f"cannot have both goals for {metric!r}: min and max", hint="name one")
        found[metric] = way
    return check_goals(found)


def check_goals(goals: object) -> dict[str, Direction]:
    """Goals of a program, under the names that their metrics are recorded by. Raises UsageError."""
    hint = 'goals={"wer": "min", "accuracy": "max"}'
    if goals is None:
        return {}
    if not isinstance(goals, Mapping):
        raise UsageError(f"goals must be a mapping, not {type(goals).__name__}", hint=hint)
    found: dict[str, Direction] = {}
    for metric, way in goals.items():
        if not isinstance(metric, str) or not 0 < len(metric.strip()) <= MAX_KEY_CHARS:
            raise UsageError(f"goals: {str(metric)[:80]!r} cannot name a metric", hint=hint)
        if way not in ("min", "max"):
            raise UsageError(
                f"goals: {str(way)[:80]!r} for {metric[:80]!r} is not a direction", hint=hint
            )
        name = metric.strip()
        found[HOUSE_NAMES.get(name, name)] = way
    return found


def recorded_goals(found: object) -> dict[str, Direction]:
    """What of `found` is a goal: of a file that may hold anything. Raises nothing."""
    if not isinstance(found, Mapping):
        return {}
    return {
        key: way
        for key, way in found.items()
        if isinstance(key, str) and 0 < len(key) <= MAX_KEY_CHARS and way in ("min", "max")
    }


def _all_words(metric: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(metric))


@lru_cache(maxsize=4096)
def _by_name(metric: str) -> Direction | None:
    for part in reversed(metric.split("/")):
        words = [word.lower() for word in _WORD.findall(part)]
        if not words:
            continue
        is_known = words[-2:-1] == ["per"] or tuple(words[-2:]) in _PHRASES
        if words[-1] in _ABOUT and not is_known:
            return None
        found = _of_words(words, part.lower())
        if found is not None:
            return _OTHER[found] if _NEGATIONS.intersection(words) else found
    return None


def _of_words(words: list[str], part: str) -> Direction | None:
    pairs = list(pairwise(words))
    if any(first == "per" and second in _TIMES for first, second in pairs):
        return "max"  # a rate: tokens_per_s
    if len(words) > 1 and words[-1] == "s":
        return "min"  # eval_s
    known = {*words, *(word.rstrip("0123456789") for word in words), re.sub(r"[^a-z0-9]", "", part)}
    if known & (_LOWER | _COSTS):
        return "min"
    if known & (_HIGHER | _FAST) or "pass" in words[:-1]:
        return "max"
    return next((_PHRASES[pair] for pair in pairs if pair in _PHRASES), None)
