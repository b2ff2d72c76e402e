"""The words for what a run is doing: one table, and everyone who shows or asks for one reads it."""

from __future__ import annotations

import pytest

from albor_core.cli.common.vocabulary import events_page
from albor_core.feed.run.offers import standing
from albor_core.run.status import ENDS, GROUPS, STATUSES
from albor_core.store.query.filter import parse_filter
from albor_tui.look import glyphs, themes
from albor_tui.look.themes import STATE_TONE
from albor_tui.widgets.base import styled


@pytest.mark.parametrize("word", STATUSES)
def test_a_word_is_explained_shown_and_asked_for(word):
    assert f"| `{word}` | {STATUSES[word].means} |" in events_page()
    assert styled.state_glyph(word) == getattr(glyphs.current, word)
    tone = STATE_TONE[word].removeprefix("$")
    for theme in themes.ALL:
        assert tone in {*theme.variables, "success", "warning", "error", "secondary"}
    silent = ("silent",) if word == "running" else ()  # it is one of them
    assert parse_filter(f"status:{word}").terms[0].values == (word, *silent)


def test_of_a_run_that_nothing_works_on_a_sentence_says_how_it_stands():
    idle = set(STATUSES) - set(GROUPS["active"])
    assert {word for word in STATUSES if STATUSES[word].standing} == idle
    assert standing("lost") == STATUSES["lost"].standing
    assert standing("running") == "it is running"


def test_groups_are_what_a_filter_knows():
    assert parse_filter("status:active").terms[0].values == (*GROUPS["active"], "silent")
    assert parse_filter("status:ended").terms[0].values == GROUPS["ended"]
    assert set(ENDS) <= set(GROUPS["ended"])
