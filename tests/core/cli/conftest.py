"""What the users of the command line share: data made once, one finished run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_user import SEQ_LEN, VOCAB, User, write_config

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "albor_core" / "run"
HOLD = """
import sys
from pathlib import Path
from albor_core.run.liveness import take_lock
take_lock(Path(sys.argv[1]))
print(1, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Albor's own source as corpus.parquet, tokenizer.json, shards/, made by the commands."""
    folder = tmp_path_factory.mktemp("data")
    user = User(folder, tmp_path_factory.mktemp("data-home"))
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for line in (
        "data import src -o corpus.parquet",
        f"tokenizer apply corpus.parquet -o tokenizer.json --vocab-size {VOCAB}",
        "data pretokenize corpus.parquet --tokenizer tokenizer.json -o shards"
        f" --seq-len {SEQ_LEN} --val-fraction 0.2",
    ):
        result = user.albor(*line.split())
        assert result.code == 0, result
    return folder


@pytest.fixture
def user(tmp_path, data):
    """A fresh folder with a config, a fresh home; whatever runs in it is stopped at the end."""
    made = User(tmp_path / "work", tmp_path / "home")
    made.folder.mkdir()
    write_config(made.folder / "tiny.yaml", data)
    yield made
    _stop_all(made)


@pytest.fixture
def room(tmp_path, data):
    """A folder with sources, a corpus and a tokenizer."""
    folder = tmp_path / "room"
    folder.mkdir()
    shutil.copytree(data / "src", folder / "src")
    for name in ("corpus.parquet", "tokenizer.json"):
        shutil.copy(data / name, folder / name)
    return User(folder, tmp_path / "home")


@pytest.fixture
def desk(tmp_path, albor_home):
    """A fresh folder and a fresh home, nothing in them."""
    (tmp_path / "work").mkdir()
    return User(tmp_path / "work", albor_home)


@pytest.fixture
def hold():
    """Holds a lock as a program would, until it is let go."""
    started = []

    def start(path):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout.readline() == b"1\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def old_hand(tmp_path_factory, data):
    """A user whose run `calm` completed undisturbed. Shared: look, do not touch."""
    folder = tmp_path_factory.mktemp("old-hand")
    made = User(folder / "work", folder / "home")
    made.folder.mkdir()
    write_config(made.folder / "tiny.yaml", data)
    result = made.albor("train", "apply", "tiny.yaml", "--name", "calm", "--json")
    assert result.code == 0, result
    yield made
    _stop_all(made)


def _stop_all(user):
    for pointer in (user.folder / "runs").glob("*/guard/guard.lock"):
        run = user.run(pointer.parents[1].name)
        if run.liveness().guard is not None:
            user.albor("guard", "stop", run.path, "--wait", 30)
        if (pid := run.liveness().trainer) is not None:
            import os
            import signal

            os.kill(pid, signal.SIGKILL)
