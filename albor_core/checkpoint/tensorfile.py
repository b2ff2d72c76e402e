"""Tensors on disk, in the safetensors format, written so that a full disk or power cut is noticed.

The library reads; writing is ours, since a checkpoint needs what the library does not offer: the
hash of the bytes as they leave memory, an fsync on the descriptor that wrote them, and an OSError
that says why it failed. The layout is the library's own (wide types first, then by name, header
padded to 8 bytes), so equal tensors give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from albor_core.outputs.identity import CHUNK, FileHash, write_file
from albor_core.run.files.tensor_header import read_header

DTYPES: Mapping[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def num_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Number of bytes of the values; the header adds about 100 per tensor."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileHash:
    """Write CPU tensors as one safetensors file. Raises OSError."""
    return write_file(path, _encode(tensors))


def _encode(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in names:
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    yield len(raw).to_bytes(8, "little") + raw
    for name in names:
        flat = tensors[name].detach().contiguous().reshape(-1).view(torch.uint8)
        view = memoryview(flat.numpy())  # type: ignore[arg-type]  # numpy 2 stubs on 3.11
        for start in range(0, len(view), CHUNK):
            yield view[start : start + CHUNK]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file to the CPU.

    Raises DamagedFileError before it allocates what a damaged header claims.
    """
    read_header(path)
    tensors: dict[str, Tensor] = load_file(path)
    return tensors
