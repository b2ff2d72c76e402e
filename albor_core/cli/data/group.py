"""`albor data`: source trees in, token shards out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import COUNT
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import clean, emit, json_option, say, talk
from albor_core.cli.common.progress import progress
from albor_core.run.errors import ConfigError, DataError

if TYPE_CHECKING:
    from albor_core.data.pack.pretokenize import ShardPlan
    from albor_core.data.read.sources import ImportPlan


plan_option = click.option(
    "--plan", "only_plan", is_flag=True,
    help="Show what would be read and written, and every problem. Changes nothing.",
)  # fmt: skip


@click.group(
    cls=LazyGroup,
    entries={
        "import": (f"{__name__}:import_", "Import source trees into one Parquet file."),
        "pretokenize": (f"{__name__}:pretokenize", "Pack a corpus into token shards."),
        "verify": (f"{__name__}:verify", "Check every byte of shards against their manifest."),
    },
)
def data() -> None:
    """Turn source trees into token shards."""


@data.command(name="import")
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR..."
)
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="FILE.parquet")
@click.option("--exclude", multiple=True, help="Skip folders of this name; repeatable.")
@click.option(
    "--suffix",
    "suffixes",
    multiple=True,
    default=(".py",),
    show_default=True,
    help="Read files with this suffix; repeatable.",
)
@click.option("--force", is_flag=True, help="Replace a file that holds other data.")
@plan_option
@json_option
def import_(
    folders: tuple[Path, ...],
    out: Path,
    exclude: tuple[str, ...],
    suffixes: tuple[str, ...],
    force: bool,
    only_plan: bool,
    as_json: bool,
) -> None:
    """Import the files below each DIR into one Parquet file (text, source, file): those whose names
    end in --suffix.
    """
    from albor_core.data.read.sources import import_sources, plan_import

    with progress(lambda files, size: f"{files:,} files, {size:,} bytes") as tell:
        if only_plan:
            made = plan_import(
                folders, out, exclude=exclude, suffixes=suffixes, force=force, progress=tell
            )
        else:
            report = import_sources(
                folders, out, exclude=exclude, suffixes=suffixes, force=force, progress=tell
            )
    if only_plan:
        _show_plan("import", out, made, as_json)
        return
    if as_json:
        emit({"schema": "albor.data.import/1", **_plain(report)})
    else:
        skipped = ", ".join(f"{count} {why}" for why, count in sorted(report.skipped.items()))
        say(f"{out}: {report.files:,} files, {report.bytes:,} bytes; skipped {skipped or 'none'}")
        if report.reused:
            say("up to date: it holds these very documents; nothing was written")


@data.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("--tokenizer", required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), help="Folder of shards."
)
@click.option("--seq-len", required=True, type=COUNT)
@click.option("--val-fraction", default=0.05, show_default=True)
@click.option("--seed", default=0, type=COUNT, show_default=True)
@click.option(
    "--eos",
    metavar="TOKEN",
    help="End each document with TOKEN.  [default: the tokenizer's end of text]",
)
@click.option("--force", is_flag=True, help="Replace shards made from other inputs.")
@plan_option
@json_option
def pretokenize(
    corpus: Path,
    tokenizer: Path,
    out: Path,
    seq_len: int,
    val_fraction: float,
    seed: int,
    eos: str | None,
    force: bool,
    only_plan: bool,
    as_json: bool,
) -> None:
    """Pack CORPUS into sequences of --seq-len tokens, split into train and val by file."""
    from albor_core.data.pack.pretokenize import plan_pretokenize
    from albor_core.data.pack.pretokenize import pretokenize as pack

    asked: dict[str, Any] = {"seq_len": seq_len, "val_fraction": val_fraction, "seed": seed}
    asked |= {"eos": eos, "force": force}
    if only_plan:
        _show_plan("pretokenize", out, plan_pretokenize(corpus, tokenizer, out, **asked), as_json)
        return
    with progress(lambda done, total: f"{done:,} of {total:,} documents packed") as tell:
        report = pack(corpus, tokenizer, out, **asked, progress=tell)
    if as_json:
        splits = {
            name: {
                "folder": str(out / name),
                "sequences": split.sequences,
                "tokens": split.tokens,
                "documents": split.documents,
                "data_hash": split.data_hash,
            }
            for name, split in (("train", report.train), ("val", report.val))
        }
        emit(
            {
                "schema": "albor.data.pretokenize/1",
                "out": str(out),
                "seq_len": seq_len,
                "splits": splits,
                "skipped": report.skipped,
                "reused": report.reused,
            }
        )
    else:
        for name, split in (("train", report.train), ("val", report.val)):
            say(f"{out / name}: {split.sequences:,} sequences, {split.tokens:,} tokens")
        if report.reused:
            say("made before from the same inputs; nothing was written")


@data.command()
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def verify(folder: Path, as_json: bool) -> None:
    """Check every shard in FOLDER (a split such as shards/train) against its manifest.

    Exits with 7 where something is wrong; --json lists it as `problems`, with `ok` false.
    """
    from albor_core.data.pack.pretokenize import verify_shards

    problems = verify_shards(folder, hashes=True)
    if as_json:
        emit(
            {
                "schema": "albor.data.verify/1",
                "folder": str(folder),
                "ok": not problems,
                "problems": [asdict(problem) for problem in problems],
            }
        )
        if problems:
            click.get_current_context().exit(DataError.exit_code)
        return
    for problem in problems:
        talk(f"  - {clean(problem.file)}: {clean(problem.message)}")
    if problems:
        remedies = dict.fromkeys(problem.hint for problem in problems if problem.hint)
        raise DataError(f"{folder}: {len(problems)} problem(s)", hint="; or ".join(remedies))
    say(f"{clean(folder)}: ok")


def _show_plan(verb: str, out: Path, made: ImportPlan | ShardPlan, as_json: bool) -> None:
    """Raises ConfigError, exit code 1, with every problem."""
    if made.problems:
        error = ConfigError(f"{out}: {len(made.problems)} problem(s)", problems=made.problems)
        error.exit_code = 1
        raise error
    plain = {k: v for k, v in _plain(made).items() if k not in ("problems", "out")}
    if as_json:
        emit({"schema": f"albor.data.{verb}.plan/1", "ok": True, "out": str(out), **plain})
        return
    say(f"{clean(out)}: ok; nothing was written")
    for key, value in plain.items():
        say(f"  {key.replace('_', ' '):<16} {clean(_fact(value))}")


def _fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count:,} {why}" for why, count in value.items()) or "none"
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(report: object) -> dict[str, object]:
    return {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(report).items()  # type: ignore[call-overload]
    }
