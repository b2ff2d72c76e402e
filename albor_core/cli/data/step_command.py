"""What the verbs over a corpus share: their options, how they are run, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import clean, emit, json_option, print_line
from albor_core.cli.common.progress import progress
from albor_core.cli.plans.file_plan import OwnPlan, plan_option, plans
from albor_core.run.errors import AlborError, ConfigError, Problem
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.data.stage.counts import Counts, SourceCounts
    from albor_core.data.stage.stage import Step, StepPlan, StepReport

F = TypeVar("F", bound=Callable[..., Any])


workers_option: Callable[[F], F] = click.option(
    "--workers", type=Count(least=1, most=1024),
    help="Use N worker processes.  [default: one per core]",
)  # fmt: skip


def planned_step(
    reads: Callable[[Mapping[str, Any]], Iterable[Path | None]] = lambda told: (),
) -> Callable[[F], F]:
    """`--plan --json` of a verb that makes a corpus of one; `reads` gives what else it needs."""

    def sources(told: Mapping[str, Any]) -> list[str | Path]:
        return [path for path in (told["corpus"], *reads(told)) if path is not None]

    def targets(told: Mapping[str, Any]) -> list[Path]:
        return [] if told["out"] is None else [told["out"]]

    return plans(sources, targets, OwnPlan())


def step_options(command: F, *, needs_out: bool = True) -> F:
    """-o, --workers, --force, --plan and --json, as `run` takes them."""
    for option in (
        json_option,
        plan_option,
        click.option("--force", is_flag=True, help="Replace --out if it holds other data."),
        workers_option,
        click.option(
            "-o", "--out", required=needs_out, type=click.Path(path_type=Path),
            help="Write to this folder or FILE.parquet.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def run(
    verb: str,
    corpus: Path,
    step: Step,
    *,
    out: Path,
    workers: int | None,
    force: bool,
    only_plan: bool,
    as_json: bool,
    more: Mapping[str, Any] | None = None,
    do: Callable[..., StepReport] | None = None,
    lines: Callable[[Counts], Iterable[str]] | None = None,
) -> None:
    """Plan or do `step` and say what came of it; `more` goes into the JSON document, `lines` of
    the counts to people, `do` is called in the place of `run_step`.
    """
    from albor_core.data.stage.stage import plan_step, run_step
    from albor_core.data.stage.workers import default_workers

    if only_plan:
        show_plan(verb, plan_step(corpus, out, step, force=force), as_json)
        return
    with progress(lambda done, total: f"{done:,} of {total:,} documents") as tell:
        report = (do or run_step)(
            corpus, out, step, workers=workers or default_workers(), force=force, progress=tell
        )
    show_report(verb, report, as_json, more)
    if lines is not None and not as_json:
        for line in lines(report.record.counts):
            print_line(clean(line))


def show_report(
    verb: str, report: StepReport, as_json: bool, more: Mapping[str, Any] | None = None
) -> None:
    """Print the report of a step, for people or as albor.data.VERB/1."""
    record, total = report.record, report.record.counts.total
    if as_json:
        document: Any = {
            "schema": f"albor.data.{verb}/1",
            "out": str(report.out),
            "documents_in": total.documents_in,
            "bytes_in": total.bytes_in,
            "documents": record.documents,
            "bytes": record.bytes,
            "pass_rate": record.documents / total.documents_in,
            "dropped": dict(sorted(total.dropped.items())),
            **record.counts.to_json(),
            "data_hash": record.data_hash,
            "reused": report.reused,
            "resumed_units": report.resumed_units,
            "seconds": report.seconds,
            **(more or {}),
        }
        emit(document)
        return
    print_line(
        f"{clean(report.out)}: {record.documents:,} of {counted(total.documents_in, 'document')} "
        f"({_percent(total)}), {record.bytes:,} bytes; dropped {_dropped(record.counts)}"
    )
    for reason, keys in sorted(record.counts.examples.items()):
        print_line(f"  {clean(reason):<16} such as {clean(keys[0])}")
    if report.reused:
        print_line("up to date: made before from the same inputs; nothing was written")
    elif report.resumed_units:
        print_line(f"went on after {counted(report.resumed_units, 'part')} of an earlier try")


@contextmanager
def step_of_plan(field: str, corpus: Path, out: Path | None, only_plan: bool) -> Iterator[None]:
    """Make a step within: what stops that is, with --plan, told as a problem of `field`, beside
    what is wrong with the corpus and the output.
    """
    try:
        yield
    except AlborError as error:
        if not only_plan or out is None:
            raise
        from albor_core.data.stage.stage import plan_output

        wrong = (Problem(field, error.message, error.hint), *plan_output(corpus, out))
        raise plan_refused(out, wrong) from error


def plan_refused(about: Path, problems: Sequence[Problem]) -> ConfigError:
    """Every problem that a plan found, to be raised; exit code 1."""
    error = ConfigError(f"{about}: {counted(len(problems), 'problem')}", problems=tuple(problems))
    error.exit_code = 1
    return error


def show_plan(verb: str, made: StepPlan, as_json: bool) -> None:
    """Print the plan. Raises ConfigError, exit code 1, with every problem."""
    if made.problems:
        raise plan_refused(made.out, made.problems)
    if as_json:
        document: Any = {
            "schema": f"albor.data.{verb}.plan/1",
            "ok": True,
            "out": str(made.out),
            "documents": made.documents,
            "bytes": made.bytes,
            "units": made.units,
            "sampled": made.sampled.to_json(),
            "sampled_bytes": made.sampled_bytes,
            "seconds": made.seconds,
            "out_bytes": made.out_bytes,
            "action": made.action,
        }
        emit(document)
        return
    print_line(f"{clean(made.out)}: ok; nothing was written")
    print_line(f"  {'action':<12} {made.action}")
    print_line(f"  {'corpus':<12} {counted(made.documents or 0, 'document')}, {made.bytes:,} bytes")
    if made.sampled_bytes:
        total = made.sampled.total
        print_line(
            f"  {'looked at':<12} {total.documents_in:,} of them: {total.documents:,} stay "
            f"({_percent(total)}); "
            f"dropped {_dropped(made.sampled)}"
        )
    if made.seconds is not None:
        print_line(f"  {'time':<12} about {made.seconds:.0f} s for one process")


def _percent(total: SourceCounts) -> str:
    return f"{100 * total.documents / max(total.documents_in, 1):.1f} %"


def _dropped(counts: Counts) -> str:
    reasons = counts.total.dropped
    return ", ".join(f"{n:,} {clean(why)}" for why, n in sorted(reasons.items())) or "none"
