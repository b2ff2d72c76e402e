"""Greedy text of random models of every family: transformers' generate is the judge, in fp64."""

import pytest
import torch
from hf_peers import CASES, SIZES, ours, theirs

from albor_core.model.generate.engine import generate
from albor_core.model.generate.sampling import Sampling

pytestmark = pytest.mark.slow  # imports transformers
FIRST_OF_EACH = [next(case for case in CASES if case[0] == name) for name, _ in CASES]
ONE_EACH = [case for i, case in enumerate(FIRST_OF_EACH) if case not in FIRST_OF_EACH[:i]]


def both(folder, name, more, *, number, new, length):
    """(theirs, ours): the new tokens after `number` prompts."""
    judge = theirs(name, {**more, "max_position_embeddings": length + new}, folder).double()
    judge.generation_config.eos_token_id = None
    mine = ours(folder, torch.float64)
    source = torch.Generator().manual_seed(2)
    prompts = torch.randint(0, SIZES["vocab_size"], (number, length), generator=source)
    with torch.no_grad():
        wanted = judge.generate(
            prompts, max_new_tokens=new, do_sample=False, pad_token_id=0,
            attention_mask=torch.ones_like(prompts),
            use_cache=more.get("sliding_window") != 1,  # its cache keeps all there, not none
        )  # fmt: skip
    found = generate(mine, prompts.tolist(), Sampling(max_new_tokens=new))
    return wanted[:, length:].tolist(), [[*one.ids] for one in found]


@pytest.mark.parametrize(("name", "more"), CASES, ids=str)
def test_greedy_text_is_that_of_transformers_token_by_token(tmp_path, name, more):
    wanted, found = both(tmp_path, name, more, number=4, new=24, length=12)
    assert found == wanted
    assert len({token for row in wanted for token in row}) > 1


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "more"), ONE_EACH, ids=str)
def test_64_texts_of_256_tokens_are_those_of_transformers(tmp_path, name, more):
    wanted, found = both(tmp_path, name, more, number=64, new=256, length=16)
    assert found == wanted
