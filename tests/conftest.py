"""Every test has a home of its own: none may read or write the developer's runs."""

import os

import pytest

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")


@pytest.fixture(autouse=True)
def albor_home(tmp_path_factory, monkeypatch):
    """ALBOR_HOME in a fresh folder, inherited by every process a test starts."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("ALBOR_HOME", str(home))
    monkeypatch.delenv("ALBOR_FAULTS", raising=False)
    return home
