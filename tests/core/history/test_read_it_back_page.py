"""docs/how-to/read-it-back.md: its Python is run as written (its commands: test_docs_run.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from albor_core import history
from albor_core.run.errors import NotFoundError, UsageError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "read-it-back.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


SAID = (
    ["mine 0.001 0.8", "yours 0.01 1.8"],
    ["10 0.9", "64.0 8.0", "128.0 4.0"],
    ["metrics.val/loss", "mine", "yours"],
)


@pytest.fixture
def home(maker):
    for place, name in enumerate(("mine", "yours")):
        steps = [
            (
                step,
                {"train/loss": 9 / step, "val/loss": place + 8 / step, "train/tokens": 64 * step},
            )
            for step in range(1, 11)
        ]
        maker.make(name, steps, params={"optimizer.lr": 1e-3 * 10**place})


@pytest.mark.parametrize("number", range(3))
def test_the_code_of_the_page_does_what_it_says(home, number, capsys):
    for library in re.findall(r"\.to_(pandas|polars|numpy)\(", BLOCKS[number]):
        pytest.importorskip(library)
    names: dict[str, object] = {}
    exec(BLOCKS[0], names)
    if number:
        capsys.readouterr()
        exec(BLOCKS[number], names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= len(SAID[number])
    for line, said in zip(lines, SAID[number], strict=False):
        assert said in line


def test_all_code_of_the_page_is_run():
    assert len(BLOCKS) == len(SAID)


def test_what_nobody_logged_raises_the_errors_that_the_page_names(maker):
    maker.make("bare", [(step, {"train/loss": 1.0}) for step in range(1, 4)])
    with pytest.raises(NotFoundError, match="no tokens were logged"):
        list(history.run("bare").metrics("loss", x="tokens"))
    with pytest.raises(NotFoundError, match="val/loss"):
        list(history.run("bare").metrics("val/loss"))
    with pytest.raises(UsageError, match="cannot sort by 'val/loss'"):
        list(history.runs(sort="val/loss"))
    said = PAGE.read_text()
    assert "`NotFoundError`" in said and "`UsageError`" in said
