"""Five looks. Albor is Spanish for the first light of day: night ground, dawn colours as signals.

Colour carries meaning only: green lives, yellow waits or warns, red is broken, blue is finished.
The chart lines have variables of their own so that a theme can keep them apart for every eye.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from textual.theme import BUILTIN_THEMES, Theme

from albor_core.run.status import STATUSES

STATE_TONE = {
    word: "$ink-muted" if status.tone == "muted" else f"${status.tone}"
    for word, status in STATUSES.items()
}
SEVERITY_TONE = {
    "info": "$ink-muted",
    "warning": "$warning",
    "error": "$error",
    "critical": "$error",
}

DARK = Theme(
    name="albor-dark",
    primary="#f0a36b",
    secondary="#7fb4d8",
    accent="#f0a36b",
    success="#8cc98a",
    warning="#e6c15c",
    error="#ee6f6c",
    foreground="#d7d9e0",
    background="#12141c",
    surface="#171a24",
    panel="#1f2330",
    dark=True,
    variables={
        "ink": "#e6e8ef",
        "ink-muted": "#8d93a5",
        "ink-faint": "#666d82",
        "frame": "#343a4b",
        "frame-focus": "#f0a36b",
        "cursor-ground": "#262c3d",
        "track": "#2b3040",
        "line-raw": "#5a6b85",
        "line-spark": "#475369",
        "line-main": "#f0a36b",
        "line-val": "#6fc3df",
        "line-second": "#b79df0",
        "line-third": "#8cc98a",
        "line-fourth": "#e6c15c",
        "line-fifth": "#f4f5fa",
        "line-sixth": "#f0388c",
        "line-seventh": "#b14dff",
        "line-grid": "#232837",
        "footer-background": "#12141c",
        "footer-key-foreground": "#f0a36b",
        "footer-description-foreground": "#8d93a5",
    },
)

LIGHT = Theme(
    name="albor-light",
    primary="#a54a12",
    secondary="#1f6a94",
    accent="#a54a12",
    success="#2a7035",
    warning="#7a5800",
    error="#c02b2b",
    foreground="#23262e",
    background="#faf8f4",
    surface="#f4f1ea",
    panel="#eae6dc",
    dark=False,
    variables={
        "ink": "#16181d",
        "ink-muted": "#5d616b",
        "ink-faint": "#8a877d",
        "frame": "#cdc8bb",
        "frame-focus": "#a54a12",
        "cursor-ground": "#f1ebe0",
        "track": "#dfd9cc",
        "line-raw": "#8797ad",
        "line-spark": "#9fabba",
        "line-main": "#b54f14",
        "line-val": "#1f7a9c",
        "line-second": "#7450b8",
        "line-third": "#2a7035",
        "line-fourth": "#7a5800",
        "line-fifth": "#16181d",
        "line-sixth": "#1414a0",
        "line-seventh": "#7a1048",
        "line-grid": "#ebe6da",
        "footer-background": "#faf8f4",
        "footer-key-foreground": "#a54a12",
        "footer-description-foreground": "#5d616b",
    },
)

CONTRAST = Theme(
    name="albor-contrast",
    primary="#ffb000",
    secondary="#5ad1ff",
    accent="#ffb000",
    success="#5aff7a",
    warning="#ffe14d",
    error="#ff8080",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    dark=True,
    variables={
        "ink": "#ffffff",
        "ink-muted": "#d0d0d0",
        "ink-faint": "#8a8a8a",
        "frame": "#b0b0b0",
        "frame-focus": "#ffb000",
        "cursor-ground": "#003a5c",
        "track": "#4a4a4a",
        "line-raw": "#8a8a8a",
        "line-spark": "#7a7a7a",
        "line-main": "#ffb000",
        "line-val": "#5ad1ff",
        "line-second": "#b487e1",
        "line-third": "#5aff7a",
        "line-fourth": "#ffe14d",
        "line-fifth": "#ffffff",
        "line-sixth": "#ff4f9a",
        "line-seventh": "#7a5cff",
        "line-grid": "#303030",
        "footer-background": "#000000",
        "footer-key-foreground": "#ffb000",
        "footer-description-foreground": "#ffffff",
    },
)

# The eight colours of Okabe and Ito (2008), which stay apart with any one kind of cone missing: no
# green beside a red, and symbol and word always say the same as the colour.
COLOUR_BLIND = Theme(
    name="albor-colour-blind",
    primary="#e69f00",
    secondary="#56b4e9",
    accent="#e69f00",
    success="#56b4e9",
    warning="#f0e442",
    error="#ff8a4c",
    foreground="#dcdee4",
    background="#12141c",
    surface="#171a24",
    panel="#1f2330",
    dark=True,
    variables={
        **DARK.variables,
        "frame-focus": "#e69f00",
        "line-main": "#e69f00",
        "line-val": "#56b4e9",
        "line-second": "#cc79a7",
        "line-third": "#009e73",
        "line-fourth": "#f0e442",
        "line-fifth": "#ffffff",
        "line-sixth": "#0072b2",
        "line-seventh": "#a0561a",
        "footer-key-foreground": "#e69f00",
    },
)

ANSI = Theme(
    name="albor-ansi",
    ansi=True,
    primary="ansi_yellow",
    secondary="ansi_cyan",
    accent="ansi_yellow",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables={
        **BUILTIN_THEMES["ansi-dark"].variables,
        "ink": "ansi_default",
        "ink-muted": "ansi_white",
        "ink-faint": "ansi_bright_black",
        "frame": "ansi_bright_black",
        "frame-focus": "ansi_yellow",
        "cursor-ground": "ansi_blue",
        "track": "ansi_bright_black",
        "line-raw": "ansi_bright_black",
        "line-spark": "ansi_bright_black",
        "line-main": "ansi_yellow",
        "line-val": "ansi_cyan",
        "line-second": "ansi_magenta",
        "line-third": "ansi_green",
        "line-fourth": "ansi_bright_yellow",
        "line-fifth": "ansi_default",
        "line-sixth": "ansi_bright_magenta",
        "line-seventh": "ansi_bright_blue",
        "line-grid": "ansi_bright_black",
        "footer-background": "ansi_default",
        "footer-key-foreground": "ansi_yellow",
        "footer-description-foreground": "ansi_default",
    },
)

ALL = (DARK, LIGHT, CONTRAST, COLOUR_BLIND, ANSI)
NAMES = {
    "dark": DARK,
    "light": LIGHT,
    "contrast": CONTRAST,
    "colour-blind": COLOUR_BLIND,
    "ansi": ANSI,
}


def variables(theme: Theme) -> dict[str, str]:
    """What the stylesheet may name in this look; where it names no colour of its own, DARK's."""
    return {**DARK.variables, **theme.to_color_system().generate(), **theme.variables}


def fitting(environ: Mapping[str, str] = os.environ) -> str:
    """The look for this terminal: its own sixteen colours where it has no more, and where the user
    wants none (NO_COLOR: Textual then drops hue, and the terminal's own contrast is the best)."""
    term = environ.get("TERM", "")
    has_many = "256color" in term or "direct" in term or term.startswith(("xterm-kitty", "foot"))
    has_many |= environ.get("COLORTERM", "") in ("truecolor", "24bit")
    return "dark" if has_many and not environ.get("NO_COLOR") else "ansi"
