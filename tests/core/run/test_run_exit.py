"""exit.json: one document, whoever writes it."""

from __future__ import annotations

import jsonschema
import pytest

from albor_core.documents.json_schema import schema_of
from albor_core.run.exit import exit_document, forget_exit, read_exit, reserve_exit, write_exit
from albor_core.run.rundir import RunDir

SCHEMA = schema_of("albor.exit")
WORDS = {"code": 1, "reason": "exception", "step": 7, "message": "m", "wall": 1.0}


@pytest.mark.parametrize("lines_lost", [None, 0, 3])
@pytest.mark.parametrize("is_reserved", [True, False])
def test_last_words_are_read_as_they_were_written_with_room_reserved_or_not(
    tmp_path, lines_lost, is_reserved
):
    run = RunDir(tmp_path)
    reserved = reserve_exit(run) if is_reserved else None
    document = exit_document(run, 2, "n", **WORDS, lines_lost=lines_lost)
    write_exit(run, document, reserved)
    assert read_exit(run) == document
    assert document.get("lines_lost") == lines_lost  # counted by nobody: the key is absent
    jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_a_life_that_begins_has_no_last_words(tmp_path):
    run = RunDir(tmp_path)
    forget_exit(run)
    write_exit(run, exit_document(run, None, None, **WORDS))
    forget_exit(run)
    assert read_exit(run) is None
