"""The weights of a folder in Hugging Face's layout: which safetensors file holds which tensor.

One `model.safetensors`, or many with `model.safetensors.index.json`. Only headers are read, so no
torch is needed. Nothing pickled is ever opened: reading a pickle runs what it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.files.tensor_header import DamagedFileError, read_header

BASE = "base.json"  # beside weights that are a part: where the others lie, by hash
BASE_SCHEMA = "albor.base/1"
WHOLE, INDEX, ADAPTER = "model.safetensors", "model.safetensors.index.json", "adapter_config.json"
HINT = f"name a directory with {WHOLE} in it, a checkpoint of a run say"
GENERATION = "generation_config.json"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
MAX_INDEX_BYTES = 64 << 20
PIECE_BYTES = 16 << 20
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_BUFFER = ".rotary_emb.inv_freq"  # of older Llamas, computed from the config


@dataclass(frozen=True)
class Held:
    """A tensor on disk: `num_bytes` bytes of `file` from `begin` on."""

    file: Path
    dtype: str
    """As safetensors writes it: F32, BF16."""
    shape: tuple[int, ...]
    begin: int
    num_bytes: int

    @property
    def count(self) -> int:
        """The number of its elements."""
        found = 1
        for extent in self.shape:
            found *= extent
        return found


@dataclass(frozen=True)
class WeightFiles:
    """Tensors by name, in the order of files and of bytes in them."""

    folder: Path
    files: tuple[Path, ...]
    tensors: Mapping[str, Held]


def open_weights(folder: Path) -> WeightFiles:
    """Read the headers of all weights in `folder`.

    Raises NotFoundError where there are none, DataError where they are damaged, pickled or of an
    adapter, or the index names what is not there; OSError.
    """
    if not folder.is_dir():
        what = "is not a directory" if folder.exists() else "no such directory"
        raise NotFoundError(f"{folder}: {what}", hint=HINT)
    is_adapter = (folder / ADAPTER).exists()
    if is_adapter and ((folder / WHOLE).exists() or (folder / INDEX).exists()):
        what = (
            f"{folder} holds a model and an adapter ({ADAPTER}): which of them is meant is not said"
        )
        raise DataError(what, hint=f"merge the adapter, or move {ADAPTER} and its weights away")
    if (folder / BASE).exists():
        return _on_base(folder)
    if (folder / WHOLE).exists():
        return WeightFiles(folder, (folder / WHOLE,), dict(_held(folder / WHOLE)))
    if not (folder / INDEX).exists():
        raise _nothing_here(folder)
    named = _index(folder)
    files = tuple(folder / name for name in sorted(set(named.values())))
    there = {file.name: dict(_held(file)) for file in files}
    for tensor, name in named.items():
        if tensor not in there[name] and not tensor.endswith(_BUFFER):
            what = f"{folder / INDEX}: names {tensor} in {name}, which does not hold it"
            raise DataError(what, hint="fetch both again")
    tensors = {
        tensor: held
        for file in files
        for tensor, held in there[file.name].items()
        if named.get(tensor) == file.name
    }
    return WeightFiles(folder, files, tensors)


def base_record(folder: Path | None, known: str | None = None) -> dict[str, str | None]:
    """What base.json says of the weights in `folder`: where they lie, and one hash of their files.
    `known`: that hash. Raises as `open_weights`.
    """
    where = None if folder is None else str(folder.absolute())
    if folder is not None and known is None:
        hashes = [(file.name, fingerprint(file)[1]) for file in open_weights(folder).files]
        text = json.dumps(hashes, separators=(",", ":"))
        known = hashes[0][1] if len(hashes) == 1 else f"sha256:{sha256(text.encode()).hexdigest()}"
    return {"schema": BASE_SCHEMA, "folder": where, "hash": known}


def _on_base(here: Path) -> WeightFiles:
    """The weights of a checkpoint, with the frozen tensors that it was trained beside. Raises as
    `open_weights`.
    """
    file = here / BASE
    said = _json(file, 1 << 20)
    name = said.get("file", WHOLE)
    is_inside = isinstance(name, str) and Path(name).name == name
    if said.get("schema") != BASE_SCHEMA or not isinstance(said.get("hash"), str) or not is_inside:
        raise DataError(f"{file} does not say what this is a part of", hint="copy it again")
    part = WeightFiles(here, (here / name,), dict(_held(here / name)))
    if not isinstance(said.get("folder"), str):
        what = f"{part.folder} holds what was trained alone: the rest was drawn from training.seed"
        raise DataError(what, hint="resume its run, or begin one from files: model.path")
    folder = Path(said["folder"])
    try:
        base, now = open_weights(folder), base_record(folder)["hash"]
    except NotFoundError as error:
        what = f"{part.folder} is a part of the weights in {folder}, which are gone"
        raise NotFoundError(what, hint="put them back") from error
    if now != said["hash"]:
        what = f"{folder} is not what {part.folder} was trained on: {now}, not {said['hash']}"
        raise DataError(what, hint="put the weights of that hash back")
    files = (*(one for one in base.files if one not in part.files), *part.files)
    return WeightFiles(part.folder, files, {**base.tensors, **part.tensors})


def without_tied_head(found: WeightFiles, *, is_tied: bool) -> WeightFiles:
    """The files without the head of a tied model, which some programs write a second time. Raises
    OSError.
    """
    head, table = (found.tensors.get(name) for name in (HEAD, EMBEDDING))
    if not is_tied or head is None or table is None:
        return found
    if (head.dtype, head.shape) != (table.dtype, table.shape) or not _are_equal(head, table):
        return found
    return replace(found, tensors={n: t for n, t in found.tensors.items() if n != HEAD})


def raw(held: Held) -> Iterator[memoryview]:
    """The bytes of a tensor. Raises OSError."""
    with held.file.open("rb") as file:
        file.seek(held.begin)
        left = held.num_bytes
        while left > 0 and (piece := file.read(min(left, PIECE_BYTES))):
            left -= len(piece)
            yield memoryview(piece)


def _are_equal(one: Held, other: Held) -> bool:
    return all(a == b for a, b in zip(raw(one), raw(other), strict=True))


def _held(file: Path) -> Iterator[tuple[str, Held]]:
    try:
        header = read_header(file)
    except DamagedFileError as error:
        if _is_pickled(file):
            raise DataError(f"{file} is pickled, whatever its name says", hint=_RESAVE) from error
        reason = str(error).removeprefix(f"{file.name}: ")
        raise DataError(f"{file} is damaged: {reason}", hint="fetch or copy it again") from error
    except IsADirectoryError as error:
        raise DataError(f"{file} is a directory, not a file of weights", hint=HINT) from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}", hint="ls -ld") from error
    with file.open("rb") as opened:
        start = 8 + int.from_bytes(opened.read(8), "little")
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if not name.endswith(_BUFFER):
            begin, end = entry["data_offsets"]
            shape = tuple(entry["shape"])
            yield name, Held(file, entry["dtype"], shape, start + begin, end - begin)


_RESAVE = (
    "pickles are never read, since that runs what they say: save them again with "
    "model.save_pretrained(DIR, safe_serialization=True)"
)


def _is_pickled(file: Path) -> bool:
    if not file.is_file():  # a FIFO is never waited for
        return False
    with file.open("rb") as opened:
        return opened.read(4).startswith(_PICKLED)


def _nothing_here(folder: Path) -> DataError | NotFoundError:
    """The error of a folder without safetensors of a model."""
    if (folder / ADAPTER).exists():
        base = _json(folder / ADAPTER, 1 << 20).get("base_model_name_or_path")
        of = f", {base}" if isinstance(base, str) and base else ""
        return DataError(
            f"{folder} is an adapter, not a model", hint=f"name the model that it was made for{of}"
        )
    names = sorted(path.name for path in folder.iterdir())
    if pickled := [name for name in names if name.endswith(_PICKLES)]:
        return DataError(f"{folder} holds pickled weights only ({pickled[0]})", hint=_RESAVE)
    if gguf := [name for name in names if name.endswith(".gguf")]:
        what = f"{folder} holds weights in GGUF only ({gguf[0]}), which are not read"
        return DataError(what, hint="name the directory of safetensors that they were made from")
    return NotFoundError(f"no {WHOLE} in {folder}", hint=HINT)


def _index(folder: Path) -> dict[str, str]:
    """{tensor: file}, every file a name inside the folder and there."""
    path = folder / INDEX
    named = _json(path, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise DataError(f"{path}: weight_map is not a table of files", hint="fetch it again")
    for tensor, name in named.items():
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            what = f"{path}: names {name!r} for {tensor}, which is not a file of this folder"
            raise DataError(what, hint="fetch it again from where you trust it")
        if not name.endswith(".safetensors"):
            raise DataError(f"{path}: names {name}, which is not safetensors", hint=_RESAVE)
    for name in sorted(set(named.values())):
        if not (folder / name).exists():
            raise DataError(f"{path}: names {name}, which is missing", hint="fetch that file, too")
    return dict(named)


def _json(path: Path, limit: int) -> dict[str, Any]:
    """A JSON object. Raises DataError, OSError."""
    with path.open("rb") as file:
        raw = file.read(limit + 1)
    try:
        found = json.loads(raw) if len(raw) <= limit else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(f"{path} is not a JSON object that can be read", hint="fetch it again")
    return found
