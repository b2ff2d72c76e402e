"""Which of two runs is better, by the metric that was asked for, or why that cannot be said.

    better, worse       the interval of the metric that was asked for leaves 0 on one side, or one
                        run ends in NaN or Inf
    indistinguishable   it holds 0, or of several comparisons one is expected not to by chance
                        (Holm); or config, code and command of both are known, and the same
    contradictory       val/loss and train/loss disagree, or val/loss could not be judged and
                        train/loss was taken instead
    none                nothing can be judged, and a reason

The verdict is about the second run as compared with the first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from albor_core.run.values.directions import Goals, direction, unknown_direction
from albor_core.store.diff import facts as diff_facts
from albor_core.store.diff.source import ComparedRun
from albor_core.store.diff.student import holm, quantile
from albor_core.store.diff.verdict import (
    LEVEL,
    OrderedSeries,
    Unjudged,
    Verdict,
    broken_from,
    half_in_errors,
    no_verdict,
    same_run,
    verdict,
)
from albor_core.store.index.earlier_runs import INCIDENTAL

ASKED, INSTEAD = "val/loss", "train/loss"
_PLACES = ("data.train", "data.val", "data.tokenizer")  # of data that have the same hashes
_OPPOSITE = {"better": "worse", "worse": "better"}
_MOST_NAMES = 5


def chosen_metric(sources: Sequence[ComparedRun], chosen: Mapping[str, str]) -> str:
    """What a person chose for the experiment of these runs; of several experiments, the first whose
    metric all runs have, else the first that any has. "" where there is none.
    """
    wanted = dict.fromkeys(chosen.get(source.row.experiment or "", "") for source in sources)
    wide = [key for key in wanted if all(key in source.summary for source in sources)]
    some = [key for key in wanted if any(key in source.summary for source in sources)]
    return next((key for key in (*wide, *some) if key), "")


def default_metric(sources: Sequence[ComparedRun], chosen: Sequence[Sequence[str]]) -> str:
    """What runs are compared by where nothing else is asked for: the first of the metrics `chosen`
    for each run, that stand for it, which all runs have and which has a direction. val/loss where
    one has it and no pin or goal says otherwise. Where none has that and they have none in common,
    the one that stands first for most of them.
    """
    shared = [key for key in chosen[0] if all(key in one for one in chosen[1:])]
    is_first = bool(shared) and all(keys[0] == shared[0] for keys in chosen)
    has_house = any({ASKED, INSTEAD} & {*source.summary} for source in sources)
    if shared and shared[0] not in (ASKED, INSTEAD) and (is_first or not has_house):
        return shared[0]
    if any(ASKED in source.summary for source in sources):
        return ASKED
    if all(INSTEAD in source.summary for source in sources):
        return INSTEAD
    leads = Counter(keys[0] for keys in chosen if keys)
    return leads.most_common(1)[0][0] if leads else ASKED


def corrected(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Verdicts of several runs against the same one: of those that an interval decided, the ones
    stay that Holm's correction leaves, so that as few sets of runs that differ by noise alone have
    a winner as pairs do. The interval of each is as wide as the level that it was held to, so that
    it holds 0 where chance may explain the difference, and only there.
    """
    tested = [index for index, one in enumerate(verdicts) if one.chance is not None]
    if len(tested) < 2:
        return tuple(verdicts)
    tests = holm([verdicts[index].chance or 0.0 for index in tested], LEVEL)
    method, found = f"Holm's correction of {len(tested)} comparisons", [*verdicts]
    for index, (is_clear, level) in zip(tested, tests, strict=True):
        one = found[index]
        found[index] = replace(
            one,
            method=f"{one.method}, {method}",
            interval=_widened(one, level, is_clear=is_clear),
            comparisons=len(tested),
        )
        if one.outcome in _OPPOSITE and not is_clear:
            told = f"alone it would be {one.outcome}, one of {len(tested)} is so by chance"
            detail = f"{one.detail}; {told}"
            found[index] = replace(found[index], outcome="indistinguishable", detail=detail)
    return tuple(found)


def _widened(one: Verdict, level: float, *, is_clear: bool) -> tuple[float, float] | None:
    """The interval of a pair as wide as a stricter level asks for; that of a line, which is held to
    none, as it is.
    """
    if one.interval is None or one.difference is None or one.freedom is None:
        return one.interval
    half = (one.interval[1] - one.interval[0]) / 2
    if level < LEVEL:
        half *= max(1.0, quantile(level, one.freedom) / half_in_errors(one.freedom))
    if not is_clear:
        half = max(half, abs(one.difference))
    return one.difference - half, one.difference + half


def judge(a: ComparedRun, b: ComparedRun, metric: str, goals: Goals, *, is_asked: bool) -> Verdict:
    """`b` as compared with `a`. Where `metric` was not asked for by name, another that says the
    opposite makes the verdict contradictory.
    """
    if a.row.id == b.row.id:
        return same_run()
    found = _on(metric, a, b, goals)
    if metric == ASKED and found.outcome is None and found.reason != "not_finite":
        found = _by_training_loss(a, b, goals, found)
    elif metric == ASKED and found.outcome in _OPPOSITE and not is_asked:
        found = _against_training_loss(a, b, goals, found)
    unknown = tuple(_unknown(a, b))
    if found.outcome is None:
        return replace(found, unknown=unknown)
    if diff_facts.are_ranks(a.facts, b.facts):
        words = f"{found.detail}; they are ranks of one job, not two seeds"
        return replace(found, outcome="indistinguishable", detail=words)
    if found.outcome != "indistinguishable" and (only := _only_chance(a, b, unknown)):
        return replace(found, outcome="indistinguishable", detail=f"{found.detail}; {only}")
    if unknown:
        found = replace(found, unknown=unknown, detail=f"{found.detail}; {_said(unknown)}")
    return found


def _unknown(a: ComparedRun, b: ComparedRun) -> Iterator[str]:
    """Which of config, code and command are not recorded for both runs."""
    if not (a.params and b.params):
        yield "config"
    if not all(diff_facts.is_code_known(s.facts, s.row.kind, s.code) for s in (a, b)):
        yield "code"
    if not all(source.argv or source.row.kind == "train" for source in (a, b)):
        yield "command"


def _said(unknown: Sequence[str]) -> str:
    named = " and ".join((", ".join(unknown[:-1]), unknown[-1])) if unknown[1:] else unknown[0]
    return f"not known whether {named} {'are' if unknown[1:] else 'is'} the same"


def _only_chance(a: ComparedRun, b: ComparedRun, unknown: Sequence[str]) -> str:
    """Why two runs of one recipe have no winner; empty if the recipes differ, or are not known."""
    if unknown or a.code != b.code or a.data != b.data:
        return ""
    incidental = (*INCIDENTAL, *(_PLACES if a.data else ()))
    config = [key for key in {**a.params, **b.params} if a.params.get(key) != b.params.get(key)]
    if not all(key == "seed" or key.startswith(incidental) for key in config):
        return ""
    seeded = False
    if not a.row.kind == b.row.kind == "train":  # whose config is all that its command says
        words = [_without_seed(source.argv) for source in (a, b)]
        if words[0] != words[1]:
            return ""
        seeded = a.argv != b.argv
    seeds = seeded or a.row.seed != b.row.seed or any(key.endswith("seed") for key in config)
    what = "only the seed differs: this is what seeds do" if seeds else "nothing but chance differs"
    return f"same code and config, {what}"


def _without_seed(argv: Iterable[str]) -> list[str]:
    """A command line without the numbers of `--seed N`, `--seed=N` and `seed=N`."""
    found: list[str] = []
    for word in argv:
        name, equals, _ = word.partition("=")
        if equals and name.lstrip("-").endswith("seed"):
            found.append(name)
        elif not (word.isdigit() and found and re.fullmatch("-.*seed", found[-1])):
            found.append(word)
    return found


def _by_training_loss(a: ComparedRun, b: ComparedRun, goals: Goals, found: Verdict) -> Verdict:
    """val/loss cannot be judged: what train/loss says, which is not a verdict on val/loss."""
    instead = _on(INSTEAD, a, b, goals)
    if instead.outcome is None:
        return found
    if found.difference == 0.0 and instead.outcome == "indistinguishable":
        detail = f"{ASKED} is the same in both ({found.detail}); {instead.detail}"
        told = Unjudged(ASKED, found.reason, found.detail)
        return replace(instead, detail=detail, unjudged=told)
    detail = f"{ASKED} cannot be judged ({found.detail}); {INSTEAD} says {instead.outcome}"
    mine, other = (source.summary.get(ASKED) for source in (b, a))
    if mine is not None and other is not None and mine.last is not None and other.last is not None:
        detail += f"; last {ASKED} {other.last:.4g} and {mine.last:.4g}"
        is_lower = mine.last < other.last
        says = "better" if is_lower == (direction(ASKED, goals) == "min") else "worse"
        if instead.outcome == _OPPOSITE[says]:
            detail += " say the opposite"
    return replace(
        instead,
        outcome="contradictory",
        detail=f"{detail}; {instead.detail}",
        unjudged=Unjudged(ASKED, found.reason, found.detail),
    )


def _against_training_loss(a: ComparedRun, b: ComparedRun, goals: Goals, found: Verdict) -> Verdict:
    assert found.outcome is not None
    other = _on(INSTEAD, a, b, goals)
    if other.outcome != _OPPOSITE[found.outcome]:
        return found
    detail = f"{ASKED} says {found.outcome}, {INSTEAD} says {other.outcome}"
    if other.interval is not None:
        low, high = other.interval
        detail += f" ({low:+.4g} to {high:+.4g})"
    detail += f"; {found.detail}; --metric {ASKED} judges by that alone"
    return replace(found, outcome="contradictory", detail=detail)


def _on(key: str, a: ComparedRun, b: ComparedRun, goals: Goals) -> Verdict:
    left, right = a.summary.get(key), b.summary.get(key)
    if left is None or right is None or left.last_step is None or right.last_step is None:
        return no_verdict("no_common_metric", _none_in_common(key, a, b, goals))
    scale_a, scale_b = a.tokens_per_step(), b.tokens_per_step()
    by_tokens = scale_a is not None and scale_b is not None and abs(scale_a / scale_b - 1) > 1e-3
    factor_a, factor_b = (scale_a or 1.0, scale_b or 1.0) if by_tokens else (1.0, 1.0)
    end = min(left.last_step * factor_a, right.last_step * factor_b)
    scaled = ((a, factor_a), (b, factor_b))
    curves = [_tail(key, source, factor, int(end / factor)) for source, factor in scaled]
    goal, unit = direction(key, goals), "token" if by_tokens else "step"
    found = verdict(*curves, goal=goal, unit=unit)
    if found.outcome in (None, "indistinguishable") and found.reason != "not_finite":
        found = _by_ends(key, scaled, unit) or found
    if found.reason == "unknown_direction":
        told = f"nothing says which way {key} is better; next: {unknown_direction(key)}"
        found = replace(found, detail=f"{told}; {found.detail}")
    return replace(found, metric=key)


def _tail(key: str, run: ComparedRun, factor: float, end: int) -> OrderedSeries:
    steps, values = run.tail(key, end)
    return OrderedSeries([step * factor for step in steps], values)


def _by_ends(key: str, ends: Sequence[tuple[ComparedRun, float]], unit: str) -> Verdict | None:
    """If one of two runs ends in NaN or Inf, and the other does not, that one is worse. `ends`:
    each with the `unit`s of a step.
    """
    first, second = (
        broken_from(_tail(key, run, factor, run.summary[key].last_step or 0))
        for run, factor in ends
    )
    if (first is None) == (second is None):
        return None
    which = "it is" if first is None else "the other is"
    detail = f"{which} NaN or Inf from {unit} {second if first is None else first:,.0f} to its end"
    return Verdict("worse" if first is None else "better", None, None, "none", detail)


def _none_in_common(key: str, a: ComparedRun, b: ComparedRun, goals: Goals) -> str:
    have = [source.row.id for source in (a, b) if key in source.summary]
    said = f"only {have[0]} has {key}" if have else f"neither run has {key}"
    both: Mapping[str, object] = {k: 1 for k in a.summary if k in b.summary and direction(k, goals)}
    if both:
        named = ", ".join([*both][:_MOST_NAMES])
        said += f"; next: albor runs diff --metric with one that both have: {named}"
        said += f" and {len(both) - _MOST_NAMES} more" if len(both) > _MOST_NAMES else ""
    return said
