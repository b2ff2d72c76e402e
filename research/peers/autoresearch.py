"""karpathy/autoresearch's train.py, ported when it is run: it is fetched, never kept here.

    git clone https://github.com/karpathy/autoresearch PEERS/autoresearch
    git -C PEERS/autoresearch checkout 228791fb499afffb54b46200aca536f79142f117

Its model, optimizer, hyper-parameters, schedule by time and clock are its own: the first 11 steps
are trained on and not counted. Replaced are Flash Attention 3 from a hub (FlexAttention with the
same window; torch's own attention where all is seen), `prepare` (our texts, packed by its rule) and
the seed; with a vocabulary of 32,768 its 128 rows at once do not fit, and 32 are taken four times.
"""

from __future__ import annotations

import bisect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

COMMIT = "228791fb499afffb54b46200aca536f79142f117"
VOCABULARY = 8192  # that of its prepare.py
CONTEXT = 2048
BUFFER = 1000  # documents it chooses from
KERNELS = """from kernels import get_kernel
cap = torch.cuda.get_device_capability()
# varunneal's FA3 is Hopper only, use kernels-community on non-Hopper GPUs
repo = "varunneal/flash-attention-3" if cap == (9, 0) else "kernels-community/flash-attn3"
fa3 = get_kernel(repo).flash_attn_interface
"""
ATTEND = "fa3.flash_attn_func(q, k, v, causal=True, window_size=window_size)"


def port(source: str, *, seed: int, rows: int) -> str:
    """Its train.py for our run. `rows` of 2,048 tokens at once. ValueError for another file."""
    changes = (
        (KERNELS, "from peers.autoresearch import attend\n"),
        (ATTEND, "attend(q, k, v, window_size[0])"),
        ("torch.manual_seed(42)", f"torch.manual_seed({seed})"),
        ("torch.cuda.manual_seed(42)", f"torch.cuda.manual_seed({seed})"),
        ("DEVICE_BATCH_SIZE = 128 ", f"DEVICE_BATCH_SIZE = {rows} "),
    )
    version = f"commit {COMMIT} of https://github.com/karpathy/autoresearch"
    return replaced("train.py", source, changes, version)


def replaced(file: str, source: str, changes: Iterable[tuple[str, str]], version: str) -> str:
    """`source` with the new text for each old one. ValueError where one is not found just once."""
    for old, new in changes:
        if (found := source.count(old)) != 1:
            raise ValueError(
                f"{file}: {old.splitlines()[0]!r} found {found} times, not once; take {version}"
            )
        source = source.replace(old, new)
    return source


BANDS: dict[tuple[int, int], Any] = {}
"""What FlexAttention looks at, by (T, window); made before anything is compiled."""


def make_band(T: int, window: int, device: str = "cuda") -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= k) & (q - k <= window)

    BANDS[T, window] = create_block_mask(seen, None, None, T, T, device=device)


def attend(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """(B, T, H, E) each; a token sees itself and `window` tokens before it, as Flash Attention's
    window_size=(window, 0) has it. Off the GPU and without a band by a mask.
    """
    T = q.shape[1]
    q, k, v = (x.transpose(1, 2).to(v.dtype) for x in (q, k, v))  # autocast may widen a norm
    if window >= T - 1:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    elif q.is_cuda or (T, window) in BANDS:
        from torch.nn.attention.flex_attention import flex_attention

        y = flex_attention(q, k, v, block_mask=BANDS[T, window])
    else:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen_through(T, window))
    return y.transpose(1, 2)


def seen_through(T: int, window: int) -> Tensor:
    """(T, T): which keys (columns) a query (row) sees."""
    far = torch.arange(T)[:, None] - torch.arange(T)[None]
    return (far >= 0) & (far <= window)


def pack(documents: Sequence[np.ndarray[Any, Any]], width: int, first: int) -> Iterator[np.ndarray]:
    """Rows of `width` ids by the rule of its make_dataloader: documents begin with `first`; into
    what is left of a row goes the longest that fits, or the beginning of the shortest. What is cut
    off there is lost; files being longer than its documents, here it becomes one more document.
    """
    rest, lengths, waiting = iter(documents), list[int](), list[np.ndarray]()
    row, at = np.empty(width, np.int32), 0

    def wait(document: np.ndarray) -> None:
        place = bisect.bisect_left(lengths, len(document) + 1)
        lengths.insert(place, len(document) + 1)
        waiting.insert(place, document)

    while True:
        while len(waiting) < BUFFER and (document := next(rest, None)) is not None:
            wait(document)
        if not waiting:
            return
        left = width - at
        place = max(0, bisect.bisect_right(lengths, left) - 1)
        taken = min(lengths.pop(place), left)
        document = waiting.pop(place)
        row[at] = first
        row[at + 1 : at + taken] = document[: taken - 1]
        if len(document) >= taken:
            wait(document[taken - 1 :])
        at += taken
        if at == width:
            yield row.copy()
            at = 0


class Served:
    """What train.py asks of its `prepare`: a tokenizer that knows its size, and batches."""

    def __init__(
        self,
        documents: Sequence[np.ndarray[Any, Any]],
        *,
        vocabulary: int,
        first: int,
        seed: int,
        seconds: float,
        most_tokens: int,
        device: torch.device,
    ) -> None:
        """Rows of so many epochs, each in an order of its own, that `most_tokens` are served."""
        rng, rows, self.epochs = np.random.default_rng(seed), list[np.ndarray](), list[int]()
        while sum(self.epochs) * CONTEXT < most_tokens:
            order = rng.permutation(len(documents))
            found = [*pack([documents[i] for i in order], CONTEXT + 1, first)]
            rng.shuffle(found)  # type: ignore[arg-type]  # the last rows are of the longest documents
            rows += found
            self.epochs.append(len(found))
        self.rows = torch.from_numpy(np.stack(rows)).to(device)
        self.vocabulary, self.seconds = vocabulary, seconds

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor, int]]:
        at = 0
        ends = np.cumsum(self.epochs)
        while True:
            where = torch.arange(at, at + size, device=self.rows.device) % len(self.rows)
            ids = self.rows[where].long()
            epoch = int(np.searchsorted(ends, at % len(self.rows), "right")) + 1
            yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), epoch
            at += size

    def module(self, evaluate: Callable[..., float]) -> types.ModuleType:
        found = types.ModuleType("prepare")
        tokenizer = types.SimpleNamespace(get_vocab_size=lambda: self.vocabulary)
        found.__dict__.update(
            MAX_SEQ_LEN=CONTEXT,
            TIME_BUDGET=self.seconds,
            Tokenizer=types.SimpleNamespace(from_directory=lambda: tokenizer),
            make_dataloader=lambda tokenizer, B, T, split: self.batches(B),
            evaluate_bpb=evaluate,
        )
        return found


def read(folder: Path) -> str:
    """Of train.py in `folder`/autoresearch. SystemExit with what to do where there is none."""
    file = folder / "autoresearch" / "train.py"
    if not file.is_file():
        raise SystemExit(
            f"{file}: no such file; git clone https://github.com/karpathy/autoresearch "
            f"{file.parent} and check out {COMMIT}"
        )
    return file.read_text(encoding="utf-8")
