"""Each test has a home of its own, and finds what tests of the packages share."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
os.environ.setdefault("ALBOR_QUIET", "1")  # what programs print is compared with what they said


def pytest_configure(config):
    """What a fixture of a wider scope writes outside any test is never the developer's."""
    home = tempfile.TemporaryDirectory(prefix="albor-tests-home-", ignore_cleanup_errors=True)
    config.add_cleanup(home.cleanup)
    os.environ["ALBOR_HOME"] = home.name


@pytest.fixture(autouse=True)
def albor_home(tmp_path_factory, monkeypatch):
    """ALBOR_HOME in a fresh folder, inherited by every process a test starts."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("ALBOR_HOME", str(home))
    monkeypatch.delenv("ALBOR_FAULTS", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist says how wide its own lines are
    return home
