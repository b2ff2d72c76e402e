"""`albor data build`: a data set from its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.output import clean, emit, json_option, print_line
from albor_core.cli.common.progress import progress
from albor_core.cli.data.step_command import plan_refused, workers_option
from albor_core.cli.plans.file_plan import OwnPlan, plans, relax
from albor_core.run.errors import AlborError
from albor_core.run.values.quantity import byte_size, counted

if TYPE_CHECKING:
    from albor_core.data.pipeline.build import BuildPlan, Made
    from albor_core.data.pipeline.recipe import LoadedRecipe
    from albor_core.data.progress import Progress


def _loaded(recipe: Path) -> LoadedRecipe | None:
    """The loaded recipe; None if it is unreadable, which the build reports itself."""
    from albor_core.data.pipeline.recipe import load_recipe

    try:
        return load_recipe(recipe)
    except AlborError:
        return None


def _sources(recipe: Path) -> list[Path]:
    """The recipe, what it imports, and what it holds texts against."""
    loaded = _loaded(recipe)
    if loaded is None:
        return [recipe]
    from albor_core.data.pipeline.recipe import INSTALLED

    benchmarks, named = loaded.recipe.contamination, loaded.recipe.source.paths()
    against = [] if benchmarks is None else benchmarks.against
    return [loaded.path, *(Path(one) for one in named if one != INSTALLED), *against]


def _folder_of(told: Mapping[str, Any]) -> Path:
    loaded = _loaded(told["recipe"])
    return told["out"] or Path(told["recipe"].stem if loaded is None else loaded.recipe.name)


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", type=click.Path(path_type=Path),
    help="Write the data set to this folder.  [default: the recipe's name]",
)  # fmt: skip
@workers_option
@click.option("--force", is_flag=True, help="Replace --out if another recipe made it.")
@click.option(
    "--plan", "only_plan", is_flag=True, is_eager=True, callback=relax,
    help="Show what would be done, and every problem. Changes nothing.",
)  # fmt: skip
@json_option
@plans(lambda told: _sources(told["recipe"]), lambda told: [_folder_of(told)], OwnPlan())
def build(
    recipe: Path,
    out: Path | None,
    workers: int | None,
    force: bool,
    only_plan: bool,
    as_json: bool,
) -> None:
    """Build a data set: run every step of RECIPE, from sources to verified shards and a
    PROVENANCE.md.

    RECIPE is a YAML file, or the name of a recipe that comes with Albor, such as python-sources.
    Finished steps are reused, so the same command continues an interrupted build.
    """
    from albor_core.data.pipeline.build import build as work
    from albor_core.data.pipeline.build import plan_build
    from albor_core.data.pipeline.recipe import load_recipe
    from albor_core.data.stage.workers import default_workers

    loaded = load_recipe(recipe)
    folder = out or Path(loaded.recipe.name)
    if only_plan:
        _show_plan(loaded, folder, plan_build(loaded, folder), as_json)
        return
    with ExitStack() as told:
        report = work(
            loaded, folder, workers=workers or default_workers(), force=force,
            progress=_teller(told), done=None if as_json else _show_made,
        )  # fmt: skip
    shards = folder / "shards"
    if as_json:
        emit(
            {
                "schema": "albor.data.build/1",
                "recipe": str(recipe),
                "name": loaded.recipe.name,
                "out": str(folder),
                "stages": [made.to_json() for made in report.made],
                "shards": str(shards),
                "splits": report.provenance["splits"],
                "tokenizer_sha256": report.provenance["tokenizer_sha256"],
                "ok": report.provenance["ok"],
                "seconds": report.seconds,
            }
        )
        return
    for split in report.provenance["splits"]:
        print_line(
            f"{clean(str(shards / split['name']))}: {counted(split['sequences'], 'sequence')}, "
            f"{counted(split['tokens'], 'token')}"
        )
    print_line(f"{clean(str(folder / 'PROVENANCE.md'))}: where all of it comes from")


def _teller(told: ExitStack) -> Callable[[str], Progress | None]:
    """A line of progress for each stage, the one before ended."""

    def begin(stage: str) -> Progress | None:
        told.pop_all().close()
        return told.enter_context(progress(lambda done, total: f"{stage}: {done:,} of {total:,}"))

    return begin


def _show_made(made: Made) -> None:
    parts = [counted(made.documents, "document")] if made.documents is not None else []
    parts += [byte_size(made.bytes)] if made.bytes is not None else []
    parts += [counted(made.tokens, "token")] if made.tokens is not None else []
    dropped = ", ".join(f"{n:,} {clean(why)}" for why, n in sorted(made.dropped.items()) if n)
    parts += [f"dropped {dropped}"] if dropped else []
    news = "checked" if made.stage == "verify" else "up to date" if made.reused else ""
    parts += [news] if news else []
    print_line(f"{clean(made.stage):<20} {'; '.join(parts)}")


def _show_plan(loaded: LoadedRecipe, out: Path, made: BuildPlan, as_json: bool) -> None:
    """Print the plan. Raises ConfigError, exit code 1, with every problem."""
    if made.problems:
        raise plan_refused(loaded.path, made.problems)
    stages: Any = [
        {"stage": stage.name, "out": str(stage.out), "action": action}
        for stage, action in zip(made.stages, made.actions, strict=True)
    ]
    if as_json:
        emit({"schema": "albor.data.build.plan/1", "ok": True, "recipe": str(loaded.path),
              "name": loaded.recipe.name, "out": str(out), "stages": stages})  # fmt: skip
        return
    print_line(f"{clean(str(out))}: ok; nothing was written")
    for stage in stages:
        print_line(f"  {stage['stage']:<20} {stage['action']:<8} {clean(stage['out'])}")
