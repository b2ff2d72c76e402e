"""What bricks are called, and whose budget a joined one takes."""

import pytest

from albor_core.andon.bricks.names import (
    BRICKS,
    fit_budgets,
    in_order,
    is_brick,
    is_of_step,
    joined,
    parts_of,
    stands_in,
)


def test_parts_that_are_one_program_are_named_by_all_of_them_in_the_order_of_a_step():
    assert joined({"loss", "forward"}) == "forward+loss"
    assert joined(["backward", "loss", "forward"]) == "forward+loss+backward"
    assert parts_of("clip+optimizer") == ("clip", "optimizer")


@pytest.mark.parametrize("name", [*BRICKS, "forward+loss", "forward+loss+backward+clip+optimizer"])
def test_every_brick_and_every_joined_one_has_a_name(name):
    assert is_brick(name)


@pytest.mark.parametrize("name", ["", "wheels", "loss+forward", "data+data", "eval+log", "data+"])
def test_what_is_not_a_brick_has_none(name):
    assert not is_brick(name)


def test_what_happens_between_steps_is_no_part_of_one():
    assert [brick for brick in BRICKS if not is_of_step(brick)] == ["eval", "checkpoint", "log"]


def test_bricks_come_in_the_order_of_a_step_and_unknown_ones_last():
    shuffled = ["log", "wheels", "clip+optimizer", "other", "forward+loss", "data"]
    wanted = ["data", "forward+loss", "clip+optimizer", "other", "log", "wheels"]
    assert in_order(shuffled) == wanted


@pytest.mark.parametrize(
    ("budgets", "there", "found"),
    [
        ({"forward": 100.0}, ("forward+loss",), {"forward+loss": 100.0}),
        ({"forward": 100.0, "loss": 20.0}, ("forward+loss",), {"forward+loss": 120.0}),
        ({"loss": 20.0}, ("forward+loss",), {}),
        ({"forward": 100.0}, ("forward", "loss"), {"forward": 100.0}),
        (
            {"optimizer": 9.0, "data": 1.0},
            ("clip+optimizer",),
            {"clip+optimizer": 9.0, "data": 1.0},
        ),
        ({"forward+loss": 80.0, "forward": 100.0}, ("forward+loss",), {"forward+loss": 80.0}),
        ({"forward+loss": 80.0}, ("forward", "loss"), {"forward+loss": 80.0}),
    ],
)
def test_a_budget_of_a_part_applies_to_the_brick_that_it_is_joined_into(budgets, there, found):
    assert fit_budgets(budgets, there) == found


def test_a_person_may_name_a_part_of_the_brick_that_is_there():
    assert stands_in("forward", {"data", "forward+loss"}) == "forward+loss"
    assert stands_in("forward", {"forward", "loss"}) == "forward"
    assert stands_in("eval", {"data"}) == "eval"
