"""An evaluation is done once, goes on after a kill, and is recorded with its run."""

import json
import os
import signal

import pytest
from eval_models import TEXTS, make_model, write_jsonl

from albor_core.eval import evaluate
from albor_core.eval.evaluate import apply
from albor_core.eval.planned import EvaluationRequest, Settings, plan, read_file, told_by_words
from albor_core.eval.registry import make_tasks
from albor_core.eval.target import checkpoint_of, open_target
from albor_core.outputs.place import OutputPlace, held, part_of
from albor_core.run.checkpoints import name_of
from albor_core.run.errors import (
    AlborError,
    ConfigError,
    InUseError,
    NoCheckpointError,
    NotFoundError,
    UsageError,
)
from albor_core.run.home.new_run import create_run
from albor_core.store.query.reader import Reader

CPU = Settings(batch_size=4, dtype="fp32", device="cpu")


@pytest.fixture
def run(tmp_path, albor_home):
    """One with a checkpoint of steps 10 and 20."""
    run = create_run(
        tmp_path / "out", "r1", experiment="e", name="r1", kind="train", argv=["x"], seed=0
    )
    for step in (10, 20):
        folder = make_model(run.checkpoints / name_of(step), rms_norm_eps=step * 1e-6)
        (folder / "manifest.json").write_text('{"schema": "albor.checkpoint/1"}')
    return run


@pytest.fixture
def tasks(tmp_path):
    write_jsonl(tmp_path / "held.jsonl", [{"text": text} for text in TEXTS])
    questions = [{"context": "x", "choices": [" = 1", " = 2"], "answer": n % 2} for n in range(6)]
    write_jsonl(tmp_path / "ask.jsonl", questions)
    said = [
        {"kind": "text", "data": tmp_path / "held.jsonl"},
        {"kind": "choice", "data": tmp_path / "ask.jsonl"},
    ]
    return make_tasks(said)


def points(run, key):
    with Reader(run.store) as reader:
        return {step: value for step, value, _ in reader.points(run.id, key)}


def score_of(done, name):
    return next(s for t in done.document["tasks"] for s in t["scores"] if s["name"] == name)


def test_scores_of_a_checkpoint_are_records_of_its_run_and_the_second_time_nothing_is_done(
    run, tasks, monkeypatch
):
    target = open_target(checkpoint_of(run))
    done = apply(target, tasks, CPU)
    assert done.place.parent == run.path / "eval"
    assert (done.document["model"]["run"], done.document["model"]["step"]) == ("r1", 20)
    assert points(run, "eval/held/bpb") == {20: score_of(done, "held/bpb")["value"]}
    assert points(run, "eval/ask/accuracy") == {20: 0.5}
    said = run.annotations.read_bytes()
    monkeypatch.setattr(evaluate, "load_subject", lambda *a, **k: pytest.fail("evaluated again"))
    again = apply(target, tasks, CPU)
    assert again.is_reused and again.document == done.document
    assert run.annotations.read_bytes() == said


def test_each_checkpoint_has_a_point(run, tasks):
    for step in (20, 10):
        apply(open_target(checkpoint_of(run, step)), tasks, CPU)
    assert {*points(run, "eval/held/bpb")} == {10, 20}
    assert len([*(run.path / "eval").iterdir()]) == 2


def test_a_kill_between_the_result_and_the_record_is_made_good(run, tasks, monkeypatch):
    target = open_target(checkpoint_of(run))
    with monkeypatch.context() as killed:
        killed.setattr(evaluate, "_record", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            apply(target, tasks, CPU)
    assert apply(target, tasks, CPU).is_reused
    assert {*points(run, "eval/held/bpb")} == {20}


def test_an_interrupted_evaluation_goes_on_with_the_same_result(run, tasks, monkeypatch):
    target = open_target(checkpoint_of(run))
    whole = apply(target, tasks, CPU, out=run.path.parent / "whole")

    def stop(task, done, total):
        if task == "ask":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(target, tasks, CPU, progress=stop)
    [place] = (run.path / "eval").iterdir()
    assert place.suffix == ".part" and not (place / "result.json").exists()
    assert (place / ".work" / "held.jsonl").stat().st_size
    done = apply(target, tasks, CPU)
    assert part_of(done.place) == place and not place.exists()
    timeless = [{**t, "seconds": 0} for t in done.document["tasks"]]
    assert timeless == [{**t, "seconds": 0} for t in whole.document["tasks"]]


def test_what_decides_the_figures_makes_another_evaluation(run, tasks, tmp_path):
    target = open_target(checkpoint_of(run))
    ids = {apply(target, tasks, CPU).document["id"]}
    ids.add(apply(target, tasks, Settings(4, "fp64", "cpu")).document["id"])
    ids.add(apply(target, tasks[:1], CPU).document["id"])
    write_jsonl(tmp_path / "held.jsonl", [{"text": text} for text in TEXTS[:2]])
    ids.add(apply(target, tasks, CPU).document["id"])
    assert len(ids) == 4


def test_how_the_model_was_asked_stands_in_every_result(run, tasks):
    document = apply(open_target(checkpoint_of(run)), tasks, CPU).document
    for told in (document["settings"], *(one["facts"] for one in document["tasks"])):
        assert (told["batch_size"], told["dtype"], told["device"]) == (4, "fp32", "cpu")
        assert told["backend"].startswith("pytorch ")


def test_a_folder_of_no_run_needs_a_place_and_leaves_no_other_trace(tmp_path, tasks, albor_home):
    target = open_target(make_model(tmp_path / "m"))
    with pytest.raises(UsageError, match="nothing says where results go"):
        apply(target, tasks, CPU)
    done = apply(target, tasks, CPU, out=tmp_path / "scores")
    assert {one.name for one in done.place.iterdir()} == {
        "held.jsonl", "ask.jsonl", "result.json",
    }  # fmt: skip
    assert json.loads((done.place / "result.json").read_text()) == done.document
    assert not (albor_home / "experiments.db").exists()


def test_another_evaluation_or_any_folder_is_never_written_over(tmp_path, tasks):
    target = open_target(make_model(tmp_path / "m"))
    apply(target, tasks, CPU, out=tmp_path / "scores")
    with pytest.raises(UsageError, match="holds another evaluation"):
        apply(target, tasks[:1], CPU, out=tmp_path / "scores")
    forced = apply(target, tasks[:1], CPU, out=tmp_path / "scores", force=True)
    assert not (forced.place / "ask.jsonl").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="is not the folder of an evaluation"):
        apply(target, tasks, CPU, out=tmp_path / "home", force=True)
    assert [one.name for one in (tmp_path / "home").iterdir()] == ["thesis.txt"]


def test_a_second_process_in_the_same_place_is_refused(tmp_path, tasks):
    target = open_target(make_model(tmp_path / "m"))
    done = apply(target, tasks, CPU, out=tmp_path / "scores")
    child = os.fork()
    if child == 0:
        with held(OutputPlace(done.place)):
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    try:
        with pytest.raises(InUseError, match=f"another process .pid {child}. is writing it"):
            apply(target, tasks, CPU, out=tmp_path / "scores", force=True)
        assert (done.place / "result.json").is_file()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_checkpoint_that_is_not_what_its_manifest_says_is_refused_and_nothing_written(run, tasks):
    folder = checkpoint_of(run)
    stated = {"files": {"model.safetensors": {"algo": "blake3", "hash": "0" * 64, "size": 1}}}
    (folder / "manifest.json").write_text(json.dumps(stated))
    with pytest.raises(NoCheckpointError, match="is damaged"):
        apply(open_target(folder), tasks, CPU)
    assert not (run.path / "eval").exists() and not run.annotations.exists()


def test_data_that_cannot_be_read_is_a_problem_of_the_plan_and_records_nothing(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{')
    [task] = make_tasks([{"kind": "text", "data": tmp_path / "bad.jsonl"}])
    target = open_target(checkpoint_of(run))
    found = plan(target, told_by_words([f"text:{tmp_path / 'bad.jsonl'}"], {}, CPU))
    assert "bad.jsonl:2: is not JSON" in str(found.problems[0])
    with pytest.raises(AlborError, match=r"bad\.jsonl:2"):
        apply(target, (task,), CPU)
    assert not run.annotations.exists()


def test_a_checkpoint_is_named_by_its_step_or_the_newest_is_taken(run):
    assert open_target(checkpoint_of(run)).step == 20
    assert open_target(checkpoint_of(run, 10)).step == 10
    with pytest.raises(NotFoundError, match="no checkpoint of step 15"):
        checkpoint_of(run, 15)


def test_a_file_of_tasks_is_checked_as_a_whole(tmp_path):
    file = tmp_path / "tasks.yaml"
    file.write_text(
        "batch_size: 2\ntasks:\n"
        "  - {kind: text, data: a.jsonl, window: 8, stride: 9}\n"
        "  - {kind: poem, data: b}\n"
        "  - {kind: choice, dta: c}\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_file(file)
    said = "\n".join(map(str, caught.value.problems))
    assert "tasks.0.stride: 9 is above window 8" in said
    assert "tasks.1.kind: 'poem' is not a kind of task" in said
    assert "tasks.2.dta: is not a field" in said and "tasks.2.data: is required" in said
    file.write_text("tasks:\n  - {kind: text, data: a.jsonl, window: 1K}\nbatch_size: 2\n")
    told = read_file(file)
    assert told.tasks[0].section.window == 1024 and told.settings.batch_size == 2
    file.write_text("tasks: []\n")
    with pytest.raises(ConfigError, match="must not be empty"):
        read_file(file)


def test_two_tasks_of_one_name_are_refused(tmp_path):
    said = [{"kind": "text", "data": "x/a.jsonl"}, {"kind": "choice", "data": "y/a.jsonl"}]
    with pytest.raises(UsageError, match="cannot name two tasks 'a'"):
        make_tasks(said)


def test_a_plan_needs_neither_torch_nor_weights(tmp_path, tasks):
    import subprocess
    import sys

    folder = make_model(tmp_path / "m")
    code = (
        "import sys; from pathlib import Path; from albor_core.eval.planned import *;"
        "from albor_core.eval.target import open_target;"
        f"found = plan(open_target(Path({str(folder)!r})), "
        f"told_by_words(['text:{tmp_path / 'held.jsonl'}'], {{}}, Settings()));"
        "assert found.items == 5 and not found.problems and found.seconds > 0;"
        "assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60)


def test_a_copy_of_a_run_takes_no_scores_but_may_be_evaluated_elsewhere(run, tasks, tmp_path):
    run.pulled.write_text('{"schema": "albor.pulled/1", "from": "gpu1"}')
    target = open_target(checkpoint_of(run))
    told = EvaluationRequest(tasks, CPU)
    [problem] = plan(target, told).problems
    assert "is a copy of a run" in str(problem) and "--out" in str(problem)
    assert plan(target, told, out=tmp_path / "o").problems == ()
    assert apply(target, tasks, CPU, out=tmp_path / "o").document["model"]["step"] == 20
    assert not run.annotations.exists()
