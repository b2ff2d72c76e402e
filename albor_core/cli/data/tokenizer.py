"""`albor tokenizer`: a byte-level BPE vocabulary from a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from albor_core.cli.common.count import COUNT
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import clean, emit, json_option, say
from albor_core.cli.common.progress import progress
from albor_core.run.errors import ConfigError, DataError


@click.group(
    cls=LazyGroup,
    entries={
        "plan": (f"{__name__}:plan", "Check what `apply` would need."),
        "apply": (f"{__name__}:apply", "Train the tokenizer."),
        "check": (f"{__name__}:check", "Check round trips, special tokens and bytes per token."),
    },
)
def tokenizer() -> None:
    """Train and check a byte-level BPE tokenizer."""


@tokenizer.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path))
@click.option("--vocab-size", required=True, type=COUNT)
@json_option
def plan(corpus: Path, out: Path, vocab_size: int, as_json: bool) -> None:
    """Check CORPUS, --vocab-size and --out. Changes nothing; exits 1 with every problem."""
    from albor_core.data.pack.tokenizer import plan_tokenizer

    made = plan_tokenizer(corpus, out, vocab_size=vocab_size)
    if made.problems:
        bad = ConfigError(f"{corpus}: {len(made.problems)} problem(s)", problems=made.problems)
        bad.exit_code = 1
        raise bad
    if as_json:
        emit(
            {
                "schema": "albor.tokenizer.plan/1",
                "corpus": str(corpus),
                "ok": True,
                "out": str(made.out),
                "vocab_size": made.vocab_size,
                "specials": list(made.specials),
                "documents": made.documents,
                "text_bytes": made.text_bytes,
            }
        )
    else:
        say(f"{corpus}: ok; `albor tokenizer apply` trains {vocab_size:,} tokens into {made.out}")


@tokenizer.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="tokenizer.json")
@click.option("--vocab-size", required=True, type=COUNT)
@click.option("--force", is_flag=True, help="Replace another tokenizer.")
@json_option
def apply(corpus: Path, out: Path, vocab_size: int, force: bool, as_json: bool) -> None:
    """Train a tokenizer of --vocab-size tokens, specials first, on CORPUS."""
    from albor_core.data.pack.tokenizer import train_tokenizer

    with progress(
        lambda done, total: f"{done:,} of {total:,} documents; the merges follow"
    ) as tell:
        report = train_tokenizer(corpus, out, vocab_size=vocab_size, force=force, progress=tell)
    if as_json:
        plain = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(report).items()}
        emit({"schema": "albor.tokenizer.apply/1", **plain})
    else:
        news = "; up to date, nothing was written" if report.reused else ""
        say(f"{report.out}: {report.vocab_size:,} tokens{news}")


@tokenizer.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--corpus", type=click.Path(path_type=Path), help="Measure bytes per token on it.")
@json_option
def check(file: Path, corpus: Path | None, as_json: bool) -> None:
    """Check that FILE encodes and decodes anything without loss. Exits with 7 where it does not."""
    from albor_core.data.pack.tokenizer import check_tokenizer

    found = check_tokenizer(file, corpus)
    if as_json:
        emit({"schema": "albor.tokenizer.check/1", **found})
    else:
        say(clean(found["path"]))
        for key, text in _facts(found):
            say(f"  {key:<16} {clean(text)}")
    if found["problems"]:
        click.get_current_context().exit(DataError.exit_code)


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What `check_tokenizer` found, for people."""
    yield "sha256", found["sha256"]
    yield "vocabulary", f"{found['vocab_size']:,} tokens"
    names = found["specials"].items()
    yield "special tokens", ", ".join(f"{n} {'missing' if i is None else i}" for n, i in names)
    total, failed = found["samples"], found["failed"]
    yield "round trips", f"{total - len(failed):,} of {total:,} samples"
    for text in failed:
        yield "changed", text
    size = found["bytes_per_token"]
    yield "bytes per token", "unknown without --corpus" if size is None else f"{size:.2f}"
    for problem in found["problems"]:
        yield "problem", problem
