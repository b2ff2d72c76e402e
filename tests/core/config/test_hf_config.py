"""config.json as others write it, damaged ones among them."""

import json

import pytest
from tiny_run import tiny_config

from albor_core.config.hf_config import hf_config, refusals, shape_of
from albor_core.config.load import parse_config
from albor_core.config.shape import ModelShape, RopeScaling
from albor_core.run.errors import ConfigError

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
ABOUT = {
    "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 1e4, "sliding_window": 8, "tie_word_embeddings": False,
    "hidden_act": "silu", "rope_scaling": YARN,
}  # fmt: skip
ODD = [None, True, -1, 0, 1, 7, 10**12, 1.5, "x", "", [], [1], {}, {"a": 1}, "4", [[1]]]


@pytest.mark.parametrize("name", [*ABOUT, "rope_parameters", "use_sliding_window", "layer_types",
                                  "eos_token_id", "quantization_config"])  # fmt: skip
def test_an_odd_value_of_any_field_is_read_or_refused_and_never_a_traceback(tmp_path, name):
    for value in ODD:
        about = {**ABOUT, name: value}
        list(refusals(about))
        try:
            assert isinstance(shape_of(about, "config.json"), ModelShape)
        except ConfigError as error:
            assert error.message.startswith("config.json: ") and error.hint
        (tmp_path / "config.json").write_text(json.dumps(about))
        config = tiny_config(tmp_path, model__path=str(tmp_path), model__architecture={})
        try:
            parse_config(json.dumps(config).encode(), file="c.yaml")
        except ConfigError as error:
            assert all(one.field.startswith(("model.", "data.")) for one in error.problems)


@pytest.mark.parametrize("name", YARN)
def test_an_odd_rotation_is_refused_by_the_name_of_what_is_odd(name):
    for value in (-1, 0, "x", [1], {"a": 1}, float("nan")):
        about = {**ABOUT, "rope_scaling": {**YARN, name: value}}
        with pytest.raises(ConfigError) as refused:
            shape_of(about, "config.json")
        assert name.replace("rope_type", "rope type") in refused.value.message
        assert refused.value.hint


def test_the_older_and_the_newer_spelling_of_a_rotation_are_the_same():
    older = {**ABOUT, "rope_scaling": {**YARN, "type": "yarn"}}
    del older["rope_scaling"]["rope_type"]
    newer = {**ABOUT, "rope_parameters": {**YARN, "rope_theta": 1e4}}
    del newer["rope_scaling"], newer["rope_theta"]
    wanted = RopeScaling("yarn", 4.0, 16)
    found = [shape_of(about, "c") for about in (ABOUT, older, newer)]
    assert found[0] == found[1] == found[2] and found[0].rope_scaling == wanted


def test_what_a_shape_says_is_read_back_and_other_settings_stay():
    about = {**ABOUT, "eos_token_id": [2, 7], "pad_token_id": 0, "torch_dtype": "bfloat16"}
    shape = shape_of(about, "c")
    out = hf_config(shape, initializer_range=0.02, eos_token_id=7, about=about)
    assert shape_of(out, "c") == shape
    assert out["eos_token_id"] == [2, 7] and out["pad_token_id"] == 0
    assert out["dtype"] == "float32" and "torch_dtype" not in out
    longer = hf_config(shape, initializer_range=0.02, eos_token_id=9, about=about)
    assert longer["eos_token_id"] == 9  # the data ends texts otherwise


def test_a_rotation_that_was_left_does_not_stay_in_config_json():
    plain = shape_of({key: value for key, value in ABOUT.items() if key != "rope_scaling"}, "c")
    out = hf_config(plain, initializer_range=0.02, about=ABOUT)
    assert shape_of(out, "c") == plain and "rope_scaling" not in out


def test_two_spellings_of_a_rotation_that_differ_are_refused():
    newer = {"rope_type": "default", "rope_theta": 1e4}
    with pytest.raises(ConfigError, match="rope_parameters and rope_scaling contradict"):
        shape_of({**ABOUT, "rope_parameters": newer}, "config.json")
    same = {**YARN, "rope_theta": 1e4}
    assert shape_of({**ABOUT, "rope_parameters": same}, "c") == shape_of(ABOUT, "c")


SLID, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("more", "slides"),
    [
        ({"max_window_layers": 2}, ""),
        ({"max_window_layers": 1}, "LS"),
        ({"max_window_layers": 0}, "SS"),
        ({"max_window_layers": 2, "layer_types": [SLID, FULL]}, "SL"),
        ({"max_window_layers": 0, "layer_types": [FULL] * 2}, ""),
        ({"max_window_layers": 0, "sliding_window": ABOUT["max_position_embeddings"]}, ""),
        ({"max_window_layers": 0, "use_sliding_window": False}, ""),
        ({}, ""),  # the first 28 see all
    ],
)
def test_a_window_of_qwen_is_felt_by_the_layers_that_are_named(more, slides):
    about = {**ABOUT, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    about |= {"use_sliding_window": True, "rope_scaling": None, **more}
    shape = shape_of(about, "config.json")
    told = "".join("S" if shape.slides(i) else "L" for i in range(2))
    assert told == (slides or "LL")
    assert shape.window(16) == (8 if slides else None)
    out = hf_config(shape, initializer_range=0.02)
    assert shape_of(out, "config.json") == shape
    assert out.get("layer_types") == ([{"S": SLID, "L": FULL}[one] for one in slides] or None)


QWEN3 = {
    **ABOUT, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "rope_scaling": None,
    "use_sliding_window": True, "max_window_layers": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sliding_window": "8"}, "sliding_window '8' is not a whole number"),
        ({"sliding_window": 8.0}, "sliding_window 8.0 is not a whole number"),
        ({"sliding_window": 0}, "sliding_window 0 is not a whole number from 1"),
        ({"max_window_layers": "1"}, "max_window_layers '1' is not a whole number"),
        ({"max_window_layers": None}, "max_window_layers None is not a whole number"),
        ({"max_window_layers": True}, "max_window_layers True is not a whole number"),
        ({"use_sliding_window": "false"}, "use_sliding_window 'false' is neither true nor false"),
        ({"use_sliding_window": 0}, "use_sliding_window 0 is neither true nor false"),
        ({"use_sliding_window": False, "layer_types": [SLID] * 2}, "there is no window"),
        ({"sliding_window": None, "layer_types": [SLID] * 2}, "there is no window"),
        ({"use_sliding_window": False, "layer_types": ["x"] * 2}, "layer_types 'x' is not built"),
    ],
)
def test_a_window_of_qwen_that_is_told_wrongly_is_never_read_as_none(more, said):
    ((what, hint),) = refusals({**QWEN3, **more})
    assert said in what and hint
    assert list(refusals(QWEN3)) == []


@pytest.mark.parametrize("window", [0, -1, "8"])
def test_a_window_of_mistral_that_is_none_is_blamed_on_the_config_json(window):
    about = {**ABOUT, "model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    ((what, _),) = refusals({**about, "rope_scaling": None, "sliding_window": window})
    assert what == f"sliding_window {window!r} is not a whole number from 1"
    assert list(refusals({**about, "rope_scaling": None, "sliding_window": None})) == []


def test_a_qwen_that_names_no_window_has_the_one_that_transformers_takes():
    about = {key: one for key, one in QWEN3.items() if key != "sliding_window"}
    assert shape_of(about, "config.json").sliding_window is None  # longer than it reads
    longer = shape_of({**about, "max_position_embeddings": 8192}, "config.json")
    assert longer.sliding_window == 4096 and longer.slides(0)


def test_types_of_more_layers_than_there_are_are_refused():
    about = {**ABOUT, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    about |= {"use_sliding_window": True, "layer_types": [SLID] * 3, "rope_scaling": None}
    ((what, hint),) = refusals(about)
    assert what == "layer_types tells of 3 layers, and there are 2" and "repair" in hint


@pytest.mark.parametrize(
    ("more", "field", "said"),
    [
        ({"sliding_window": 8, "window_pattern": "SXL"}, "window_pattern", "has 'X'"),
        ({"window_pattern": "SL"}, "window_pattern", "there is no sliding_window"),
        ({"sliding_window": 8, "window_pattern": "LLS"}, "window_pattern", "no layer slides"),
        ({"sliding_window": 8, "window_pattern": "SL", "model_type": "mistral"},
         "window_pattern", "mistral has no windows by layer"),
        ({"sliding_window": 8, "model_type": "llama"}, "sliding_window", "model_type is llama"),
        ({"sliding_window": 0}, "sliding_window", "must be at least 1"),
    ],
)  # fmt: skip
def test_windows_that_cannot_be_are_refused_by_field(more, field, said):
    with pytest.raises(ConfigError) as refused:
        ModelShape(32, 2, 4, 2, 64, 64, 32, **{"model_type": "qwen3", **more})
    (problem,) = refused.value.problems
    assert problem.field == field and said in problem.message


def test_a_pattern_goes_over_all_layers_again_and_again():
    shape = ModelShape(32, 6, 4, 2, 64, 64, 32, model_type="qwen3", sliding_window=8,
                       window_pattern="SSL")  # fmt: skip
    assert [shape.slides(i) for i in range(6)] == [True, True, False] * 2
    assert shape.window_pattern == "SSLSSL"


def test_a_size_that_a_config_json_lacks_is_looked_for_there(tmp_path):
    about = {key: one for key, one in ABOUT.items() if key != "num_attention_heads"}
    (tmp_path / "config.json").write_text(json.dumps(about))
    config = tiny_config(tmp_path, model__path=str(tmp_path), model__architecture={})
    with pytest.raises(ConfigError) as refused:
        parse_config(json.dumps(config).encode(), file="c.yaml")
    assert "config.json does not say num_attention_heads" in str(refused.value.problems[0])


def test_a_length_that_no_table_of_rotations_can_have_is_refused():
    with pytest.raises(ConfigError, match="max_position_embeddings: must be at most 16,777,216"):
        shape_of({**ABOUT, "max_position_embeddings": 10**11}, "config.json")
