"""The disk breaks at any operation of a trainer: it ends in the undisturbed bits all the same.

T1 (kill), T2 (half a write, then death), T3 (the order of syncs and renames), T23 to T26 (a disk
that is full, fails or is read-only for a while). `io_sweep.py` does the work, in forks of a process
that has loaded torch once; ALBOR_SEED chooses other operations, ALBOR_SWEEP how many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from io_sweep import disorder

from albor_core.run.rundir import RunDir

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SEED = os.environ.get("ALBOR_SEED", "20261")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def sweep(folder, mode, count):
    count = int(os.environ.get("ALBOR_SWEEP", count))
    done = subprocess.run(
        [sys.executable, HERE / "io_sweep.py", folder, mode, SEED, str(count)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{HERE.parents[1]}"},
        capture_output=True, text=True, timeout=590,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("mode", "count"), [("kill", 16), ("short", 8)])
def test_t1_t2_death_at_any_operation_ends_in_the_same_bits(tmp_path, mode, count):
    found = sweep(tmp_path, mode, count)
    assert found["wrong"] == [], SEED
    assert found["tried"] == count or "ALBOR_SWEEP" in os.environ


@pytest.mark.parametrize("mode", ["ENOSPC", "EIO", "EROFS"])
def test_t23_to_t26_a_disk_that_refuses_for_a_while_costs_checkpoints_and_no_step(tmp_path, mode):
    assert sweep(tmp_path, mode, 6)["wrong"] == [], SEED


def test_t3_nothing_is_renamed_before_it_is_synced_and_the_journal_comes_first(tmp_path):
    found = sweep(tmp_path, "audit", 0)
    assert found["wrong"] == [] and found["operations"] > 100
    run = RunDir(tmp_path / "reference" / "out" / "reference")
    operations = [tuple(entry) for entry in json.loads((tmp_path / "reference.ops").read_text())]
    assert list(disorder(operations, run)) == []
    journal, checkpoints = str(run.journal), str(run.checkpoints)
    mutants = {  # what the audit is for: each would survive a kill, and not a power cut
        "before it was synced": lambda name, path: name != "fsync" or ".safetensors" not in path,
        "manifest and directory": lambda name, path: name != "fsync" or not path.endswith(".part"),
        "before the journal": lambda name, path: name != "fdatasync" or path != journal,
        f"before {checkpoints}": lambda name, path: name != "fsync" or path != checkpoints,
    }
    for words, stays in mutants.items():
        left = [entry for entry in operations if stays(*entry[:2])]
        assert len(left) < len(operations), words
        assert any(words in text for text in disorder(left, run)), words
