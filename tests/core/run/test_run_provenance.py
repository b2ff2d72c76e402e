"""The code that a run is made of: what git holds, and what only the run can keep."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from albor_core.run.program import provenance as module
from albor_core.run.program.provenance import git_facts, read_script, script_of_command
from albor_core.run.program.recorded_code import recorded_code


def git(folder, *arguments):
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(
        ["git", "-C", folder, *who, *arguments], check=True, capture_output=True, timeout=60
    )


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "a.txt")
    git(folder, "commit", "-qm", "first")
    monkeypatch.chdir(folder)
    return folder


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_git_facts_tell_commit_and_changes(repository, monkeypatch):
    assert set(git_facts(repository.parent).values()) == {None}
    clean = git_facts(repository)
    assert len(clean["commit"]) == 40
    assert (clean["dirty"], clean["patch"], clean["patch_sha256"]) == (False, None, None)
    (repository / "a.txt").write_text("two\n")
    changed = git_facts(repository)
    assert changed["dirty"] and "+two" in changed["patch"]
    monkeypatch.setattr(module, "MAX_PATCH_BYTES", 40)
    cut = git_facts(repository)
    assert len(cut["patch"]) < 80 and "[cut at 40 bytes]" in cut["patch"]
    assert cut["patch_sha256"] == changed["patch_sha256"]  # of the whole, cut or not


def test_no_program_that_a_repository_names_is_run(repository, tmp_path):
    ran = tmp_path / "ran"
    program = f"sh -c 'touch {ran}; cat'"
    for name, value in (
        ("core.fsmonitor", f"touch {ran}"),
        ("filter.odd.clean", program),
        ("filter.odd.required", "true"),
        ("diff.external", f"touch {ran}"),
    ):
        subprocess.run(["git", "-C", str(repository), "config", name, value], check=True)
    (repository / ".gitattributes").write_text("*.txt filter=odd\n")
    (repository / "a.txt").write_text("one\n# changed\n")
    facts = git_facts(repository)
    assert facts["dirty"] is True
    assert "# changed" in facts["patch"]
    assert not ran.exists()


def test_code_that_nobody_committed_is_told_by_its_hash_and_data_by_its_number(repository):
    (repository / "train.py").write_text("lr = 1\n")
    (repository / "corpus.parquet").write_bytes(b"x" * 1000)
    (repository / "lib" / "deep").mkdir(parents=True)
    (repository / "lib" / "deep" / "model.py").write_text("layers = 2\n")
    (repository / "venv" / "bin").mkdir(parents=True)
    (repository / "venv" / "pyvenv.cfg").touch()
    (repository / "venv" / "bin" / "tool.py").touch()
    found = git_facts(repository / "lib")
    assert found["dirty"] and found["patch"] is None
    assert found["untracked"] == {
        "files": 4,
        "code": {"train.py": sha("lr = 1\n"), "lib/deep/model.py": sha("layers = 2\n")},
        "is_whole": True,
    }


def test_more_code_than_anybody_looks_through_is_said_to_be_more(repository, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILES", 2)
    for name in "abc":
        (repository / f"{name}.py").touch()
    assert git_facts(repository)["untracked"]["is_whole"] is False


def test_the_script_in_a_command_line_is_found(tmp_path):
    (tmp_path / "t.py").touch()
    (tmp_path / "acc.yaml").touch()
    (tmp_path / "go").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").touch()
    for command, name in (
        (["python", "t.py", "0.5"], "t.py"),
        (["torchrun", "--nproc", "2", "t.py", "--config", "acc.yaml"], "t.py"),
        (["accelerate", "launch", "--config_file", "acc.yaml", "t.py"], "t.py"),
        (["./go", "t.py"], "go"),
        (["python", "-m", "pkg", "t.py"], "pkg/__main__.py"),
        (["go", "x"], None),  # one of PATH
        (["python", "-c", "print(1)"], None),
        (["python", "no\0name.py"], None),
    ):
        expected = None if name is None else tmp_path / name
        assert script_of_command(command, tmp_path) == expected, command


def test_a_script_that_git_holds_is_told_by_hash_and_another_is_kept(repository):
    git(repository, "add", "-A")
    (repository / "kept.py").write_text("a = 1\n")
    git(repository, "add", "kept.py")
    git(repository, "commit", "-qm", "second")
    (repository / "new.py").write_text("b = 2\n")
    kept, new = (read_script(repository / f"{n}.py", repository) for n in ("kept", "new"))
    assert kept.is_tracked and kept.content is None and kept.sha256 == sha("a = 1\n")
    assert not new.is_tracked and new.content == b"b = 2\n"
    elsewhere = read_script(repository / "kept.py", repository.parent)
    assert not elsewhere.is_tracked and elsewhere.content == b"a = 1\n"
    assert read_script(repository / "none.py", repository) is None


def test_a_script_beyond_a_megabyte_is_told_by_hash_alone(tmp_path):
    (tmp_path / "big.py").write_bytes(b"#" * ((1 << 20) + 1))
    found = read_script(tmp_path / "big.py", tmp_path)
    assert found.content is None and found.size == (1 << 20) + 1 and len(found.sha256) == 64


def test_secrets_of_a_script_are_not_kept_and_its_hash_is_of_what_ran(repository):
    text = 'api_key = "hunter2hunter2"\nlr = 0.1\n'
    (repository / "t.py").write_text(text)
    told, kept = recorded_code(["python", "t.py"], repository / "t.py")
    assert b"hunter2" not in kept and b"lr = 0.1" in kept
    assert told["script"]["sha256"] == sha(text)
    assert "hunter2" not in json.dumps(told)


def test_what_the_command_line_calls_a_secret_is_kept_nowhere_else(repository):
    text = 'assert sys.argv[2] == "sesame-open-up"\nlr = 0.1\n'
    (repository / "t.py").write_text(text)
    (repository / "a.txt").write_text("two 'sesame-open-up'\n")
    told, kept = recorded_code(["python", "--token", "sesame-open-up"], repository / "t.py")
    assert kept == b'assert sys.argv[2] == "[redacted]"\nlr = 0.1\n'
    assert "+two '[redacted]'" in told["git"]["patch"]
    assert "sesame" not in json.dumps(told)
    told, kept = recorded_code(["python", "--token", "lr"], repository / "t.py")
    assert b"lr = 0.1" in kept, "two letters are in many words"


PROGRAM = """
import sys
from albor_core import track
with track.start(experiment="e", goals={"quux": "max"}) as run:
    run.log({"quux": 1.0})
print(run.path)
"""


@pytest.mark.slow
def test_a_tracked_script_that_nobody_committed_is_kept_in_its_run(repository, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(repository.parent / "home"))
    (repository / "mine.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "mine.py"], capture_output=True, text=True, timeout=120, check=True
    )
    run = Path(done.stdout.strip())
    about = json.loads((run / "run.json").read_text())
    assert (run / "script.txt").read_text() == PROGRAM
    assert (run / "script.txt").stat().st_mode & 0o077 == 0
    assert about["script"]["sha256"] == sha(PROGRAM) and not about["script"]["is_tracked"]
    assert about["git"]["untracked"]["code"] == {"mine.py": sha(PROGRAM)}
