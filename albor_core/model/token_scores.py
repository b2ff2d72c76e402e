"""ln p of tokens after what a model reads: by its own modules, or by the fused step's kernels.

Either takes logits of scored positions alone, piece by piece: of them there are at most
SCORED_BYTES. `PlainScorer` is what the other is held to: on the first batch `FusedScorer` may err
twice as much, against the same weights in fp32. B sequences, T tokens, N scored ones, V vocabulary.
"""

from __future__ import annotations

import copy
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels import dispatch
from albor_core.kernels.ops import cross_entropy
from albor_core.model.flat import FlatParameters
from albor_core.model.fused import OPS, QK_NORM_OPS, FusedLlama
from albor_core.model.llama import Llama
from albor_core.model.visible_keys import seen_by_layers
from albor_core.plan.memory import shape_obstacles

SCORED_BYTES = 256 << 20  # of logits in fp32 and their log-softmax, at once
DTYPES = (torch.bfloat16, torch.float16, torch.float32)  # of the kernels
LENGTH_STEP = 64  # products fill their tiles, and SDPA sees few lengths: each is a plan of its own
GATE_ROWS, GATE_TOKENS = 2, 1024
SLACK = 2.0

Scores = tuple[Tensor, Tensor]
"""(N,) ln p in fp64, and whether no token was likelier, both on the CPU."""


class Scorer(Protocol):
    def __call__(self, ids: Tensor, where: Tensor, targets: Tensor) -> Scores:
        """Of `targets` (N,), each after the position (row, place) of `where` (N, 2) in ids (B, T),
        right-padded with any token.
        """


class PlainScorer:
    """The model's own modules, logits widened to fp32 at least."""

    def __init__(self, model: Llama) -> None:
        self._model = model

    def __call__(self, ids: Tensor, where: Tensor, targets: Tensor) -> Scores:
        hidden = self._model.model(ids)[where[:, 0], where[:, 1]]
        return scores_of(hidden, self._model.head_weight, targets)


def scores_of(hidden: Tensor, head: Tensor, targets: Tensor) -> Scores:
    """Scores of `targets` (N,) after hidden states (N, D), computed without fused kernels."""
    rows = max(1, SCORED_BYTES // (8 * len(head)))
    logs, hits = [], []
    for h, wanted in zip(hidden.split(rows), targets.split(rows), strict=True):  # type: ignore[no-untyped-call]
        logits = F.linear(h, head)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_p = logits.log_softmax(-1).gather(-1, wanted[:, None])[:, 0]
        logs.append(log_p.double())
        hits.append(logits.argmax(-1) == wanted)
    return torch.cat(logs).cpu(), torch.cat(hits).cpu()


class FusedScorer:
    """FusedLlama's forward, of a model with frozen weights; nothing is kept for a backward."""

    def __init__(self, model: Llama) -> None:
        """Moves the parameters' data; their values stay."""
        with torch.inference_mode(False):  # whoever else uses the model may be outside of it
            self._fused = FusedLlama(model, FlatParameters.of_frozen(model))
        self._longest = model.config.max_position_embeddings

    def __call__(self, ids: Tensor, where: Tensor, targets: Tensor) -> Scores:
        B, T = ids.shape
        width = max(T, min(self._longest, T + -T % LENGTH_STEP))
        hidden = self._fused.hidden(F.pad(ids, (0, width - T)), keeps=False)
        scored, head = hidden.view(B, width, -1)[where[:, 0], where[:, 1]], self._fused.head
        rows = max(1, SCORED_BYTES // (head.shape[0] * hidden.element_size()))
        logs, hits = [], []
        for h, wanted in zip(scored.split(rows), targets.split(rows), strict=True):  # type: ignore[no-untyped-call]
            logits = head(h)
            logs.append(-cross_entropy.nats(logits, wanted).double())
            hits.append(logits.argmax(-1) == wanted)
        return torch.cat(logs).cpu(), torch.cat(hits).cpu()


class TokenScorer:
    """Scores tokens by fused kernels if they run here and agree with the plain model, else plainly;
    decided by the first batch.
    """

    path: Literal["fused", "plain"] | None = None
    """None: on a GPU, where nothing has been scored yet."""
    reason: str | None = None

    def __init__(self, model: Llama) -> None:
        self._model = model
        self._scorer: Scorer = PlainScorer(model)
        if model.head_weight.device.type != "cuda" and (why := obstacle(model)):
            self.path, self.reason = "plain", f"not fused: {why}"  # also where nothing is scored

    def __call__(self, ids: Tensor, where: Tensor, targets: Tensor) -> Scores:
        """As `Scorer`; N > 0."""
        if self.path is None:
            self._decide(ids)
        return self._scorer(ids, where, targets)

    def _decide(self, ids: Tensor) -> None:
        self.path, self.reason = "plain", f"not fused: {obstacle(self._model)}"
        if obstacle(self._model):
            return
        try:
            fused = FusedScorer(self._model)
            fault = violation(self._model, fused, ids[:GATE_ROWS, :GATE_TOKENS])
        except torch.OutOfMemoryError:
            fault = "no memory to move and compare the weights"
        except Exception as error:  # whatever a driver or compiler raises, there is the plain one
            fault = f"{type(error).__name__}: {str(error)[:300]}"
        if ids.is_cuda:
            torch.cuda.empty_cache()  # what comparing took is of no use to what follows
        if fault:
            self.reason = f"not fused: it was rejected: {fault}"
            return
        self.path, self.reason, self._scorer = "fused", "its likelihoods pass parity", fused


def obstacle(model: Llama) -> str:
    """Why a model's tokens are not scored by the kernels on its device, or "". On a GPU each of
    them is checked the first time: seconds.
    """
    weight, config = model.head_weight, model.config
    if weight.device.type != "cuda":
        return "it needs a GPU"
    if weight.dtype not in DTYPES:
        return f"there are no kernels for {str(weight.dtype).removeprefix('torch.')}"
    longest = config.max_position_embeddings
    if found := shape_obstacles(config, longest, "max_position_embeddings"):
        return found[0]
    for op in (*OPS, *(QK_NORM_OPS if config.qk_norm else ())):
        if op != "embedding" and (why := dispatch.obstacle(op, weight.device, weight.dtype)):
            return f"{op}: {why}"
    return ""


@torch.no_grad()
def violation(model: Llama, fused: Scorer, ids: Tensor) -> str:
    """What is wrong with the likelihoods of ids (B, T), each after those before it, or "".

    An error is the norm of the difference over the norm of the truth, which is the same weights in
    fp32; it may be SLACK times the plain model's. In fp32 that one is the truth, and what the order
    of sums may cost is allowed.
    """
    ids = F.pad(ids, (0, 1)) if ids.shape[1] == 1 else ids
    rows, places = torch.meshgrid(
        torch.arange(len(ids), device=ids.device),
        torch.arange(ids.shape[1] - 1, device=ids.device),
        indexing="ij",
    )
    where, targets = torch.stack((rows.flatten(), places.flatten()), 1), ids[:, 1:].flatten()
    found, _ = fused(ids, where, targets)
    plain, _ = PlainScorer(model)(ids, where, targets)
    dtype = model.head_weight.dtype
    truth, floor = plain, 64 * torch.finfo(torch.float32).eps
    if dtype is not torch.float32:
        hidden = _hidden_in_fp32(model, ids)[where[:, 0], where[:, 1]]
        truth, _ = scores_of(hidden, model.head_weight.float(), targets)
        floor = torch.finfo(dtype).eps / 2
    error, usual = (float((one - truth).norm() / truth.norm()) for one in (found, plain))
    is_close = error <= SLACK * max(usual, floor)
    return "" if is_close else f"likelihoods: error {error:.2e}, plainly {usual:.2e}"


def _hidden_in_fp32(model: Llama, ids: Tensor) -> Tensor:
    """Hidden states computed in fp32, with the weights of one block at a time in fp32."""
    decoder, T = model.model, ids.shape[1]
    cos, sin = decoder.rotary_emb(T)
    seen = seen_by_layers(model.config, T, ids.device)
    x = F.embedding(ids, decoder.embed_tokens.weight).float()
    for layer, mine in zip(decoder.layers, seen, strict=True):
        x = copy.deepcopy(layer).float()(x, cos, sin, mine)
    hidden: Tensor = copy.deepcopy(decoder.norm).float()(x)
    return hidden
