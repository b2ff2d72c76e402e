"""Sends a notice to the desktop by way of the terminal: the bytes of OSC 9 and OSC 777.

Pure: the owner of the terminal writes the bytes. A terminal that knows neither sequence ignores
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from albor_core.run.values.clean import clean

_TITLE, _TEXT = 80, 200  # characters
_OF_OSC_777 = ("foot", "rxvt", "vte", "ghostty", "contour")
_ESC, _END = "\x1b", "\x07"


def protocol(environment: Mapping[str, str]) -> str:
    """ "osc777" for terminals that support it, with a title; "osc9" for all others."""
    told = " ".join(environment.get(name, "").lower() for name in ("TERM", "TERM_PROGRAM"))
    is_vte = "VTE_VERSION" in environment
    return "osc777" if is_vte or any(word in told for word in _OF_OSC_777) else "osc9"


def desktop_bytes(title: str, text: str, environment: Mapping[str, str]) -> bytes:
    """The bytes to write to a terminal of this environment; control sequences in `title` or `text`
    have no effect."""
    title, text = clean(title, limit=_TITLE), clean(text, limit=_TEXT)
    if protocol(environment) == "osc777":
        # ; parts its fields
        sequence = f"{_ESC}]777;notify;{title.replace(';', ',')};{text.replace(';', ',')}{_END}"
    else:
        # some terminals take `4;...` for progress: a letter comes first
        sequence = f"{_ESC}]9;Albor: {title}: {text}{_END}"
    if environment.get("TMUX"):
        sequence = f"{_ESC}Ptmux;{sequence.replace(_ESC, _ESC * 2)}{_ESC}\\"
    return sequence.encode(errors="replace")
