"""YAML that can neither surprise nor hurt."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.config.text.strict_yaml import MAX_BYTES, load_yaml
from albor_core.run.errors import ConfigError


def load(text):
    return load_yaml(text.encode() if isinstance(text, str) else text, file="f.yaml").data


def refusal(text):
    with pytest.raises(ConfigError) as caught:
        load(text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1.0e-5", 1e-5),
        ("no", "no"),
        ("on", "on"),
        ("010", 10),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("32_768", 32768),
        ("0x1F", 31),
        ("true", True),
        ("~", None),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("'5'", "5"),
        ("1_000.5", 1000.5),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    found = load(f"x: {text}")["x"]
    assert found == value
    assert type(found) is type(value)


def test_every_value_knows_its_line():
    document = load_yaml(b"a:\n  b: 1\n  c:\n    - 2\n    - d: 3\n", file="f")
    assert document.lines[("a", "b")] == 2
    assert document.lines[("a", "c", 1, "d")] == 5


def test_duplicate_keys_are_refused_with_both_lines():
    assert refusal("a: 1\nb:\n  c: 1\n  c: 2\n") == [
        "f.yaml:4: b.c: is given twice, first on line 3 (keep one of them)"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x: !!python/object/apply:os.system ['touch /tmp/never']",
        "x: !!python/name:os.system",
        "x: !custom 5",
        "x: !!binary aGVsbG8=",
        "x: !!set {a, b}",
    ],
)
def test_tags_are_refused_and_nothing_is_run(text):
    (problem,) = refusal(text)
    assert problem.startswith("f.yaml:1: x: the tag !")


def test_a_value_that_its_core_tag_cannot_hold_is_refused():
    assert "is not what its tag says" in refusal("x: !!int abc")[0]


def billion_laughs(levels, width):
    lines = ["l0: &l0 [x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (billion_laughs(12, 9), "aliases"),  # 99 aliases: caught by what they unfold to
        (billion_laughs(20, 9), "more than 100 aliases"),
        ("[" * 5000, "more than 32 levels"),
        ("{a: " * 5000, "more than 32 levels"),
        ("&a [*a]", "aliases"),
        ("&a {b: *a}", "aliases"),
        ("x: " + "9" * 10_000, "is not what its tag says"),
    ],
    ids=["laughs", "aliases", "lists", "mappings", "own list", "own mapping", "long number"],
)
def test_bombs_are_refused_quickly(text, word):
    start = time.monotonic()
    assert word in refusal(text)[0]
    assert time.monotonic() - start < 5.0  # milliseconds; a bomb that unfolds takes for ever


def test_a_file_of_more_than_a_mebibyte_is_refused_before_it_is_parsed():
    assert "more than 1,048,576" in refusal(b"# " + b"x" * MAX_BYTES)[0]


@pytest.mark.parametrize(
    ("raw", "start"),
    [
        (b"a: 1\nb: \xff\n", "f.yaml:2: is not UTF-8"),
        (b"a: 1\nb: \x01\n", "f.yaml:2: holds the character"),
        (b"a: [1\nb: 2", "f.yaml:2: "),
        (b"a: 1\n\tb: 2", "f.yaml:2: "),
        (b"a: 1\n---\nb: 2", "f.yaml:2: "),
        (b"? [a, b]\n: 1", "f.yaml:1: a key must be a word"),
        (b"a: *nowhere", "f.yaml:1: "),
    ],
)
def test_what_is_not_one_document_is_refused_with_its_line(raw, start):
    assert refusal(raw)[0].startswith(start)


def test_anchors_and_merge_keys_of_honest_size_work():
    data = load("base: &b {lr: 1, eps: 2}\none:\n  <<: *b\n  lr: 3\ntwo: *b\n")
    assert data["one"] == {"lr": 3, "eps": 2}
    assert data["two"] == {"lr": 1, "eps": 2}


@given(st.binary(max_size=200))
def test_any_bytes_give_data_or_a_config_error(raw):
    try:
        load_yaml(raw, file="f")
    except ConfigError as error:
        assert error.problems
