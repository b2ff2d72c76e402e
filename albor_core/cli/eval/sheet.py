"""`albor eval sheet` and `read-sheet`: people judge pairs of completions without knowing whose."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import (
    clean,
    emit,
    json_option,
    number,
    out_file,
    print_line,
    print_note,
)
from albor_core.cli.plans.file_plan import plans, run_source
from albor_core.run.errors import AlborError, DataError, NotFoundError, UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.cli.eval.kept import Kept

_WRITES = ("code",)  # kinds of tasks whose items have the prompt and what the model wrote


def _source(reference: str) -> Path | str:
    from albor_core.cli.eval.kept import find_kept

    try:
        return find_kept(reference).place
    except AlborError:
        return Path(reference) if Path(reference).exists() else run_source(reference)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="Write the sheet to this file, and its key beside it.",
)
@click.option(
    "--task", "task", help="Use this task's items; needed if both evaluations share several tasks."
)
@click.option("--limit", type=Count(1), help="Use N pairs, drawn with the seed.")
@click.option(
    "--repeats",
    type=Count(0),
    default=0,
    help="Show N pairs twice with sides swapped, to measure how consistent a rater is.",
)
@click.option("--seed", type=Count(0), default=0, help="Seed of order and sides (0).")
@json_option
@plans(
    lambda told: [_source(told["a"]), _source(told["b"])],
    lambda told: [told["out"], key_of(told["out"])],
)
def sheet(
    a: str,
    b: str,
    out: Path,
    task: str | None,
    limit: int | None,
    repeats: int,
    seed: int,
    as_json: bool,
) -> None:
    """Write a CSV of pairs to judge: outputs of evaluations A and B side by side, in random order
    and on random sides.

    Raters fill in the column `better` with left, right or tie. Which side is A is recorded in the
    key, SHEET.key.json, which raters do not get.
    """
    from random import Random

    from albor_core.cli.eval.kept import find_kept
    from albor_core.eval.compare.kept_items import check_same, pairs, read_items
    from albor_core.eval.compare.sheet import make_sheet

    one, two = find_kept(a), find_kept(b)
    task = _task_of(one, two, task)
    of_a = read_items(one.place / one.tasks[task]["items"])
    of_b = read_items(two.place / two.tasks[task]["items"])
    check_same(of_a, of_b, task)
    found = pairs(of_a, of_b)
    if not found:
        raise DataError(f"{task}: both wrote the same throughout", hint="nothing to judge")
    alike = len(of_a.keys() & of_b.keys()) - len(found)
    if limit is not None and limit < len(found):
        found = Random(seed).sample(found, limit)  # noqa: S311  a choice, no secret
    text, key = make_sheet(found, (one.name, two.name), seed=seed, repeats=repeats)
    with out_file(out, replace=False) as file:
        file.write(text.encode(errors="replace"))
        with out_file(key_of(out), replace=False) as beside:
            beside.write(json.dumps(key, indent=1).encode() + b"\n")
    if as_json:
        emit({"schema": "albor.eval.sheet/1", "sheet": str(out), "key": str(key_of(out)),
              "task": task, "pairs": len(found), "rows": len(key["pairs"]), "alike": alike,
              "seed": seed})  # fmt: skip
        return
    print_line(f"{clean(out)}: {counted(len(key['pairs']), 'row')} to judge")
    print_line(f"{clean(key_of(out))}: whose each side is; keep it from raters")
    if alike:
        print_note(f"{counted(alike, 'item')} left out, of which both wrote the same")
    print_note(f"  next: albor eval read-sheet {clean(out)}")


def _task_of(one: Kept, two: Kept, said: str | None) -> str:
    """The named task, or the only one for which both have texts. Raises NotFoundError,
    UsageError.
    """
    shared = [
        name
        for name, told in one.tasks.items()
        if told["kind"] in _WRITES and two.tasks.get(name, {}).get("kind") == told["kind"]
    ]
    kinds = ", ".join(_WRITES)
    if not shared:
        what = f"no task in both is of a kind that writes ({kinds})"
        raise NotFoundError(what, hint=_EVALUATE)
    if said is not None and said not in shared:
        what = f"no task {said!r} in both, of a kind that writes ({kinds})"
        raise NotFoundError(what, hint=f"those are {', '.join(shared)}")
    if said is None and len(shared) > 1:
        raise UsageError(f"tasks {', '.join(shared)} are in both", hint=f"--task {shared[0]}")
    return said or shared[0]


_EVALUATE = "evaluate both on the same tasks: albor eval apply"


def key_of(sheet: Path) -> Path:
    return sheet.with_name(f"{sheet.stem}.key.json")


@click.command("read-sheet")
@click.argument(
    "sheets", metavar="SHEET...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    help="Read the key from this file (SHEET.key.json beside the first).",
)
@json_option
def read_sheet(sheets: tuple[Path, ...], key_file: Path | None, as_json: bool) -> None:
    """Count the ratings of filled-in SHEETs, one per rater: how often B won, with its interval, the
    probability of that by chance, and how far raters agree with each other and with themselves.
    """
    from albor_core.eval.compare.sheet import read_key, read_ratings

    key = read_key(key_file or key_of(sheets[0]))
    found = read_ratings(sheets, key)
    if as_json:
        names = {"a": key["a"], "b": key["b"]}
        document: Any = {"schema": "albor.eval.ratings/1", **names, **asdict(found)}
        emit(document)
        return
    print_line(f"A {clean(key['a'])}  B {clean(key['b'])}")
    judged = f"{counted(found.judged, 'judgement')} of {counted(found.items, 'item')}"
    print_line(f"{judged} by {counted(found.raters, 'rater')}; {found.left_open:,} left open")
    print_line(f"B won {found.b_wins:,}, A {found.a_wins:,}, ties {found.ties:,}")
    interval = f"{found.low:.0%} to {found.high:.0%}"
    print_line(
        f"win rate of B {found.win_rate:.1%} ({interval}), p {found.p:.3g}: B is {found.verdict}"
    )
    agreed = number(found.agreement, ".2f")
    again, left = (_share(one) for one in (found.same_again, found.left_share))
    print_line(
        f"agreement of raters (alpha) {agreed}, with themselves {again}, left side won {left}"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
