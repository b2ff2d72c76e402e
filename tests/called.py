"""The program, called in this process."""

import contextlib
import io
import json
import sys
from unittest import mock

import jsonschema
import pytest

from albor_core.cli.main import run
from albor_core.documents.json_schema import schema_of


def call(*words, stdin=b""):
    """(exit code, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["albor", *map(str, words)]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        run()
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def albor(*words):
    """(exit code, all that it printed)."""
    code, out, err = call(*words)
    return code, out + err


def document(*words, **how):
    """(exit code, the document), valid against its schema."""
    code, said, _ = call(*words, "--json", **how)
    found = json.loads(said)
    jsonschema.validate(found, schema_of(found["schema"].removesuffix("/1")))
    return code, found
