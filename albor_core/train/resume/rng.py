"""The random number generators of a process, out as JSON and back in."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import torch


def rng_state() -> dict[str, Any]:
    """Python's, NumPy's global, torch's and each CUDA device's generator."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    assert isinstance(keys, np.ndarray)
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "numpy": [str(name), _pack(keys.tobytes()), int(position), int(has_gauss), float(cached)],
        "torch": _pack(torch.get_rng_state().numpy().tobytes()),
        "cuda": [],
    }
    if torch.cuda.is_available():
        state["cuda"] = [_pack(s.numpy().tobytes()) for s in torch.cuda.get_rng_state_all()]
    return state


def restore_rng(state: dict[str, Any]) -> None:
    """Put back what `rng_state` took. Raises ValueError, KeyError or RuntimeError for damage.

    CUDA generators are restored only where the number of devices is the same.
    """
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state(
        (name, np.frombuffer(_unpack(keys), np.uint32), position, has_gauss, cached)
    )
    torch.set_rng_state(_tensor(state["torch"]))
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([_tensor(text) for text in state["cuda"]])


def _pack(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _unpack(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(_unpack(text)), dtype=torch.uint8)
