"""CI's share of the sweep: each file in its turn, what was touched always, the rest named."""

import subprocess
import sys

import pytest
from sweep_share import ROOT, drawn, touched_files

FILES = [f"tests/core/test_{n}.py" for n in range(60)]


def git(folder, *words):
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", "-C", str(folder), *name, *words], check=True, capture_output=True)


def test_a_commit_draws_one_file_in_n_and_others_draw_the_rest():
    shares = [drawn(FILES, 3, f"{commit:040x}") for commit in range(30)]
    assert shares[0] == drawn(reversed(FILES), 3, f"{0:040x}")
    assert set().union(*shares) == set(FILES)
    assert 10 <= sum(map(len, shares)) / 30 <= 30


def test_a_touched_file_is_always_in():
    for commit in "abcdef":
        assert set(FILES[:9]) <= drawn(FILES, 1000, commit, [*FILES[:9], "README.md"])


def test_the_newest_20_commits_touch_what_they_changed_and_a_first_commit_nothing(tmp_path):
    git(tmp_path, "init")
    for number in range(22):
        (tmp_path / f"{number}.py").write_text("")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-m", "a")
        if number == 0:
            assert touched_files(tmp_path) == set()
    assert touched_files(tmp_path) == {f"{number}.py" for number in range(2, 22)}
    assert touched_files(tmp_path / "nowhere") == set()


@pytest.mark.parametrize("processes", ["0", "2"])
def test_names_of_what_was_left_out_are_printed(processes, tmp_path):
    words = ("--collect-only",) if processes == "0" else ()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", processes, "-m", "sweep", "--share", "100000",
         f"--basetemp={tmp_path / 'b'}", *words, "tests/core/store/test_verdict_calibration.py"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    is_drawn = "tests/core/store/test_verdict_calibration.py" in touched_files()
    assert ("1 file of the sweep left" in done.stdout) is not is_drawn, done.stdout
