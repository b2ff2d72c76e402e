"""A trainer whose disk takes nothing while it begins: messages, counted lines, next attempt."""

from __future__ import annotations

import errno
import os

import pytest
from tiny_run import events, history, last_words, make_run

from albor_core.run.files import line_appender
from albor_core.run.values.quantity import counted
from albor_core.train import __main__ as trainer
from albor_core.train.process import attempt


class FullDisk:
    """The `os` of a journal on a disk with room for so many lines of metrics, and then for none."""

    def __init__(self, room):
        self.room = room

    def write(self, fd, data):
        self.room -= data.startswith(b'{"t":"m"')
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, data)

    def __getattr__(self, name):
        return getattr(os, name)


@pytest.fixture
def here(monkeypatch):
    """This process keeps its signal handlers."""
    monkeypatch.setattr(trainer.SignalRequests, "install", lambda self, attempt: None)


@pytest.mark.timeout(120)
def test_a_disk_without_room_for_the_journal_ends_a_life_in_words_and_the_next_goes_on(
    tmp_path, here, monkeypatch, capfd
):
    run = make_run(tmp_path, training__max_steps=4)
    monkeypatch.setattr(attempt, "take_lock", lambda path: -1)  # it would be held until we end
    with monkeypatch.context() as full:
        full.setattr(line_appender, "os", FullDisk(-1))
        assert trainer.main([str(run.path)]) == 1
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert f"{run.journal}: No space left on device" in told
    assert "try: free some space there, then run it again" in told
    words = last_words(run)
    assert (words["code"], words["reason"], words["step"]) == (1, "exception", 0)
    assert words["error"]["type"] == "OSError" and "free some space" in words["error"]["hint"]
    assert trainer.main([str(run.path)]) == 0
    assert (last_words(run)["reason"], last_words(run)["lines_lost"]) == ("completed", 0)
    assert events(run, "run.end")[-1]["step"] == 4


@pytest.mark.timeout(120)
def test_lines_of_a_life_that_no_disk_took_are_counted_in_its_last_words(
    tmp_path, here, monkeypatch, capfd
):
    run = make_run(tmp_path, training__max_steps=8, training__log_interval=1)
    monkeypatch.setattr(attempt, "take_lock", lambda path: -1)
    with monkeypatch.context() as full:
        full.setattr(line_appender, "os", FullDisk(3))
        assert trainer.main([str(run.path)]) == 1  # without them there is no final checkpoint
    told, words = capfd.readouterr().err, last_words(run)
    assert words["lines_lost"] > 5
    what = f"{counted(words['lines_lost'], 'line')} of this run could not be written"
    assert f"{what}: {run.journal}: No" in told
    assert trainer.main([str(run.path)]) == 0
    steps = [step for step, *_ in history(run, ("train/loss",))]
    assert steps == list(range(1, 9))


def test_a_folder_that_cannot_be_written_is_refused_in_words_before_anything(
    tmp_path, here, monkeypatch, capfd
):
    def refuse(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    run = make_run(tmp_path)
    monkeypatch.setattr(attempt, "take_lock", refuse)
    assert trainer.main([str(run.path)]) == 1
    told = capfd.readouterr().err
    assert "Traceback" not in told and f"{run.run_lock}: No space left on device" in told


def test_a_bug_keeps_its_traceback(tmp_path, here, monkeypatch, capfd):
    def broken(run):
        raise OSError("no errno: nothing that the machine said")

    run = make_run(tmp_path)
    monkeypatch.setattr(attempt, "take_lock", lambda path: -1)
    monkeypatch.setattr(trainer, "_config", broken)
    assert trainer.main([str(run.path)]) == 1
    assert "Traceback" in capfd.readouterr().err
