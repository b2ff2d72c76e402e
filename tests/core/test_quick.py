"""tests/quick.py: the types of one module and its tests, found by path and by import."""

from __future__ import annotations

from pathlib import Path

import pytest
import quick

FILES = {
    "tests/core/store/test_verdict.py": "from albor_core.store.diff.verdict import Verdict\n",
    "tests/core/store/test_diff.py": "from albor_core.store.diff import (\n a,\n verdict,\n)\n",
    "tests/core/store/test_other.py": "from albor_core.store.diff.verdicts import x\n",
    "tests/core/test_patched.py": "mock.patch('albor_core.run.clock.now')\n",
    "tests/core/run/test_words.py": "albor('digest')\n",
    "tests/core/config/test_all.py": "",
    "tests/core/config/sections/test_deep.py": "",
    "research/tests/test_jobs.py": "import jobs\n",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("albor_core/store/diff/verdict.py", ["store/test_diff.py", "store/test_verdict.py"]),
        ("albor_core/run/digest.py", ["run/test_words.py"]),
        ("albor_core/run/clock.py", ["test_patched.py"]),
        ("albor_core/config/x.py", ["config/sections/test_deep.py", "config/test_all.py"]),
        ("albor_core/config/sections/x.py", ["config/sections/test_deep.py"]),
        ("benchmarks/x.py", []),
        ("research/jobs.py", ["../../research/tests/test_jobs.py"]),
        ("tests/core/config/test_all.py", ["config/test_all.py"]),
    ],
)
def test_tests_of_a_module_are_those_that_use_it_or_stand_where_it_stands(root, module, tests):
    found = quick.tests_of(Path(module), root)
    assert found == [Path(root / "tests" / "core" / name).resolve() for name in tests]


@pytest.fixture
def started(monkeypatch):
    """The commands that would be started, each of which ends as `codes` says."""
    words, codes = [], {}
    monkeypatch.chdir(quick.ROOT)
    monkeypatch.setattr(quick, "run", lambda *line: words.append(line) or codes.get(line[0], 0))
    return words, codes


def test_types_come_first_and_tests_that_are_not_slow_after_them(started, capsys):
    (words, _) = started
    assert quick.main(["albor_core/store/diff/verdict.py"]) == 0
    files = capsys.readouterr().out.split()
    assert "tests/core/store/test_store_diff.py" in files
    assert words == [
        ("mypy", "albor_core/store/diff/verdict.py"),
        ("pytest", "-n", "0", "-m", "not gpu and not slow", *files),
    ]


def test_wrong_types_end_it_and_slow_tests_run_where_there_are_no_others(started):
    words, codes = started
    codes["mypy"] = 1
    assert quick.main(["albor_core/store/diff/verdict.py"]) == 1 and len(words) == 1
    codes |= {"mypy": 0, "pytest": quick.NO_TESTS_RAN}
    assert quick.main(["albor_core/store/diff/verdict.py"]) == quick.NO_TESTS_RAN
    assert words[-1][:5] == ("pytest", "-n", "0", "-m", "not gpu")


@pytest.mark.parametrize("name", ["albor_core/nope.py", "README.md", "/etc/hosts"])
def test_what_is_not_a_module_here_is_refused_by_name(started, name, capsys):
    with pytest.raises(SystemExit) as ended:
        quick.main([name])
    assert ended.value.code == 2 and started[0] == []
    assert (
        f"cannot check {name}: it is not a Python file of this checkout" in capsys.readouterr().err
    )
