"""`albor data pretokenize`: a corpus, or a folder of splits, into token shards."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from albor_core.cli.common.count import COUNT
from albor_core.cli.common.output import clean, emit, json_option, print_line
from albor_core.cli.common.progress import progress
from albor_core.cli.data.step_command import plan_refused, workers_option
from albor_core.cli.plans.file_plan import OwnPlan, plan_option, plans
from albor_core.config.choices import PackingName
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.data.pack.manifest import Manifest
    from albor_core.data.pack.pack_plan import ShardPlan
    from albor_core.data.pack.pretokenize import ShardReport

_WHOLENESS = ("cut_documents", "long_documents", "rows_from_start")


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("--tokenizer", required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Write the shards to this folder.",
)
@click.option("--seq-len", required=True, type=COUNT)
@click.option(
    "--val-fraction", type=float,
    help="Hold this share of the documents out for val; 0 packs train only.  "
    "[default: 0.05; none of a folder of splits]",
)  # fmt: skip
@click.option("--seed", default=0, type=COUNT, show_default=True)
@click.option(
    "--eos",
    metavar="TOKEN",
    help="End each document with TOKEN.  [default: the tokenizer's end of text]",
)
@click.option(
    "--packing",
    type=click.Choice(get_args(PackingName)),
    default="concat",
    show_default=True,
    help="Cut rows anywhere, or keep documents whole where they fit into a row.",
)
@workers_option
@click.option("--force", is_flag=True, help="Replace shards made from other inputs.")
@plan_option
@json_option
@plans(lambda told: [told["corpus"], told["tokenizer"]], estimate=OwnPlan())
def pretokenize(
    corpus: Path,
    tokenizer: Path,
    out: Path,
    seq_len: int,
    val_fraction: float | None,
    seed: int,
    eos: str | None,
    packing: PackingName,
    workers: int | None,
    force: bool,
    only_plan: bool,
    as_json: bool,
) -> None:
    """Pack CORPUS into sequences of --seq-len tokens, split into train and val by file.

    A folder of corpora (train, val, test, as `albor data split` writes it) is packed split by
    split. The same command continues an interrupted one.
    """
    from albor_core.data.pack.datasets import register_dataset
    from albor_core.data.pack.pack_plan import plan_pretokenize
    from albor_core.data.pack.pretokenize import pretokenize as pack
    from albor_core.data.stage.workers import default_workers

    asked: dict[str, Any] = {"seq_len": seq_len, "val_fraction": val_fraction, "seed": seed}
    asked |= {"eos": eos, "packing": packing, "force": force}
    if only_plan:
        _show_plan(out, plan_pretokenize(corpus, tokenizer, out, **asked), as_json)
        return
    with progress(lambda done, total: f"{done:,} of {total:,} documents packed") as tell:
        report = pack(
            corpus, tokenizer, out, **asked, workers=workers or default_workers(), progress=tell
        )
    register_dataset(out, "dataset")
    if as_json:
        emit(_document(report, seq_len, packing))
        return
    for name, split in report.splits.items():
        print_line(
            f"{clean(out / name)}: {counted(split.sequences, 'sequence')}, "
            f"{counted(split.tokens, 'token')}{_wholeness(split)}"
        )
    if report.reused:
        print_line("made before from the same inputs; nothing was written")
    elif report.resumed_units:
        print_line(f"went on after {counted(report.resumed_units, 'part')} of an earlier try")


def _wholeness(split: Manifest) -> str:
    """Nothing for shards of before it was counted."""
    told = split.packing
    if not told or not split.documents:
        return ""
    cut, begun = told["cut_documents"] / split.documents, told["rows_from_start"] / split.sequences
    return f"; {cut:.1%} of documents cut, {begun:.1%} of sequences begin with a document"


def _document(report: ShardReport, seq_len: int, packing: PackingName) -> Any:
    return {
        "schema": "albor.data.pretokenize/1",
        "out": str(report.out_dir),
        "seq_len": seq_len,
        "packing": packing,
        "splits": {
            name: {
                "folder": str(report.out_dir / name),
                "sequences": split.sequences,
                "tokens": split.tokens,
                "dropped_tokens": split.dropped_tokens,
                "documents": split.documents,
                **{name: (split.packing or {}).get(name) for name in _WHOLENESS},
                "data_hash": split.data_hash,
            }
            for name, split in report.splits.items()
        },
        "skipped": report.skipped,
        "reused": report.reused,
        "resumed_units": report.resumed_units,
        "seconds": report.seconds,
    }


def _show_plan(out: Path, made: ShardPlan, as_json: bool) -> None:
    """Print the plan. Raises ConfigError, exit code 1, with every problem."""
    if made.problems:
        raise plan_refused(out, made.problems)
    plain = asdict(made)
    del plain["problems"]
    if as_json:
        plain["splits"] = list(made.splits)
        head = {"schema": "albor.data.pretokenize.plan/1", "ok": True, "out": str(out)}
        document: Any = {**head, **plain}
        emit(document)
        return
    print_line(f"{clean(out)}: ok; nothing was written")
    for key, value in plain.items():
        print_line(f"  {key.replace('_', ' '):<16} {clean(_fact(value))}")


def _fact(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else str(value)
