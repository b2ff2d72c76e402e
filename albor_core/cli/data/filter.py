"""`albor data filter`: licences, secrets, personal data, lengths in tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.data.step_command import planned_step, run, step_options
from albor_core.run.errors import UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.data.stage.counts import Counts

_HANDLING = click.Choice(["drop", "mask", "keep"])


@click.command("filter")
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("--min-tokens", type=Count(least=1), help="Drop documents with fewer tokens.")
@click.option("--max-tokens", type=Count(least=1), help="Drop documents with more tokens.")
@click.option(
    "--tokenizer", type=click.Path(path_type=Path), help="Count tokens with this tokenizer.json."
)
@click.option(
    "--secrets",
    type=_HANDLING,
    default="keep",
    show_default=True,
    help="Drop documents with keys, tokens or passwords, mask these, or do not search for them.",
)
@click.option(
    "--personal-data",
    type=_HANDLING,
    default="keep",
    show_default=True,
    help="The same for e-mail addresses, phone numbers, public IPv4 addresses, IBANs, cards.",
)
@click.option(
    "--licence",
    "licences",
    multiple=True,
    metavar="SPDX",
    help="Keep documents under this licence; repeatable. Of `A OR B`, one allowed side is enough.",
)
@click.option(
    "--no-licence",
    type=click.Choice(["keep", "drop"]),
    help="Keep or drop documents without a licence.  [default: drop with --licence, else keep]",
)
@step_options
@planned_step(lambda told: [told["tokenizer"]])
def filter_(
    corpus: Path,
    min_tokens: int | None,
    max_tokens: int | None,
    tokenizer: Path | None,
    secrets: Any,
    personal_data: Any,
    licences: tuple[str, ...],
    no_licence: Any,
    **how: Any,
) -> None:
    """Keep the documents of CORPUS that may and can be trained on: by licence, without secrets and
    personal data, within a length in tokens.

    What is masked is replaced by its kind: <EMAIL>, <PHONE>, <IP_ADDRESS>, <IBAN>, <CARD>,
    <SECRET>, <PRIVATE_KEY>.
    """
    from albor_core.data.clean.filter import DocumentFilter
    from albor_core.data.clean.licences import allowed_ids

    no_licence = no_licence or ("drop" if licences else "keep")
    step = DocumentFilter(
        allowed_ids(licences), no_licence, secrets, personal_data, min_tokens, max_tokens,
        _counter(min_tokens, max_tokens, tokenizer),
    )  # fmt: skip
    if step == DocumentFilter():
        raise UsageError(
            "nothing to filter by", hint="such as: --secrets mask --personal-data mask"
        )
    run("filter", corpus, step, lines=_found, **how)


def _counter(least: int | None, most: int | None, tokenizer: Path | None) -> Any:
    if least is None and most is None:
        if tokenizer is not None:
            raise UsageError(
                "--tokenizer is of no use without --min-tokens or --max-tokens",
                hint="such as: --min-tokens 32 --max-tokens 8192",
            )
        return None
    if tokenizer is None:
        raise UsageError(
            "--min-tokens and --max-tokens need --tokenizer FILE",
            hint="train one with: albor tokenizer apply CORPUS --vocab-size N --out FILE",
        )
    if least is not None and most is not None and least > most:
        raise UsageError(
            f"--min-tokens {least:,} is more than --max-tokens {most:,}", hint="swap the two"
        )
    from albor_core.data.clean.token_lengths import token_counter
    from albor_core.data.pack.special_tokens import tokenizer_file
    from albor_core.data.pack.tokenizer import load_tokenizer

    load_tokenizer(tokenizer)
    return token_counter(tokenizer_file(tokenizer), load_tokenizer)


def _found(counts: Counts) -> Iterator[str]:
    for key, number in sorted(counts.extra.items()):
        yield f"  {key:<28} {counted(number, 'place')}"
