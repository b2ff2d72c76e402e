from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from guard_harness import Bench, bench


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A run with nothing in it yet; whatever a test leaves running is killed."""
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    with bench(tmp_path) as made:
        yield made
