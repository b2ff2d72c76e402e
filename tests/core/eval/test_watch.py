"""A watched run: each new checkpoint once, to the end of the run, whatever is killed meanwhile."""

import json
import os
import shutil

import pytest
from eval_models import TEXTS, make_model, write_jsonl

from albor_core.eval import evaluate
from albor_core.eval import watch as watching
from albor_core.eval.planned import Settings, told_by_words
from albor_core.eval.watch import watch
from albor_core.run.checkpoints import name_of
from albor_core.run.errors import AlborError, ConfigError, InUseError
from albor_core.run.home.new_run import create_run
from albor_core.run.liveness import take_lock


class Training:
    """A run that lives until `end`; it does the next of its acts whenever `wait` is called."""

    def __init__(self, folder, *acts):
        self.run = create_run(
            folder / "out", "r1", experiment="e", name="r1", kind="train", argv=["x"], seed=0
        )
        self.lock = take_lock(self.run.run_lock)
        self.acts = [*acts]

    def save(self, step, id="one"):
        half = make_model(self.run.checkpoints / f"{name_of(step)}.tmp")
        manifest = {"schema": "albor.checkpoint/1", "step": step, "id": f"{step}-{id}"}
        (half / "manifest.json").write_text(json.dumps(manifest))
        half.rename(self.run.checkpoints / name_of(step))

    def prune(self, step):
        shutil.rmtree(self.run.checkpoints / name_of(step))

    def end(self):
        os.close(self.lock)

    def wait(self):
        assert self.acts, "waits for a run that has ended"
        self.acts.pop(0)(self)


@pytest.fixture
def told(tmp_path, albor_home):
    data = write_jsonl(tmp_path / "held.jsonl", [{"text": text} for text in TEXTS[:3]])
    return told_by_words([f"text:{data}"], {}, Settings(4, "fp32", "cpu"))


def watched(training, told, **more):
    return [
        (done.document["model"]["step"], done.is_reused)
        for done in watch(training.run, told, wait=training.wait, **more)
    ]


def test_each_new_checkpoint_is_evaluated_once_and_the_watch_ends_with_the_run(tmp_path, told):
    def last(training):  # saved as the last act of the run
        training.save(30)
        training.end()

    training = Training(tmp_path, lambda t: t.save(10), lambda t: None, lambda t: t.save(20), last)
    assert watched(training, told) == [(10, False), (20, False), (30, False)]
    assert len([*(training.run.path / "eval").iterdir()]) == 3


def test_a_watch_that_was_killed_goes_on_where_it_was(tmp_path, told):
    training = Training(tmp_path, lambda t: t.end())
    for step in (10, 20, 30):
        training.save(step)

    def kill_at_the_second(task, done, total):
        if len(found) == 1 and done:
            raise KeyboardInterrupt

    found = []
    with pytest.raises(KeyboardInterrupt):
        for done in watch(training.run, told, wait=training.wait, progress=kill_at_the_second):
            found.append(done)
    assert watched(training, told) == [(10, True), (20, False), (30, False)]
    said = [json.loads(line) for line in training.run.annotations.read_text().splitlines()]
    assert [one["value"]["step"] for one in said] == [10, 20, 30]


def test_a_checkpoint_that_is_pruned_before_its_turn_is_told_and_passed_over(
    tmp_path, told, monkeypatch
):
    training = Training(tmp_path, lambda t: t.end())
    for step in (10, 20):
        training.save(step)
    honest = evaluate.load_subject

    def slow(target, **how):
        if target.step == 10:
            training.prune(10)
        return honest(target, **how)

    monkeypatch.setattr(evaluate, "load_subject", slow)
    missed = []
    assert watched(training, told, missed=missed.append) == [(20, False)]
    assert missed[0].startswith("step-00000010 is gone")


def test_a_checkpoint_that_is_made_again_is_another_one(tmp_path, told):
    def again(training):
        training.prune(10)
        training.save(10, id="two")
        file = training.run.checkpoints / name_of(10) / "model.safetensors"
        raw = bytearray(file.read_bytes())
        raw[-2] ^= 1
        file.write_bytes(raw)

    training = Training(tmp_path, again, lambda t: t.end())
    training.save(10)
    assert watched(training, told) == [(10, False), (10, False)]


def test_what_another_process_evaluates_is_waited_for(tmp_path, told, monkeypatch):
    training = Training(tmp_path, lambda t: None, lambda t: t.end())
    training.save(10)
    honest, calls = watching.apply, []

    def busy(*args, **how):
        calls.append(1)
        if len(calls) == 1:
            raise InUseError("held")
        return honest(*args, **how)

    monkeypatch.setattr(watching, "apply", busy)
    assert watched(training, told) == [(10, False)]


def test_tasks_that_do_not_fit_end_the_watch_with_every_problem(tmp_path, told):
    training = Training(tmp_path)
    training.save(10)
    data = told.tasks[0].section.data
    wrong = told_by_words([f"text:{data}"], {"window": 99, "column": "body"}, Settings())
    with pytest.raises(ConfigError) as caught:
        watched(training, wrong)
    assert len(caught.value.problems) == 2
    assert not (training.run.path / "eval").exists()
    training.end()


def test_a_damaged_checkpoint_that_stays_ends_the_watch(tmp_path, told):
    training = Training(tmp_path)
    training.save(10)
    file = training.run.checkpoints / name_of(10) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(AlborError, match="is damaged"):
        watched(training, told)
    training.end()
