"""Ctrl-C at a bad moment, a folder that vanished under the shell: a code and no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_user import ALBOR

# Ctrl-C arrives at the very moment somebody asks for this module
SCRIPT = """
import os, signal, sys
module = sys.argv.pop(1)
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Impatient())
from albor_core.cli.main import run
run()
"""
COMMANDS = {
    "click": "--help",
    "albor_core.cli.common.output": "--help",
    "albor_core.cli.runs": "runs ls",
    "sqlite3": "runs ls",
    "pydantic": "train plan tiny.yaml",
    "yaml": "train plan tiny.yaml",
    "pyarrow": "data import . -o x.parquet",
    "tokenizers": "tokenizer check x.json",
}


@pytest.mark.parametrize("module", COMMANDS)
def test_ctrl_c_while_the_program_loads_is_130_in_silence(user, module):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, module, *COMMANDS[module].split()],
        cwd=user.folder,
        env=user.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_who_started_it_with_ctrl_c_ignored_keeps_it_so(user):
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + SCRIPT
    done = subprocess.run(
        [sys.executable, "-c", ignoring, "click", "db", "path"],
        cwd=user.folder,
        env=user.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith("experiments.db")


@pytest.mark.parametrize("command", ["data import . -o x.parquet", "guard run -- true"])
def test_a_working_directory_that_is_gone_is_one_message(user, tmp_path, command):
    gone = tmp_path / "gone"
    gone.mkdir()
    program = " ".join(ALBOR)
    done = subprocess.run(
        ["/bin/sh", "-c", f'rmdir "{gone}"; exec {program} {command}'],
        cwd=gone,
        env=user.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the working directory" in done.stderr and "next: cd " in done.stderr
    assert "Traceback" not in done.stderr
    assert not user.home.exists()
