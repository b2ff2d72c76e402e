"""`albor data split`: a corpus in train, val and test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import COUNT
from albor_core.cli.common.output import clean, emit, print_line
from albor_core.cli.common.progress import progress
from albor_core.cli.data.step_command import plan_refused, step_options
from albor_core.cli.plans.file_plan import OwnPlan, plans
from albor_core.run.values.quantity import byte_size, counted

if TYPE_CHECKING:
    from albor_core.data.mix.split import Division, SplitPlan


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option(
    "--train", default=0.9, show_default=True, help="Put this share into train, from 0 to 1."
)
@click.option("--val", default=0.05, show_default=True, help="Put this share into val.")
@click.option("--test", default=0.05, show_default=True, help="Put this share into test.")
@click.option("--seed-train", default=42, type=COUNT, show_default=True)
@click.option("--seed-val", default=123, type=COUNT, show_default=True)
@click.option("--seed-test", default=456, type=COUNT, show_default=True)
@click.option(
    "--by", default="repository", type=click.Choice(["repository", "file"]), show_default=True,
    help="Keep all files of a source in one part, or assign each file on its own.",
)  # fmt: skip
@step_options
@plans(lambda told: [told["corpus"]], estimate=OwnPlan())
def split(
    corpus: Path,
    train: float,
    val: float,
    test: float,
    seed_train: int,
    seed_val: int,
    seed_test: int,
    by: str,
    out: Path,
    workers: int | None,
    force: bool,
    only_plan: bool,
    as_json: bool,
) -> None:
    """Split CORPUS into the folders train, val and test of --out, each a corpus of its own.

    The hash of its name decides where a repository (or file) goes: first test is drawn, then val
    from the rest, then train, each with its own seed. A repository larger than the whole share of
    val or test stays in train.
    """
    from albor_core.data.mix import split as work
    from albor_core.data.stage.workers import default_workers

    plan = work.SplitPlan(
        {"train": train, "val": val, "test": test},
        {"train": seed_train, "val": seed_val, "test": seed_test},
        by,
    )
    if only_plan:
        check = work.plan_split(corpus, out, plan, force=force)
        if check.problems or check.division is None:
            raise plan_refused(out, check.problems)
        parts = _parts(out, plan, check.division)
        for name, part in parts.items():
            part["action"] = check.actions[name]
        _show(
            "split.plan",
            out,
            plan,
            check.division,
            parts,
            as_json,
            {"ok": True, "out_bytes": check.out_bytes},
        )
        return
    with progress(lambda done, total: f"{done:,} of {total:,} documents") as tell:
        made = work.split(
            corpus, out, plan, workers=workers or default_workers(), force=force, progress=tell
        )
    parts = _parts(out, plan, made.division)
    for name, report in made.made.items():
        parts[name] |= {"data_hash": report.record.data_hash, "reused": report.reused}
    seconds = sum(report.seconds for report in made.made.values())
    _show("split", out, plan, made.division, parts, as_json, {"seconds": seconds})


def _parts(out: Path, plan: SplitPlan, division: Division) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "folder": str(out / name),
            "share": plan.shares[name],
            "seed": plan.seeds[name],
            **vars(part),
        }
        for name, part in division.parts.items()
    }


def _show(
    verb: str,
    out: Path,
    plan: SplitPlan,
    division: Division,
    parts: dict[str, dict[str, Any]],
    as_json: bool,
    more: dict[str, Any],
) -> None:
    if as_json:
        head = {"schema": f"albor.data.{verb}/1", "out": str(out), "by": plan.by}
        document: Any = {**head, "parts": parts, "left_out": division.left_out, **more}
        emit(document)
        return
    for part in parts.values():
        news = {True: "; up to date, nothing was written", None: f"; {part.get('action')}"}
        print_line(
            f"{clean(part['folder'])}: {counted(part['documents'], 'document')} of "
            f"{counted(part['sources'], 'source')}, {byte_size(part['bytes'])}"
            f"{news.get(part.get('reused'), '')}"
        )
    if division.left_out:
        print_line(f"in none of them: {counted(division.left_out, 'document')}")
