"""What a run was made of, as flat maps that a diff compares: code, data, environment. Pure.

All of it comes from run.json and the newest `run.start`; a run that recorded nothing has nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# of a directory of shards or a tokenizer: what tells two apart, in the words of run.json
_DATA = ("data_hash", "sha256", "tokens", "sequences", "row_len", "vocab_size")
# of a run.start: what belongs to that one attempt, or follows from the config
_OF_A_LIFE = frozenset({"attempt", "resumed_from", "pid", "num_steps", "parameters"})


def code(facts: Mapping[str, Any], commit: str | None, dirty: bool | None) -> dict[str, Any]:
    """`commit`, `dirty`; the SHA-256 of what stands beside the commit: `patch` (the changes of
    tracked files), `untracked/NAME` (uncommitted code) and `script` (the program that was
    run, where the commit does not hold it).
    """
    found: dict[str, Any] = {"commit": commit, "dirty": dirty}
    git, script = _map(facts.get("git")), _map(facts.get("script"))
    patch = git.get("patch")
    if isinstance(patch, str) and patch:
        import hashlib  # noqa: PLC0415  8 ms that clean trees need not pay

        whole = git.get("patch_sha256")  # the store keeps the beginning of a patch
        short = hashlib.sha256(patch.encode(errors="surrogatepass")).hexdigest()
        found["patch"] = whole if isinstance(whole, str) else short
    for name, digest in _map(_map(git.get("untracked")).get("code")).items():
        found[f"untracked/{name}"] = digest
    if script.get("sha256") and not script.get("is_tracked"):
        found["script"] = script["sha256"]
    return found


def are_ranks(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two runs are of one job that has a run for each rank."""
    first, second = _map(a.get("job")), _map(b.get("job"))
    return (
        bool(first.get("id"))
        and all(first.get(word) == second.get(word) for word in ("id", "agent", "restart"))
        and first.get("rank") != second.get("rank")
    )


def is_code_known(facts: Mapping[str, Any], kind: str, code: Mapping[str, Any]) -> bool:
    """Whether what ran is recorded to the last line: a clean tree, or all that stood beside the
    commit by its hash, and the script that was run. Of Albor's own trainer the tree is all.
    """
    git, script = _map(facts.get("git")), _map(facts.get("script"))
    if kind != "train" and not script.get("sha256"):
        return False
    if not code["commit"]:
        return False
    if code["dirty"] is not True:
        return code["dirty"] is False
    return _map(git.get("untracked")).get("is_whole") is True and (
        not git.get("patch") or bool(git.get("patch_sha256"))
    )


def data(facts: Mapping[str, Any], loaded: Mapping[str, Any]) -> dict[str, Any]:
    """For train, val and tokenizer what tells them from others: the hash that seals a directory of
    shards (`data_hash` of its manifest.json), the tokenizer's SHA-256, their sizes. No paths: the
    same bytes elsewhere are the same data. `loaded`: the data of the newest recipe.loaded, which
    has the hashes of what a class of the user's own reads.
    """
    own = {"train.data_hash": loaded.get("data_hash"), "val.data_hash": loaded.get("val_hash")}
    return {key: value for key, value in own.items() if value is not None} | {
        f"{name}.{key}": part[key]
        for name, part in _map(facts.get("data")).items()
        if isinstance(part, dict)
        for key in _DATA
        if part.get(key) is not None
    }


def axis(told: Iterable[Mapping[str, Any]], metric: str) -> str:
    """What the steps of an imported metric count, of the `import.axis` events, oldest first: "" the
    step of the program.
    """
    found = ""
    for data in told:
        names = data.get("metrics")
        if isinstance(names, list) and metric in names:
            found = str(data.get("axis") or "")
    return found


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
