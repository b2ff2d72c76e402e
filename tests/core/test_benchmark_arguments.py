"""What scripts below benchmarks/ refuse, before they measure anything."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
COUNTS = ("--rounds", "--pairs", "--kernel-rounds")
OTHERS = {  # have a rule of their own
    ("loop_cost.py", "--rounds"),  # even
    ("bricks.py", "--rounds"),  # even, and 0 is without the comparison
    ("verdicts.py", "--pairs"),  # 0 is without the table
    ("gate.py", "--pairs"),  # at least as many as can agree
}


def options_of(path: Path) -> dict[str, str]:
    """The type of each option that counts rounds, as a script adds it."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
            types = [ast.unparse(word.value) for word in node.keywords if word.arg == "type"]
            found[name] = types[0] if types else ""
    return {name: kind for name, kind in found.items() if name in COUNTS}


def test_every_script_takes_rounds_by_the_one_type_for_them():
    found = {
        (path.name, option): kind
        for path in BENCHMARKS.rglob("*.py")
        for option, kind in options_of(path).items()
    }
    assert found.keys() >= OTHERS
    wrong = [one for one, kind in found.items() if kind != "positive" and one not in OTHERS]
    assert wrong == [] and len(found) > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("cockpit/startup.py", "--rounds", "0"),
        ("tracker/waiting.py", "--rounds", "-1"),
        ("tracker/console.py", "--rounds", "two"),
        ("step/step_pairs.py", "--against", ".", "--pairs", "0"),
        ("cockpit/scale.py", "log", "--rounds", "0"),
    ],
    ids=lambda words: words[0],
)
def test_no_round_is_refused_by_name_and_without_a_traceback(words):
    script, *rest = words
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, *rest],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (2, "")
    said = f"argument {rest[-2]}: {rest[-1]!r} is not a whole number above 0"
    assert last.endswith(said)
    assert "Traceback" not in done.stderr
