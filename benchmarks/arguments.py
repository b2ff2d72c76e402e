"""Types of arguments that scripts of several folders share."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number from 1 on: no round measures nothing, and its median ends in a traceback."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
