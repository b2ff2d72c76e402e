"""What a foreign loop may log, and what becomes of it: nothing raises, what is odd is counted."""

import math
from decimal import Decimal
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.run.values.metrics import MAX_KEY_CHARS, Odd, as_json, safe_key, tidy


def told(values):
    odd = Odd()
    return tidy(values, odd), odd.counts


def test_nan_and_inf_stay_what_they_are():
    found, odd = told({"a": math.nan, "b": math.inf, "c": -math.inf})
    assert math.isnan(found["a"])
    assert (found["b"], found["c"], odd) == (math.inf, -math.inf, {})


@pytest.mark.parametrize(
    "value, number, kinds",
    [
        (True, 1, {}),
        (2**63 - 1, 2**63 - 1, {}),
        (2**63, float(2**63), {"huge_integer": 1}),
        (10**400, math.inf, {"huge_integer": 1}),
        (-(10**5000), -math.inf, {"huge_integer": 1}),
        (Decimal("0.5"), 0.5, {}),
    ],
    ids=["bool", "int64", "2^63", "10^400", "beyond str", "Decimal"],
)
def test_numbers_of_every_kind_are_numbers(value, number, kinds):
    assert told({"x": value}) == ({"x": number}, kinds)


def test_numpy_and_torch_scalars_give_their_item():
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    found, odd = told(
        {
            "a": numpy.float32(0.5),
            "b": numpy.int64(3),
            "c": torch.tensor(0.25),
            "d": torch.tensor([2]),
            "e": numpy.bool_(True),
            "f": torch.tensor(1.5, dtype=torch.bfloat16, requires_grad=True),
        }
    )
    assert found == {"a": 0.5, "b": 3, "c": 0.25, "d": 2, "e": 1, "f": 1.5}
    assert {type(value) for value in found.values()} <= {int, float}
    assert odd == {}
    assert told({"g": torch.ones(2), "h": numpy.ones(3)}) == ({}, {"not_a_number": 2})


def test_nested_mappings_are_flattened_and_a_loop_among_them_ends():
    cycle: dict = {"x": 1.0}
    cycle["me"] = cycle
    found, odd = told(cycle)
    assert found["me/me/x"] == 1.0
    assert odd == {"nested_too_deep": 1}
    assert told({"train": {"acc": {"top1": 0.5}}}) == ({"train/acc/top1": 0.5}, {})


def test_what_is_no_number_is_left_out_and_counted():
    class Hostile:
        def item(self):
            raise RuntimeError("CUDA error")

        def __str__(self):
            raise ValueError

    found, odd = told({"a": "0.5", "b": [1], "c": 1j, "d": Hostile(), "e": None, "ok": 1.0})
    assert (found, odd) == ({"ok": 1.0}, {"not_a_number": 4})
    assert told(3.0) == ({}, {"not_a_mapping": 1})


@given(st.dictionaries(st.text() | st.integers(), st.floats() | st.integers() | st.text()))
def test_every_key_becomes_one_that_a_store_holds(values):
    found, _ = told(values)
    for key in found:
        assert 0 < len(key) <= MAX_KEY_CHARS
        assert key.isprintable()
        assert key != "_wall"


def test_keys_that_had_to_change_stay_apart():
    assert safe_key("a\x1b[31m\n") == "a\\x1b[31m\\n"
    assert safe_key("") == "(empty)"
    long = {safe_key("k" * 300 + end) for end in "ab"}
    assert len(long) == 2
    assert told({"lo\nss": 1.0})[1] == {"key_changed": 1}


def test_common_names_become_the_names_of_the_house():
    assert told({"loss": 1.0, "lr": 0.1, "eval_loss": 2.0, "mine": 3})[0] == {
        "train/loss": 1.0,
        "optim/lr": 0.1,
        "val/loss": 2.0,
        "mine": 3,
    }


def test_any_object_has_a_form_in_json():
    config = {"a": (1, {2}), 3: math.nan, "c": SimpleNamespace(x=1), "d": None, "e": True}
    made = as_json(config)
    assert (made["a"], made["3"], made["d"], made["e"]) == ([1, [2]], "nan", None, True)
    assert made["c"] == "namespace(x=1)"
