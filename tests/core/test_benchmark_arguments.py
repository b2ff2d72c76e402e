"""What scripts in benchmarks/ and research/ refuse, before they measure anything."""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import arguments

BENCHMARKS = Path(arguments.__file__).parent
RESEARCH = BENCHMARKS.with_name("research")
OTHERS = {  # have a rule of their own
    ("gate.py", "--times"),
    ("gate.py", "--pairs"),  # at least as many as can agree
    ("document_attention.py", "--width"),  # one of few
    ("media.py", "--loop"),  # what the script itself says
    ("starts.py", "--orders"),  # seeds
}
SECONDS = ("--warm", "--stop-after")
ZERO = {  # is without that part
    ("bricks.py", "--rounds"),
    ("verdicts.py", "--pairs"),
    ("verdicts.py", "--on-disk"),
    ("media.py", "--kills"),
    ("tracker.py", "--kills"),
    ("tracker.py", "--peer-kills"),
    ("dedup.py", "--files"),
    ("dedup.py", "--short"),
    ("writers.py", "steps"),
}


def options_of(path: Path) -> dict[str, str]:
    """The type of each option that a script adds."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            name = ast.unparse(node.args[0]).strip("'")
            types = [ast.unparse(word.value) for word in node.keywords if word.arg == "type"]
            found[name] = types[0] if types else ""
    return found


def every_option() -> dict[tuple[str, str], str]:
    return {
        (path.name, option): kind
        for path in (*BENCHMARKS.rglob("*.py"), *RESEARCH.rglob("*.py"))
        for option, kind in options_of(path).items()
    }


def test_every_script_takes_counts_by_the_types_for_them():
    found = every_option()
    plain = {one for one, kind in found.items() if kind == "int"}
    assert {one for one in plain if one[1] not in ("--seed", "--seeds")} == OTHERS
    assert {one for one, kind in found.items() if kind == "from_zero"} == ZERO
    assert sum(kind == "positive" for kind in found.values()) > 80


def test_every_script_asks_first_whether_the_file_for_its_figures_can_be_written():
    found = every_option()
    kinds = {kind for (_, option), kind in found.items() if option == "--json"}
    assert kinds <= {"", "new_file", "new_file_below"}  # without one it is a switch
    assert not [one for one, kind in found.items() if kind == "float" and one[1] in SECONDS]


@pytest.mark.parametrize("text", ["", "-1", "1.0", "nan", "two", "\u0663", "1_0"])
def test_a_count_is_a_plain_whole_number(text):
    for kind in (arguments.positive, arguments.from_zero):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number"):
            kind(text)
    assert (arguments.from_zero("0"), arguments.positive("7")) == (0, 7)


@pytest.mark.parametrize("text", ["", "-1", "0", "nan", "inf", "two"])
def test_a_number_above_zero_is_finite(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a finite number above 0"):
        arguments.above_zero(text)
    assert arguments.above_zero("0.5") == 0.5


@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "two"])
def test_seconds_that_may_be_none_are_finite(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a finite number from 0"):
        arguments.not_negative(text)
    assert (arguments.not_negative("0"), arguments.not_negative("0.5")) == (0.0, 0.5)


def test_paths_are_told_from_what_cannot_be_one(tmp_path):
    file, new = tmp_path / "file", tmp_path / "new"
    file.touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert arguments.there(str(file)) == file
    assert [arguments.new_file(str(path)) for path in (file, new)] == [file, new]
    assert arguments.new_folder(str(tmp_path)) == tmp_path
    assert arguments.new_folder(str(new / "below")) == new / "below"
    for path in (file, new, new / "below"):
        assert arguments.new_file_below(str(path)) == path
    for kind, paths in {
        arguments.there: (new, "n" * 300),
        arguments.new_file: (tmp_path, new / "below", file / "below"),
        arguments.new_file_below: (tmp_path, file / "below", file / "below" / "it"),
        arguments.new_folder: (file, file / "below", tmp_path / "dangling"),
    }.items():
        for path in paths:
            with pytest.raises(argparse.ArgumentTypeError):
                kind(str(path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file"]


NO_ROUNDS = (
    ("cockpit/startup.py", "--rounds", "0"),
    ("tracker/waiting.py", "--rounds", "-1"),
    ("tracker/console.py", "--rounds", "two"),
    ("step/step_pairs.py", "--against", ".", "--pairs", "0"),
    ("cockpit/scale.py", "log", "--rounds", "0"),
    ("step/scaling.py", "--sizes", "0"),
    ("step/scaling.py", "--batch", "0"),
    ("step/bricks.py", "--batch", "0"),
    ("step/generate.py", "--batch", "0"),
    ("step/generate.py", "--layers", "0"),
    ("step/plan_probe.py", "--runs", "0"),
    ("tracker/make_history.py", "home", "--runs", "0"),
    ("watching/expected_loss.py", "--runs", "0"),
)
NO_CONFIG = ("--config", "/nope.yaml")
NO_FIELD = ("--set", "nope.x=1")
OTHER_REFUSALS = {
    ("step/generate.py", *NO_CONFIG): "--config: /nope.yaml: No such file",
    ("step/plan_probe.py", *NO_CONFIG): "--config: /nope.yaml: No such file",
    ("step/plan_probe.py", *NO_FIELD): "--set nope.x=1: nope.x: is not a field",
    ("step/bricks.py", "--rounds", "0"): "--rounds 0 without --delays measures nothing",
}
EACH_IN_A_FORK = """
import json, os, runpy, sys, tempfile
import albor_core.train.loop  # and torch, once for all: they take longer than all that follows
for script, *words in json.loads(sys.stdin.read()):
    files = [tempfile.TemporaryFile() for _ in range(2)]
    if not (pid := os.fork()):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        sys.argv, sys.path[0] = [script, *words], os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for file in files:
        file.seek(0)
    print(json.dumps([code, *(file.read().decode() for file in files)]), flush=True)
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """What each script left that was started with words it refuses: code, stdout, stderr."""
    lines = [*NO_ROUNDS, *OTHER_REFUSALS]
    done = subprocess.run(
        [sys.executable, "-c", EACH_IN_A_FORK],
        input=json.dumps([(str(BENCHMARKS / script), *words) for script, *words in lines]),
        capture_output=True, text=True, timeout=240, cwd=tmp_path_factory.mktemp("elsewhere"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(lines, map(json.loads, done.stdout.splitlines()), strict=True))


def refused(left, said):
    code, out, err = left
    assert (code, out) == (2, "") and said in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("words", NO_ROUNDS, ids=lambda words: f"{words[0]} {words[-2]}")
def test_no_round_is_refused_by_name_and_without_a_traceback(words, refusals):
    said = f"argument {words[-2]}: {words[-1]!r} is not a whole number above 0"
    refused(refusals[words], said)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "said"), OTHER_REFUSALS.items())
def test_what_it_cannot_begin_with_is_named_wherever_it_is_started(words, said, refusals):
    refused(refusals[words], said)


@pytest.mark.slow
def test_the_decoder_of_generate_is_found_from_outside_of_the_checkout(tmp_path):
    words = (
        "--layers",
        "1",
        "--batch",
        "1",
        "--context",
        "2",
        "--new-tokens",
        "2",
        "--rounds",
        "1",
    )
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "step/generate.py", *words, "--alone", "--device", "cpu"],
        capture_output=True, text=True, timeout=240, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "batch 1, context 2 + 2" in done.stdout
