"""`make demo` on a fresh clone: what it installs, and that it says so."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def test_the_demo_installs_what_it_needs_and_shows_how_far_it_is(tmp_path):
    # without the lines of a make that runs inside another, as `make test` runs this one
    words = ["make", "--no-print-directory", "--dry-run", "demo", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    (install,) = [line for line in done.stdout.splitlines() if "pip install" in line]
    assert "'.[train]'" in install and "--progress-bar on" in install
    assert "--quiet" not in install
    assert done.stdout.rstrip().endswith("albor demo")


def test_what_the_demo_installs_is_not_what_developers_need():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    train = " ".join(extras["optional-dependencies"]["train"])
    for package in ("triton", "transformers", "pytest", "ruff"):
        assert package not in train
