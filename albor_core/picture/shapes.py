"""What a picture is made of, before it is SVG text or pixels: lines, areas, dots and texts.

A shape has no colour, only the names of its looks; who draws it knows what these mean. Coordinates
are numbers, so no text of a run ever becomes a path.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Literal


@dataclass(frozen=True)
class Shape:
    """A `line` through its points, the `area` inside them, a `dot`, or `text` at its one point."""

    kind: Literal["line", "area", "dot", "text"]
    looks: str  # names, with blanks between them
    points: tuple[tuple[float, float], ...]
    text: str = ""
    anchor: Literal["", "middle", "end"] = ""


def svg_text(shapes: Iterable[Shape]) -> str:
    """The elements of an SVG; the style sheet around them knows the looks."""
    return "".join(map(_element, shapes))


def _element(shape: Shape) -> str:
    looks = f'class="{shape.looks}"' if shape.looks else ""
    x, y = shape.points[0]
    if shape.kind == "text":
        anchor = f' text-anchor="{shape.anchor}"' if shape.anchor else ""
        return f'<text {looks} x="{x}" y="{y}"{anchor}>{escape(shape.text)}</text>'
    if shape.kind == "dot":
        return f'<circle {looks} cx="{x}" cy="{y}" r="2"/>'
    if shape.looks in STRAIGHT:
        last_x, last_y = shape.points[-1]
        return f'<line {looks} x1="{x}" x2="{last_x}" y1="{y}" y2="{last_y}"/>'
    name = "polyline" if shape.kind == "line" else "polygon"
    points = " ".join(f"{x},{y}" for x, y in shape.points)
    return f'<{name} {looks} points="{points}"/>'


STRAIGHT = ("grid", "mark", "tick-mark")
"""Looks of lines of two points, which belong to no curve."""
