"""Which runs of a workspace are drawn, whatever is hidden, alone or too many."""

from __future__ import annotations

from albor_tui.model.workspace import MOST_RUNS, Workspace

RUNS = ("a", "b", "c", "d")


def one(run: str) -> frozenset[str]:
    return frozenset((run,))


def test_what_is_hidden_before_solo_is_hidden_after_it():
    state = Workspace.begin(RUNS).toggled(one("b"))
    assert state.shown == ("a", "c", "d")
    alone = state.alone(one("b"))
    assert alone.shown == ("b",)
    assert alone.alone(one("b")).shown == ("a", "c", "d")
    assert alone.alone(one("c")).shown == ("c",)


def test_a_run_that_is_shown_beside_one_alone_is_the_second_of_two():
    state = Workspace.begin(RUNS).alone(one("a")).toggled(one("c"))
    assert state.shown == ("a", "c")
    assert state.with_all().shown == RUNS


def test_a_group_of_which_a_part_is_drawn_is_hidden_whole_and_comes_back_whole():
    state = Workspace.begin(RUNS).toggled(one("a"))
    hidden = state.toggled(frozenset("ab"))
    assert hidden.shown == ("c", "d")
    assert hidden.toggled(frozenset("ab")).shown == RUNS


def test_hidden_runs_of_other_lists_stay_hidden_there():
    state = Workspace.begin(RUNS, hidden=("a", "elsewhere")).toggled(one("a"))
    assert state.hidden == {"elsewhere"}
    assert Workspace.begin(RUNS, hidden=(*RUNS, "elsewhere")).shown == RUNS  # not an empty picture


def test_of_more_runs_than_can_be_drawn_the_first_are_and_it_is_said():
    many = tuple(f"r{n}" for n in range(412))
    state = Workspace.begin(many)
    assert state.shown == many[:MOST_RUNS]
    assert state.count == "100 of 412 drawn"
    assert state.toggled(one("r3")).count == "100 of 412 drawn, 99 shown"
    assert Workspace.begin(RUNS).toggled(one("a")).count == "3 shown of 4"
