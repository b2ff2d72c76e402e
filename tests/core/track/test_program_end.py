"""How a program without a `with` block leaves, and what is told of it afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from unguarded import alone  # noqa: F401

from albor_core import track
from albor_core.run.errors import UsageError
from albor_core.run.exit import end_word, read_exit
from albor_core.run.rundir import RunDir

HEAD = "import sys\nfrom albor_core import track\nrun = track.start(id='it', console=False)\n"


@pytest.fixture
def program(tmp_path):
    """Runs what follows `track.start`: (exit code, stderr, exit.json of run `it` or another)."""

    def run(body, run_id="it", head=HEAD):
        script = tmp_path / "program.py"
        script.write_text(head + body + "\n")
        words = [sys.executable, "-P", str(script)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path)
        folder = Path(os.environ["ALBOR_HOME"]) / "runs" / run_id
        return done.returncode, done.stderr, read_exit(RunDir(folder))

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "status", "said"),
    [
        ("sys.exit(7)", 7, "failed", "exit code 7"),
        ("sys.exit('no data here')", 1, "failed", "no data here"),
        ("exit(3)", 3, "failed", "exit code 3"),
        ("sys.exit()", 0, "completed", ""),
        ("sys.exit(0)", 0, "completed", ""),
        ("import argparse; argparse.ArgumentParser().error('x')", 2, "failed", "exit code 2"),
    ],
)
def test_a_program_that_leaves_by_exit_is_recorded_with_its_code(program, body, code, status, said):
    returned, _, end = program("run.log({'a': 1.0})\n" + body)
    assert returned == code
    assert (end_word(end["reason"], end["code"]), end["code"]) == (status, code)
    assert said in end["message"]


@pytest.mark.slow
def test_an_exit_that_the_program_caught_is_not_its_end(program):
    body = "try:\n    sys.exit(2)\nexcept SystemExit:\n    pass\nrun.log({'a': 1.0})"
    returned, _, end = program(body)
    assert (returned, end_word(end["reason"], end["code"])) == (0, "completed")


@pytest.mark.slow
def test_an_exit_of_a_thread_is_not_the_programs(program):
    body = "import threading\none = threading.Thread(target=sys.exit, args=(5,))\n"
    returned, _, end = program(body + "one.start(); one.join()")
    assert (returned, end_word(end["reason"], end["code"])) == (0, "completed")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("last", "status"), [("pass", "completed"), ("sys.exit(4)", "failed"), ("1 / 0", "failed")]
)
def test_a_worker_of_multiprocessing_ends_its_own_run(program, how, last, status):
    head = "import multiprocessing, sys\nfrom albor_core import track\n"
    body = f"""
def work():
    run = track.start(id="worker", console=False)
    run.log({{"a": 1.0}})
    {last}

if __name__ == "__main__":
    worker = multiprocessing.get_context("{how}").Process(target=work)
    worker.start()
    worker.join()
"""
    returned, _, end = program(body, "worker", head)
    assert returned == 0
    assert end is not None and end_word(end["reason"], end["code"]) == status
    if last.startswith("1"):
        assert end["error"]["type"] == "ZeroDivisionError"


def test_the_ways_to_leave_are_pythons_own_again_afterwards():
    before = sys.exit, type(exit).__call__
    with track.start():
        assert sys.exit is not before[0]
    assert (sys.exit, type(exit).__call__) == before


@pytest.mark.slow
def test_another_library_that_hears_of_exits_too_is_left_in_its_place(program):
    body = """
ours = sys.exit
def theirs(code=None):
    print("heard", code, file=sys.stderr)
    ours(code)
sys.exit = theirs
run.finish()
run = track.start(id="next", console=False)
sys.exit(6)
"""
    returned, told, end = program(body, "next")
    assert (returned, end["code"], told.count("heard 6")) == (6, 6, 1), told


def test_what_is_left_out_is_told_once(capsys, tmp_path):
    with track.start(id="it") as run:
        for _ in range(3):
            run.log({"image": object(), "fine": 1.0})
            run.log([1.0])
        for _ in range(2):
            run.artifact(tmp_path / "missing")
    told = [line for line in capsys.readouterr().err.splitlines() if "run it" in line]
    assert len(told) == 3, told
    assert any("run.image" in line and "image = <object" in line for line in told)
    assert any("log takes names and their numbers, not [1.0]" in line for line in told)
    assert any("missing" in line and "No such file" in line for line in told)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"experiment": None}, "experiment None is not a name"),
        ({"name": 7}, "name 7 is not a name"),
        ({"tags": {"a": "b"}}, "give a list of words"),
        ({"parent": 7}, "parent 7 is not a run id"),
    ],
)
def test_what_start_cannot_use_is_refused_by_name(given, said):
    with pytest.raises(UsageError, match=said):
        track.start(**given)


def test_a_parent_that_is_not_here_is_told(capsys):
    track.start(parent="elsewhere").finish()
    assert "parent 'elsewhere' is not a run of" in capsys.readouterr().err


def test_a_pattern_is_not_a_metric():
    with track.start() as run, pytest.raises(UsageError, match="is a pattern"):
        run.define_metric("val/*", goal="min")


def test_a_lazy_frame_says_what_to_give(capsys):
    class Lazy:
        columns = ("a",)

        def collect(self):
            raise AssertionError

    with track.start() as run:
        run.table("rows", Lazy())
    assert "give what its collect() returns" in capsys.readouterr().err
