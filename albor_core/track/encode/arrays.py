"""Converts arrays of other libraries to numpy, which is not loaded before there is one."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from albor_core.track.encode.medium import RefusedError

MAX_ELEMENTS = 1 << 28


def is_array(value: Any) -> bool:
    """Whether it is an array or a tensor: something that numpy can look at."""
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def as_array(value: Any) -> Any:
    """A numpy array of an array or tensor of any library, on any device; not a copy where it need
    not be. Raises RefusedError.
    """
    if callable(getattr(value, "detach", None)):  # torch
        value = value.detach().cpu()
        if str(value.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
            value = value.float()  # numpy has no such numbers
    try:
        numpy: Any = import_module("numpy")
    except ImportError as error:
        raise RefusedError("media_unreadable", "numpy is not installed") from error
    found = numpy.asarray(value)
    if found.size > MAX_ELEMENTS:
        raise RefusedError(
            "media_too_large", f"{found.size:,} elements, and {MAX_ELEMENTS:,} are allowed"
        )
    if found.dtype.kind not in "biuf":
        raise RefusedError("media_unreadable", f"an array of {found.dtype}, not of numbers")
    return found


def all_finite(array: Any) -> bool:
    """Whether no element is NaN or infinite."""
    numpy = sys.modules["numpy"]
    return array.dtype.kind != "f" or bool(numpy.isfinite(array).all())
