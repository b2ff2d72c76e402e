"""Tensors on disk, in the safetensors format, written so that a full disk or power cut is noticed.

The library reads; writing is ours, since a checkpoint needs what the library does not offer: the
hash of the bytes as they leave memory, an fsync on the descriptor that wrote them, and an OSError
that says why it failed. The layout is the library's own (wide types first, then by name, header
padded to 8 bytes), so equal tensors give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor

from albor_core.run.files.tensor_header import DamagedFileError, read_header

try:
    from blake3 import blake3

    ALGO = "blake3"
except ImportError:  # a light install: slower, as safe
    ALGO = "sha256"

CHUNK = 8 << 20
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


class Hasher(Protocol):
    def update(self, data: Any, /) -> Any: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class FileHash:
    """What a file must be: size in bytes, algorithm, hex digest."""

    size: int
    algo: str
    hash: str

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size, "algo": self.algo, "hash": self.hash}


def new_hasher(algo: str = ALGO, *, threads: int = 1) -> Hasher:
    """Raises DamagedFileError for an algorithm that this machine cannot check."""
    if algo == "sha256":
        return hashlib.sha256()
    if algo == "blake3" and ALGO == "blake3":
        return blake3(max_threads=threads)  # of its own: those of AUTO are dead after a fork
    raise DamagedFileError(f"hash algorithm {algo!r} is not available here")


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> FileHash:
    """A new file with these bytes, hashed on the way out and fsynced. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    hasher, size = new_hasher(), 0
    try:
        for chunk in chunks:
            hasher.update(chunk)
            view = memoryview(chunk).cast("B")
            while view:
                written = os.write(fd, view)
                size, view = size + written, view[written:]
        os.fsync(fd)
    finally:
        os.close(fd)
    return FileHash(size, ALGO, hasher.hexdigest())


def hash_file(path: Path, algo: str, *, threads: int = 1) -> FileHash:
    """What is on the disk now. Raises OSError, DamagedFileError for anything but a regular file.
    `threads`: more than one only while no training needs the cores.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    hasher, size = new_hasher(algo, threads=threads), 0
    with os.fdopen(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DamagedFileError("not a regular file")
        # into the same memory again and again: 2.8 GB/s with new pages for each chunk, 3.7 so
        chunk = memoryview(bytearray(CHUNK))
        while count := file.readinto(chunk):
            hasher.update(chunk[:count])
            size += count
    return FileHash(size, algo, hasher.hexdigest())


def num_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of the values; the header adds about 100 per tensor."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, note: str = "pt") -> FileHash:
    """CPU tensors as one safetensors file. Raises OSError."""
    return write_file(path, _encode(tensors, note))


def _encode(tensors: Mapping[str, Tensor], note: str) -> Iterator[bytes | memoryview]:
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {"format": note}}
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
    """All tensors of a file, on the CPU.

    Raises DamagedFileError before anything of the size a header claims is allocated.
    """
    read_header(path)
    tensors: dict[str, Tensor] = load_file(path)
    return tensors
