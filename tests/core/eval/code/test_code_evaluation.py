"""Code tasks put to a model: what it wrote is cut, run and counted; each problem is kept."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from test_code_tasks import FUNCTION, PROGRAM, written

from albor_core.eval.code import found, task
from albor_core.eval.code.pass_at_k import pass_at_k
from albor_core.eval.code.sandbox.box import ProgramVerdict
from albor_core.eval.code.sandbox.confinement import Facts
from albor_core.eval.code.tasks import OWN, read_tasks
from albor_core.eval.registry import make_task
from albor_core.eval.task import ItemWriter
from albor_core.run.errors import AlborError, ConfigError, NotFoundError


class Writer:
    """A model that writes what it is told to, by prompt."""

    batch_size = 2

    def __init__(self, texts):
        self.texts, self.asked = texts, []

    def complete(self, prompts, *, n, stop, **how):
        self.asked += prompts
        return [[self.texts[prompt][at % len(self.texts[prompt])] for at in range(n)]
                for prompt in prompts]  # fmt: skip


def made(data, **said):
    return make_task({"kind": "code", "data": str(data), "wall_s": 60.0, **said}, "tasks.0")


def run(evaluation, subject, path):
    with ItemWriter(path) as items:
        return evaluation.run(subject, items, lambda done, total: None)


def test_pass_at_k_is_of_what_passed_and_every_completion_is_kept(tmp_path):
    tasks = read_tasks(OWN)
    texts = {
        one.prompt: [one.solution, *["    return None\n"] * (number % 3)]
        for number, one in enumerate(tasks)
    }
    evaluation = made("own", samples=12, temperature=0.8)
    done = run(evaluation, Writer(texts), tmp_path / "own.jsonl")
    passed = [12 // (1 + number % 3) for number in range(12)]
    expected = {f"own/pass@{k}": sum(pass_at_k(12, c, k) for c in passed) / 12 for k in (1, 10)}
    assert {one.name: one.value for one in done.scores} == pytest.approx(expected, abs=1e-15)
    assert all(one.better == "max" and one.n == 12 for one in done.scores)
    kept = [json.loads(line) for line in (tmp_path / "own.jsonl").read_text().splitlines()]
    assert [one["item"] for one in kept] == [one.id for one in tasks]
    assert [one["passed"] for one in kept] == passed
    assert all(len(one["completions"]) == len(one["outcomes"]) == 12 for one in kept)
    assert done.facts["outcomes"] == {"passed": sum(passed), "failed": 144 - sum(passed)}
    assert done.facts["sandbox"].keys() == {"processes", "network", "files", "calls", "user"}


def test_what_comes_after_the_function_is_not_run(tmp_path):
    path = written(tmp_path / "one.jsonl", FUNCTION)
    (one,) = read_tasks(path)
    writer = Writer({one.prompt: ["    return 2 * x\nprint(open('/nothing'))\n"]})
    done = run(made(path), writer, tmp_path / "items")
    assert done.scores[0].value == 1.0
    kept = json.loads((tmp_path / "items").read_text())
    assert kept["completions"] == ["    return 2 * x"]


def test_a_killed_evaluation_goes_on_after_the_last_problem(tmp_path):
    tasks = read_tasks(OWN)
    writer = Writer({one.prompt: [one.solution] for one in tasks})
    whole = run(made("own"), writer, tmp_path / "whole")
    lines = (tmp_path / "whole").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").write_bytes(b"".join(lines[:5]) + lines[5][:20])
    writer.asked.clear()
    assert run(made("own"), writer, tmp_path / "cut") == whole_at(whole, "cut")
    assert writer.asked == [one.prompt for one in tasks[5:]]
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def whole_at(result, name):
    from dataclasses import replace

    return replace(result, items=name)


def test_solved_tasks_stand_before_the_others_and_are_not_scored(tmp_path):
    other = {**PROGRAM, "task_id": 12, "text": "Write twice again."}
    path = written(tmp_path / "two.jsonl", PROGRAM, other)
    first, second = read_tasks(path)
    shown = f"{first.prompt}{first.solution.rstrip()}\n[DONE]\n\n{second.prompt}"
    writer = Writer({shown: [second.solution + "\n[DONE]\nmore"]})
    done = run(made(path, shots=1), writer, tmp_path / "items")
    assert (done.scores[0].value, done.scores[0].n) == (1.0, 1)


def test_samples_that_would_all_be_the_same_are_refused():
    with pytest.raises(ConfigError, match="temperature 0 are all the same"):
        made("own", samples=10)


def test_a_name_is_found_in_a_package_or_in_the_hubs_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(found, "files", lambda name: (_ for _ in ()).throw(
        metadata.PackageNotFoundError(name)))  # fmt: skip
    with pytest.raises(NotFoundError, match="no 'humaneval' on this machine"):
        found.task_file(Path("humaneval"))
    place = tmp_path / "hub/datasets--openai--openai_humaneval/snapshots/abc/openai_humaneval"
    place.mkdir(parents=True)
    (place / "test-00000-of-00001.parquet").touch()
    assert found.task_file(Path("humaneval")).parent == place
    inside = tmp_path / "data" / "HumanEval.jsonl.gz"
    inside.parent.mkdir()
    inside.touch()

    class Listed:
        name = inside.name

        def locate(self):
            return inside

    monkeypatch.setattr(found, "files", lambda name: [Listed()])
    assert found.task_file(Path("humaneval")) == inside
    assert found.task_file(Path("own")) == OWN


def test_programs_are_not_run_where_nothing_keeps_them_in_unless_that_is_asked_for(monkeypatch):
    weak = Facts("adopted and killed", "none", "none", "none", "our own")
    passed = ProgramVerdict("passed", "", "", 0.0, weak)
    monkeypatch.setattr(task, "run_program", lambda *a, **k: passed)
    with pytest.raises(AlborError, match="nothing keeps them from network and files"):
        task.check_sandbox(allow_weak=False)
    assert task.check_sandbox(allow_weak=True) == weak
