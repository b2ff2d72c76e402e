"""guard/cmd.json and cmd_done.json: what one end writes the other reads, and nothing else."""

from __future__ import annotations

import pytest

from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import RunDir
from albor_core.run.trainer_box import (
    TrainerCommand,
    put_answer,
    put_command,
    read_answer,
    read_command,
)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "guard").mkdir()
    return RunDir(tmp_path)


def test_a_command_and_its_answer_arrive_as_they_were_sent(run):
    assert read_command(run) is None
    put_command(run, TrainerCommand("7f", "resume", "forward=180"))
    assert read_command(run) == TrainerCommand("7f", "resume", "forward=180")
    put_answer(run, "7f", "refused", "no")
    assert read_answer(run, "7f") == ("refused", "no")
    assert read_answer(run, "80") is None  # of a later command nothing is said yet


@pytest.mark.parametrize("body", [{}, {"id": 7, "cmd": "pause"}, {"id": "7f", "cmd": None}])
def test_what_is_no_command_is_none(run, body):
    write_json(run.guard / "cmd.json", body)
    assert read_command(run) is None


def test_both_files_keep_the_form_that_earlier_versions_read(run):
    put_command(run, TrainerCommand("7f", "pause"))
    put_answer(run, "7f", "done", "paused at step 3")
    command, answer = (run.guard / name for name in ("cmd.json", "cmd_done.json"))
    assert command.read_text() == '{"cmd": "pause", "id": "7f", "argument": ""}'
    assert answer.read_text() == '{"id": "7f", "status": "done", "detail": "paused at step 3"}'
