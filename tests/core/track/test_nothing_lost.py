"""What a loop said is there, or it is said what is not: many names, late figures, full disks."""

import errno
import os
import sys
import types
from importlib import import_module

import pytest
from click.testing import CliRunner
from unguarded import alone, series  # noqa: F401

from albor_core import history, track
from albor_core.cli.main import cli
from albor_core.cli.runs import show_text
from albor_core.run.errors import AlborError, NotFoundError
from albor_core.run.home.folders import albor_home
from albor_core.run.values import metrics
from albor_core.store.index.annotations import read_annotations
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.export import pages
from albor_core.store.query.reader import Reader
from albor_core.track import artifact_versions


def test_house_and_goal_metrics_have_room_behind_any_number_of_names(monkeypatch, capsys):
    monkeypatch.setattr(metrics, "MAX_NAMES", 5)
    with track.start("many", goals={"mine": "max"}, console=False) as run:
        run.log({f"k/{i}": i for i in range(7)}, step=1)
        run.log({"val_loss": 0.5, "mine": 2.0, "other": 1.0}, step=2)
        assert "'k/5'" in capsys.readouterr().err  # told when it is logged
    found = series(run)
    assert found["val/loss"] == [(2, 0.5)] and found["mine"] == [(2, 2.0)]
    assert "k/4" in found and not {"k/5", "other"} & found.keys()
    with Reader(run.dir.store) as reader:
        told = reader.events(run.id, names=(metrics.NO_ROOM_EVENT,))[-1].data
    assert told == {"first": "k/5", "left_out": 3, "names": 8}


def told_by(*words):
    done = CliRunner().invoke(cli, words)
    if isinstance(done.exception, AlborError):  # which main() prints
        return f"{done.exception.message} {done.exception.hint}"
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return " ".join(done.output.split())


@pytest.mark.parametrize("says_so", [True, False], ids=["says so", "of a time that did not"])
def test_names_without_room_are_told_as_such_by_show_and_doctor(monkeypatch, says_so):
    for module in (metrics, show_text):
        monkeypatch.setattr(module, "MAX_NAMES", 5)
    if not says_so:
        monkeypatch.setattr(track.Run, "_say_refused", lambda self: None)
    with track.start("many", console=False) as run:
        run.log({f"k/{i}": i for i in range(5)}, step=1)
        run.log({"k/7": 7, "k/8": 8, "loss": 1.0}, step=2)
    drain_index(run.dir)
    shown, looked = told_by("runs", "show", run.id), told_by("doctor")
    if says_so:
        assert "its store has 5 of 7 metric names; not k/7" in shown
        assert f"values of 2 names of {run.id} left out: a run's store holds 5 names" in looked
    else:
        assert "its store has 5 metric names and room for no other: those of 1 line" in shown
        assert f"values of names in 1 line of {run.id} left out" in looked
    assert "damaged or unknown" not in looked


def test_a_damaged_line_is_told_also_where_names_had_no_room(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_NAMES", 5)
    with track.start("many", console=False) as run:
        run.log({f"k/{i}": i for i in range(7)}, step=1)
    with run.dir.journal.open("ab") as journal:
        journal.write(b"torn\n")
    drain_index(run.dir)
    looked = told_by("doctor")
    assert f"1 damaged or unknown line in the files of {run.id}" in looked
    assert f"values of 2 names of {run.id} left out" in looked


def test_an_export_asks_for_each_name_once(monkeypatch):
    def asked(count):
        with track.start("names", console=False) as run:
            run.log({f"k/{i}": i for i in range(count)}, step=1)
        drain_index(run.dir)
        steps = 0

        def tick():
            nonlocal steps
            steps += 1

        made = Reader.__enter__

        def enter(reader):
            opened = made(reader)
            reader._db.set_progress_handler(tick, 10)
            return opened

        with monkeypatch.context() as patch:
            patch.setattr(Reader, "__enter__", enter)
            assert sum(map(len, pages(run.dir))) == count
        return steps

    assert asked(200) <= 2.2 * asked(100)


def test_a_validation_figure_logged_later_takes_no_training_back():
    with track.start("late", id="late-1", console=False) as run:
        for step in range(1, 21):
            run.log({"loss": 1 / step, **({"val_loss": 2.0} if step % 10 == 0 else {})}, step=step)
    with track.start(id="late-1", resume="must", console=False) as run:
        run.log({"val_loss": 0.041}, step=10)
    found = series(run)
    assert len(found["train/loss"]) == 20
    assert found["val/loss"] == [(10, 0.041), (20, 2.0)]


def last_odd(run):
    drain_index(run.dir)
    with Reader(run.dir.store) as reader:
        return [event.data for event in reader.events(run.id, names=("track.odd",))]


@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "in the journal alone"])
def test_a_value_that_a_later_attempt_replaces_is_counted_and_told_once(
    monkeypatch, capsys, is_indexed
):
    with track.start("sr", id="sr", console=False) as run:
        for step in range(10, 101, 10):
            run.log({"loss": 1.0, "val/loss": step / 100 if step != 70 else float("nan")}, step)
    if is_indexed:
        drain_index(run.dir)
    else:
        run.dir.store.unlink(missing_ok=True)
    capsys.readouterr()
    with track.start(id="sr", resume="must", console=False) as run:
        run.log({"val/loss": 0.5}, 50)  # the same: nothing is lost
        run.log({"val/loss": 0.75}, 55)  # new
        run.log({"val/loss": float("nan")}, 70)
        assert "replaced" not in capsys.readouterr().err
        run.log({"val/loss": 0.25, "val/acc": 1.0}, 50)
        run.log({"val/loss": 0.125}, 50)  # and again
        run.log({"val/loss": 0.5}, 100)  # the last step
    said = capsys.readouterr().err
    assert said.count("replaced") == 1
    assert "run sr: val/loss at step 50 was 0.5 and is replaced by 0.25" in said
    told = last_odd(run)[-1]
    assert told["counts"] == {"step_repeated": 3}
    assert told["examples"] == {"step_repeated": "val/loss = 0.5 at step 50"}
    found = dict(series(run)["val/loss"])
    assert (found[50], found[100]) == (0.125, 0.5) and len(series(run)["train/loss"]) == 10


def test_a_metric_of_training_that_is_replaced_after_another_went_on_is_told(capsys):
    with track.start("sr", id="sr2", console=False) as run:
        for step in range(1, 21):
            run.log({"loss": 1.0}, step=step)
    with track.start(id="sr2", resume="must", console=False) as run:
        run.log({"accuracy": 0.5}, step=20)
        run.log({"loss": 2.0}, step=10)
    assert "train/loss at step 10 was 1 and is replaced by 2" in capsys.readouterr().err
    assert last_odd(run)[-1]["counts"] == {"step_repeated": 1}


def test_a_value_that_replaces_another_may_be_of_any_size():
    with track.start("sr", id="sr3", console=False) as run:
        run.log({"big": 1.0}, step=1)
        run.log({"big": 1.0}, step=2)
    with track.start(id="sr3", resume="must", console=False) as run:
        run.log({"other": 1.0}, step=3)
        for value in (10**400, 10**400, 1.5):
            run.log({"big": value}, step=1)
    assert last_odd(run)[-1]["counts"]["step_repeated"] == 2


def test_training_that_begins_again_says_what_goes_and_how_to_read_it(capsys):
    with track.start("again", id="again-1", console=False) as run:
        for step in range(1, 21):
            run.log({"loss": 1 / step, "val_loss": 2.0}, step=step)
    with track.start(id="again-1", resume="allow", console=False) as run:
        run.log({"val_loss": 1.0}, step=10)  # an evaluation before the first step
        run.log({"loss": 0.5}, step=11)
    said = capsys.readouterr().err
    assert "2 metrics had after step 10 is taken back" in said and "albor runs restore" in said
    found = series(run)
    assert len(found["train/loss"]) == 11 and found["val/loss"][-1] == (10, 1.0)


def test_a_version_that_the_disk_took_in_part_is_not_given(monkeypatch, tmp_path):
    def version(digit):
        return artifact_versions.Version("model", 0, digit * 64, 1, "", "r", "", str(tmp_path), 0.0)

    artifact_versions.take(version("a"))
    whole = os.write

    def part(fd, data):
        monkeypatch.setattr(os, "write", full)
        return whole(fd, data[:10])

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", part)
    with pytest.raises(OSError, match="No space"):
        artifact_versions.take(version("b"))
    monkeypatch.setattr(os, "write", whole)
    (kept,) = (albor_home() / "artifacts").glob("*.jsonl")
    assert len(kept.read_bytes().splitlines()) == 1
    assert artifact_versions.take(version("c")).version == 2


@pytest.mark.parametrize(
    ("words", "has_run"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, False),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, False),
        ({"RANK": "0", "WORLD_SIZE": "2"}, True),
        ({"RANK": "0", "WORLD_SIZE": "1"}, True),
        ({"SLURM_PROCID": "1"}, True),
    ],
    ids=str,
)
def test_a_job_of_ranks_is_one_run(words, has_run, monkeypatch, capsys):
    for word, value in (words | {"ALBOR_QUIET": "0"}).items():
        monkeypatch.setenv(word, value)
    with track.start("ranks", console=False) as run:
        run.log({"loss": 1.0}, step=1)
        run.params({"lr": 1})
        run.set_goals({"x": "max"})
        run.define_metric("x", goal="max")
        run.event("said", x=1)
        run.sample("text")
        run.text("note", "words")
        run.beat()
        assert run.artifact(os.devnull) is None
    assert bool(run.id) == has_run == (albor_home() / "runs").is_dir()
    said = capsys.readouterr().err
    assert (f"run {run.id}; watch: albor-tui {run.id}" in said) == has_run
    assert ("records nothing" in said) != has_run


@pytest.mark.parametrize("words", [None, "mine"])
def test_each_rank_of_a_job_has_a_run_in_a_group_of_the_job(words, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    runs = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        with track.start("ranks", group=words, ranks="all", console=False) as run:
            runs.append(run)
    about = [run.dir.metadata()["job"] for run in runs]
    assert [one["rank"] for one in about] == [0, 1]
    (job,) = {one["id"] for one in about}
    said = {read_annotations(run.dir)[0].value for run in runs}
    assert said == {words or f"ranks-{job}"}
    monkeypatch.setenv("ALBOR_QUIET", "0")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("RANK", "0")
    track.start("ranks", console=False).end()
    assert "its job was started again: id=..., resume='allow'" in capsys.readouterr().err


def test_a_cell_run_twice_goes_on_with_its_run(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    first = track.start("nb", id="cell-1", resume="allow", console=False)
    first.log({"loss": 1.0}, step=1)
    with track.start("nb", id="cell-1", resume="allow", console=False) as again:
        again.log({"loss": 2.0}, step=1)
    assert series(again) == {"train/loss": [(1, 2.0)]}


def test_what_xgboost_says_of_a_round_beside_a_program_is_not_odd(monkeypatch):
    library = types.ModuleType("xgboost")
    library.callback = types.SimpleNamespace(TrainingCallback=object)
    monkeypatch.setitem(sys.modules, "xgboost", library)
    monkeypatch.delitem(sys.modules, "albor_core.integrations.xgboost", raising=False)
    callback = import_module("albor_core.integrations.xgboost").XGBoostCallback(console=False)
    callback.before_training(None)
    for _ in range(2):  # as two evaluations of one round, or a training that is gone over again
        callback.after_iteration(None, 3, {"eval": {"rmse": [0.5]}})
    assert callback.run.odd.counts == {}
    callback.close()


@pytest.fixture
def crowded(monkeypatch):
    """A run with room for 5 names, which logged `kept` values of 7 and more of two others."""
    monkeypatch.setattr(metrics, "MAX_NAMES", 5)
    with track.start("many", console=False) as run:
        for step in (1, 2, 3):
            late = {"late/metric": float(step), "my_pinned": 10.0 * step, "zzz_goal": -1.0 * step}
            run.log({f"k/{i}": i for i in range(5)} | late, step=step)
        run.set_goals({"zzz_goal": "min"})
        run.log({"zzz_goal": -4.0}, step=4)
    drain_index(run.dir)
    return run


def test_a_goal_that_comes_late_has_its_earlier_values_also_after_a_rebuild(crowded):
    wanted = [(1, -1.0), (2, -2.0), (3, -3.0), (4, -4.0)]
    assert series(crowded)["zzz_goal"] == wanted
    told_by("db", "rebuild", str(crowded.dir.path))
    assert series(crowded)["zzz_goal"] == wanted


def test_a_pin_gives_a_metric_room_with_all_of_its_values(crowded):
    assert "pinned metrics my_pinned" in told_by("runs", "pin", crowded.id, "my_pinned")
    assert series(crowded)["my_pinned"] == [(1, 10.0), (2, 20.0), (3, 30.0)]
    assert "no metric 'my_pinnned'" in told_by("runs", "pin", crowded.id, "my_pinnned")


ASK = {
    "a filter": ["runs", "ls", "late/metric>1"],
    "a column": ["runs", "ls", "--columns", "id,late/metric"],
    "an order": ["runs", "ls", "--sort", "late/metric"],
    "an export": ["runs", "export", "{id}", "--key", "late/metric"],
    "a plot": ["runs", "plot", "{id}", "--metric", "late/metric", "-o", "x.svg"],
    "exports": ["runs", "export", "--filter", "since:9d", "--key", "late/metric"],
    "a diff": ["runs", "diff", "{id}", "{id}", "--metric", "late/metric"],
}


@pytest.mark.parametrize("way", ASK)
def test_a_metric_that_had_no_room_is_told_from_one_that_was_never_logged(crowded, way):
    asked = [word.format(id=crowded.id) for word in ASK[way]]
    said = told_by(*asked)
    assert "logged 'late/metric', but its store had no room: it stands in the journal only" in said
    assert f"albor runs pin {crowded.id} late/metric" in said
    never = told_by(*(word.replace("late/metric", "never/logged") for word in asked))
    assert "'never/logged'" in never and "no room" not in never


def test_history_tells_a_metric_that_had_no_room(crowded):
    run = next(iter(history.runs()))
    with pytest.raises(NotFoundError, match="'late/metric', but its store had no room") as caught:
        run.metrics("late/metric").columns()
    assert f"albor runs pin {crowded.id} late/metric" in caught.value.hint
    with pytest.raises(NotFoundError, match="no metric 'never'"):
        run.metrics("never").columns()


def test_what_a_goal_and_a_pin_chose_is_read_again_once(crowded, capfd):
    told_by("runs", "pin", crowded.id, "my_pinned")
    assert capfd.readouterr().err.count("indexing from the start") <= 1
    assert series(crowded)["zzz_goal"][0] == (1, -1.0)
