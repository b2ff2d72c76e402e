"""What a run is called on the screen: its name, and where names repeat the end of its id too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from albor_core.feed.attention.item import AttentionItem
from albor_core.feed.view.run_view import RunView


def name_of(view: RunView, tails: Mapping[str, str] | None = None) -> str:
    """The name, and behind it what tells it from others of that name; raw, as the run gave it."""
    name = view.name or view.id
    tail = (tails or {}).get(view.id, "")
    return f"{name} {tail}" if tail else name


def tails_of(views: Iterable[RunView]) -> dict[str, str]:
    """By id, for runs whose name is not unique: as much of the end of the id as is unique.

    An id that is the name itself needs no tail.
    """
    return _tails({view.id: view.name or view.id for view in views})


def tails_of_items(items: Iterable[AttentionItem]) -> dict[str, str]:
    """The same of the runs that entries are of."""
    return _tails({item.run_id: item.run_name or item.run_id for item in items if item.run_id})


def _tails(names: Mapping[str, str]) -> dict[str, str]:
    named: dict[str, list[str]] = {}
    for run_id, name in names.items():
        named.setdefault(name, []).append(run_id)
    found: dict[str, str] = {}
    for name, ids in named.items():
        if len(ids) > 1:
            found |= {run_id: end for run_id, end in _ends(ids).items() if run_id != name}
    return found


def _ends(ids: list[str]) -> dict[str, str]:
    """The last parts between dashes of each id, as few as tell all of them apart."""
    parts = {run_id: run_id.split("-") for run_id in ids}
    most = max(map(len, parts.values()))
    for count in range(1, most):
        ends = {run_id: "-".join(split[-count:]) for run_id, split in parts.items()}
        if len(set(ends.values())) == len(ends):
            return ends
    return {run_id: run_id for run_id in ids}


def said_of(item: AttentionItem) -> str:
    """The summary of an entry, to stand behind its word, which names a GPU already."""
    head, _, rest = item.summary.partition(": ")
    return rest if rest and item.word.startswith(head.lower()) else item.summary
