"""Unbiased pass@k: the chance that one of k drawn completions passes (Chen et al. 2021)."""

from __future__ import annotations

from math import comb


def pass_at_k(n: int, passed: int, k: int) -> float:
    """pass@k of `n` completions of which c = `passed` pass, k drawn without replacement: 1 - C(n-c,
    k) / C(n, k), rounded once. Raises ValueError if k completions cannot be drawn.
    """
    if not (0 <= passed <= n and 0 < k <= n):
        raise ValueError(f"pass@{k} of {passed} in {n} completions is not defined")
    ways = comb(n, k)
    return (ways - comb(n - passed, k)) / ways
