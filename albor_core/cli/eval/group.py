"""`albor eval`: put tasks to a model, keep the result, record it with the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import (
    clean,
    emit,
    json_option,
    number,
    print_line,
    print_note,
)
from albor_core.cli.common.output import table as text_table
from albor_core.cli.common.progress import progress
from albor_core.cli.plans.file_plan import Estimate, model_source, plan_option, show_plan
from albor_core.run.errors import AlborError, ConfigError, NotFoundError, UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.eval.evaluate import Done
    from albor_core.eval.planned import EvaluationRequest
    from albor_core.eval.target import Target
    from albor_core.run.rundir import RunDir

F = TypeVar("F", bound=Callable[..., Any])
_NICE = 10  # beside a training, which comes first
_HERE = __name__.rpartition(".")[0]
_DTYPES = ("auto", "fp64", "fp32", "bf16", "fp16")


@click.group(
    "eval",
    cls=LazyGroup,
    entries={
        "plan": (f"{__name__}:plan", "Count items and tokens, estimate the time, find problems."),
        "apply": (f"{__name__}:apply", "Evaluate, keep the result, record it with the run."),
        "validate": (
            f"{_HERE}.code:validate",
            "Run the solutions of code tasks against their tests.",
        ),
        "compare": (f"{_HERE}.compare:compare", "Test whether one model is better than another."),
        "correlate": (f"{_HERE}.compare:correlate", "Hold scores of checkpoints against the loss."),
        "sheet": (f"{_HERE}.sheet:sheet", "Write pairs of completions for people to judge."),
        "read-sheet": (f"{_HERE}.sheet:read_sheet", "Read what people judged, and how sure it is."),
    },
)
def evaluation() -> None:
    """Evaluate a folder of weights or a checkpoint of a run.

    \b
    Tasks come from the command line, --task KIND:DATA, or from a file, --tasks FILE.yaml.
    KIND is text (perplexity, bits per byte), choice, fim, contamination or code.
    """


def _asked(command: F) -> F:
    """The options that plan and apply have in common."""
    options = (
        click.argument("model", metavar="DIR|RUN"),
        click.option(
            "--task",
            "words",
            multiple=True,
            metavar="KIND:DATA",
            help="Add a task; text:- reads the text from stdin.",
        ),
        click.option(
            "--tasks",
            "file",
            type=click.Path(path_type=Path),
            help="Read tasks from this YAML file.",
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set a field of every --task whose kind has it: window=512, column=code.",
        ),
        click.option("--step", type=Count(0), help="Evaluate the run's checkpoint of this step."),
        click.option("--batch-size", type=Count(1), help="Evaluate N texts at once (8)."),
        click.option("--dtype", type=click.Choice(_DTYPES), help="Compute in this dtype (auto)."),
        click.option(
            "--device",
            type=click.Choice(("auto", "cpu", "cuda")),
            help="Compute on this device (auto).",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@evaluation.command()
@_asked
@json_option
def plan(model: str, step: int | None, as_json: bool, **asked: Any) -> None:
    """Print what evaluating DIR, or a checkpoint of RUN (the newest), would read, write and need.

    Changes nothing. Exits with 1 and lists every problem, if there are any.
    """
    from albor_core.eval.planned import plan as planned
    from albor_core.eval.planned import plan_document

    told = _told(asked)
    target = _target(model, step)
    found = planned(target, told)
    if found.problems:
        error = ConfigError(
            f"{target.path}: {counted(len(found.problems), 'problem')}", problems=found.problems
        )
        error.exit_code = AlborError.exit_code
        raise error
    document = plan_document(found, target, told.settings)
    if as_json:
        shown: Any = {"schema": "albor.eval.plan/1", **document}
        emit(shown)
        return
    rows = [
        (one["task"], one["kind"], f"{one['items']:,}", f"{one['tokens']:,}")
        for one in document["tasks"]
    ]
    print_line(f"{clean(target.name)}: ok")
    print_line(text_table(("task", "kind", "items", "tokens"), rows, right="items tokens"))
    print_line(f"about {_time(found.seconds)} ({found.assumption}); writes nothing until `apply`")


@evaluation.command()
@_asked
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="Write the result to this folder instead."
)
@click.option("--force", is_flag=True, help="Evaluate again and replace the stored result.")
@click.option(
    "--watch", "is_watching", is_flag=True, help="Evaluate each checkpoint of RUN until it ends."
)
@click.option(
    "--require",
    "wanted",
    multiple=True,
    metavar="SCORE<=NUMBER",
    help="Exit with 1 unless this condition on a score holds: held-out/ppl<=30.",
)
@click.option(
    "--validate-only",
    is_flag=True,
    help="Run a code task's own solutions instead, as `albor eval validate` does; load no weights.",
)
@plan_option
@json_option
def apply(
    model: str,
    step: int | None,
    out: Path | None,
    force: bool,
    is_watching: bool,
    wanted: tuple[str, ...],
    validate_only: bool,
    only_plan: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Evaluate DIR, or a checkpoint of RUN (the newest).

    Scores of a run become its records, as eval/TASK/FIGURE at the checkpoint's step; items and
    result are stored in RUN_DIR/eval. Those of another folder are stored in --out. Finished
    evaluations are not repeated, interrupted ones continue. With --watch --json each checkpoint's
    document is a line.
    """
    from albor_core.cli.eval.requirement import requirements, unmet

    bounds = requirements(wanted)
    has_apply_options = out is not None or force or step is not None or bool(wanted)
    if validate_only and (is_watching or has_apply_options):
        raise UsageError(
            "--validate-only goes with neither --watch, --out, --force, --step nor --require"
        )
    if is_watching and has_apply_options:
        raise UsageError("--watch goes with neither --out, --force, --step nor --require")
    if only_plan:
        source = None if validate_only else model
        return _plan_of_apply(source, step, asked, out, is_watching, as_json=as_json)
    told = _told(asked)
    if validate_only:
        from albor_core.cli.eval.code import validate_task

        return validate_task(told.tasks, as_json=as_json)
    if is_watching:
        _watched(model, told, as_json)
        return 0
    done = _evaluated(_target(model, step), told, out, force)
    missing = [*unmet(bounds, done.document)]
    _show(done, as_json)
    for line in missing:
        click.echo(f"albor: {clean(line)}", err=True)
    return AlborError.exit_code if missing else 0


def _plan_of_apply(
    model: str | None,
    step: int | None,
    asked: Mapping[str, Any],
    out: Path | None,
    is_watching: bool,
    *,
    as_json: bool,
) -> int:
    """`--plan`: a result without --out is kept with the run, in a folder of its own. Without a
    model nothing is evaluated, and none kept.
    """
    from albor_core.eval.evaluate import refuse_nowhere
    from albor_core.eval.kept import paths_of, refuse_foreign
    from albor_core.eval.planned import plan as planned
    from albor_core.eval.planned import plan_document

    source = None if model is None else model_source(model)
    reads = [one for one in (source, asked["file"]) if one is not None]
    told, error = None, None
    try:
        told = _told(asked)
        reads += [path for task in told.tasks for path in paths_of(task)]
    except AlborError as found:
        error = found

    def estimate() -> Estimate:
        if told is None:
            raise error or AssertionError
        if model is None:
            return Estimate(0)
        if is_watching:
            _run_to_watch(model)
        if out is not None:
            refuse_foreign(out)
        target = _target(model, step)
        refuse_nowhere(target, out)
        found = planned(target, told, out=out)
        if found.problems:
            return Estimate(problems=found.problems)
        document = plan_document(found, target, told.settings)
        seconds = None if is_watching else found.seconds
        return Estimate(seconds=seconds, detail={"schema": "albor.eval.plan/1", **document})

    place = out or (source / "eval" / "*" if isinstance(source, Path) else None)
    return show_plan(reads, [place] if place else [], estimate, as_json=as_json)


def _show(done: Done, as_json: bool) -> None:
    document: Any = done.document
    if as_json:
        emit(document)
        return
    _print(done.document)
    news = "; evaluated before" if done.is_reused else ""
    print_line(f"{clean(done.place / 'result.json')}{news}")


def _evaluated(target: Target, told: EvaluationRequest, out: Path | None, force: bool) -> Done:
    from albor_core.eval.evaluate import apply as evaluate
    from albor_core.eval.kept import refuse_foreign
    from albor_core.eval.planned import plan as planned
    from albor_core.eval.planned import refuse

    if out is not None:
        refuse_foreign(out)
    refuse(planned(target, told, out=out), target)
    with _progress() as tell:
        return evaluate(target, told.tasks, told.settings, out=out, force=force, progress=tell)


def _run_to_watch(model: str) -> RunDir:
    run = _run(model)
    if run is None:
        raise UsageError(f"--watch is for runs, and {model!r} is a folder of weights")
    return run


def _watched(model: str, told: EvaluationRequest, as_json: bool) -> None:
    import os

    from albor_core.eval.watch import watch

    run = _run_to_watch(model)
    os.nice(_NICE)
    count = 0
    with _progress() as tell:
        for done in watch(run, told, progress=tell, missed=lambda text: print_note(clean(text))):
            count += 1
            if done.is_reused:
                print_note(f"{clean(done.document['model']['name'])}: evaluated before")
            elif as_json:
                document: Any = done.document
                emit(document)
            else:
                _print(done.document)
    if not count:
        raise NotFoundError(
            f"{run.id} has ended without a checkpoint", hint=f"albor runs show {run.id}"
        )
    print_note(f"{run.id} has ended; {counted(count, 'checkpoint')}")


def _print(document: Mapping[str, Any]) -> None:
    model, how = document["model"], document["settings"]
    words = f"batches of {how['batch_size']}, {how['dtype']}, {how['device']}, {how['backend']}"
    if how.get("path") is not None:
        words += f", {how['path']}"
    print_line(f"{clean(model['name'])} ({words})")
    rows = [
        (
            score["name"],
            _value_of(score),
            "-" if score["stderr"] is None else number(score["stderr"]),
            f"{score['n']:,}",
        )
        for task in document["tasks"]
        for score in task["scores"]
    ]
    print_line(text_table(("score", "value", "stderr", "n"), rows, right="value stderr n"))


def _value_of(score: Mapping[str, Any]) -> str:
    """A score with its exact interval, if it has one: results stored by older versions have
    none."""
    low, high = score.get("low"), score.get("high")
    if low is None or high is None:
        return number(score["value"])
    return f"{number(score['value'])} (95 % {low:.2g} to {high:.2g})"


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    name = ""
    with progress(lambda done, total: f"{name}: {done:,} of {total:,}") as tell:

        def told(task: str, done: int, total: int) -> None:
            nonlocal name
            name = clean(task)
            if tell is not None:
                tell(done, total)

        yield told


def _told(asked: Mapping[str, Any]) -> EvaluationRequest:
    """Tasks and settings of the options. Raises UsageError, ConfigError, NotFoundError."""
    from albor_core.eval.planned import EvaluationRequest, Settings, read_file, told_by_words

    words, file = asked["words"], asked["file"]
    if bool(words) == (file is not None):
        what = "both --task and --tasks" if words else "no task"
        raise UsageError(f"cannot tell what to evaluate: {what}", hint="--task text:held-out.txt")
    if file is not None:
        if asked["overrides"]:
            raise UsageError("--set is for --task", hint=f"write it into {file}")
        told = read_file(file)
    else:
        values = dict(map(_override, asked["overrides"]))
        told = told_by_words(words, values, Settings(), _stdin)
    given = {key: asked[key] for key in ("batch_size", "dtype", "device")}
    known = {key: value for key, value in given.items() if value is not None}
    return EvaluationRequest(told.tasks, replace(told.settings, **known))


def _stdin() -> str:
    import sys

    from albor_core.cli.model.generate import read_text

    example = "echo 'def f():' | albor eval plan DIR --task text:-"
    if sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("--task text:- reads stdin, and it is a terminal", hint=example)
    return read_text("-", "text", hint=example)


def _override(text: str) -> tuple[str, Any]:
    from albor_core.config.text.strict_yaml import load_yaml

    key, is_set, value = text.partition("=")
    if not is_set or not key:
        raise UsageError(f"--set {text!r} is not KEY=VALUE", hint="--set window=512")
    return key.strip(), load_yaml(value.encode(), file=f"--set {key}").data


def _target(model: str, step: int | None) -> Target:
    from albor_core.eval.target import checkpoint_of, open_target

    run = _run(model)
    if run is None:
        if step is not None:
            raise UsageError(f"--step is for runs, and {model!r} is a folder of weights")
        return open_target(Path(model))
    return open_target(checkpoint_of(run, step))


def _run(model: str) -> RunDir | None:
    """The run that an argument means; None for a folder of weights. Raises NotFoundError."""
    from albor_core.cli.model.folder import run_of

    return run_of(model)


def _time(seconds: float | None) -> str:
    from albor_core.run.values.quantity import duration

    return "an unknown time" if seconds is None else duration(max(1.0, seconds))
