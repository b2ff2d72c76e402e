"""The code that a run is made of: commit, patch, uncommitted files, and the script that is run.

Standard library only. Everything is raw: who stores it for others to read must redact it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_LIBRARIES = ("torch", "triton", "accelerate", "safetensors", "tokenizers", "pyarrow", "numpy")
MAX_PATCH_BYTES = 256 << 10
MAX_SCRIPT_BYTES = 1 << 20
MAX_FILES = 200  # of uncommitted code
_MAX_SEEN = 5_000  # files of untracked folders that are looked at
_FILTERS = r"^filter\..*\.(clean|process|required)$"
_CODE = frozenset(
    (
        *(".py", ".pyx", ".sh", ".bash", ".zsh", ".jl", ".r", ".lua", ".pl", ".rb", ".js", ".ts"),
        *(".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".rs"),
    )
)
_NOT_OURS = frozenset(("__pycache__", "node_modules", ".git", "wandb", "mlruns", "site-packages"))


@dataclass(frozen=True)
class Script:
    """The program that a person wrote. `content` is None above MAX_SCRIPT_BYTES, and where the
    commit and its patch hold it anyway.
    """

    path: Path
    sha256: str
    size: int
    is_tracked: bool
    content: bytes | None

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "sha256": self.sha256,
            "bytes": self.size,
            "is_tracked": self.is_tracked,
            "is_kept": self.content is not None,
        }


def git_facts(cwd: Path) -> dict[str, Any]:
    """`commit`, `dirty`, `patch` (changes of tracked files, at most 256 KiB), `patch_sha256` (of
    all of them) and `untracked`: how many `files` and folders git neither tracks nor ignores, the
    SHA-256 of the `code` among them by name, and whether that `is_whole`.

    All None where there is no repository or no git.
    """
    found: dict[str, Any] = dict.fromkeys(("commit", "dirty", "patch", "patch_sha256", "untracked"))
    head = _git(cwd, "rev-parse", "HEAD", "--show-toplevel")
    if head is None:
        return found
    commit, _, top = head.partition("\n")
    found["commit"] = commit.strip()
    status = _git(cwd, "status", "--porcelain", "-z", "--untracked-files=normal")
    if status is not None:
        found["dirty"] = bool(status)
        found["untracked"] = _untracked(Path(top.rstrip("\n")), status)
    patch = _git(cwd, "diff", "--no-ext-diff", "--no-textconv", "HEAD") or None
    if patch is not None:
        raw = patch.encode(errors="surrogatepass")
        found["patch_sha256"] = hashlib.sha256(raw).hexdigest()
        if len(raw) > MAX_PATCH_BYTES:
            cut = raw[:MAX_PATCH_BYTES].decode(errors="ignore")
            patch = f"{cut}\n[cut at {MAX_PATCH_BYTES:,} bytes]\n"
    return {**found, "patch": patch}


def _untracked(top: Path, status: str) -> dict[str, Any]:
    names = [entry[3:] for entry in status.split("\0") if entry.startswith("?? ")]
    code: dict[str, str] = {}
    is_whole = True
    for name, path in _code_files(top, names):
        script = None if path is None else _read(path)
        if script is None or len(code) == MAX_FILES:
            is_whole = False  # too many to look at, or one that cannot be read
            break
        code[name] = hashlib.sha256(script).hexdigest()
    return {"files": len(names), "code": code, "is_whole": is_whole}


def _code_files(top: Path, names: Sequence[str]) -> Iterator[tuple[str, Path | None]]:
    """Name and path of each file of code; None for the path where there is too much to look at."""
    seen = 0
    for name in names:
        if not name.endswith("/"):
            if Path(name).suffix.lower() in _CODE:
                yield name, top / name
            continue
        for folder, inside, files in os.walk(top / name):
            if (Path(folder) / "pyvenv.cfg").exists():
                inside.clear()
                continue
            inside[:] = sorted(one for one in inside if one not in _NOT_OURS)
            seen += len(files)
            if seen > _MAX_SEEN:
                yield name, None
                return
            for file in sorted(files):
                if Path(file).suffix.lower() in _CODE:
                    path = Path(folder) / file
                    yield str(path.relative_to(top)), path


def script_of_process() -> Path | None:
    """The file that this Python program began with; None in a notebook or a prompt."""
    name = getattr(sys.modules.get("__main__"), "__file__", None)
    return working_directory() / name if isinstance(name, str) else None


def working_directory() -> Path:
    """The working directory of this program; the kernel's name for it if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/proc/self/cwd")


def script_of_command(command: Sequence[str], cwd: Path) -> Path | None:
    """The script in a command line: its first word that is a file of code, or the module after
    `-m` where it lies below `cwd`.
    """
    for index, word in enumerate(command):
        if (
            index
            and command[index - 1] == "-m"
            and word.replace(".", "").replace("_", "").isalnum()
        ):
            module = cwd / word.replace(".", "/")
            for path in (module.with_name(module.name + ".py"), module / "__main__.py"):
                if path.is_file():
                    return path
            continue
        path = cwd / word
        has_place = index > 0 or "/" in word  # a program of PATH is not a user's script
        if has_place and len(word) < 4096 and _is_script(path):
            return path
    return None


def _is_script(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        if path.suffix.lower() in _CODE:
            return True
        with path.open("rb") as file:
            return file.read(2) == b"#!" and not path.suffix
    except (OSError, ValueError):
        return False


def read_script(path: Path | None, cwd: Path) -> Script | None:
    """The script as it is now. `cwd` is where the run's repository is looked for: a script that the
    commit there does not hold is untracked. None where it cannot be read.
    """
    content = None if path is None else _read(path)
    if path is None or content is None:
        return None
    tracked = _git(cwd, "ls-files", "--error-unmatch", "--", str(path.resolve())) is not None
    keeps = not tracked and len(content) <= MAX_SCRIPT_BYTES
    digest = hashlib.sha256(content).hexdigest()
    return Script(path, digest, len(content), tracked, content if keeps else None)


def _read(path: Path) -> bytes | None:
    """The file's bytes; None if it is not a plain file, or larger than any code (64 MiB)."""
    try:
        if not path.is_file() or path.stat().st_size > 64 * MAX_SCRIPT_BYTES:
            return None
        return path.read_bytes()
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=8)  # of the few questions that a run begins with
def _without_programs(cwd: Path) -> tuple[str, ...]:
    """Options that keep git from running what a repository's own configuration names: whoever
    starts a run in a folder has not asked for that.
    """
    settings = ["core.fsmonitor=false", "core.hooksPath=/dev/null"]
    names = _asked(("git", "-C", str(cwd), "config", "--name-only", "--get-regexp", _FILTERS))
    for name in {line.rpartition(".")[0] for line in (names or "").splitlines()}:
        settings += [f"{name}.clean=", f"{name}.process=", f"{name}.required=false"]
    return tuple(word for setting in settings for word in ("-c", setting))


def git_command(cwd: Path) -> list[str]:
    """How git is called in `cwd`, so that it runs no program of the repository's and writes nothing
    into it; its own arguments follow.
    """
    # optional locks off: reading a status must not write into a user's repository
    return ["git", "--no-optional-locks", "-C", str(cwd), *_without_programs(cwd)]


def _git(cwd: Path, *arguments: str) -> str | None:
    return _asked([*git_command(cwd), *arguments])


def _asked(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def versions() -> dict[str, str | None]:
    """Versions of Albor, Python, the system and the libraries that decide numerics; no imports."""
    found = {name: _version(name) for name in ("albor", *_LIBRARIES)}
    return {**found, "python": platform.python_version(), "system": platform.platform()}


def _version(name: str) -> str | None:
    from importlib import metadata  # noqa: PLC0415  15 ms of a tracker's import

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
