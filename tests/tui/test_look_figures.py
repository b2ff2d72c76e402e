"""Headline figures as text in a cell."""

from albor_core.run.headlines import HEADLINES
from albor_tui.look import figures


def test_every_unit_can_be_written_and_leaves_unknown_unknown():
    for one in HEADLINES:
        assert len(figures.text_of(one.unit, 0.5)) <= figures.WIDTHS[one.unit]
        assert figures.text_of(one.unit, None) == figures.text_of("loss", None)
