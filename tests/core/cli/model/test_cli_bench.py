"""`albor bench`: a document of every figure, a table, and loads that a model cannot take."""

import pytest
from called import call, document
from hf_folder import write_model

from albor_core.model.generate import peer


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "m", "llama")
    return tmp_path / "m"


QUICK = ("--rounds", 1, "--new-tokens", 4)


def test_every_load_is_measured_and_its_figures_agree(folder):
    words = ("--batch", 1, "--batch", 3, "--context", 5, "--context", 8, "--alone", *QUICK)
    code, found = document("bench", folder, *words)
    assert code == 0
    loads = [(one["context"], one["batch"]) for one in found["measured"]]
    assert loads == [(5, 1), (5, 3), (8, 1), (8, 3)]
    for one in found["measured"]:
        assert 0 < one["step_ms_p50"] <= one["step_ms_p99"]
        law = one["law"]
        assert law["ms"] == pytest.approx(1000 * law["bytes"] / found["bytes_per_s"])
        assert law["share"] == pytest.approx(law["ms"] / one["step_ms_p50"])
        assert one["transformers"] is None


def test_the_law_counts_each_weight_and_each_key_and_value_once(folder):
    """Two blocks of 32 wide, 2 heads of keys of 8; 64 rows of a tied head; fp32."""
    words = ("--batch", 1, "--batch", 2, "--context", 8, "--alone", *QUICK)
    one, two = (row["law"]["bytes"] for row in document("bench", folder, *words)[1]["measured"])
    a_token = 4 * 2 * 2 * (2 * 8)
    assert two - one == (8 + 2) * a_token
    _, shown = document("model", "show", folder)
    assert one - (8 + 2) * a_token == 4 * shown["parameters"]


def test_a_table_says_the_same_on_a_terminal(folder):
    code, said, _ = call("bench", folder, "--batch", 2, "--context", 8, "--alone", *QUICK)
    assert code == 0 and "of the law" in said and "transformers" not in said
    assert len(said.splitlines()) == 4


@pytest.mark.slow  # imports transformers
def test_transformers_writes_the_same_load_beside_it(folder):
    assert peer.is_installed()
    code, found = document("bench", folder, "--batch", 2, "--context", 8, *QUICK)
    assert code == 0
    [one] = found["measured"]
    theirs = one["transformers"]
    assert theirs["ratio"] == pytest.approx(one["tokens_per_s"] / theirs["tokens_per_s"])


@pytest.mark.parametrize("words, said", [
    (("--context", 32), "32 tokens of context and 2 new ones are more than the model can take"),
    (("--context", 8, "--new-tokens", 30), "8 tokens of context and 30 new ones are more"),
    (("--batch", 0), "0 is not in the range"),
])  # fmt: skip
def test_a_load_that_a_model_cannot_take_is_refused(folder, words, said):
    code, found = document("bench", folder, *words)
    assert code == 2 and said in found["error"]["message"] and found["error"]["hint"]


def test_what_holds_no_model_is_refused_by_name(tmp_path):
    code, found = document("bench", tmp_path)
    assert code == 3 and "no model.safetensors" in found["error"]["message"]
