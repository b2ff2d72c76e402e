"""`albor data mix`: corpora by weight in one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import COUNT, Count, FiniteRange
from albor_core.cli.common.output import clean, emit, print_line
from albor_core.cli.common.progress import progress
from albor_core.cli.data.step_command import plan_refused, show_report, step_options
from albor_core.cli.plans.file_plan import OwnPlan, plans
from albor_core.run.errors import UsageError
from albor_core.run.values.quantity import byte_size, counted

if TYPE_CHECKING:
    from albor_core.data.mix.mix import MixPlan, MixShare
    from albor_core.data.mix.portions import Size


def _path_of(text: str) -> Path:
    from albor_core.data.mix.mix import parse_ingredient

    try:
        return parse_ingredient(text).path
    except UsageError:
        return Path(text)


@click.command()
@click.argument("corpora", nargs=-1, required=True, metavar="CORPUS[:WEIGHT]...")
@click.option(
    "-n", "documents", type=Count(least=1), help="Mix N documents: weights are shares of them.",
)  # fmt: skip
@click.option(
    "--bytes", "size", type=Count(least=1), help="Mix N bytes of text: weights are shares of them."
)
@click.option("--tokens", type=Count(least=1), help="Mix about N tokens; needs --bytes-per-token.")
@click.option(
    "--bytes-per-token", type=FiniteRange(min=0, min_open=True), metavar="X",
    help="Bytes per token, as `albor tokenizer check FILE --corpus CORPUS` prints it.",
)  # fmt: skip
@click.option("--seed", default=0, type=COUNT, show_default=True)
@click.option("--shuffle", is_flag=True, help="Order the documents by hash instead of by corpus.")
@step_options
@plans(lambda told: map(_path_of, told["corpora"]), estimate=OwnPlan())
def mix(
    corpora: tuple[str, ...],
    documents: int | None,
    size: int | None,
    tokens: int | None,
    bytes_per_token: float | None,
    seed: int,
    shuffle: bool,
    out: Path,
    workers: int | None,
    force: bool,
    only_plan: bool,
    as_json: bool,
) -> None:
    """Mix corpora, each by its WEIGHT (default 1), into --out.

    A weight is a number of copies: 2 includes a corpus twice, 0.5 a random half of it. With -n,
    --bytes or --tokens the weights are shares of that size, and corpora are repeated as often as
    needed.
    """
    from albor_core.data.mix.mix import mix as work
    from albor_core.data.mix.mix import parse_ingredient, plan_mix
    from albor_core.data.stage.workers import default_workers

    ingredients = [parse_ingredient(text) for text in corpora]
    asked = _size(documents, size, tokens, bytes_per_token)
    if only_plan:
        made = plan_mix(ingredients, out, size=asked, seed=seed, shuffle=shuffle, force=force)
        _show_plan(out, made, as_json)
        return
    with progress(lambda done, total: f"{done:,} of {total:,} pieces mixed") as tell:
        report, shares = work(
            ingredients, out, size=asked, seed=seed, shuffle=shuffle,
            workers=workers or default_workers(), force=force, progress=tell,
        )  # fmt: skip
    show_report("mix", report, as_json, {"inputs": [share.to_json() for share in shares]})
    if not as_json:
        _show_shares(shares)


def _size(
    documents: int | None, size: int | None, tokens: int | None, bytes_per_token: float | None
) -> Size | None:
    from albor_core.data.mix.portions import Size

    if sum(amount is not None for amount in (documents, size, tokens)) > 1:
        raise UsageError("-n, --bytes and --tokens exclude each other", hint="give one of them")
    if (tokens is None) != (bytes_per_token is None):
        raise UsageError(
            "--tokens and --bytes-per-token belong together",
            hint="--tokens 1M --bytes-per-token 3.5, or --bytes",
        )
    if documents is not None:
        return Size(documents)
    if tokens is not None and bytes_per_token is not None:
        size = round(tokens * bytes_per_token)
    return None if size is None else Size(size, "bytes")


def _show_plan(out: Path, made: MixPlan, as_json: bool) -> None:
    """Print the plan. Raises ConfigError, exit code 1, with every problem."""
    if made.problems:
        raise plan_refused(out, made.problems)
    documents = sum(share.documents_out for share in made.shares)
    size = sum(share.bytes_out for share in made.shares)
    if as_json:
        inputs = [share.to_json() for share in made.shares]
        action: Any = made.action
        emit({"schema": "albor.data.mix.plan/1", "ok": True, "out": str(out),
              "action": action, "documents": documents, "bytes": size,
              "out_bytes": made.out_bytes, "inputs": inputs})  # fmt: skip
        return
    print_line(
        f"{clean(out)}: ok; {made.action}: {counted(documents, 'document')}, {byte_size(size)}; "
        "nothing was written"
    )
    _show_shares(made.shares)


def _show_shares(shares: tuple[MixShare, ...]) -> None:
    for share in shares:
        whole, rest = share.portion.copies, share.portion.rest
        taken = [f"{whole:,} {'copy' if whole == 1 else 'copies'}"] if whole else []
        taken += [f"{rest:,} drawn"] if rest else []
        print_line(
            f"  {clean(share.ingredient.path)}: {counted(share.documents_out, 'document')}, "
            f"{byte_size(share.bytes_out)} ({' and '.join(taken)} of {share.corpus.rows:,})"
        )
