"""research/restart.py on a CPU: what it says of a restart is what the journal says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "research" / "restart.py"


@pytest.mark.sweep
def test_each_kill_is_followed_by_a_step_and_the_parts_of_its_start_add_up(tmp_path):
    made = tmp_path / "restart.json"
    done = subprocess.run(
        [
            sys.executable, str(SCRIPT),
            "--config", "configs/demo.yaml", "--set", "data.seq_len=64",
            "--set", "monitoring.system.enabled=false",
            "--kills", "1", "--after", "10", "--json", str(made),
        ],
        capture_output=True, text=True, cwd=ROOT, timeout=240,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("tmp*"))  # nobody wrote into its folder to the last
    told = json.loads(made.read_text())
    (warm,) = told["warm"]
    assert told["total_s"] == warm["total_s"] and told["from_the_kill_s"] == warm["from_the_kill_s"]
    for start in (told["cold"], warm):
        parts = [
            value for name, value in start.items() if name not in ("total_s", "from_the_kill_s")
        ]
        assert sum(parts) == pytest.approx(start["total_s"], abs=0.01 * len(parts))
        assert start["step_s"] > 0.0
    assert warm["checkpoint_s"] > 0.0  # it resumed
    # the process begins within the guard's look at the run, after the kill
    assert warm["from_the_kill_s"] > warm["total_s"] - 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kills", "0"), "argument --kills: '0' is not a whole number above 0"),
        (("--config", "/nope.yaml"), "--config: /nope.yaml: No such file"),
        (("--set", "nope.x=1"), "--set nope.x=1: nope.x: is not a field"),
    ],
)
def test_what_it_cannot_begin_with_is_named_wherever_it_is_started(words, said, tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
