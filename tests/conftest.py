"""Every test has a home of its own: none may read or write the developer's runs."""

import os

import pytest

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

# Files whose tests start processes, models or whole screens: `make test` runs them, `make check`,
# which has a minute, does not.
STARTS_THINGS = (
    "core/cli/",
    "core/guard/test_guard_lives",
    "core/guard/test_guard_commands",
    "core/kernels/test_kernel_aot",
    "core/model/test_llama",
    "core/store/test_store_index",
    "core/train/test_train_loop",
    "core/train/test_train_survival",
    "tui/test_cockpit_run",
    "tui/test_cockpit_snapshots",
    "tui/test_cockpit_terminal",
)


def pytest_collection_modifyitems(items):
    """Mark what starts things as slow."""
    for item in items:
        if any(part in item.nodeid for part in STARTS_THINGS):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def albor_home(tmp_path_factory, monkeypatch):
    """ALBOR_HOME in a fresh folder, inherited by every process a test starts."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("ALBOR_HOME", str(home))
    monkeypatch.delenv("ALBOR_FAULTS", raising=False)
    return home
