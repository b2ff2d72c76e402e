"""Lines of a sheet: a label, and its value beside it."""

from __future__ import annotations

from textual.content import Content

from albor_core.run.values.clean import clean
from albor_tui.widgets.base import styled

LABEL = 10  # cells


def fact(label: str, value: Content, width: int) -> Content:
    """A line of `width` cells with a label and a value."""
    return styled.fit(styled.fit(styled.text(label, "$ink-muted"), LABEL) + value, width)


def folded(label: str, words: str, tone: str, width: int) -> list[Content]:
    """A value on as many lines as it takes."""
    parts = Content.styled(clean(words), tone).wrap(max(8, width - LABEL)) or [Content("")]
    heads = [label, *[""] * (len(parts) - 1)]
    return [fact(head, part, width) for head, part in zip(heads, parts, strict=True)]
