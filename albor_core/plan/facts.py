"""What `plan` needs to know about this machine and these files, collected in one place.

Only the standard library is used; what needs NVML, Parquet or a table of GPUs comes in through
hooks. Nothing is written.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from albor_core.config.recipes.own import own_class
from albor_core.data.pack.manifest import combined_hash
from albor_core.run.errors import AlborError, Problem
from albor_core.run.program.provenance import git_facts

if TYPE_CHECKING:  # loads pydantic, which the tracker of a foreign loop has no use for
    from albor_core.config.config import Config
    from albor_core.config.recipes.entry import Numbers
    from albor_core.config.sections.data import MixtureSource
    from albor_core.plan.speed import MeasuredSpeed

MANIFEST_SCHEMA = "albor.shards/1"
PACKED_COLUMN = "input_ids"
"""Where `albor data pretokenize` puts token ids."""
_MAX_MANIFEST_BYTES = 64 << 20
_MAX_TOKENIZER_BYTES = 256 << 20
_PACK = "albor data pretokenize CORPUS --tokenizer FILE --seq-len N --out DIR"


class Scanned(Protocol):
    """The result of scanning a directory of shards without a manifest."""

    @property
    def sequences(self) -> int: ...
    @property
    def seq_len(self) -> int: ...
    @property
    def tokens(self) -> int: ...


Scan = Callable[[Path, str], object]


@dataclass(frozen=True)
class GpuFacts:
    """The first GPU that a run would get."""

    name: str
    memory_bytes: int
    count: int = 1
    """GPUs that a run could use."""
    capability: tuple[int, int] | None = None
    """Its compute capability, (9, 0) for Hopper."""
    strangers: tuple[str, ...] = ()
    """Who uses those now: "GPU 0 is in use by process 4242 (python) of alice with 31.2 GiB"."""
    obstacle: str = ""
    """Why torch will not train on it."""
    remedy: str = ""
    power_limit_w: float | None = None


@dataclass(frozen=True)
class SplitFacts:
    """One directory of token shards. None is unknown."""

    path: Path
    sequences: int | None = None
    row_len: int | None = None
    """Tokens per row."""
    tokens: int | None = None
    vocab_size: int | None = None
    """Vocabulary of the tokenizer the shards were packed with."""
    max_id: int | None = None
    shards: int | None = None
    bytes: int | None = None
    data_hash: str | None = None
    tokenizer_sha256: str | None = None
    problems: tuple[Problem, ...] = ()
    eos_token_id: int | None = None
    """What ends each document."""
    bos_token_id: int | None = None
    """What begins each document."""
    packing: str | None = None
    """How documents came into rows."""
    parts: tuple[SplitFacts, ...] = ()
    """Of a mixture, its sources, which the other fields add up; rows of several lengths have
    none."""
    name: str = ""
    """Of a source of a mixture."""
    sampled_bytes: int | None = None
    """Of text that is not packed yet: what was looked at; the numbers are estimates from it."""
    packing_seconds: float | None = None
    """That packing it takes before the run begins."""

    def sequences_at(self, seq_len: int) -> int | None:
        """Training sequences when every row is cut into as many of `seq_len` as fit."""
        if self.parts:
            return _sum(part.sequences_at(seq_len) for part in self.parts)
        if self.sequences is None or self.row_len is None:
            return self.sequences
        return self.sequences * (self.row_len // seq_len)


@dataclass(frozen=True)
class TokenizerFacts:
    """tokenizer.json in numbers; `vocab_size` is the highest id and one."""

    path: Path
    vocab_size: int | None = None
    sha256: str | None = None
    error: str = ""


@dataclass(frozen=True)
class PlanFacts:
    """The world a plan is made for. None is unknown, and checks that need it are left out."""

    config_path: Path
    train: SplitFacts
    val: SplitFacts | None = None
    tokenizer: TokenizerFacts | None = None
    fim_problems: tuple[Problem, ...] = ()
    """Tokens of data.fim that it does not have."""
    device: str = "cpu"
    """`cpu` or `cuda`: where the run would train."""
    device_name: str = ""
    device_memory_bytes: int | None = None
    """Of the GPU, or of the host when training on a CPU."""
    peak_flops: float | None = None
    """Half-precision peak of the GPU, if it is a known one."""
    device_count: int | None = None
    """GPUs that a run could use."""
    gpu_missing: bool = False
    """The config asks for a GPU and there is none that could be used."""
    gpu_capability: tuple[int, int] | None = None
    """Compute capability of the GPU that is there, used or not."""
    gpu_idle: str = ""
    """Which GPU is there that no run can use, and why."""
    gpu_remedy: str = ""
    gpu_strangers: tuple[str, ...] = ()
    """Who uses the GPUs that a run could use: `GpuFacts.strangers`."""
    cpu_count: int = 1
    disk_free_bytes: int | None = None
    output_writable: bool = True
    git_commit: str | None = None
    git_dirty: bool | None = None
    git_patched: bool = False
    """Whether tracked files have uncommitted changes."""
    git_untracked: int = 0
    """Files and folders of the repository that git does not track, nor ignore."""
    torch_available: bool = True
    accelerate_available: bool = True
    gpu_power_limit_w: float | None = None
    """Of one GPU."""
    measured: MeasuredSpeed | None = None
    """How fast such a run was here; None where there was none."""
    numbers: Numbers | None = None
    """That are said of a class of the user's own."""


def collect_facts(
    config: Config,
    config_path: Path,
    *,
    find_gpu: Callable[[], GpuFacts | None] | None = None,
    scan: Scan | None = None,
    peak_flops: Callable[[str | None], float | None] | None = None,
) -> PlanFacts:
    """Look at data, tokenizer, device, disk and repository. Never raises for what it finds there.

    `find_gpu()` is the GPU a run could get, asked for unless it is to train on the CPU;
    `scan(folder, column)` counts shards that have no manifest; `peak_flops(name)` is the GPU's
    FLOP/s.
    """
    data = config.data
    seen = find_gpu() if find_gpu is not None and config.training.device != "cpu" else None
    folder = _existing(config.training.output_dir)
    usage = shutil.disk_usage(folder)
    git = git_facts(Path.cwd())
    return PlanFacts(
        config_path=config_path,
        train=_data_facts(config, data.mixture, data.train, "data.mixture", "data.train", scan),
        val=_data_facts(config, data.val_mixture, data.val, "data.val_mixture", "data.val", scan)
        if data.has_val
        else None,
        tokenizer=None if data.tokenizer is None else tokenizer_facts(data.tokenizer),
        fim_problems=tuple(_fim_problems(config)),
        **_device_facts(seen, peak_flops, is_chosen=config.training.device == "cuda"),
        **_seen_gpu_facts(seen),
        gpu_missing=config.training.device == "cuda"
        and find_gpu is not None
        and (seen is None or bool(seen.obstacle)),
        cpu_count=len(os.sched_getaffinity(0)),
        disk_free_bytes=usage.free,
        # a file system without a size (proc, sysfs) takes no files, whatever its mode says
        output_writable=folder.is_dir()
        and usage.total > 0
        and os.access(folder, os.W_OK | os.X_OK),
        git_commit=git["commit"],
        git_dirty=git["dirty"],
        git_patched=git["patch"] is not None,
        git_untracked=(git["untracked"] or {}).get("files", 0),
        torch_available=importlib.util.find_spec("torch") is not None,
        accelerate_available=importlib.util.find_spec("accelerate") is not None,
    )


def _data_facts(
    config: Config,
    mixture: Sequence[MixtureSource],
    path: Path | None,
    mixture_field: str,
    field: str,
    scan: Scan | None,
) -> SplitFacts:
    """Facts of a mixture, if there is one, else of the split at `path`."""
    if not mixture:
        assert path is not None
        return _split_facts(config, path, field, scan)
    parts = [
        replace(_split_facts(config, one.path, f"{mixture_field}.{i}.path", scan), name=one.title)
        for i, one in enumerate(mixture)
    ]
    return mixed_facts(parts, mixture_field)


def mixed_facts(parts: Sequence[SplitFacts], field: str) -> SplitFacts:
    """Facts of several splits together, with a problem if they do not match."""
    first, problems = parts[0], [problem for part in parts for problem in part.problems]
    for index, part in enumerate(parts):
        if None not in (part.tokenizer_sha256, first.tokenizer_sha256) and (
            part.tokenizer_sha256 != first.tokenizer_sha256
        ):
            message = f"{part.path} was packed with another tokenizer than {first.path}"
            hint = "pack all sources with one tokenizer"
            problems.append(Problem(f"{field}.{index}.path", message, hint))
        if part.data_hash and part.data_hash in [one.data_hash for one in parts[:index]]:
            message = f"{part.path} holds the same data as another source"
            problems.append(
                Problem(f"{field}.{index}.path", message, "give that one the weight of both")
            )
    lengths = {part.row_len for part in parts}
    hashes = sorted(part.data_hash for part in parts if part.data_hash)
    return SplitFacts(
        path=first.path,
        sequences=_sum(part.sequences for part in parts),
        row_len=lengths.pop() if len(lengths) == 1 else None,
        tokens=_sum(part.tokens for part in parts),
        vocab_size=max((part.vocab_size or 0 for part in parts), default=0) or None,
        max_id=max((part.max_id for part in parts if part.max_id is not None), default=None),
        shards=_sum(part.shards for part in parts),
        bytes=_sum(part.bytes for part in parts),
        data_hash=combined_hash(hashes) if len(hashes) == len(parts) else None,
        tokenizer_sha256=first.tokenizer_sha256,
        problems=tuple(problems),
        parts=tuple(parts),
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if a number is unknown."""
    known = [*numbers]
    return None if None in known else sum(number for number in known if number is not None)


def _split_facts(config: Config, path: Path, field: str, scan: Scan | None) -> SplitFacts:
    """Facts of one split; for data read by a user's class, only its path."""
    if own_class(config.training.mode) is not None:
        return SplitFacts(path)
    return split_facts(path, config.data.input_column, scan, field)


def _device_facts(
    seen: GpuFacts | None,
    peak_flops: Callable[[str | None], float | None] | None,
    *,
    is_chosen: bool,
) -> dict[str, Any]:
    """The device of a run: a usable GPU, a chosen one that is missing, or the CPU."""
    if seen is not None and not seen.obstacle:
        return {
            "device": "cuda",
            "device_name": seen.name,
            "device_memory_bytes": seen.memory_bytes,
            "peak_flops": None if peak_flops is None else peak_flops(seen.name),
            "device_count": seen.count,
            "gpu_power_limit_w": seen.power_limit_w,
        }
    known: dict[str, Any] = {"peak_flops": None, "device_count": None}
    if is_chosen:
        return {"device": "cuda", "device_name": "", "device_memory_bytes": None, **known}
    return {
        "device": "cpu",
        "device_name": platform.machine(),
        "device_memory_bytes": host_memory_bytes(),
        **known,
    }


def _seen_gpu_facts(seen: GpuFacts | None) -> dict[str, Any]:
    """Facts of a GPU that was found though it cannot be used."""
    if seen is None:
        return {}
    idle = f"{seen.name} is there, but {seen.obstacle}" if seen.obstacle else ""
    return {
        "gpu_capability": seen.capability,
        "gpu_idle": idle,
        "gpu_remedy": seen.remedy,
        "gpu_strangers": () if seen.obstacle else seen.strangers,
    }


def split_facts(path: Path, column: str, scan: Scan | None, field: str) -> SplitFacts:
    """The facts in the manifest, and whether the shards it names have the recorded sizes."""
    manifest = (path if path.is_dir() else path.parent) / "manifest.json"
    if not path.exists():
        return _bad(path, field, f"{path}: no such directory (relative to {Path.cwd()})", _PACK)
    if path.is_dir() and manifest.exists():
        found = _from_manifest(path, manifest, field)
        return found if found.problems else _with_column(found, manifest, column, scan, field)
    if path.is_dir() and not any(path.glob("*.parquet")):
        return _bad(path, field, f"{path}: no manifest.json and no *.parquet", _PACK)
    if scan is None:
        return SplitFacts(path)
    try:
        return _from_scan(path, scan(path, column))
    except AlborError as error:
        return _bad(path, field, error.message, error.hint)


def _from_manifest(path: Path, manifest: Path, field: str) -> SplitFacts:
    try:
        document = json.loads(_read(manifest, _MAX_MANIFEST_BYTES))
        if document["schema"] != MANIFEST_SCHEMA:
            message = f"{manifest}: schema {document['schema']!r}, not {MANIFEST_SCHEMA}"
            whole = str(document["schema"]) == "albor.dataset/1"
            return _bad(path, field, message, f"name a split: {path / 'train'}" if whole else _PACK)
        shards = [(str(shard["file"]), int(shard["bytes"])) for shard in document["shards"]]
        return SplitFacts(
            path=path,
            sequences=int(document["sequences"]),
            row_len=int(document["seq_len"]),
            tokens=int(document["tokens"]),
            vocab_size=int(document["vocab_size"]),
            max_id=int(document["max_id"]),
            shards=len(shards),
            bytes=sum(size for _, size in shards),
            data_hash=str(document["data_hash"]),
            tokenizer_sha256=str(document["tokenizer_sha256"]),
            eos_token_id=document.get("eos_token_id"),
            bos_token_id=document.get("bos_token_id"),
            packing=str(document.get("packing", {}).get("name", "concat")),
            problems=tuple(_shard_problems(path, shards, field)),
        )
    except OSError as error:
        return _bad(path, field, f"{manifest}: {error.strerror}", _PACK)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _bad(path, field, f"{manifest}: not a whole manifest: {_cause(error)}", _PACK)


def _with_column(
    found: SplitFacts, manifest: Path, column: str, scan: Scan | None, field: str
) -> SplitFacts:
    """`found`, or the problem that its shards hold no such column: the first tells of all. Nothing
    is opened for the column that packing writes.
    """
    if scan is None or column == PACKED_COLUMN or not found.shards:
        return found
    name = json.loads(manifest.read_bytes())["shards"][0]["file"]
    try:
        scan(found.path / Path(name).name, column)
    except AlborError as error:
        return _bad(found.path, field, error.message, error.hint)
    return found


def _shard_problems(path: Path, shards: list[tuple[str, int]], field: str) -> list[Problem]:
    found = []
    for name, size in shards:
        try:
            actual = (path / Path(name).name).stat().st_size
        except OSError as error:
            found.append(Problem(field, f"{path / name}: {error.strerror}", f"{_PACK} --force"))
            continue
        if actual != size:
            message = f"{path / name}: {actual:,} bytes, the manifest says {size:,}"
            found.append(Problem(field, message, f"albor data verify {path}"))
    return found


def _from_scan(path: Path, found: Any) -> SplitFacts:
    if isinstance(found, SplitFacts):  # text, estimated
        return found
    shards = tuple(getattr(found, "shards", ()))
    return SplitFacts(
        path=path,
        sequences=found.sequences,
        row_len=found.seq_len,
        tokens=found.tokens,
        vocab_size=getattr(found, "vocab_size", None),
        max_id=getattr(found, "max_id", None),
        shards=len(shards) or None,
        bytes=sum(shard.bytes for shard in shards) or None,
        data_hash=getattr(found, "data_hash", None),
        tokenizer_sha256=getattr(found, "tokenizer_sha256", None),
    )


def _bad(path: Path, field: str, message: str, hint: str) -> SplitFacts:
    return SplitFacts(path, problems=(Problem(field, message, hint),))


def tokenizer_facts(path: Path) -> TokenizerFacts:
    """Vocabulary size and hash of a tokenizer.json, read as JSON and not run."""
    try:
        raw = _read(path, _MAX_TOKENIZER_BYTES)
        document = json.loads(raw)
        vocab = document["model"]["vocab"]  # a list in Unigram models
        ids = [token["id"] for token in document.get("added_tokens") or []]
        ids += vocab.values() if isinstance(vocab, dict) else range(len(vocab))
        if not ids:
            raise ValueError("its vocabulary is empty")
        return TokenizerFacts(path, int(max(ids)) + 1, hashlib.sha256(raw).hexdigest())
    except OSError as error:
        return TokenizerFacts(path, error=f"{path}: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return TokenizerFacts(path, error=f"{path}: not a tokenizer.json: {_cause(error)}")


def _fim_problems(config: Config) -> Iterator[Problem]:
    """A problem if the tokenizer lacks the tokens of fill-in-the-middle. Problems of the file
    itself are in `tokenizer_facts`.
    """
    wanted, file = config.data.fim, config.data.tokenizer
    if wanted is None or file is None:
        return
    try:
        document = json.loads(_read(file, _MAX_TOKENIZER_BYTES))
        known = {str(token["content"]) for token in document.get("added_tokens") or []}
        vocab = document["model"]["vocab"]  # a list of (token, score) in Unigram models
        known |= {*vocab} if isinstance(vocab, dict) else {token for token, _ in vocab}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    for field in ("prefix", "suffix", "middle"):
        if (name := getattr(wanted, field)) not in known:
            hint = "name the token that it has for this, or train one: albor tokenizer apply"
            yield Problem(f"data.fim.{field}", f"{name!r} is not a token of {file}", hint)


def _cause(error: Exception) -> str:
    """Why a JSON file is not what it should be; the repr of some errors holds the whole file."""
    match error:
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start:,}"
        case KeyError():
            return f"it has no {error.args[0]!r}"
        case TypeError() | AttributeError():
            return "a field has the wrong type"
        case RecursionError():
            return "nested too deeply"
    return str(error)[:200]


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise ValueError(f"more than {limit:,} bytes")
    return raw


def _existing(path: Path) -> Path:
    """The nearest existing ancestor: the file system a new directory would be on."""
    absolute = path.expanduser().absolute()
    return next(folder for folder in (absolute, *absolute.parents) if folder.exists())


def host_memory_bytes() -> int | None:
    """Physical memory of this host."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def torch_without_cuda() -> str:
    """The version of an installed torch that was built without CUDA; "" for any other, or none.

    Reads torch/version.py: importing torch takes seconds.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return ""
    values = dict(re.findall(r"^(cuda|__version__)\b[^=\n]*=\s*(\S+)", text, re.MULTILINE))
    return values.get("__version__", "?").strip("'\"") if values.get("cuda") == "None" else ""
