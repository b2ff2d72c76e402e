from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.run.values.clean import MAX_COMBINING, clean

DANGEROUS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ud800-\udfff]")

ATTACKS = {
    "clear screen": "\x1b[2J\x1b[1;1H",
    "8-bit CSI": "\x9b31m",
    "clipboard": "\x1b]52;c;ZWNobyBoaQ==\x07",
    "8-bit OSC": "\x9d0;title\x9c",
    "window title": "\x1b]0;mine now\x07",
    "link": "\x1b]8;;http://example.org/\x07text\x1b]8;;\x07",
    "cursor report": "\x1b[6n",
    "device query": "\x1bP$qm\x1b\\",
    "kitty graphics": "\x1b_Gf=100;AAAA\x1b\\",
    "forged row": "run-1\r\nrun-2  completed",
    "bidi override": "\u202efdp.exe",
    "zero width": "a" + "\u200b" * 40,
    "bell and nul": "\x07\x00",
    "half a pair": "\ud83d",
    "line separator": "a\u2028b",
}


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS.keys())
def test_an_attack_becomes_visible_text(text):
    shown = clean(text)
    assert not DANGEROUS.search(shown)
    assert shown.encode()  # encodable, unlike a lone surrogate
    assert len(shown.splitlines()) == 1


def test_escape_is_shown_as_its_picture():
    assert clean("\x1b[31m") == "\u241b[31m"
    assert clean("a\tb", keep="\t") == "a\tb"


@pytest.mark.parametrize(
    "text", ["loss 2.31", "[b]x[/]", "\u00fcber \u6771\u4eac", "e\u0301", "\U0001f525"]
)
def test_ordinary_text_is_untouched(text):
    assert clean(text) == text


def test_a_flood_of_combining_marks_is_cut():
    shown = clean("e" + "\u0301" * 10_000 + "!")
    assert sum(map(bool, map(unicodedata.combining, shown))) == MAX_COMBINING
    assert shown[0] + shown[-1] == "e!"


def test_the_limit_holds_for_megabytes():
    assert clean("x" * 10_000_000, limit=20) == "x" * 19 + "\u2026"
    assert clean("short", limit=5) == "short"
    assert len(clean("\x1b" * 1000, limit=8)) == 8


@given(st.text(st.characters(), max_size=200))
def test_any_text_is_harmless_and_cleaning_twice_changes_nothing(text):
    shown = clean(text)
    assert not DANGEROUS.search(shown)
    assert clean(shown) == shown
