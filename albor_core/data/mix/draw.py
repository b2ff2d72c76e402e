"""Maps names to random numbers, by which documents are drawn and ordered, independently of all
others."""

from __future__ import annotations

import hashlib


def number(seed: int, key: str) -> int:
    """A number uniform in [0, 2^64): a pure function of seed and key (their SHA-256)."""
    digest = hashlib.sha256(f"{seed}\0{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def draw(seed: int, key: str) -> float:
    """`number` as a fraction, uniform in [0, 1)."""
    return (number(seed, key) >> 11) / (1 << 53)
