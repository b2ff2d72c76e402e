"""The arithmetic of a decoder's shape, without torch."""

from __future__ import annotations

import pytest

from albor_core.config.shape import ModelShape
from albor_core.run.errors import ConfigError

M350 = ModelShape(1024, 24, 16, 4, 4096, 32768, 2048)
M50 = ModelShape(512, 12, 8, 2, 2048, 32768, 2048)


@pytest.mark.parametrize("shape, count", [(M350, 398_509_056), (M50, 62_403_072)])
def test_parameters_are_counted_exactly(shape, count):
    assert shape.num_parameters == count


def test_an_untied_head_adds_one_more_embedding_but_no_more_work():
    untied = ModelShape(1024, 24, 16, 4, 4096, 32768, 2048, tie_word_embeddings=False)
    assert untied.num_parameters - M350.num_parameters == 32768 * 1024
    assert untied.flops_per_token(1024) == M350.flops_per_token(1024)
    assert (len(M350.tensor_shapes()), len(untied.tensor_shapes())) == (218, 219)


def test_flops_per_token_is_the_stated_formula():
    matmul = 398_509_056 - 49 * 1024  # all but the norms
    assert M350.num_matmul_parameters == matmul
    assert M350.flops_per_token(1024) == 6 * matmul + 12 * 24 * 1024 * 1024


@pytest.mark.parametrize(
    "change, field",
    [
        ({"hidden_size": 1000}, "hidden_size"),
        ({"hidden_size": 48}, "num_attention_heads"),  # head_dim 3
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"rope_theta": float("nan")}, "rope_theta"),
    ],
)
def test_an_impossible_shape_is_refused_by_field(change, field):
    fields = {
        "hidden_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 64,
        "max_position_embeddings": 64,
    }
    with pytest.raises(ConfigError) as caught:
        ModelShape(**fields | change)
    assert [p.field for p in caught.value.problems] == [field]


def test_every_problem_of_a_shape_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        ModelShape(0, 0, 16, 4, 64, 64, 64)
    assert [p.field for p in caught.value.problems] == ["hidden_size", "num_hidden_layers"]
