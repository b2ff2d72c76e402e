"""Where the cockpit looks for the runs that a filter keeps, and how it writes down what is said."""

from __future__ import annotations

import pytest

from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError, NotFoundError, UsageError
from albor_core.run.files.pulled_file import Pulled, write_pulled
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import notes_in, read_annotations, tags_in
from albor_core.store.index.indexer import Indexer
from albor_core.store.query.filter import FilterError
from albor_tui.model.desk import LiveDesk, RunQuery
from albor_tui.model.source import LiveSource


def made(folder, name: str, *, loss: float) -> RunDir:
    run = create_run(folder, name, experiment="e", name=name, kind="guard", argv=["x"])
    journal = Journal(run.journal, attempt=1)
    journal.metrics(1, {"train/loss": loss})
    journal.close()
    return run


def index(run: RunDir, store) -> None:
    with Indexer(run, store) as indexer:
        indexer.drain()


def test_a_folder_is_searched_through_the_stores_of_its_runs_too(tmp_path):
    low, high = (made(tmp_path / "out", n, loss=v) for n, v in (("low", 1.0), ("high", 9.0)))
    with pytest.raises(NotFoundError, match="no store yet"):
        LiveDesk(tmp_path / "out").matching(RunQuery("loss<2"))
    index(low, None)  # in stores of their own alone
    index(high, None)
    assert not global_store().exists()
    assert LiveDesk(tmp_path / "out").matching(RunQuery("loss<2")).ids == {low.id}


def test_another_home_is_searched_in_its_own_store(tmp_path):
    run = made(tmp_path / "out", "there", loss=1.0)
    (tmp_path / "elsewhere" / "runs").mkdir(parents=True)
    index(run, tmp_path / "elsewhere" / "experiments.db")
    index(made(tmp_path / "here", "here", loss=1.0), global_store())
    assert LiveDesk(tmp_path / "elsewhere").matching(RunQuery("loss<2")).ids == {run.id}


def test_what_no_run_of_a_folder_has_is_refused_and_what_one_has_is_not(tmp_path):
    low, high = (made(tmp_path / "out", n, loss=v) for n, v in (("low", 1.0), ("high", 9.0)))
    journal = Journal(low.journal, attempt=1)
    journal.metrics(2, {"val/accuracy": 0.5})
    journal.close()
    for run in (low, high):
        index(run, None)
    desk = LiveDesk(tmp_path / "out")
    assert desk.matching(RunQuery("val/accuracy>0.1")).ids == {low.id}
    with pytest.raises(FilterError, match="nearest is 'val/accuracy'"):
        desk.matching(RunQuery("val/acuracy>0.1"))


def test_a_metric_is_pinned_as_the_command_pins_it_and_taken_back(tmp_path):
    run = made(tmp_path / "out", "wide", loss=1.0)
    journal = Journal(run.journal, attempt=1)
    journal.metrics(2, {"zorp": 0.5})
    journal.close()
    index(run, None)
    desk = LiveDesk(tmp_path / "out")
    follower = LiveSource().follow(RunView(id=run.id, path=str(run.path), kind="guard"))
    try:
        desk.annotate(str(run.path), "metric.pin", "zorp")
        said = [(one.kind, one.value) for one in read_annotations(run)]
        assert said == [("metric.pin", "zorp")]
        index(run, None)
        view = follower.poll()
        assert view is not None
        assert [(one.name, one.is_pinned) for one in view.metrics] == [
            ("zorp", True),
            ("train/loss", False),
        ]
        assert view.terminal is not None and view.terminal.charts[0].metric == "zorp"
    finally:
        follower.close()
    desk.annotate(str(run.path), "metric.unpin", "zorp")
    assert [one.kind for one in read_annotations(run)] == ["metric.pin", "metric.unpin"]


def said_of(run: RunDir) -> tuple[list[tuple[int, str]], tuple[str, ...]]:
    said = read_annotations(run)
    return [(note.number, note.text) for note in notes_in(said)], tags_in(said)


def test_notes_and_tags_are_written_as_the_commands_write_them(tmp_path):
    run = made(tmp_path / "out", "one", loss=1.0)
    desk = LiveDesk()
    desk.annotate(str(run.path), "note", "-- two\nlines\x1b[31m")
    desk.annotate(str(run.path), "note", "x" * 10_000)
    desk.edit_note(str(run.path), 1, "--replace")
    desk.edit_note(str(run.path), 2, "")
    desk.set_tags(str(run.path), ("-a", "b c"), ())
    desk.set_tags(str(run.path), ("b c", "d"), ("-a", "b c"))
    assert said_of(run) == ([(1, "--replace")], ("b c", "d"))


@pytest.mark.parametrize("text", ["nul \0", "half \ud800"], ids=["nul", "surrogate"])
def test_what_no_command_line_holds_is_refused_in_words(tmp_path, text):
    run = made(tmp_path / "out", "one", loss=1.0)
    with pytest.raises(UsageError, match="cannot write that down: it has"):
        LiveDesk().annotate(str(run.path), "note", text)
    assert not run.annotations.exists()


def test_a_copy_and_a_file_that_cannot_be_written_are_told_with_the_reason(tmp_path):
    copy, blocked = (made(tmp_path / "out", name, loss=1.0) for name in ("copy", "blocked"))
    write_pulled(copy, Pulled("box-2", "/runs"))
    with pytest.raises(AlborError, match="pulled from box-2 and is read-only here"):
        LiveDesk().set_tags(str(copy.path), ("a",), ())
    blocked.annotations.mkdir()
    with pytest.raises(AlborError, match=r"annotations\.jsonl: Is a directory"):
        LiveDesk().annotate(str(blocked.path), "note", "x")
