"""`albor eval compare` and `correlate`: kept evaluations held against each other, and the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import (
    clean,
    emit,
    json_option,
    number,
    print_line,
    print_note,
    table,
)
from albor_core.run.errors import NotFoundError, UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.cli.eval.kept import Kept
    from albor_core.documents.eval import EvalCompareDocument, OtherDifference
    from albor_core.run.rundir import RunDir

Points = tuple[tuple[int, float], ...]
_LOSSES = ("val/loss", "train/loss")


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--task", "only", multiple=True, help="Compare only this task; repeatable.")
@click.option("--seed", type=Count(0), default=0, help="Seed of the random draws (0).")
@json_option
def compare(a: str, b: str, only: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Is B better than A? A and B are evaluations: a folder of results, or a run, whose newest
    evaluated weights give the newest result of each task.

    Each task that both have is tested item by item: McNemar's exact test if items pass or fail,
    else random signs of the differences, with a bootstrap interval. p is adjusted (Holm) for the
    number of figures compared.
    """
    from albor_core.cli.eval.kept import find_kept
    from albor_core.eval.compare.paired import LEVEL

    one, two = find_kept(a, each_task=True), find_kept(b, each_task=True)
    shared = [task for task in one.tasks if task in two.tasks and task in (only or one.tasks)]
    figures = _figures(one, two, shared, seed)
    if not figures:
        what = f"no task that can be compared is in both: {_listed(one)} and {_listed(two)}"
        raise NotFoundError(what, hint="evaluate both on the same tasks")
    document: EvalCompareDocument = {
        "schema": "albor.eval.compare/1",
        "a": one.about(),
        "b": two.about(),
        "level": LEVEL,
        "seed": seed,
        "figures": figures,
        "other": [*_differences(one, two, shared)],
    }
    if as_json:
        emit(document)
        return
    _print_compared(document)


def _listed(kept: Kept) -> str:
    return ", ".join(kept.tasks) or "none"


def _figures(one: Kept, two: Kept, shared: Sequence[str], seed: int) -> Any:
    from albor_core.eval.compare import kept_items
    from albor_core.eval.compare.paired import compare as paired
    from albor_core.eval.compare.paired import holm

    found = []
    for task in shared:
        of_a, of_b = (each.tasks[task] for each in (one, two))
        if of_a["kind"] != of_b["kind"]:
            what = f"task {task!r} is of kind {of_a['kind']} in A and {of_b['kind']} in B"
            raise UsageError(what, hint="name the tasks to compare: --task")
        figures = kept_items.FIGURES.get(of_a["kind"], ())
        if not figures:
            continue
        items_a = kept_items.read_items(one.of(task).place / of_a["items"])
        items_b = kept_items.read_items(two.of(task).place / of_b["items"])
        kept_items.check_same(items_a, items_b, task)
        for figure in figures:
            values = [kept_items.values(items, figure, task) for items in (items_a, items_b)]
            if values[0].keys() & values[1].keys():
                name = {"figure": f"{task}/{figure.name}", "better": figure.better}
                alone = {
                    "only_in_a": len(values[0].keys() - values[1].keys()),
                    "only_in_b": len(values[1].keys() - values[0].keys()),
                }
                found.append((name, alone, paired(*values, seed=seed)))
    adjusted = holm([result.p for _, _, result in found])
    return [
        {
            **name,
            "n": result.n,
            **alone,
            "a": result.mean_a,
            "b": result.mean_b,
            "difference": result.difference,
            "low": result.low,
            "high": result.high,
            "a_higher": result.a_higher,
            "b_higher": result.b_higher,
            "method": result.method,
            "p": result.p,
            "p_adjusted": p,
            "most_differing": result.most_differing,
            "can_show": result.can_show,
            "verdict": result.verdict(name["better"], p),
        }
        for (name, alone, result), p in zip(found, adjusted, strict=True)
    ]


def _differences(one: Kept, two: Kept, shared: Sequence[str]) -> Iterator[OtherDifference]:
    """Differences besides the model, which may explain those of figures."""
    used = {(one.of(task).place, two.of(task).place): task for task in shared}
    settings = [
        [kept.of(task).document["settings"] for kept in (one, two)] for task in used.values()
    ]
    told = [("settings", of_a, of_b) for of_a, of_b in settings]
    told += [(task, one.tasks[task]["section"], two.tasks[task]["section"]) for task in shared]
    for where, a, b in told:
        for field in sorted({*a, *b} - {"data", "name", "path_reason"}):
            if a.get(field) != b.get(field):
                yield {"where": where, "field": field, "a": a.get(field), "b": b.get(field)}


def _print_compared(document: Mapping[str, Any]) -> None:
    print_line(f"A {clean(document['a']['name'])}  {clean(document['a']['path'])}")
    print_line(f"B {clean(document['b']['name'])}  {clean(document['b']['path'])}")
    rows = [
        (
            one["figure"],
            f"{one['n']:,}",
            number(one["a"], ".4f"),
            number(one["b"], ".4f"),
            f"{one['difference']:+.4f}",
            "-" if one["low"] is None else f"{one['low']:+.4f} to {one['high']:+.4f}",
            number(one["p_adjusted"], ".3g"),
            f"{one['a_higher']:,}:{one['b_higher']:,}",
            one["verdict"],
        )
        for one in document["figures"]
    ]
    heads = ("figure", "n", "A", "B", "B - A", "95 %", "p", "higher A:B", "B is")
    print_line(table(heads, rows, right=("n", "A", "B", "B - A", "p")))
    for one in document["figures"]:
        if lost := one["only_in_a"] + one["only_in_b"]:
            print_note(f"{clean(one['figure'])}: {lost:,} items are in one alone, and left out")
        if one["most_differing"] is not None:
            said = f"none of {counted(one['n'], 'item')} differs: at most"
            share = f"{one['most_differing']:.1%} of such items do (95 %)"
            print_note(f"{clean(one['figure'])}: {said} {share}")
        if not one["can_show"]:
            said = f"{counted(one['n'], 'item')} can never show a difference"
            print_note(f"{clean(one['figure'])}: {said}")
    for one in document["other"]:
        told = f"{one['where']}: {one['field']} is {one['a']} in A and {one['b']} in B"
        print_note(f"not alike: {clean(told)}")


@click.command()
@click.argument("run")
@click.option(
    "--with", "metric", metavar="METRIC", help="Compare scores with this metric (val/loss)."
)
@click.option("--score", "only", multiple=True, help="Compare only this score; repeatable.")
@click.option("--seed", type=Count(0), default=0, help="Seed of the random draws (0).")
@json_option
def correlate(
    run: str, metric: str | None, only: tuple[str, ...], seed: int, as_json: bool
) -> None:
    """Do the scores of RUN follow its loss over its checkpoints?

    Prints the rank correlation (Spearman) and the linear one (Pearson) of each score with the
    metric's value at the checkpoint's step, or the last value before it, and the probability of as
    much by chance. At least 3 checkpoints must have been evaluated; with fewer than 5 no p can be
    below 0.05.
    """
    from albor_core.eval.compare.paired import LEVEL

    held = _run(run)
    metric, series, scores = _series(held, metric, only)
    found = [*_correlated(series, scores, seed)]
    if not found:
        counts = ", ".join(f"{name} has {len(points)}" for name, points in scores.items())
        what = f"{held.id}: no score of 3 checkpoints or more with a {metric} ({counts or 'none'})"
        raise NotFoundError(what, hint=f"albor eval apply {held.id} --step N")
    if as_json:
        emit({"schema": "albor.eval.correlate/1", "run": held.id, "with": metric, "scores": found})
        return
    rows = [
        (one["score"], str(one["n"]), *(number(one[key], ".3f") for key in _SHOWN)) for one in found
    ]
    heads = ("score", "n", "spearman", "p", "pearson", "p")
    print_line(f"{clean(held.id)}, with {clean(metric)}")
    print_line(table(heads, rows, right="n spearman p pearson"))
    for one in found:
        if one["least_p"] >= LEVEL:
            few = f"{one['n']} checkpoints cannot give a p below {one['least_p']:.3f}"
            print_note(f"{clean(one['score'])}: {few}: they show nothing yet")


_SHOWN = ("spearman", "spearman_p", "pearson", "pearson_p")


def _correlated(series: Points, scores: Mapping[str, Points], seed: int) -> Iterator[Any]:
    """The correlation of each score with enough checkpoints."""
    from albor_core.eval.compare.correlation import LEAST
    from albor_core.eval.compare.correlation import correlate as correlated

    for name, points in scores.items():
        both = [
            (step, at, value) for step, value in points if (at := _at(series, step)) is not None
        ]
        if len(both) < LEAST:
            continue
        result = correlated([one[1] for one in both], [one[2] for one in both], seed=seed)
        told = {"score": name, **asdict(result)}
        yield told | {"points": [{"step": s, "with": at, "value": value} for s, at, value in both]}


def _run(reference: str) -> RunDir:
    from albor_core.cli.model.folder import run_of

    if (run := run_of(reference)) is None:
        raise NotFoundError(f"{reference!r} is not a run", hint="albor runs ls")
    return run


def _series(
    run: RunDir, metric: str | None, only: tuple[str, ...]
) -> tuple[str, Points, dict[str, Points]]:
    """(metric, its points, points by score). Raises NotFoundError."""
    from math import isfinite

    from albor_core.store.file.paths import local_store
    from albor_core.store.index.catch_up import drain_index
    from albor_core.store.query.reader import Reader

    drain_index(run)
    with Reader(local_store(run)) as reader:
        keys = reader.keys(run.id)
        metric = metric or next((key for key in _LOSSES if key in keys), None)
        if metric is None or metric not in keys:
            what = f"{run.id} has no metric {metric!r}" if metric else f"{run.id} has no loss"
            raise NotFoundError(what, hint="--with METRIC: albor runs show lists them")
        scores = [k for k in keys if k.startswith("eval/") and k != metric and k in (only or keys)]
        points = reader.together(run.id, [metric, *scores])
    finite = {k: tuple(p for p in some if isfinite(p[1])) for k, some in points.items()}
    return metric, finite[metric], {key: finite[key] for key in sorted(scores)}


def _at(series: Points, step: int) -> float | None:
    """The value at a step, or the last before it."""
    return next((value for at, value in reversed(series) if at <= step), None)
