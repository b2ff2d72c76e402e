"""The decoder of llama.py, forward and backward written out over flat parameters and fused kernels.

Autograd sees at most the attention. Everything else is a matrix product or one kernel, gradients of
weights go straight to their place in the flat buffer, and what a backward needs is a field of
`Tape`: memory is what you read here. The plain model is the oracle: same parameters, same numbers.

The residual stream and its gradient are what the products read, in half precision, and 8 bits more
beside it (kernels/ops/norms/add_rms_norm.py): as good as fp32, which the plain model has, and only
the first is kept. `residual_in_fp32` false leaves those bits out in both. Per token and layer that
is 14.5 D (LLaMA shapes with I = 4 D and a quarter of the heads as keys) in half precision, and 1.5
D more where q and k are normed; N tokens, otherwise the letters of llama.py. With segments it is
that of the layers of one, and 2.5 D at the beginning of each: a backward computes a segment again,
in the same bits, and then takes its tapes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.documents import attention as documents
from albor_core.kernels.ops import cross_entropy
from albor_core.kernels.ops.attention import attention, rope_qkv
from albor_core.kernels.ops.embedding import embedding_backward
from albor_core.kernels.ops.norms import qk_norm
from albor_core.kernels.ops.norms.add_rms_norm import add_norm_forward
from albor_core.kernels.ops.norms.rms_norm import empty_parts, norm_dx, norm_forward, sum_parts
from albor_core.model.flat import FlatParameters, is_of_heads
from albor_core.model.fp8 import Fp8Mlp, Scales
from albor_core.model.head import IGNORED, HeadPass, HeadScore, NextTokens, Scored, shifted
from albor_core.model.llama import SCORED_BYTES, Llama, cut_in
from albor_core.model.mlp import HalfMlp

LOGITS_BYTES = 1 << 30  # logits that exist at one time: 16,384 tokens of 32,768 in bf16
OPS = ("rms_norm", "add_rms_norm", "rope_qkv", "swiglu", "cross_entropy", "embedding")
"""The kernels it cannot do without."""
QK_NORM_OPS = ("qk_norm",)
"""Those that it needs besides where q and k are normed."""


@dataclass
class Norm:
    weight: Tensor
    number: int
    """Its place among the norms of its kind, where its gradient belongs."""


Stretches = dict[bool, tuple[Tensor, Tensor] | None]
"""What layers that do not slide, and that do, see of a batch (kernels/documents/attention.py);
None: all before it."""


class Layer:
    """Views into the flat buffers."""

    def __init__(
        self, flat: FlatParameters, number: int, scales: Scales | None, *, slides: bool
    ) -> None:
        """`slides`: through a window."""
        self.slides = slides
        prefix = f"model.layers.{number}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        self.input_norm = norm_of(flat, f"{prefix}.input_layernorm")
        self.middle_norm = norm_of(flat, f"{prefix}.post_attention_layernorm")
        self.head_norms: tuple[Norm, Norm] | None = None
        """Of q and of k."""
        if flat.norms(of_heads=True):
            self.head_norms = (
                norm_of(flat, f"{attention}.q_norm"),
                norm_of(flat, f"{attention}.k_norm"),
            )
        self.bias = bias_of(flat, attention)
        self.qkv = flat.weight(f"{attention}.q_proj.weight", f"{attention}.v_proj.weight")
        self.o = flat.weight(f"{attention}.o_proj.weight")
        gate_up = flat.weight(f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight")
        down = flat.weight(f"{mlp}.down_proj.weight")
        learns = not flat.vectors.gradient.is_meta
        is_trained = gate_up.gradient is not None and down.gradient is not None
        self.mlp = (
            Fp8Mlp(gate_up, down, scales, number)
            if scales and is_trained
            else HalfMlp(gate_up, down, learns=learns)
        )


def norm_of(flat: FlatParameters, module: str) -> Norm:
    """fp32: the kernels round where transformers does."""
    name, vectors = f"{module}.weight", flat.vectors
    alike = flat.norms(of_heads=is_of_heads(name))
    return Norm(vectors.view(vectors.master, name), alike.index(name))


@dataclass
class Bias:
    """The biases of q, k and v, fp32."""

    value: Tensor
    gradient: Tensor


def bias_of(flat: FlatParameters, attention: str) -> Bias | None:
    first, last = (f"{attention}.{name}_proj.bias" for name in "qv")
    vectors = flat.vectors
    if first not in vectors.places:
        return None
    value = vectors.view(vectors.master, first, last)
    return Bias(value, vectors.view(vectors.gradient, first, last))


@dataclass
class Normed:
    """A point of the residual stream and its norm."""

    y: Tensor
    total: Tensor
    rstd: Tensor


@dataclass
class Tape:
    """Saved tensors for the backward pass of a layer."""

    before: Normed
    projected: Tensor | None
    """q, k and v before norms of q and k, where there are such."""
    attended: attention.Attended | documents.AttendedDocuments
    middle: tuple[Tensor, Tensor]
    """Residual stream and rstd; its norm is the MLP's to keep."""
    large: list[Any]
    """One item, what the MLP kept; who needs it takes it out."""


@dataclass
class Border:
    """The input of a segment whose layers are recomputed in the backward pass."""

    at: Normed
    rest: Tensor | None
    """The bits beside the stream, which those layers write over."""
    again: Callable[..., Normed]


class FusedLlama:
    """Loss and gradients of a Llama. One forward, then its backward; not thread-safe."""

    def __init__(
        self,
        model: Llama,
        flat: FlatParameters,
        scales: Scales | None = None,
        *,
        segments: int = 0,
    ) -> None:
        """`scales`: of MLPs in fp8, which need `calibrate` before the first step; `segments`: parts
        of blocks, of which all but the last are computed again in the backward.
        """
        config = self.config = model.config
        self.heads = config.num_attention_heads, config.num_key_value_heads
        self.rotary = model.model.rotary_emb
        self.flat, tied = flat, model.lm_head is None
        self.embedding = flat.weight("model.embed_tokens.weight")
        self.head = self.embedding if tied else flat.weight("lm_head.weight")
        self.scales = scales
        self.layers = [
            Layer(flat, i, scales, slides=config.slides(i)) for i in range(config.num_hidden_layers)
        ]
        self.final_norm = norm_of(flat, "model.norm")
        vectors, of_heads = flat.vectors, flat.norms(of_heads=True)
        self.norm_gradients = vectors.rows(vectors.gradient, flat.norms(of_heads=False))
        self.head_norm_gradients: Tensor | None = None
        if of_heads:
            self.head_norm_gradients = vectors.rows(vectors.gradient, of_heads)
        self._segments = cut_in(max(1, segments), config.num_hidden_layers)
        self.sums: Mapping[str, Tensor] = {}
        """The means that the last forward's score gave beside its loss."""
        self.tapes: list[Tape] = []
        self._borders: list[Border] = []
        self._last: Normed | None = None
        self._dh: Tensor | None = None

    def left_out(self, B: int, T: int) -> dict[str, str]:
        """Kernels that do not take such batches, and why: slower ones run instead."""
        layer = self.layers[0]
        qkv = self.embedding.value.new_empty(()).expand(B, T, layer.qkv.shape[0])
        found = {"attention": attention.misfit(qkv, *self.heads)}
        mlps = (layer.mlp for layer in self.layers)
        if half := next((mlp for mlp in mlps if isinstance(mlp, HalfMlp)), None):
            found |= half.left_out(B * T)
        return {op: why for op, why in found.items() if why}

    @torch.no_grad()
    def forward(
        self,
        ids: Tensor,
        upstream: Tensor,
        labels: Tensor | None = None,
        document: Tensor | None = None,
        *,
        score: HeadScore | None = None,
    ) -> Tensor:
        """The mean loss that `score` makes of the head's output, fp32; its gradient will be
        `upstream` (fp32 scalar), and its other means lie in `sums`. Without one it is nats per
        counted token, 0 when none counts.

        ids (B, T) int64, and labels if they are others; document (B, T) where a token sees its own
        alone. Also writes the head's gradient. ValueError for more than max_position_embeddings
        tokens in a row.
        """
        wanted = score or NextTokens(ids if labels is None else labels)
        loss, self.sums = self._score(self.hidden(ids, document), wanted.begin(upstream))
        return loss

    @torch.no_grad()
    def logits(self, ids: Tensor, document: Tensor | None = None) -> Tensor:
        """(B, T, V); keeps nothing."""
        return self.head(self.hidden(ids, document, keeps=False)).view(*ids.shape, -1)

    @torch.no_grad()
    def score(self, ids: Tensor, labels: Tensor, document: Tensor | None = None) -> Tensor:
        """The mean loss in nats per counted token, fp32, as the plain model measures it; keeps
        nothing. ValueError in fp8, whose scales follow what training sees.
        """
        if self.scales is not None:
            raise ValueError("what is scored here would move the scales of fp8")
        h, targets = self.hidden(ids, document, keeps=False), shifted(labels)
        count, unused = (targets != IGNORED).sum(), torch.ones((), device=h.device)
        rows = max(1, SCORED_BYTES // (self.head.shape[0] * h.element_size()))
        loss = torch.zeros((), dtype=torch.float64, device=h.device)
        pieces = zip(h.split(rows), targets.split(rows), strict=True)  # type: ignore[no-untyped-call]
        for piece, wanted in pieces:
            logits = self.head(piece)
            loss += cross_entropy.score(logits, wanted, 0.0, unused, writes=False, count=count)
        return loss.float()

    def calibrate(self, ids: Tensor) -> None:
        """Find fp8's scales on a batch. Each pass lets the next layers see better numbers: from the
        third on they hardly change.
        """
        if self.scales is None:
            return
        self.scales.forget()
        for _ in range(4):
            self.forward(ids, torch.ones((), device=ids.device))
            self.backward(ids)

    def _advance(self) -> None:
        """Scales and fp8 weights of this micro-batch."""
        if self.scales is None:
            return
        self.scales.advance()
        for layer in self.layers:
            if isinstance(layer.mlp, Fp8Mlp):
                layer.mlp.refresh()

    def hidden(self, ids: Tensor, document: Tensor | None = None, *, keeps: bool = True) -> Tensor:
        """(N, D) after the last norm; fills the tape, if it `keeps` what a backward needs."""
        self._advance()
        eps = self.config.rms_norm_eps
        tables = self.rotary(ids.shape[1])
        stretches = self._stretches(ids, document)
        x = F.embedding(ids.flatten(), self.embedding.value)
        y, rstd = norm_forward(x, self.layers[0].input_norm.weight, eps)
        at, rest = Normed(y, x, rstd), self._no_rest(x)
        through = partial(self._through, tables=tables, shape=ids.shape, stretches=stretches)
        for part in self._segments[:-1]:
            if keeps:
                self._borders.append(Border(at, None if rest is None else rest.clone(), through))
            at = through(part, at, rest, keeps=False)
        at = through(self._segments[-1], at, rest, keeps=keeps)
        self._last = at if keeps else None
        return at.y

    def _stretches(self, ids: Tensor, document: Tensor | None) -> Stretches:
        of_all = None if document is None else documents.stretches(document)
        window = self.config.window(ids.shape[1])
        if window is None:
            return {False: of_all, True: of_all}
        of_rows = documents.stretches(torch.zeros_like(ids)) if of_all is None else of_all
        return {False: of_all, True: documents.windowed(of_rows, window)}

    def _through(
        self,
        part: slice,
        at: Normed,
        rest: Tensor | None,
        *,
        keeps: bool,
        tables: tuple[Tensor, Tensor],
        shape: torch.Size,
        stretches: Stretches,
    ) -> Normed:
        """Run several consecutive layers; fills the tape if it `keeps` tensors for the backward
        pass."""
        for layer, following in zip(self.layers[part], self._following()[part], strict=True):
            mine = stretches[layer.slides]
            at, tape = self._forward(layer, at, rest, following, tables, shape, mine, keeps=keeps)
            if keeps:
                self.tapes.append(tape)
            del tape
        return at

    def _following(self) -> list[Norm]:
        """The norm after each layer."""
        return [layer.input_norm for layer in self.layers[1:]] + [self.final_norm]

    def _forward(
        self,
        layer: Layer,
        before: Normed,
        rest: Tensor | None,
        following: Norm,
        tables: tuple[Tensor, Tensor],
        shape: torch.Size,
        stretches: tuple[Tensor, Tensor] | None,
        *,
        keeps: bool,
    ) -> tuple[Normed, Tape]:
        eps = self.config.rms_norm_eps
        qkv, projected = self._turned(layer, _projected(layer, before.y).view(*shape, -1), tables)
        attended: attention.Attended | documents.AttendedDocuments
        if stretches is None:
            by_kernels = None if keeps else False  # of a backward: the forward is SDPA's anyway
            attended = attention.attend_turned(qkv, *self.heads, by_kernels=by_kernels)
        else:
            attended = documents.attend_turned(qkv, *stretches, *self.heads)
        added = layer.o(attended.y)
        y, *middle = add_norm_forward(added, before.total, layer.middle_norm.weight, eps, rest=rest)
        added, kept = layer.mlp.forward(y)
        after = Normed(*add_norm_forward(added, middle[0], following.weight, eps, rest=rest))
        return after, Tape(before, projected, attended, (middle[0], middle[1]), [kept])

    def _turned(
        self, layer: Layer, qkv: Tensor, tables: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """(q, k and v as attention reads them, `Tape.projected`)."""
        if layer.head_norms is None:
            rope_qkv.rotate_in_place(qkv, *tables, *self.heads)
            return qkv, None
        q, k = (norm.weight for norm in layer.head_norms)
        eps = self.config.rms_norm_eps
        return qk_norm.norm_and_turn(qkv, q, k, *tables, *self.heads, eps), qkv

    def _score(self, h: Tensor, asked: HeadPass) -> Scored:
        """Loss, head's gradient and dh, in as many pieces as the logits' size asks for."""
        each = self.head.shape[0] * (asked.logit_bytes or h.element_size())
        pieces = _pieces(len(h), max(1, LOGITS_BYTES // each))
        dh, beta, seen = torch.empty_like(h), 0.0, None
        if asked.reads_first:
            for rows in pieces:
                seen = None  # two pieces of them are a GiB too many
                seen = self.head(h[rows])
                asked.read(rows, seen)
            pieces.reverse()  # the last is there
        for rows in pieces:
            logits, seen = self.head(h[rows]) if seen is None else seen, None
            asked.write(rows, logits)
            torch.mm(logits, self.head.value, out=dh[rows])
            self.head.learn(h[rows], logits, beta)
            beta = 1.0
            del logits
        self._dh = dh
        return asked.done()

    def backward(self, ids: Tensor) -> None:
        """Every gradient at its place in the flat buffers, over the last one; empties the tape."""
        for _ in self.backward_parts(ids, 1):
            pass

    @torch.no_grad()
    def backward_parts(self, ids: Tensor, parts: int) -> Generator[int]:
        """`backward` in so many steps, whose ends are those of `last_first(parts)`: at each the
        gradients of that layer's matrices and of all behind them are there, at the end all.
        """
        dy, dsum, after = self._dh, None, self._last
        assert dy is not None
        assert after is not None
        tables = self.rotary(ids.shape[1])
        sums = empty_parts(len(self.norm_gradients), ids.numel(), after.y)
        head_sums = self._empty_head_parts(ids.numel())
        through_heads = partial(self._heads_backward, head_sums)
        through = partial(_norm_backward, sums, self._no_rest(after.y))
        norms, stops = self._following(), self.last_first(parts)[:-1]
        for part in reversed(self._segments):
            if not self.tapes:
                border = self._borders.pop()
                border.again(part, border.at, border.rest, keeps=True)
            for number in reversed(range(len(self.layers))[part]):
                layer, following, tape = self.layers[number], norms[number], self.tapes.pop()
                dy, dsum = self._backward(
                    layer, tape, after, following, dy, dsum, tables, through, through_heads
                )
                after = tape.before
                del tape
                if number in stops:
                    yield number
        dx = through(self.layers[0].input_norm, after.total, after.rstd, dy, dsum)
        sum_parts(sums, self.norm_gradients)
        if head_sums is not None and self.head_norm_gradients is not None:
            sum_parts(head_sums, self.head_norm_gradients)
        if (gradient := self.embedding.gradient) is not None:
            embedding_backward(ids, dx, gradient, adds=self.head is self.embedding)
        self.flat.zero_frozen_gradients()
        self._dh = self._last = None
        yield 0

    def last_first(self, parts: int) -> list[int]:
        """The first layers of so many parts of all (or of as many as there are layers), in the
        order of a backward.
        """
        return [part.start for part in cut_in(min(parts, len(self.layers)), len(self.layers))][::-1]

    def _empty_head_parts(self, tokens: int) -> Tensor | None:
        """For the gradients of the weights that norm heads, if there are such."""
        norms, like = self.head_norm_gradients, self.layers[0].head_norms
        if norms is None or like is None:
            return None
        return qk_norm.empty_parts(len(norms), tokens, *self.heads, like[0].weight)

    def _no_rest(self, x: Tensor) -> Tensor | None:
        """Of a stream like x that nothing was added to; fp32 has none, nor has one that is to stay
        in half precision.
        """
        needs = self.config.residual_in_fp32 and x.dtype is not torch.float32
        return torch.zeros_like(x, dtype=torch.int8) if needs else None

    def _backward(
        self,
        layer: Layer,
        tape: Tape,
        after: Normed,
        following: Norm,
        dy: Tensor,
        dsum: Tensor | None,
        tables: tuple[Tensor, Tensor],
        through: Callable[..., Tensor],
        through_heads: Callable[..., None],
    ) -> tuple[Tensor, Tensor]:
        """(gradient at the layer's normed input, gradient at its residual stream)."""
        d_after = through(following, after.total, after.rstd, dy, dsum)
        dy = layer.mlp.backward(tape.large.pop(), d_after)
        d_middle = through(layer.middle_norm, *tape.middle, dy, d_after)
        d_rows = layer.o.backward(tape.attended.y, d_middle)
        kept = tape.attended
        if isinstance(kept, attention.Attended):
            dqkv = attention.gradient_of(kept, d_rows, *tables, *self.heads)
        else:
            dqkv = documents.gradient_of(kept, d_rows, *tables, *self.heads)
        if tape.projected is not None:
            through_heads(layer, tape.projected, dqkv)
        d_projected = dqkv.flatten(0, 1)
        if layer.bias is not None:
            torch.sum(d_projected, 0, dtype=torch.float32, out=layer.bias.gradient)
        return layer.qkv.backward(tape.before.y, d_projected), d_middle

    def _heads_backward(
        self, parts: Tensor | None, layer: Layer, projected: Tensor, dqkv: Tensor
    ) -> None:
        """dqkv, of normed q and k, becomes that of what was `projected`; `parts` are those of a
        whole pass.
        """
        assert layer.head_norms is not None
        assert parts is not None
        q, k = layer.head_norms
        found = dqkv, parts[q.number], parts[k.number]
        eps = self.config.rms_norm_eps
        qk_norm.norm_gradient(projected, q.weight, k.weight, *found, *self.heads, eps)


def _projected(layer: Layer, y: Tensor) -> Tensor:
    """q, k and v, rounded once."""
    if layer.bias is None:
        return layer.qkv(y)
    return F.linear(y, layer.qkv.value, layer.bias.value.to(y.dtype))


def _pieces(count: int, size: int) -> list[slice]:
    """Slices of `count` rows, at most `size` each."""
    return [slice(begin, min(begin + size, count)) for begin in range(0, count, size)]


def _norm_backward(
    parts: Tensor,
    rest: Tensor | None,
    norm: Norm,
    total: Tensor,
    rstd: Tensor,
    dy: Tensor,
    dsum: Tensor | None,
) -> Tensor:
    """The gradient of the stream before a norm; `parts` and `rest` are those of a whole pass."""
    return norm_dx(total, norm.weight, rstd, dy, dsum, parts[norm.number], rest=rest)
