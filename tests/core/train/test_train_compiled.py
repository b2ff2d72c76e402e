"""A run that says compiled is compiled: prompts of any length cost the training step no graph."""

import json
from pathlib import Path

import pytest
from oracle import python
from tokenizers import Tokenizer, models, pre_tokenizers

SCRIPT = Path(__file__).with_name("sharded_samples.py")


@pytest.fixture
def folder(tmp_path):
    words = {"<|endoftext|>": 0, **{f"w{i}": i for i in range(1, 64)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def first_step(folder, mode):
    done = python(str(SCRIPT), str(folder), mode)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_sharded_run_that_samples_first_trains_through_its_compiled_blocks(folder):
    found = first_step(folder, "as it is")
    assert found["calls"] == 3  # one graph of each block
    assert found["said"] == []


@pytest.mark.slow
def test_a_step_whose_graphs_are_spent_is_told_as_what_it_is(folder):
    """The sampler is kept from knowing that blocks are compiled, and spends their graphs."""
    found = first_step(folder, "unguarded")
    assert found["calls"] == 0
    (event,) = found["said"]
    assert event["name"] == "step.chosen" and event["backend"] == "plain"
    assert event["severity"] == "warning" and "no compiled graph" in event["reason"]
