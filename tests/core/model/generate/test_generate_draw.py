"""Drawing tokens: probabilities, filters, and that a draw is one's own."""

import math

import pytest
import torch

from albor_core.model.generate.draw import NOT_FINITE, draw, kept_shares, knobs_of, uniforms
from albor_core.model.generate.sampling import Sampling

CPU = torch.device("cpu")


def drawn(logits, sampling, positions):
    """One token a position, all from the same logits."""
    rows = logits.expand(len(positions), -1)
    return draw(rows, knobs_of([sampling] * len(positions), positions, CPU))


def kept_plainly(logits, top_p, top_k):
    """Ids that may be drawn, one after the other from the likeliest down."""
    order = sorted(range(len(logits)), key=lambda i: -float(logits[i]))
    order = order[:top_k] if top_k else order
    weights = [math.exp(float(logits[i])) for i in order]
    kept, reached = [], 0.0
    for number, weight in zip(order, weights, strict=True):
        if kept and reached >= top_p * sum(weights):
            break
        kept.append(number)
        reached += weight
    return kept


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 1e-9])
@pytest.mark.parametrize("top_k", [0, 1, 3, 40, 1000])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_tokens_come_as_often_as_the_filtered_probabilities_say(top_p, top_k, temperature):
    logits = torch.randn(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=7)
    number = 20_000
    found = torch.bincount(drawn(logits, sampling, range(number)), minlength=40)
    kept = kept_plainly(logits / temperature, top_p, top_k)
    wanted = torch.zeros(40, dtype=torch.float64)
    wanted[kept] = (logits[kept] / temperature).softmax(0)
    assert set(found.nonzero()[:, 0].tolist()) <= set(kept)
    spread = (wanted * (1 - wanted) / number).sqrt()
    assert (found / number - wanted).abs().le(5 * spread + 1e-12).all()


@pytest.mark.parametrize("seed", range(5))
def test_filters_keep_the_tokens_that_transformers_keeps(seed):
    """TopKLogitsWarper, then TopPLogitsWarper, written out."""
    logits = torch.randn(8, 50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    top_k, top_p = 20, 0.7
    floor = logits.topk(top_k).values[:, -1:]
    theirs = logits.masked_fill(logits < floor, -torch.inf)
    rising, ids = theirs.sort(descending=False)
    gone = rising.softmax(-1).cumsum(-1) <= 1 - top_p
    gone[:, -1:] = False
    theirs = theirs.masked_fill(gone.scatter(1, ids, gone), -torch.inf).softmax(-1)
    ordered, ids = logits.sort(descending=True)
    shares = kept_shares(ordered, torch.full((8,), top_p), torch.full((8,), top_k))
    ours = torch.zeros_like(logits).scatter(1, ids, shares / shares.sum(-1, keepdim=True))
    torch.testing.assert_close(ours, theirs)


def test_a_draw_depends_on_its_own_seed_and_position_whatever_stands_beside_it():
    logits = torch.randn(6, 100, generator=torch.Generator().manual_seed(0))
    how = [
        Sampling(temperature=0.0),
        Sampling(temperature=1.0, seed=1),
        Sampling(temperature=1.0, seed=1, top_p=0.5),
        Sampling(temperature=2.0, seed=2, top_k=7),
        Sampling(temperature=1.0, seed=-3),
        Sampling(temperature=0.3, seed=1 << 70),
    ]
    at = [4, 4, 9, 0, 12345, 6]
    together = draw(logits, knobs_of(how, at, CPU)).tolist()
    alone = [int(draw(logits[i : i + 1], knobs_of([how[i]], [at[i]], CPU))) for i in range(6)]
    assert together == alone
    assert together[0] == int(logits[0].argmax())


def test_uniforms_fill_the_unit_interval_and_neighbours_are_unrelated():
    grid = [(seed, position) for seed in range(100) for position in range(100)]
    found = torch.tensor(uniforms(*zip(*grid, strict=True))).view(100, 100)
    assert float(found.min()) >= 0 and float(found.max()) < 1
    counts = torch.histc(found, 20, 0, 1)
    assert (counts - 500).abs().max() < 5 * math.sqrt(500)
    for a, b in ((found[1:], found[:-1]), (found[:, 1:], found[:, :-1])):
        assert abs(float(torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1])) < 0.05
    assert len(set(found.flatten().tolist())) == 10_000


def test_the_coldest_draw_is_the_likeliest_token_and_never_not_a_number():
    logits = torch.tensor([1.0, 3.0, 2.0, -torch.inf])
    assert set(drawn(logits, Sampling(temperature=1e-40), range(50)).tolist()) == {1}
    assert set(drawn(logits * 1e30, Sampling(temperature=1e-3), range(50)).tolist()) == {1}


@pytest.mark.parametrize("warm", [0.0, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_of_no_use_give_no_token(warm, bad):
    logits = torch.tensor([[0.0, bad, 1.0], [0.0, 1.0, 2.0]])
    found = draw(logits, knobs_of([Sampling(temperature=warm)] * 2, [0, 0], CPU)).tolist()
    assert found[0] == NOT_FINITE and found[1] >= 0
