"""Which way a metric is better: by what a run declared, or by its name; None where neither says.

Names are read in whole words (`val/top5_error`, `evalLoss`, `Accuracy/val`), the last part of a
path first. What ends the name has to be in a table (known/direction_tables.py), and no word beside
it may turn it (`accuracy_gap`, `loss_recovered`, `rewards/rejected`): all other names have no
direction, so that nothing is called best by a guess. The same words say what a metric is about: the
model, or what training it costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

from albor_core.run.errors import UsageError
from albor_core.run.headlines import HEADLINES, HOUSE_NAMES
from albor_core.run.values.known.direction_tables import (
    BEHIND,
    COSTS,
    COUNTS,
    KNOWN,
    LOOSE,
    LOSS_OF,
    NEUTRAL,
    OF_SAMPLES,
    OPERATIONS,
    SIZED,
    SPEEDS,
    TOTALS,
    TURNS,
    TURNS_OF,
    UNITS,
    WORK,
    word_set,
)
from albor_core.run.values.metrics import MAX_KEY_CHARS

Direction = Literal["min", "max"]
Goals = Mapping[str, Direction]


_COSTS = (COSTS | UNITS) - {"s"}  # an s alone may be anything
_REWARDS = word_set("reward rewards rew return returns")
_FAST = SPEEDS | {one.name for one in HEADLINES if one.better == "max"}
_BY_HEADLINE = {one.key: one.better for one in HEADLINES if one.better}
_WHOLE_LOSS = word_set("""
    loss losses train training val valid validation eval evaluation dev test step epoch batch total
    all overall mean avg average ema running smooth smoothed metrics charts model global
""")
_VALIDATION = word_set("""
    val valid validation validate eval evaluation evaluate dev test testing heldout holdout
""")
# what grows with every step whatever is trained, or is set by a user
_COUNTERS = word_set("""
    step steps epoch epochs iter iters iteration iterations timestep timesteps batch batches update
    updates episodes rollouts samples tokens examples time wall timestamp datetime id seed rank
    lr momentum beta betas decay progress percent count num total
""")
_MACHINE = ("brick", "gpu", "host", "perf", "program", "system", "time", "timing", "optim")
_MEASURED = re.compile(r"(?:brick|gpu[0-9]*|host|program)/")  # by whoever watches a run
_MACHINE_PART = re.compile(rf"(?:{'|'.join(_MACHINE)})[0-9]*\Z")

_TIMES = word_set("s sec secs second seconds min minute minutes h hour hours day")
_SETTINGS = frozenset(one.key for one in HEADLINES if one.better is None)
_WORD = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")
_OTHER: Mapping[str, Direction] = {"min": "max", "max": "min"}
_AT = word_set(
    "pass maj hit hits success r p acc top ar rr"
)  # these say something only before "at K"
_OF_TASKS = word_set("pass maj hit hits")  # that of any benchmark: humaneval/pass@1
_OF_SET = re.compile(r"[/_.]?dataloader_idx_[0-9]+$")  # which of several sets, PyTorch Lightning
_FILTER = re.compile(r"(?<=.),[a-z][a-z_-]*$")  # how answers were cut, lm-evaluation-harness
_RATE = re.compile(r"([a-z]+)/(s|secs?|seconds?|min|minute|h|hour)$", re.IGNORECASE)
_PACE = re.compile(r"(s|secs?|seconds?|ms)/(it|iter|iteration|step|batch|epoch|token|sample)$")
_PART = re.compile(r"[/:]|(?<=\w)\.(?=[a-zA-Z_])")  # val/loss, decode.loss_ce, but mAP 0.5
_FROM_ONE = re.compile(rf"(?:^|(?<=/))1(?:\.0)?\s*-\s*(?!(?:{SIZED})\b)(?=[a-z])", re.IGNORECASE)
_SUM = re.compile(  # a minus before a name, a number less a name, a number by a name at the start
    rf"[#*\u2212]|\^\(?-|(?:^|[/(\s,]|[0-9]%)-\s*[a-z(]|^10*(?:\.0*)?\s*/"
    rf"|(?:^|[/(\s])[0-9.]+\s*-\s*(?!(?:{SIZED})\b)[a-z(]",
    re.IGNORECASE,
)
_RED_TEAM = re.compile(r"red[_ -]?team", re.IGNORECASE)
_NEG = (["neg"], ["negative"], ["minus"])
_BOUNDS = word_set("elbo loglikelihood likelihood loglik logprob")


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


@lru_cache(maxsize=4096)
def is_whole_loss(metric: str) -> bool:
    """Whether it is the loss of the run and no part of it: Loss/train, val_loss_epoch."""
    words = _all_words(metric)
    return "loss" in words and words <= _WHOLE_LOSS


@lru_cache(maxsize=4096)
def is_speed(metric: str) -> bool:
    """Whether it says how fast a program works: tokens_per_s, it/s, time/fps."""
    if is_of_machine(metric) or not _VALIDATION.isdisjoint(_all_words(metric)):
        return False
    last = _RATE.sub(r"\1 per \2", metric).rpartition("/")[2]
    return is_background(last) and direction(last) == "max"


def is_of_machine(metric: str) -> bool:
    """Whether it is measured of the machine beside a run, also where its program logs nothing."""
    return _MEASURED.match(metric) is not None


def unknown_direction(metric: str) -> str:
    """A hint for a metric without a known direction."""
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
    """The goals in `found`, from a file that may hold anything. Raises nothing."""
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
    if metric in _BY_HEADLINE:
        return _BY_HEADLINE[metric]
    metric = _RED_TEAM.sub("redteam", _FILTER.sub("", _OF_SET.sub("", metric)))
    if _FROM_ONE.search(metric):
        return "min" if _by_name(_FROM_ONE.sub("", metric)) == "max" else None  # 1-ssim
    if _SUM.search(metric):
        return None  # 100-wer, -mse
    if _PACE.search(metric.lower()):
        return "min" if TURNS.isdisjoint(_all_words(metric)) else None
    metric = _RATE.sub(r"\1 per \2", metric)
    parts = [_words_of(part) for part in _PART.split(metric.replace("@", " at "))]
    parts = [part for part in parts if part]
    if _is_count(parts):
        return None
    while len(parts) > 1 and all(_is_plain(word, BEHIND) for word in parts[-1]):
        parts.pop()  # reward/mean, Accuracy/val
    if not parts:
        return None
    before = [word for part in parts[:-1] for word in part]
    return _of_words(before, parts[-1])


def _words_of(part: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(part)]


def _is_count(parts: list[list[str]]) -> bool:
    """Whether it says how many there are of what it names: n_loss, eval/loss/n, acc_samples."""
    words = [word for part in parts for word in part]
    if not words or "at" in words:
        return False
    if words[-1] in ("total", "sum", "samples"):
        return (OF_SAMPLES if words[-1] == "samples" else TOTALS).isdisjoint(words)
    return words[-1] in COUNTS or (len(parts[-1]) > 1 and parts[-1][0] in ("n", "nr"))


def _is_plain(word: str, plain: frozenset[str]) -> bool:
    return word.isdigit() or word in plain


def _of_words(before: list[str], words: list[str]) -> Direction | None:
    """The direction of a path's last part; `before` are the words of the parts before it."""
    if words[0] == "1" and "".join(words[1:]) in KNOWN:
        return None  # 1_ssim
    if "at" in words[1:]:
        words = words[: words.index("at")]
        if words[-1] in _AT:
            return _at_rank(before, words)
    if (cost := _of_cost(before + words)) is not None:
        return None if cost == "none" else cost
    if words[0] in ("loss", "losses") and all(_is_plain(word, LOSS_OF) for word in words[1:]):
        return "min" if TURNS.isdisjoint(before) else None  # loss_rpn_cls
    return _of_head(before, words)


def _at_rank(before: list[str], words: list[str]) -> Direction | None:
    """The direction of a figure over the first few answers: pass@1."""
    if words[-1] in _OF_TASKS:
        return "max" if (TURNS | TURNS_OF["passrate"]).isdisjoint(before + words) else None
    return "max" if all(_is_plain(word, NEUTRAL) for word in before + words[:-1]) else None


def _of_head(before: list[str], words: list[str]) -> Direction | None:
    """The direction of the longest known name that the words end in."""
    for end in range(len(words), len(_shortened(words)) - 1, -1):  # inception score, mean
        whole = words[:end]
        for start in range(len(whole)):
            name = "".join(whole[start:])
            if KNOWN.keys().isdisjoint(_spellings(name)):
                continue
            if not TURNS_OF.get(name, frozenset()).isdisjoint(before + whole[:start]):
                return None
            is_loose = len(whole) - start > 1 or not LOOSE.isdisjoint(_spellings(name))
            return _unless_turned(name, before, whole[:start], is_loose=is_loose)
    return None


def _spellings(name: str) -> tuple[str, str]:
    """f1; map50, map"""
    return name, name.rstrip("0123456789")


def _shortened(words: list[str]) -> list[str]:
    """The words without those that only name the data or the kind of mean."""
    end = len(words)
    while end > 1 and _is_plain(words[end - 1], BEHIND):
        end -= 1
    return words[:end]


def _unless_turned(
    name: str, before: list[str], beside: list[str], *, is_loose: bool
) -> Direction | None:
    way = next(KNOWN[one] for one in _spellings(name) if one in KNOWN)
    is_turned = beside[-1:] == ["neg"] and way == "min" and is_loose  # sklearn's scorers
    if is_turned or (beside[-1:] in _NEG and name in _BOUNDS):
        way, beside = _OTHER[way], beside[:-1]
    others = before + beside
    if any(word in TURNS or word in _COSTS - {"ms"} for word in others):
        return None
    if any(KNOWN.get(word, way) != way for word in others):
        return None  # both classes at once
    if is_loose or all(_is_plain(word, NEUTRAL) or word in KNOWN for word in beside):
        return way
    return None


def _of_cost(words: list[str]) -> Literal["min", "max", "none"] | None:
    """The direction of a speed or of a cost; "none" for a rate that does not measure work."""
    turned = not TURNS.isdisjoint(words)
    if "per" in words[1:-1]:
        at = len(words) - 1 - words[::-1].index("per")
        if words[at + 1] in _TIMES:
            return "max" if words[at - 1] in WORK and not turned else "none"
    kept = words[:-1] if words[-1] in UNITS and len(words) > 1 else words
    if kept is words and words[-1] not in COSTS:
        return None
    if turned or any(word in KNOWN for word in kept):
        return "none"
    plain = NEUTRAL | OPERATIONS | COSTS
    return "min" if all(_is_plain(word, plain) for word in kept) else "none"
