"""`albor data`: source trees in, token shards out."""

from __future__ import annotations

import click

from albor_core.cli.common.lazy import LazyGroup

ROOM = __name__.rpartition(".")[0]


@click.group(
    cls=LazyGroup,
    entries={
        "contamination": (
            "albor_core.cli.data.contamination:contamination",
            "Find what a benchmark asks in a corpus or shards.",
        ),
        "dedup": ("albor_core.cli.data.dedup:dedup", "Leave out equal and similar documents."),
        "import": (f"{ROOM}.import_:import_", "Import sources into a corpus of documents."),
        "filter": (f"{ROOM}.filter:filter_", "Keep documents by licence, privacy, tokens."),
        "quality": (f"{ROOM}.quality:quality", "Keep documents that look worth training on."),
        "pretokenize": (f"{ROOM}.pretokenize:pretokenize", "Pack a corpus into token shards."),
        "mix": (f"{ROOM}.mix:mix", "Mix corpora by weight into one."),
        "fim": (f"{ROOM}.fim:fim", "Cut documents for fill-in-the-middle."),
        "provenance": (
            f"{ROOM}.dataset.provenance:provenance",
            "Show where data comes from; check it.",
        ),
        "build": (f"{ROOM}.dataset.build:build", "Build a data set from a recipe."),
        "split": (f"{ROOM}.split:split", "Split a corpus into train, val and test."),
        "batch": (f"{ROOM}.batch:batch", "Show what a step of a run was trained on."),
        "verify": (f"{ROOM}.verify:verify", "Check every byte of shards against their manifest."),
        "stats": (
            f"{ROOM}.dataset.stats:stats",
            "Show what a corpus or shards hold, step by step.",
        ),
    },
)
def data() -> None:
    """Turn source trees into token shards."""
