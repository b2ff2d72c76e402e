"""A head loss is the same whole, by autograd, and in pieces that its gradient is written over."""

import pytest
import torch
import torch.nn.functional as F

from albor_core.model.head import IGNORED, shifted
from albor_core.recipes.batch import Batch
from albor_core.recipes.head_loss import CrossEntropy, LogLoss, TokenLoss

B, T, D, V = 4, 9, 8, 23


class Smoothed(TokenLoss):
    def values(self, logits, batch, rows):
        return F.cross_entropy(
            logits,
            shifted(batch.targets)[rows],
            ignore_index=IGNORED,
            reduction="none",
            label_smoothing=0.1,
        )


class Pairs(LogLoss):
    """Of two rows the first is to be likelier, by more where `extra` says so."""

    columns = ("margin",)

    def count(self, batch):
        return torch.tensor(len(batch) // 2)

    def total(self, values, batch):
        rows = -values.view(len(batch), -1).sum(1)
        margin = (rows[::2] - rows[1::2]) * batch.extra["weight"][::2]
        return -F.logsigmoid(margin).mean(), {"margin": margin.mean()}


class Both(TokenLoss):
    """Two values of a position, of which one is logged alone."""

    columns = ("entropy",)

    def values(self, logits, batch, rows):
        log_p = logits.log_softmax(-1)
        is_scored = (shifted(batch.targets)[rows] != IGNORED).float()
        entropy = -(log_p.exp() * log_p).sum(-1)
        return torch.stack((log_p[:, 0] ** 2, entropy), 1) * is_scored[:, None]

    def total(self, values, batch):
        first, entropy = (values.sum(0) / self.count(batch)).unbind()
        return first - 0.1 * entropy, {"entropy": entropy}


def batch():
    source = torch.Generator().manual_seed(1)
    ids = torch.randint(0, V, (B, T), generator=source)
    labels = ids.clone()
    labels[1, 4:] = IGNORED
    return Batch(ids, labels, None, {"weight": torch.rand(B, generator=source)})


def through_pieces(score, h, weight, upstream, size):
    """What the fused decoder does with a pass."""
    asked, flat = score.begin(upstream), h.flatten(0, 1)
    pieces = [slice(at, min(at + size, len(flat))) for at in range(0, len(flat), size)]
    dh, dw = torch.empty_like(flat), torch.zeros_like(weight)
    if asked.reads_first:
        for rows in pieces:
            logits = flat[rows] @ weight.t()
            before = logits.clone()
            asked.read(rows, logits)
            assert torch.equal(logits, before)
    for rows in reversed(pieces):
        logits = flat[rows] @ weight.t()
        asked.write(rows, logits)
        dh[rows], dw = logits @ weight, dw + logits.t() @ flat[rows]
    return asked.done(), dh.view_as(h), dw


@pytest.mark.parametrize("size", [7, B * T])
@pytest.mark.parametrize("loss", [Smoothed(), LogLoss(), Pairs(), Both()])
def test_a_loss_of_tokens_is_the_same_in_pieces_and_by_autograd(loss, size):
    source = torch.Generator().manual_seed(2)
    h = torch.randn(B, T, D, generator=source, requires_grad=True)
    weight = torch.randn(V, D, generator=source, requires_grad=True)
    score, upstream = loss.bind(batch()), torch.tensor(0.7)
    mean, means = score(h, weight)
    wanted = torch.autograd.grad(mean, (h, weight), upstream)
    with torch.no_grad():
        (found, others), *gradients = through_pieces(score, h, weight, upstream, size)
    assert float(found) == pytest.approx(float(mean), rel=1e-6)
    assert {*others} == {*means} == {*loss.columns}
    for name, value in means.items():
        assert float(others[name]) == pytest.approx(float(value), rel=1e-5)
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_only_what_is_more_than_a_mean_sees_every_token_before_the_first_gradient():
    looks = {
        type(loss).__name__: loss.bind(batch()).begin(torch.ones(())).reads_first
        for loss in (CrossEntropy(), Smoothed(), LogLoss(), Pairs(), Both())
    }
    assert looks == {
        "CrossEntropy": False,
        "Smoothed": False,
        "LogLoss": False,
        "Pairs": True,
        "Both": True,
    }


def test_the_log_loss_without_more_is_the_cross_entropy():
    source = torch.Generator().manual_seed(3)
    h, weight = torch.randn(B, T, D, generator=source), torch.randn(V, D, generator=source)
    (one, _), (other, _) = (loss.bind(batch())(h, weight) for loss in (CrossEntropy(), LogLoss()))
    assert float(one) == pytest.approx(float(other), rel=1e-6)
