"""Numbers as people write them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.run.values.numbers import parse_count, parse_real


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("32K", 32_768),
        ("512K", 524_288),
        ("32k", 32_768),
        ("1.5K", 1_536),
        ("10B", 10**10),
        ("1.5M", 1_500_000),
        ("2T", 2 * 10**12),
        ("1G", 1_073_741_824),
        ("2.5g", 2_684_354_560),
        ("32_768", 32_768),
        ("1e6", 10**6),
        (" 7 ", 7),
        (1e6, 10**6),
        (5, 5),
    ],
)
def test_k_and_g_are_binary_and_m_b_t_are_decimal(text, number):
    assert parse_count(text) == number
    assert type(parse_count(text)) is int


@pytest.mark.parametrize(
    "value",
    [True, False, None, "", "K", "1.5", 1.5, "1e400", "0x10", "10KB", "ten", float("nan"),
     float("inf"), [], "9" * 100, "1e99999999"],
)  # fmt: skip
def test_what_is_not_a_whole_number_is_refused(value):
    with pytest.raises(ValueError, match="whole number"):
        parse_count(value)


@pytest.mark.parametrize(
    ("text", "number"), [("3e-4", 3e-4), ("1.0e-5", 1e-5), (1, 1.0), ("10B", 1e10), (".5", 0.5)]
)
def test_reals_take_exponents_that_yaml_reads_as_words(text, number):
    assert parse_real(text) == number


def test_booleans_are_not_numbers():
    with pytest.raises(ValueError, match="not true or false"):
        parse_real(True)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_real_survives_its_own_text(value):
    assert parse_real(repr(value)) == value


@given(st.text(max_size=40))
def test_any_text_gives_a_number_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert isinstance(parse_count(text), int)
