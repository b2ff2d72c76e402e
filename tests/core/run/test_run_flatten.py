"""Nested data as paths, and what changed."""

from pathlib import Path

from albor_core.config.load import load_config
from albor_core.run.values.flatten import diff_configs, flatten, nested

SPEC = Path(__file__).parents[1] / "config" / "pretrain-350m-v2.yaml"


def test_every_scalar_has_one_dotted_path():
    assert flatten({"a": {"b": 1, "c": [2, {"d": None}]}, "e": "x", "f": {}, "g": []}) == {
        "a.b": 1, "a.c.0": 2, "a.c.1.d": None, "e": "x",
    }  # fmt: skip


def test_paths_make_the_data_that_they_are_of():
    data = {"a": {"b": 1, "c": [2, {"d": None}, [3, 4]]}, "e": "x"}
    assert nested(flatten(data)) == data
    assert nested(flatten([*range(12)])) == [*range(12)]


def test_only_what_changed_is_told():
    a = load_config(SPEC).config.resolved()
    b = load_config(SPEC, ["optimizer.lr=1e-3", "training.sample_prompts=[x]"]).config.resolved()
    assert diff_configs(a, a) == ()
    assert diff_configs(a, b) == (
        ("optimizer.lr", 3e-4, 1e-3),
        ("optimizer.min_lr", 3e-5, 1e-4),
        ("training.sample_prompts.0", None, "x"),
    )


def test_absent_and_null_are_the_same_but_one_and_true_are_not():
    assert diff_configs({"a": None, "b": 1}, {"b": 1.0}) == ()
    assert diff_configs({"a": 1}, {"a": True}) == (("a", 1, True),)
