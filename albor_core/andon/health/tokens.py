"""Describes the number of training tokens per parameter. Pure.

Compute-optimal is about 20 (Hoffmann et al. 2022, arXiv:2203.15556, "Chinchilla"): a model with
fewer is too large for its tokens, one with more costs less to use and more to train.
"""

from __future__ import annotations

OPTIMAL, FEW, MANY = 20.0, 10.0, 40.0


def tokens_per_parameter(tokens: float | None, parameters: float | None) -> float | None:
    """Training tokens per parameter; None if either is unknown, or there are no parameters."""
    return tokens / parameters if tokens is not None and parameters else None


def words(ratio: float) -> str:
    """A description: "4.2 a parameter: fewer than half of compute-optimal (20)"."""
    said = f"{ratio:.3g} a parameter"
    if ratio < FEW:
        return f"{said}: fewer than half of compute-optimal ({OPTIMAL:g})"
    if ratio <= MANY:
        return f"{said}: near compute-optimal ({OPTIMAL:g})"
    return f"{said}: beyond compute-optimal ({OPTIMAL:g}), for a model that is cheap to use"
