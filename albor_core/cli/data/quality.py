"""`albor data quality`: drop documents that are not worth training on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.output import emit, print_line
from albor_core.cli.data.step_command import planned_step, run, step_options

if TYPE_CHECKING:
    from albor_core.data.stage.counts import Counts

_PROFILES = ("ml-training", "code", "text", "score")
_BAR = 40  # characters


@click.command()
@click.argument("corpus", required=False, type=click.Path(path_type=Path))
@click.option(
    "--profile",
    type=click.Choice(_PROFILES),
    default=_PROFILES[0],
    show_default=True,
    help="Start from the thresholds of this profile.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="THRESHOLD=VALUE",
    help="Change one threshold; `none` disables its rule. Repeatable.",
)
@click.option(
    "--threshold",
    type=float,
    metavar="SCORE",
    help="Drop documents with a lower composite score; short for --set min_score=SCORE.",
)
@click.option("--profiles", "list_profiles", is_flag=True, help="List the profiles instead.")
@partial(step_options, needs_out=False)
@planned_step()
def quality(
    corpus: Path | None,
    profile: str,
    changes: tuple[str, ...],
    threshold: float | None,
    list_profiles: bool,
    out: Path | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Keep the documents of CORPUS that pass rules of quality, and print why the others were
    dropped: size, generated code, letters, entropy, line length, repeated lines, composite
    score.
    """
    from albor_core.data.clean.profiles import thresholds_of
    from albor_core.data.clean.quality import Quality

    if list_profiles:
        _show_profiles(as_json)
        return
    if corpus is None or out is None:
        missing = "argument 'CORPUS'" if corpus is None else "option '-o' / '--out'"
        raise click.UsageError(f"Missing {missing}.")
    if threshold is not None:
        changes = (*changes, f"min_score={threshold}")
    step = Quality(thresholds_of(profile, changes))
    run("quality", corpus, step, out=out, as_json=as_json, lines=_histogram, **how)


def _histogram(counts: Counts) -> Iterator[str]:
    from albor_core.data.clean.quality import score_histogram

    bins = score_histogram(counts.extra)
    if not any(bins):
        return
    yield "composite score of the documents of a right size"
    first = next(number for number, count in enumerate(bins) if count)
    for number, count in list(enumerate(bins))[first:]:
        bar = "#" * -(-_BAR * count // max(bins))
        yield f"  {number / len(bins):.2f} to {(number + 1) / len(bins):.2f}  {count:>12,}  {bar}"


def _show_profiles(as_json: bool) -> None:
    from albor_core.data.clean.profiles import DEFAULT_PROFILE, PROFILES, THRESHOLDS

    if as_json:
        emit(
            {
                "schema": "albor.data.quality.profiles/1",
                "default": DEFAULT_PROFILE,
                "thresholds": [
                    {
                        "key": one.key,
                        "reason": one.reason,
                        "unit": one.unit,
                        "meaning": one.meaning,
                    }
                    for one in THRESHOLDS
                ],
                "profiles": [
                    {
                        "name": one.name,
                        "summary": one.summary,
                        "thresholds": one.thresholds(),
                    }
                    for one in PROFILES.values()
                ],
            }
        )
        return
    names = list(PROFILES)
    for one in PROFILES.values():
        print_line(f"{one.name:<12} {one.summary}")
    print_line()
    print_line(
        f"{'threshold':<20}" + "".join(f"{name:>13}" for name in names) + "  reason, meaning"
    )
    for rule in THRESHOLDS:
        cells = (PROFILES[name].thresholds()[rule.key] for name in names)
        numbers = "".join(f"{'-' if cell is None else format(cell, ',.15g'):>13}" for cell in cells)
        print_line(f"{rule.key:<20}{numbers}  {rule.reason}: {rule.meaning} ({rule.unit})")
