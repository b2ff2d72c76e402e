"""How each line of a workspace is told from the others, in its charts and in its legend. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from albor_core.run.light_dataclass import dataclass
from albor_tui.look import glyphs
from albor_tui.look.run_colours import DASHES, LETTERS, RUN_TONES, RunStyle
from albor_tui.widgets.chart.dashes import dashed

_CELLS = 4  # of a line in the legend
_BRAILLE = "\u2812"  # a level line


@dataclass(frozen=True)
class LineMark:
    """The style of a line, without its letter where colours tell it, and `text`, a piece of the
    line for the legend in the colour `ink`."""

    tone: str
    dash: int
    letter: str
    text: str
    ink: str


def marks_of_runs(styles: Mapping[str, RunStyle], *, has_colour: bool) -> dict[str, LineMark]:
    """By run."""
    return {run: _mark(style, has_colour=has_colour) for run, style in styles.items()}


def marks_of_groups(labels: Iterable[str], *, has_colour: bool) -> dict[str, LineMark]:
    """By label, in the order of the groups."""
    found = {}
    for place, label in enumerate(labels):
        tone, dash = RUN_TONES[place % len(RUN_TONES)], place // len(RUN_TONES) % DASHES
        style = RunStyle(tone, dash, LETTERS[place % len(LETTERS)])
        found[label] = _mark(style, has_colour=has_colour)
    return found


def _mark(style: RunStyle, *, has_colour: bool) -> LineMark:
    is_ascii = glyphs.current.is_ascii
    has_letter = is_ascii or not has_colour
    stroke = style.letter if is_ascii else _BRAILLE
    text = dashed([stroke * _CELLS], style.dash, is_ascii=is_ascii)[0]
    if has_letter and not is_ascii:
        text = f"{text[:-1]}{style.letter}"
    letter = style.letter if has_letter else ""
    return LineMark(style.tone, style.dash, letter, text, style.colour)
