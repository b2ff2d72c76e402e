"""Which runs are meant stays the same whatever is listed."""

from __future__ import annotations

from dataclasses import replace

from albor_tui.model.selection import RunSelection

ABC = RunSelection(("a", "b", "c"), cursor="b")


def test_a_key_acts_on_the_marked_runs_else_on_the_one_under_the_cursor():
    assert RunSelection().acted_on == ()
    assert ABC.acted_on == ("b",)
    assert replace(ABC, marked=frozenset({"c", "a"})).acted_on == ("a", "c")
    assert replace(ABC, marked=frozenset({"hidden"})).acted_on == ("b",)


def test_a_mark_of_a_run_that_is_hidden_stays():
    marked = replace(ABC.toggled(), listed=("a", "c"), cursor="c")
    assert (marked.chosen, marked.hidden) == ((), 1)
    assert replace(marked, listed=ABC.listed).chosen == ("b",)
    assert replace(marked, cursor="b").toggled().marked == frozenset()


def test_a_single_marked_run_is_compared_with_the_one_under_the_cursor():
    assert ABC.compared == ()
    assert ABC.toggled().compared == ("b",)
    assert replace(ABC.toggled(), cursor="a").compared == ("b", "a")
    assert replace(ABC, marked=frozenset({"a", "c"})).compared == ("a", "c")


def test_the_cursor_stays_on_its_run_in_another_list():
    assert ABC.index_in(("c", "b"), 0) == 1
    assert ABC.index_in(("c", "a"), 1) == 1
    assert ABC.index_in(("c",), 2) == 0
    assert ABC.index_in((), 2) == 0


def test_the_runs_from_the_cursor_on_come_round_the_end():
    assert ABC.from_cursor == ("b", "c", "a")
    assert ABC.turned().from_cursor == ("c", "a", "b")
    assert ABC.turned().turned() == replace(ABC, cursor="a")
