"""Every symbol the cockpit draws, once, with its ASCII twin.

The only file of ours that is not ASCII. `current` is chosen before the first screen and stays.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from albor_core.run.light_dataclass import dataclass


@dataclass(frozen=True)
class Glyphs:
    """One look: what a terminal can show decides which."""

    is_ascii: bool
    running: str
    paused: str
    restarting: str
    unguarded: str
    stalled: str
    completed: str
    stopped: str
    failed: str
    lost: str
    unknown: str
    queued: str
    alert: str
    selected: str
    pin: str
    cursor: str
    crumb: str
    dot: str
    missing: str
    ellipsis: str
    arrow_up: str
    arrow_down: str
    arrow_left: str
    arrow_right: str
    unfolded: str
    check: str
    cross: str
    bar_full: str
    bar_empty: str
    bar_parts: str
    spark: str
    axis: str
    axis_tick: str
    grid: str
    axis_line: str
    axis_corner: str
    hair: str
    mark_checkpoint: str
    mark_rewind: str
    mark_phase: str
    shades: str
    columns: str
    broken: str
    legend: str
    budget: str
    rule: str
    degree: str
    plus_minus: str
    mark_low: str
    fold_open: str
    fold_shut: str
    upper_half: str


UNICODE = Glyphs(
    is_ascii=False,
    running="●",
    paused="‖",
    restarting="↻",
    unguarded="◐",
    stalled="◌",
    completed="✓",
    stopped="■",
    failed="✗",
    lost="?",
    unknown="?",
    queued="○",
    alert="▲",
    selected="◆",
    pin="★",
    cursor="▌",
    crumb="▸",
    dot="·",
    missing="—",
    ellipsis="…",
    arrow_up="↑",
    arrow_down="↓",
    arrow_left="←",
    arrow_right="→",
    unfolded="▾",
    check="✓",
    cross="✗",
    bar_full="━",
    bar_empty="━",
    bar_parts="╸",
    spark="▁▂▃▄▅▆▇█",
    axis="│",
    axis_tick="┤",
    grid="┈",
    axis_line="─",
    axis_corner="└",
    hair="╎",
    mark_checkpoint="◆",
    mark_rewind="«",
    mark_phase="┴",
    shades=" ░▒▓█",
    columns=" ▁▂▃▄▅▆▇█",
    broken="✗",
    legend="━",
    budget="┃",
    rule="─",
    degree="°",
    plus_minus="±",
    mark_low="▼",
    fold_open="▾",
    fold_shut="▸",
    upper_half="▀",
)

ASCII = Glyphs(
    is_ascii=True,
    running="*",
    paused="=",
    restarting="@",
    unguarded="!",
    stalled="~",
    completed="+",
    stopped="#",
    failed="x",
    lost="?",
    unknown="?",
    queued="o",
    alert="!",
    selected="*",
    pin="P",
    cursor=">",
    crumb=">",
    dot="-",
    missing="-",
    ellipsis="~",
    arrow_up="^",
    arrow_down="v",
    arrow_left="<",
    arrow_right=">",
    unfolded="v",
    check="+",
    cross="x",
    bar_full="#",
    bar_empty="-",
    bar_parts="",
    spark="_.-:=+*#",
    axis="|",
    axis_tick="+",
    grid="",
    axis_line="-",
    axis_corner="+",
    hair=":",
    mark_checkpoint="o",
    mark_rewind="<",
    mark_phase="|",
    shades=" .:+#",
    columns=" ._-=+*%#",
    broken="X",
    legend="=",
    budget="|",
    rule="-",
    degree="",
    plus_minus="+-",
    mark_low="v",
    fold_open="v",
    fold_shut=">",
    upper_half='"',
)

current = UNICODE


def use(look: Glyphs) -> None:
    """Choose the look of this process."""
    global current
    current = look


def fitting(environ: Mapping[str, str] = os.environ) -> Glyphs:
    """The look this terminal can show: ASCII for a locale without UTF-8 and for the Linux console,
    whose fonts lack braille. Without colour the empty part of a bar is another line."""
    if environ.get("TERM", "") in ("linux", "vt100", "vt102", "vt220"):
        return ASCII
    named = [environ.get(key, "") for key in ("LC_ALL", "LC_CTYPE", "LANG")]
    locale = next((value for value in named if value), "")
    has_utf8 = not locale or "utf8" in locale.lower().replace("-", "")
    if not has_utf8:
        return ASCII
    return replace(UNICODE, bar_empty=UNICODE.rule) if environ.get("NO_COLOR") else UNICODE


def means_of(values: Sequence[float], columns: int) -> list[float | None]:
    """At most `columns` means, each over its share of the values; None if none of that share is
    finite."""
    columns = min(columns, len(values))
    means: list[float | None] = []
    for i in range(columns):
        share = values[i * len(values) // columns : (i + 1) * len(values) // columns]
        finite = [v for v in share if math.isfinite(v)]
        means.append(sum(finite) / len(finite) if finite else None)
    return means


def spark(values: Sequence[float], width: int) -> str:
    """Values as `width` small columns, highest full; empty where nothing is finite.

    More values than columns: each column shows the mean of its share, and a mark where none of
    that is finite.
    """
    if width < 1 or not any(map(math.isfinite, values)):
        return ""
    means = means_of(values, width)
    known = [v for v in means if v is not None]
    low, span = min(known), max(known) - min(known)
    steps = current.spark
    top = len(steps) - 1
    return "".join(
        current.cross if v is None else steps[round((v - low) / span * top) if span else 0]
        for v in means
    )
