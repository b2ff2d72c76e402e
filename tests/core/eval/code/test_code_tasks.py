"""Task files: both layouts are read, what is broken is named, canonical solutions pass."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.eval.code.sandbox.box import run_program
from albor_core.eval.code.sandbox.confinement import ProgramLimits
from albor_core.eval.code.tasks import OWN, read_tasks
from albor_core.run.errors import DataError, NotFoundError

FUNCTION = {
    "task_id": "one/0",
    "prompt": 'def twice(x):\n    """Two times x."""\n',
    "entry_point": "twice",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
PROGRAM = {
    "task_id": 11,
    "text": "Write a function twice.",
    "code": "def twice(x):\r\n    return 2 * x\r\n",
    "test_list": ["assert twice(2) == 4", "assert twice('a') == 'aa'"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
PLACE = "shared/data/humaneval/HumanEval.jsonl.gz"  # in a folder above the checkout, if at all
AMPLE = ProgramLimits(wall_s=60.0)  # for a machine that has much else to do


def written(path, *records):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def outcome(task, completion):
    return run_program(task.job(task.cut(completion)), AMPLE).outcome


@pytest.mark.slow
@pytest.mark.parametrize("record", [FUNCTION, PROGRAM], ids=["HumanEval", "MBPP"])
def test_both_layouts_are_judged_by_their_tests(tmp_path, record):
    (task,) = read_tasks(written(tmp_path / "tasks.jsonl", record))
    assert outcome(task, task.solution) == "passed"
    assert outcome(task, task.solution.replace("2", "3")) == "failed"
    assert outcome(task, "    return ((") == "error"


def test_all_kinds_of_files_hold_the_same(tmp_path):
    (plain,) = read_tasks(written(tmp_path / "a.jsonl", FUNCTION))
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps(FUNCTION) + "\n")
    (tmp_path / "a.json").write_text(json.dumps([FUNCTION]))
    pq.write_table(pa.Table.from_pylist([FUNCTION]), tmp_path / "a.parquet")
    marked = (tmp_path / "a.jsonl").read_text().replace("\n", "\r\n")
    (tmp_path / "m.jsonl").write_text(marked, encoding="utf-8-sig", newline="")  # by an editor
    for name in ("a.jsonl.gz", "a.json", "a.parquet", "m.jsonl"):
        assert read_tasks(tmp_path / name) == (plain,)


def test_the_function_is_found_where_it_is_not_named(tmp_path):
    record = {key: value for key, value in FUNCTION.items() if key != "entry_point"}
    (task,) = read_tasks(written(tmp_path / "a.jsonl", record))
    assert task.names == ("twice",)


@pytest.mark.slow
def test_a_program_may_define_what_python_has_too_but_only_what_it_is_asked_for(tmp_path):
    record = PROGRAM | {"code": "def sum(a, b):\n    return a + b", "test_list": [
        "assert set([sum(1, 2)]) == set([3])"]}  # fmt: skip
    (task,) = read_tasks(written(tmp_path / "a.jsonl", record))
    assert outcome(task, task.solution) == "passed"
    assert outcome(task, "def sum(a, b): return 5\ndef set(x): return 0") == "failed"


def test_a_completion_ends_where_something_else_begins(tmp_path):
    function, program = read_tasks(written(tmp_path / "a.jsonl", FUNCTION, PROGRAM))
    for more in ("def other():\n", "class A:\n", "print(twice(1))\n", "# done\n", "if x:\n", "```"):
        assert function.cut("    return 2 * x\n" + more) == "    return 2 * x"
    assert function.cut("    if x:\n        return 1\n") == "    if x:\n        return 1\n"
    whole = "def a():\n    pass\ndef twice(x):\n    return x"
    assert program.cut(whole + "\nassert twice(1) == 2\n") == whole
    assert program.cut("\n" + whole) == "\n" + whole


def test_a_prompt_shows_the_first_test_where_nothing_else_names_the_function(tmp_path):
    (task,) = read_tasks(written(tmp_path / "a.jsonl", PROGRAM))
    assert ast.parse(task.prompt) and "assert twice(2) == 4" in task.prompt
    assert "'aa'" not in task.prompt


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"a\.jsonl:2: is not JSON"),
        ("[1]", r"a\.jsonl:2: is not a JSON object"),
        ('{"task_id": "x"}', r"a\.jsonl:2: no field 'test'"),
        ('{"task_id": "x", "test": "assert 1"}', r"a\.jsonl:2: no field 'prompt'"),
        ('{"test": "assert 1", "prompt": "x"}', r"a\.jsonl:2: no field 'task_id'"),
        ('{"task_id": "x", "test": 1, "prompt": "x"}', r"a\.jsonl:2: field 'test' is not text"),
        ('{"task_id": 1, "text": "x", "test_list": "x"}', r":2: field 'test_list' is not a list"),
        ('{"task_id": 1, "text": "x", "test_list": []}', r":2: 'test_list' is empty"),
        (json.dumps(FUNCTION), r"a\.jsonl:2: task 'one/0' is there already, in .*a\.jsonl:1"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, said):
    path = written(tmp_path / "a.jsonl", FUNCTION)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=said) as refused:
        read_tasks(path)
    assert refused.value.hint


def test_a_file_without_tasks_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n")
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.jsonl.gz").write_bytes(b"no gzip")
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    for name in ("a.jsonl", "a.txt", "a.jsonl.gz", "a.parquet"):
        with pytest.raises(DataError, match=name):
            read_tasks(tmp_path / name)
    with pytest.raises(NotFoundError, match=r"b\.jsonl: no such file"):
        read_tasks(tmp_path / "b.jsonl")
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(NotFoundError, match=r"d\.jsonl: is not a file"):
        read_tasks(tmp_path / "d.jsonl")


@pytest.mark.parametrize("task", read_tasks(OWN), ids=lambda task: task.names[0])
def test_our_own_tasks_are_solved_by_their_solutions_and_by_nothing_less(task):
    assert outcome(task, task.solution) == "passed"
    assert outcome(task, "    return None\n") == "failed"


def test_there_are_a_dozen_tasks_of_our_own():
    tasks = read_tasks(OWN)
    assert len(tasks) == 12
    assert all(task.cut(task.solution) == task.solution for task in tasks)


@pytest.mark.slow
def test_all_canonical_solutions_of_humaneval_pass():
    above = (folder / PLACE for folder in Path(__file__).resolve().parents)
    if (path := next((one for one in above if one.is_file()), None)) is None:
        pytest.skip(f"no {PLACE} in a folder above this one")
    tasks = read_tasks(path)
    assert [task.id for task in tasks if outcome(task, task.solution) != "passed"] == []
    assert len(tasks) == 164
