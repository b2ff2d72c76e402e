"""`albor tokenizer`: a vocabulary from a corpus, and what a tokenizer does with text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import COUNT, Count
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import clean, emit, field_values, json_option, print_line
from albor_core.cli.common.progress import progress
from albor_core.cli.data.step_command import plan_refused
from albor_core.cli.plans.file_plan import Estimate, plan_option, show_plan
from albor_core.run.errors import DataError
from albor_core.run.values.quantity import byte_size, counted, duration

if TYPE_CHECKING:
    from albor_core.data.pack.tokenizer import TokenizerPlan

_SHOWN = 12


@click.group(
    cls=LazyGroup,
    entries={
        "plan": (f"{__name__}:plan", "Check what `apply` would need."),
        "apply": (f"{__name__}:apply", "Train the tokenizer."),
        "check": (f"{__name__}:check", "Check round trips, special tokens and fertility."),
    },
)
def tokenizer() -> None:
    """Train a tokenizer (byte-level BPE, Unigram, WordPiece), or check an existing one."""


_kind_option = click.option(
    "--kind", type=click.Choice(("bpe", "wordpiece", "unigram")), default="bpe", show_default=True,
    help="bpe and unigram work on bytes and lose no text; wordpiece drops white space.",
)  # fmt: skip


_corpora = click.argument(
    "corpora", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="CORPUS..."
)
_lines_option = click.option(
    "--max-lines",
    type=Count(least=1),
    metavar="N",
    help="Train on the first N lines only.",
)


@tokenizer.command()
@_corpora
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path))
@click.option("--vocab-size", required=True, type=COUNT)
@_lines_option
@_kind_option
@json_option
def plan(
    corpora: tuple[Path, ...],
    out: Path,
    vocab_size: int,
    max_lines: int | None,
    kind: str,
    as_json: bool,
) -> None:
    """Check each CORPUS, --vocab-size and --out, and print what the text consists of and an
    estimate of the training time, from a trial on a part of it.

    Changes nothing. Exits with 1 and lists every problem, if there are any.
    """
    made, document = _planned(corpora, out, vocab_size, max_lines, kind)
    if as_json:
        emit(document)
    else:
        name = document["corpus"]
        took = "" if made.seconds is None else f" in about {duration(made.seconds)}"
        print_line(
            f"{clean(name)}: ok; `albor tokenizer apply` trains {vocab_size:,} tokens ({kind}) "
            f"into {clean(made.out)}{took}"
        )
        if made.sampled is not None and made.lines is not None:
            seen = made.sampled
            about = "" if seen.is_all else "about "
            part = "" if seen.is_all else f" in the first {byte_size(seen.bytes)}"
            print_line(
                f"  {about}{counted(made.lines, 'line')} of {byte_size(made.text_bytes or 0)}; "
                f"{counted(seen.unique_characters, 'different character')}{part}"
            )


def _planned(
    corpora: tuple[Path, ...], out: Path, vocab_size: int, max_lines: int | None, kind: str
) -> tuple[TokenizerPlan, Any]:
    """The plan of a tokenizer training. Raises ConfigError, exit code 1, with every problem."""
    from albor_core.data.pack.tokenizer import plan_tokenizer

    made = plan_tokenizer(corpora, out, vocab_size=vocab_size, kind=kind, max_lines=max_lines)
    name = ", ".join(map(str, corpora))
    if made.problems:
        raise plan_refused(Path(name), made.problems)
    return made, {
        "schema": "albor.tokenizer.plan/1",
        "corpus": name,
        "ok": True,
        "out": str(made.out),
        "vocab_size": made.vocab_size,
        "specials": list(made.specials),
        "documents": made.documents,
        "text_bytes": made.text_bytes,
        "kind": made.kind,
        "seconds": made.seconds,
        "lines": made.lines,
        "max_lines": max_lines,
        "sampled": None if made.sampled is None else field_values(made.sampled),
    }


@tokenizer.command()
@_corpora
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="tokenizer.json")
@click.option("--vocab-size", required=True, type=COUNT)
@_lines_option
@_kind_option
@click.option("--force", is_flag=True, help="Replace --out if it is another tokenizer.")
@plan_option
@json_option
def apply(
    corpora: tuple[Path, ...],
    out: Path,
    vocab_size: int,
    max_lines: int | None,
    kind: str,
    force: bool,
    only_plan: bool,
    as_json: bool,
) -> int:
    """Train a tokenizer of --vocab-size tokens, special tokens first, on each CORPUS.

    The vocabulary in the format of its kind (vocab.json and merges.txt of a bpe) is written beside
    it.
    """
    from albor_core.data.pack.tokenizer import refuse_another, train_tokenizer

    if only_plan:
        from albor_core.data.pack.tokenizer_kinds import names_beside

        def estimate() -> Estimate:
            made, document = _planned(corpora, out, vocab_size, max_lines, kind)
            if not force:
                refuse_another(out, vocab_size, kind)
            return Estimate(seconds=made.seconds, detail=document)

        writes = [out, *names_beside(kind, out)]
        return show_plan(corpora, writes, estimate, as_json=as_json, is_whole=True)
    with progress(
        lambda done, total: f"{done:,} of {total:,} documents; the merges follow"
    ) as tell:
        report = train_tokenizer(
            corpora, out, vocab_size=vocab_size, kind=kind, max_lines=max_lines, force=force,
            progress=tell,
        )  # fmt: skip
    if as_json:
        document: Any = {"schema": "albor.tokenizer.apply/1", **asdict(report)}
        emit(document | {"out": str(report.out)})
    else:
        news = "; up to date, nothing was written" if report.reused else ""
        beside = f", beside it {', '.join(report.files)}" if report.files else ""
        print_line(f"{clean(report.out)}: {report.vocab_size:,} tokens{beside}{news}")
    return 0


@tokenizer.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--corpus",
    type=click.Path(path_type=Path),
    help="Measure tokens per byte and per word on this corpus.",
)
@json_option
def check(file: Path, corpus: Path | None, as_json: bool) -> None:
    """Check FILE, any tokenizer.json: whether it encodes and decodes all text without loss (where
    it works on bytes), its special tokens, and which words of Python are one token.

    Exits with 7 if it is not fit for use.
    """
    from albor_core.data.pack.tokenizer_check import check_tokenizer

    found = check_tokenizer(file, corpus)
    if as_json:
        document: Any = {"schema": "albor.tokenizer.check/1", **found}
        emit(document)
    else:
        print_line(clean(found["path"]))
        for key, text in _facts(found):
            print_line(f"  {key:<16} {clean(text)}")
    if found["problems"]:
        click.get_current_context().exit(DataError.exit_code)


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The findings of `check_tokenizer`, for people."""
    yield "sha256", found["sha256"]
    yield "vocabulary", f"{found['vocab_size']:,} tokens, {found['kind'] or 'unknown kind'}"
    yield "special tokens", _shortened([f"{name} {n}" for name, n in found["specials"].items()])
    roles = [f"{role} {n}" for role, n in found["roles"].items() if n is not None]
    yield "of these", ", ".join(roles) or "none is known to end or begin a text"
    total, failed = found["samples"], found["failed"]
    promise = "" if found["promises_round_trip"] else "; this kind does not promise it"
    yield "round trips", f"{total - len(failed):,} of {total:,} samples{promise}"
    for text in failed[:_SHOWN]:
        yield "changed", text
    if found["byte_tokens"] is not None:
        yield "bytes", f"{found['byte_tokens']} of 256 have a token"
    patterns = found["patterns"]
    missing = f"; not {', '.join(patterns['missing'])}" if patterns["missing"] else ""
    yield "Python patterns", f"{patterns['covered']}/{patterns['of']} are one token{missing}"
    size = found["bytes_per_token"]
    yield "bytes per token", "unknown without --corpus" if size is None else f"{size:.2f}"
    if found["fertility"] is not None:
        rows = {"all": found["fertility"]["all"], **found["fertility"]["sources"]}
        for name, one in list(rows.items())[: _SHOWN + 1]:
            if one["tokens"]:
                per_word = one["tokens_per_word"] or 0.0
                yield (
                    "fertility",
                    (f"{one['tokens_per_byte']:.3f} tokens a byte, {per_word:.2f} a word: {name}"),
                )
    if found["not_applied"]:
        yield "not applied", f"{', '.join(found['not_applied'])}: a text is its own tokens here"
    for problem in found["problems"]:
        yield "problem", problem


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}" if names else "none"
