"""`albor schema NAME`: the JSON Schema of a document that some command prints or a run writes, and
of the config file.
"""

from __future__ import annotations

import json

import click

from albor_core.cli.common.output import emit, json_option, print_line, write_stdout
from albor_core.run.errors import NotFoundError

CONFIG = "config"  # its schema is that of the sections


@click.command()
@click.argument("name", required=False)
@json_option
def schema(name: str | None, as_json: bool) -> None:
    """Print the JSON Schema called NAME; without a name, list the names.

    `albor schema config` is the schema of the config file, for an editor or a program that writes
    one; the others describe what commands print and what run directories hold.
    """
    from albor_core.documents.json_schema import names, schema_of

    if name is None:
        known = [*names(), CONFIG]
        if as_json:
            emit({"schema": "albor.schema/1", "names": known})
        else:
            print_line("\n".join(known))
        return
    stem = name.removesuffix("/1")
    if stem == CONFIG:
        from albor_core.config.json_schema import config_schema

        whole = config_schema()
    elif stem in names():
        whole = schema_of(stem)
    else:
        raise NotFoundError(f"no schema {name!r}", hint="albor schema")
    write_stdout(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
