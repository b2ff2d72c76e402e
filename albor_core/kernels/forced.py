"""ALBOR_KERNELS: one backend for every op, against a doubt. Loads no torch, so that a command can
ask before it starts anything.
"""

from __future__ import annotations

from collections.abc import Mapping

BACKENDS = ("reference", "triton")


def forced_backend(environ: Mapping[str, str]) -> str:
    """The backend asked for, or "". Raises ValueError for any other word."""
    word = environ.get("ALBOR_KERNELS", "")
    if word not in ("", *BACKENDS):
        raise ValueError(f"ALBOR_KERNELS is {word!r}; it may be unset, {' or '.join(BACKENDS)}")
    return word
