"""What a run was made of, as flat maps that a diff compares: code, data, environment. Pure.

All of it comes from run.json and the newest `run.start`; a run that recorded nothing has nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# of a directory of shards or a tokenizer: what tells two apart, in the words of run.json
_DATA = ("data_hash", "sha256", "tokens", "sequences", "row_len", "vocab_size")
# of a run.start: what belongs to that one life, or follows from the config
_OF_A_LIFE = frozenset({"attempt", "resumed_from", "pid", "num_steps", "parameters"})


def code(facts: Mapping[str, Any], commit: str | None, dirty: bool | None) -> dict[str, Any]:
    """`commit`, `dirty`, and `patch`: the SHA-256 of the changes on top of it (as recorded:
    tracked files, at most 256 KiB, secrets taken out).
    """
    found: dict[str, Any] = {"commit": commit, "dirty": dirty}
    patch = _map(facts.get("git")).get("patch")
    if isinstance(patch, str) and patch:
        import hashlib  # noqa: PLC0415  8 ms that clean trees need not pay

        found["patch"] = hashlib.sha256(patch.encode(errors="surrogatepass")).hexdigest()
    return found


def data(facts: Mapping[str, Any]) -> dict[str, Any]:
    """For train, val and tokenizer what tells them from others: the hash that seals a directory of
    shards (`data_hash` of its manifest.json), the tokenizer's SHA-256, their sizes. No paths: the
    same bytes elsewhere are the same data.
    """
    return {
        f"{name}.{key}": part[key]
        for name, part in _map(facts.get("data")).items()
        if isinstance(part, dict)
        for key in _DATA
        if part.get(key) is not None
    }


def environment(
    facts: Mapping[str, Any], host: str | None, started: Mapping[str, Any]
) -> dict[str, Any]:
    """Host, device (a GPU by its name), precision, threads, versions of Python, torch and the rest.

    `started` is the data of the newest run.start, which knows better than run.json what it ran on.
    """
    found: dict[str, Any] = {"host": host}
    found |= {f"versions.{key}": value for key, value in _map(facts.get("versions")).items()}
    for key, value in started.items():
        if isinstance(value, dict):
            found |= {f"{key}.{name}": part for name, part in value.items()}
        elif key not in _OF_A_LIFE:
            found[key] = value
    return found


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
