"""Tests that run apart from the program mean what they mean where both are in one process."""

from __future__ import annotations

import pytest

from albor_core.eval.code.sandbox.box import ProgramJob, run_program
from albor_core.eval.code.sandbox.confinement import ProgramLimits

AMPLE = ProgramLimits(wall_s=60.0)  # for a machine that has much else to do

PASSES = {
    "values of every plain kind": (
        "def f(x): return x",
        "import datetime as d, math\n"
        "from collections import Counter, OrderedDict, deque\n"
        "from decimal import Decimal\nfrom fractions import Fraction\n"
        "for one in (None, True, 1, -2**80, 0.1, 1e300, 'a\\ud800', b'\\x00', (1, (2,)), [[]], {1},"
        " frozenset({2}), {'a': {1: (2,)}}, 1j, range(3), Decimal('0.10'), Fraction(1, 3),"
        " Counter('aab'), deque([1], 3), OrderedDict(a=1), d.date(2026, 11, 25),"
        " d.datetime(2026, 1, 2, 3), d.timedelta(1, 2), bytearray(b'x')):\n"
        "    got = f(one)\n    assert got == one and type(got) is type(one), one\n"
        "assert math.isnan(f(math.nan)) and f(math.inf) == math.inf",
    ),
    "keyword arguments and defaults": (
        "def f(a, *, b=2): return (a, b)",
        "assert f(1) == (1, 2)\nassert f(a=3, b=4) == (3, 4)",
    ),
    "arguments changed in place": (
        "def f(a, b, c): a.append(1); b['k'] = a; c.discard(1)",
        "a, b, c = [], {}, {1, 2}\nf(a, b, c)\nassert (a, b, c) == ([1], {'k': [1]}, {2})",
    ),
    "functions as arguments": (
        "def f(g, x): return [g(one) for one in x]",
        "seen = []\ndef g(x):\n    seen.append(x)\n    return -x\n"
        "assert f(g, [1, 2]) == [-1, -2]\nassert seen == [1, 2]\nassert f(str, [1]) == ['1']",
    ),
    "functions as results": (
        "def f(n):\n    return lambda x: x + n",
        "assert f(2)(3) == 5",
    ),
    "iterators": (
        "def f(n):\n    yield from range(n)",
        "assert list(f(3)) == [0, 1, 2]\nassert next(iter(f(1))) == 0",
    ),
    "errors by their class": (
        "def f(x):\n    class Own(ValueError): pass\n    raise Own('no')",
        "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'no'\n"
        "else:\n    raise AssertionError",
    ),
    "classes and objects of the program": (
        "class Node:\n    def __init__(self, v): self.v, self.next = v, None\n"
        "    def __eq__(self, o): return self.v == o.v\n    def __len__(self): return 7\n"
        "    def __getitem__(self, k): return k\n    def __repr__(self): return f'N{self.v}'\n"
        "def f(node): return node.next.v",
        "a = Node(1)\na.next = Node(2)\nassert f(a) == 2\nassert a == Node(1) and a != Node(2)\n"
        "assert len(a) == 7 and a['k'] == 'k' and str([a]) == '[N1]'",
    ),
    "values of the program by name": ("LIMIT = 3\ndef f(x): return x", "assert LIMIT == 3"),
}
FAILS = {
    "an object equal to everything": (
        "class A:\n    def __eq__(self, o): return True\ndef f(x): return A()",
        "assert f(1) == 1",
    ),
    "a number that says it equals": (
        "class A(int):\n    def __eq__(self, o): return True\ndef f(x): return A(5)",
        "assert f(1) == 1",
    ),
    "a name that the program has not": ("def f(x): return x", "assert g(1) == 1"),
    "an end that the tests would forgive": (
        "import os\ndef f(x): os._exit(0)",
        "try:\n    f(1)\nexcept BaseException:\n    pass",
    ),
    "an answer of endless depth": (
        "def f(x):\n    a = []\n    for _ in range(10**5): a = [a]\n    return a",
        "assert f(1)",
    ),
    "an answer of endless length": ("def f(x): return 'x' * (20 << 20)", "assert f(1)"),
}


@pytest.mark.parametrize("case", PASSES)
def test_a_program_that_is_right_passes_with(case):
    verdict = run_program(ProgramJob(*PASSES[case], names=("f",)), AMPLE)
    assert verdict.is_passed, verdict


@pytest.mark.parametrize("case", FAILS)
def test_a_program_fails_with(case):
    verdict = run_program(ProgramJob(*FAILS[case], names=("f",)), AMPLE)
    assert verdict.outcome == "failed", verdict
    assert verdict.detail


def test_helpers_of_the_prompt_are_the_tasks_own_and_not_the_programs():
    prompt = "def half(x):\n    return x / 2\n\n\ndef f(x):\n"
    forged = prompt + "    return 1\ndef half(x):\n    return 5\n"
    job = ProgramJob(forged, "assert half(f(3)) == 5", ("f",), helpers=prompt + "    pass\n")
    assert run_program(job, AMPLE).outcome == "failed"


def test_what_went_wrong_names_the_test_that_failed():
    job = ProgramJob(
        "def f(x):\n    return x", "assert f(1) == 1\nassert f(2) == 3, 'twice'", ("f",)
    )
    assert run_program(job, AMPLE).detail == "AssertionError: twice at assert f(2) == 3, 'twice'"


def test_threads_processes_and_event_loops_work():
    program = (
        "import asyncio, os, subprocess, threading\n"
        "async def later(): return 1\n"
        "def f(x):\n"
        "    got = []\n"
        "    one = threading.Thread(target=lambda: got.append(1)); one.start(); one.join()\n"
        "    got.append(asyncio.run(later()))\n"
        "    got.append(subprocess.run(['/bin/echo', 'hi'], capture_output=True).stdout)\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os._exit(3)\n"
        "    return [*got, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]"
    )
    assert run_program(
        ProgramJob(program, "assert f(1) == [1, 1, b'hi\\n', 3]", ("f",)), AMPLE
    ).is_passed


def test_the_order_of_a_set_is_the_same_every_time():
    program = "def f(x):\n    print(list({'a', 'b', 'c', 'd', 'e', 'f'}))\n    return 1"
    first, second = (
        run_program(ProgramJob(program, "assert f(1) == 1", ("f",)), AMPLE) for _ in range(2)
    )
    assert first.output == second.output != ""


def test_a_program_may_compute_for_all_of_its_time():
    program = "import resource\ndef f(x): return resource.getrlimit(resource.RLIMIT_CPU)[0]"
    job = ProgramJob(program, "assert f(1) > 60", ("f",))
    verdict = run_program(job, AMPLE)
    assert verdict.is_passed, verdict


def test_tests_that_run_on_are_ended():
    job = ProgramJob("def f(x): return x", "while f(1): pass", ("f",))
    assert run_program(job, ProgramLimits(wall_s=1.0)).outcome == "timeout"
