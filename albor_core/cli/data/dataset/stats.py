"""`albor data stats`: what a corpus or a folder of shards holds, and how it came to be so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from albor_core.cli.common.output import clean, emit, json_option, print_line
from albor_core.cli.common.progress import progress
from albor_core.run.values.quantity import byte_size, counted

BAR = 40  # characters
MOST_SOURCES = 20


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def stats(path: Path, as_json: bool) -> None:
    """Show documents, sources, drops, lengths, licences and steps of PATH.

    PATH is a corpus, one split of shards, or a folder of splits.
    """
    from albor_core.data.pipeline.stats import data_stats

    with progress(lambda done, total: f"{done:,} of {total:,} documents") as tell:
        found: Any = data_stats(path, progress=tell).to_json()
    if as_json:
        emit(found)
        return
    print_line(f"{clean(found['path'])}: {_head(found)}")
    for line in (*_splits(found), *_steps(found), *_sources(found), *_rest(found)):
        print_line(line)


def _head(found: Mapping[str, Any]) -> str:
    amounts = (("document", found["documents"]), ("token", found["tokens"]))
    known = [counted(amount, noun) for noun, amount in amounts if amount is not None]
    if found["bytes"] is not None:
        known.append(byte_size(found["bytes"]))
    return ", ".join([found["kind"], *known])


def _splits(found: Mapping[str, Any]) -> Iterator[str]:
    for split in found["splits"]:
        parts = [f"{counted(split['sequences'], 'sequence')} of {split['seq_len']:,}"]
        parts += [counted(split["tokens"], "token")]
        parts += [] if split["documents"] is None else [counted(split["documents"], "document")]
        yield f"  {clean(split['name']):<12} {', '.join(parts)}"


def _steps(found: Mapping[str, Any]) -> Iterator[str]:
    if found["steps"]:
        yield "steps"
    for step in found["steps"]:
        yield (
            f"  {clean(step['step']):<12} {step['documents']:,} of "
            f"{counted(step['documents_in'], 'document')}{split_names(step)}; "
            f"dropped {_counts(step['dropped'])}"
        )


def split_names(step: Mapping[str, Any]) -> str:
    """The splits of a step that did not make all of them."""
    return f" for {clean(', '.join(step['splits']))}" if step["splits"] else ""


def _sources(found: Mapping[str, Any]) -> Iterator[str]:
    sources = sorted(found["sources"], key=lambda one: (-one["documents"], one["source"]))
    if sources:
        yield "sources"
    for one in sources[:MOST_SOURCES]:
        parts = [counted(one["documents"], "document")]
        parts += [byte_size(one["bytes"])] if one["bytes"] is not None else []
        parts += [counted(one["tokens"], "token")] if one["tokens"] is not None else []
        parts += [f"mixed {one['weight']:.3g}x"] if one["weight"] is not None else []
        parts += [f"dropped {_counts(one['dropped'])}"] if one["dropped"] else []
        yield f"  {clean(one['source']):<28} {', '.join(parts)}"
    if len(sources) > MOST_SOURCES:
        yield f"  and {len(sources) - MOST_SOURCES:,} more: --json lists all"


def _rest(found: Mapping[str, Any]) -> Iterator[str]:
    if found["licences"]:
        yield f"licences: {_counts(found['licences'])}"
    if (searched := found["contamination"]) is not None:
        steps = [step for step in found["steps"] if step["step"] == "contamination"]
        left_out = sum(sum(step["dropped"].values()) for step in steps)
        yield (
            f"contamination: {left_out:,} of "
            f"{counted(searched['checked_documents'], 'document')} left out, searched for "
            f"{clean(', '.join(map(str, searched['against']))) or 'unknown'}"
        )
    if (lengths := found["histogram"]) is not None:
        yield f"documents by {lengths['unit']}"
        most = max([1, *lengths["counts"]])
        for low, count in zip(lengths["edges"], lengths["counts"], strict=False):
            if count:
                yield f"  {low:>10,}  {count:>10,}  {'#' * -(-count * BAR // most)}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {clean(name)}" for name, number in counts.items()) or "none"
