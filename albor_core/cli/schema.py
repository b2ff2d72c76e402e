"""`albor schema NAME`: the JSON Schema of a document that some command prints or a run writes."""

from __future__ import annotations

from pathlib import Path

import click

from albor_core.cli.common.output import emit, json_option, put, say
from albor_core.run.errors import NotFoundError

FOLDER = Path(__file__).parent / "schemas"


def names() -> list[str]:
    """Every document with a published schema."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@click.command()
@click.argument("name", required=False)
@json_option
def schema(name: str | None, as_json: bool) -> None:
    """Print the JSON Schema called NAME; without a name, list the names."""
    if name is None:
        if as_json:
            emit({"schema": "albor.schema/1", "names": names()})
        else:
            say("\n".join(names()))
        return
    stem = name.removesuffix("/1")
    if stem not in names():
        raise NotFoundError(f"no schema {name!r}", hint="albor schema")
    put((FOLDER / f"{stem}.json").read_text(encoding="utf-8"))
