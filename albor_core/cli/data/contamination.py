"""`albor data contamination`: documents that hold what a benchmark asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count, FiniteRange
from albor_core.cli.common.output import clean, emit, json_option, print_line
from albor_core.cli.common.progress import progress
from albor_core.cli.data.step_command import plan_refused, show_plan, step_of_plan, workers_option
from albor_core.cli.plans.file_plan import OwnPlan, plans, relax
from albor_core.feed.data.folder import SEALED, kind_of
from albor_core.run.errors import AlborError, DataError, Problem, UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.data.clean.contamination import ContaminationStep
    from albor_core.data.stage.counts import Counts

MOST_LINES = 20
_SHOWN = 160  # characters of what is shared


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="CORPUS|SHARDS..."
)
@click.option(
    "--against",
    required=True,
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Compare with these tasks (JSON lines), corpus or text; repeatable.",
)
@click.option(
    "--words", default=10, show_default=True, type=Count(least=1, most=1000),
    help="Report matches of N consecutive equal words.",
)  # fmt: skip
@click.option(
    "--min-share", default=0.0, show_default=True, type=FiniteRange(0, 1),
    help="Leave out pairs that share less than this part of the task.",
)  # fmt: skip
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    help="Decode SHARDS with this tokenizer.json, the one they were packed with.",
)
@click.option(
    "--report", type=click.Path(path_type=Path), help="Also write the JSON document to this file."
)
@click.option("--fail-on-hit", is_flag=True, help="Exit with 7 if any match is found.")
@click.option("--drop", is_flag=True, help="Write CORPUS without the documents found to --out.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="With --drop, write to this folder or FILE.parquet.",
)
@click.option("--force", is_flag=True, help="With --drop, replace --out if it holds other data.")
@click.option(
    "--plan", "only_plan", is_flag=True, is_eager=True, callback=relax,
    help="Show what would be read and written, and every problem. Changes nothing.",
)  # fmt: skip
@workers_option
@json_option
@plans(
    lambda told: [*told["paths"], *told["against"], *filter(None, [told["tokenizer"]])],
    lambda told: [*filter(None, [told["out"], told["report"]])],
    OwnPlan(lambda *of: _size(*of)),
)
def contamination(
    paths: tuple[Path, ...],
    against: tuple[Path, ...],
    words: int,
    min_share: float,
    tokenizer: Path | None,
    report: Path | None,
    fail_on_hit: bool,
    drop: bool,
    out: Path | None,
    force: bool,
    only_plan: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Find documents that share --words consecutive words with tasks, and show what they share.

    Words are letters, digits and underscores, in lower case. SHARDS (such as shards/train) are
    decoded with --tokenizer. Texts of another split are found the same way: --against val.parquet.
    """
    from albor_core.data.clean.contamination import contamination_step
    from albor_core.data.stage.stage import plan_step, run_step
    from albor_core.data.stage.workers import default_workers
    from albor_core.run.files.publish import check_target, publish_json

    _check_usage(paths, tokenizer, out, drop, force)
    if report is not None:
        check_target(report, "contamination.json")
    with step_of_plan("against", paths[0], out, only_plan):
        step = contamination_step(against, n=words, min_share=min_share)
    how_many = workers or default_workers()
    if only_plan:
        if out is not None:
            show_plan("contamination", plan_step(paths[0], out, step, force=force), as_json)
        elif wrong := [*_unreadable(paths, tokenizer)]:
            raise plan_refused(paths[0], wrong)
        elif not as_json:
            print_line("ok; nothing was written")
        return
    began = time.monotonic()
    found: dict[str, Any] = {"out": None, "data_hash": None, "reused": False, "resumed_units": 0}
    if out is not None:
        with progress(lambda done, total: f"{done:,} of {total:,} documents") as tell:
            made = run_step(paths[0], out, step, workers=how_many, force=force, progress=tell)
        counts = made.record.counts
        found = {"out": str(out), "data_hash": made.record.data_hash, "reused": made.reused}
        found["resumed_units"] = made.resumed_units
    else:
        counts = _checked(paths, tokenizer, step, how_many)
    found |= {"seconds": time.monotonic() - began}
    document: Any = _document(paths, step, counts) | found
    if report is not None:
        publish_json(report, document)
    if as_json:
        emit(document)
    else:
        _show(document)
        if report is not None:
            print_line(f"report: {clean(report)}")
    if fail_on_hit and document["hits_found"]:
        if as_json:
            click.get_current_context().exit(DataError.exit_code)
        raise DataError(
            f"{', '.join(map(str, paths))}: "
            f"{counted(document['contaminated_documents'], 'document', 'holds', 'hold')} (of "
            f"{document['checked_documents']:,}) what {', '.join(step.against)} holds",
            hint="leave them out: albor data contamination CORPUS --against FILE --drop -o OUT",
        )


def _unreadable(paths: tuple[Path, ...], tokenizer: Path | None) -> Iterator[Problem]:
    from albor_core.data.pack.shard_check import read_manifest
    from albor_core.data.pack.tokenizer import load_tokenizer
    from albor_core.data.stage.corpus import open_corpus

    opens = open_corpus if tokenizer is None else partial(read_manifest, scan=True)
    asked: list[tuple[str, Callable[[], object]]] = [
        ("corpus", partial(opens, path)) for path in paths
    ]
    asked += [] if tokenizer is None else [("tokenizer", partial(load_tokenizer, tokenizer))]
    for name, question in asked:
        try:
            question()
        except AlborError as error:
            yield Problem(name, error.message, error.hint)


def _size(told: Mapping[str, Any], found: Mapping[str, Any]) -> int | None:
    """A report is as long as what is found; where none is asked for nothing is written."""
    return None if told["report"] else OwnPlan().size(told, found) if told["out"] else 0


def _check_usage(
    paths: tuple[Path, ...],
    tokenizer: Path | None,
    out: Path | None,
    drop: bool,
    writes: bool,
) -> None:
    if drop and (out is None or len(paths) != 1 or tokenizer is not None):
        raise UsageError(
            "--drop writes one corpus without what is found: it needs -o OUT, and not --tokenizer",
            hint="albor data contamination CORPUS --against FILE --drop -o OUT",
        )
    if not drop and (out is not None or writes):
        raise UsageError(
            "-o and --force go with --drop; a check writes no corpus",
            hint="add --drop, or use --report FILE.json for what is found",
        )
    for path in paths:
        if tokenizer is None and kind_of(path) in SEALED:
            raise UsageError(
                f"{path}: holds token shards, which only their tokenizer can decode",
                hint="add --tokenizer FILE",
            )


def _checked(
    paths: tuple[Path, ...], tokenizer: Path | None, step: ContaminationStep, workers: int
) -> Counts:
    from albor_core.data.clean.contamination import check_corpus, check_texts
    from albor_core.data.pipeline.decoded import shard_documents
    from albor_core.data.stage.counts import Counts

    counts = Counts()
    with progress(lambda done, total: f"{done:,} of {total:,} documents") as tell:
        for path in paths:
            if tokenizer is not None:
                counts += check_texts(shard_documents(path, tokenizer), step)
            else:
                counts += check_corpus(path, step, workers=workers, progress=tell)
    return counts


def _document(paths: tuple[Path, ...], step: ContaminationStep, counts: Counts) -> dict[str, Any]:
    total, plain = counts.total, counts.to_json()
    hits = plain.pop("findings").get("hits", [])
    return {
        "schema": "albor.data.contamination/1",
        "paths": [str(path) for path in paths],
        "words": step.tasks.n,
        "against": list(step.against),
        "tasks": len(step.tasks.names),
        "checked_documents": total.documents_in,
        "contaminated_documents": total.dropped.total(),
        "contaminated_tasks": len({hit["task"] for hit in hits}),
        "hits_found": counts.extra["hits"],
        "hits": hits,
        "documents_in": total.documents_in,
        "bytes_in": total.bytes_in,
        "documents": total.documents,
        "bytes": total.bytes,
        "dropped": dict(total.dropped),
        **plain,
    }


def _summary(found: dict[str, Any]) -> str:
    hit, checked = found["contaminated_documents"], counted(found["checked_documents"], "document")
    words, tasks = counted(found["words"], "consecutive word"), counted(found["tasks"], "task")
    against = clean(", ".join(found["against"]))
    if not hit:
        return f"none of {checked} shares {words} with the {tasks} of {against}"
    verb = "shares" if hit == 1 else "share"
    some = f"{found['contaminated_tasks']:,} of {tasks} of {against}"
    return f"{hit:,} of {checked} {verb} {words} with {some}"


def _show(found: dict[str, Any]) -> None:
    print_line(_summary(found))
    hits = sorted(found["hits"], key=lambda hit: -hit["share"])  # stable: else by document
    for hit in hits[:MOST_LINES]:
        print_line(
            f"  {clean(hit['document'])}  {clean(hit['task'])}  jaccard {hit['jaccard']:.3f}  "
            f"{hit['share']:.1%} of the task"
        )
        words = " ".join(hit["overlap"].split())
        print_line(f"    {clean(words if len(words) <= _SHOWN else words[:_SHOWN] + ' ...')}")
    if found["hits_found"] > MOST_LINES:
        print_line(
            f"  and {found['hits_found'] - MOST_LINES:,} more: --report FILE.json keeps them"
        )
    if found["out"] is not None:
        print_line(
            f"{clean(found['out'])}: {counted(found['documents'], 'document')}, "
            f"{found['bytes']:,} bytes"
        )
        if found["reused"]:
            print_line("up to date: made before from the same inputs; nothing was written")
