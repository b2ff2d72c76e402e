"""Splits a long text into windows that a model can read, with each token scored once.

The first window scores all that it reads; each later one scores the `stride` tokens that follow,
after as much of what came before as fits. That is lm-evaluation-harness's rolling window of
`max_seq_len = window` and `context_len = window - stride + 1`; its own likelihood has the stride
equal to the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def windows(
    ids: Sequence[int], *, first: int | None, window: int, stride: int
) -> Iterator[tuple[list[int], list[int]]]:
    """(context, continuation) pairs whose continuations are `ids` in order, without the first id if
    nothing precedes it (`first` None). A pair reads at most `window` tokens.
    """
    assert 1 <= stride <= window
    whole = [*ids] if first is None else [first, *ids]
    at = 1  # the next one to be scored
    while at < len(whole):
        end = min(len(whole), at + (window if at == 1 else stride))
        begin = max(0, end - 1 - window)
        yield whole[begin:at], whole[at:end]
        at = end
