"""FIFOs, links and folders where a plain file belongs: nothing waits for them or follows them."""

from __future__ import annotations

import os
import subprocess

import pytest
from cli_user import ALBOR

from albor_core.config.load import load_config
from albor_core.config.text import config_file
from albor_core.run.errors import NotFoundError
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal, last_event, read_journal
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now
from albor_core.store.query.reader import Reader

COMMANDS = (
    *("runs ls", "runs show one", "runs tail one", "runs diff one two", "doctor", "runs gc -y"),
    *("runs export one -o out.csv", "db check", "db rebuild", "report one -o page.html"),
)


@pytest.fixture
def runs(desk):
    """Two ended runs, indexed."""
    made = [
        create_run(desk.folder / "runs", name, experiment="e", name=name, kind="track", argv=[])
        for name in ("one", "two")
    ]
    for run in made:
        journal = Journal(run.journal, attempt=1)
        for step in range(1, 10):
            journal.metrics(step, {"train/loss": 1.0 / step})
        journal.close()
        index_now(run)
    return made


def fifo(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def elsewhere(path):
    path.symlink_to("/etc/passwd")


def folder(path):
    path.mkdir()


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("put", [fifo, endless, elsewhere, folder])
def test_a_journal_that_is_no_plain_file_is_neither_waited_for_nor_followed(desk, runs, put, words):
    runs[0].journal.unlink()
    put(runs[0].journal)
    result = desk.quick(*words.split())  # a traceback would leave `quick`
    assert "root:x:0" not in result.out
    with Reader(global_store()) as reader:  # and what was indexed of it is still there
        assert (reader.run("one").last_step, reader.run("two").last_step) == (9, 9)


@pytest.mark.parametrize(
    ("put", "what"), [(fifo, "a FIFO"), (endless, "a link"), (folder, "a folder")]
)
def test_a_journal_that_is_no_plain_file_is_named(desk, runs, put, what):
    runs[0].journal.unlink()
    put(runs[0].journal)
    checked = desk.quick("db", "check")
    assert checked.code == 1
    assert f"{runs[0].journal}: is {what}, not a plain file" in checked.err
    rebuilt = desk.quick("db", "rebuild")
    assert rebuilt.code == 1
    assert f"{runs[0].journal}: is {what}, not a plain file" in rebuilt.err
    with pytest.raises(OSError, match=f"is {what}"):
        next(read_journal(runs[0].journal))
    assert last_event(runs[0].journal, "x") is None


@pytest.mark.parametrize("words", ["train plan", "train validate", "train apply"])
def test_a_config_that_is_a_fifo_without_a_writer_is_refused(desk, monkeypatch, words):
    monkeypatch.setattr(config_file, "WAIT_S", 0.1)
    os.mkfifo(desk.folder / "pipe.yaml")
    refused = desk.quick(*words.split(), "pipe.yaml")
    assert refused.code in (2, 3)
    assert "pipe.yaml: a FIFO that nothing was written to for 0.1 s" in refused.err
    assert "next:" in refused.err


def test_a_config_may_be_what_another_program_writes(desk):
    (desk.folder / "bad.yaml").write_text("model: {path: .}\nnonsense: 1\n")
    done = subprocess.run(
        ["bash", "-c", '"$@" <(sleep 0.2; cat bad.yaml)', "bash", *ALBOR, "train", "validate"],
        cwd=desk.folder, env=desk.environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "nonsense" in done.stdout + done.stderr


def test_a_config_that_is_a_folder_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match="Is a directory"):
        load_config(tmp_path)
