"""What people say about entries of attention: seen, muted for a time, when they last looked.

About a run it is an annotation of the run, so that all users see it and a copy keeps it. About a
machine, or a run that was pulled from another host or has no folder, it is in
ALBOR_HOME/attention.json, one small file under a lock, and so is when each user looked.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from albor_core.feed.attention.item import AttentionItem, AttentionMarks
from albor_core.feed.run.files import CachedJson
from albor_core.run.control import user_name
from albor_core.run.errors import StoreError, remedy
from albor_core.run.files.pulled_file import pulled_from
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import own_home
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import NOTHING, Document, finite, finite_of, mapping, text
from albor_core.store.index.annotations import annotate
from albor_core.store.index.catch_up import drain_index

SCHEMA = "albor.attention.marks/1"
SEEN_S = 86400.0
"""How long a trouble of a machine counts as seen: it has no attempt that would end it."""
_SEEN_OF_RUN_S = 8 * SEEN_S  # one of a run, which is in the list for a week


class MarksFile:
    """ALBOR_HOME/attention.json, read again when it was written. Never raises."""

    def __init__(self, home: Path) -> None:
        self._file = CachedJson(home / "attention.json")
        self._user = user_name()

    def get(self, now: float) -> AttentionMarks:
        """The marks that are valid at `now`."""
        found = self._file.get() or NOTHING
        acked, muted = mapping(found, "acked"), mapping(found, "muted")
        return AttentionMarks(
            acked={
                item: text(mapping(acked, item), "by") or "unknown"
                for item in acked
                if _is_seen(item, mapping(acked, item), now)
            },
            muted={
                item: until
                for item in muted
                if (until := finite(mapping(muted, item), "until")) is not None and until > now
            },
            looked_wall=finite(mapping(found, "looked"), self._user),
        )


def acknowledge(item: AttentionItem) -> None:
    """Say that an entry was seen; of alerts, all of its rule. Raises AlborError."""
    if _is_said_in_run(item):
        run = run_of(item)
        for alert_id in item.alert_ids:
            annotate(run, "ack", alert_id)
        if "/rule:" not in item.id:  # it is there without its alerts, too
            annotate(run, "attention.ack", item.id)
        drain_index(run)
        return
    with _changed(own_home()) as document:
        document["acked"][item.id] = {"by": user_name(), "wall": round(time.time(), 3)}


def mute(item: AttentionItem, until: float) -> None:
    """Take an entry out of the count until a moment, UTC seconds. Raises AlborError."""
    if _is_said_in_run(item):
        run = run_of(item)
        annotate(run, "attention.mute", {"id": item.id, "until": round(until, 3)})
        drain_index(run)
        return
    with _changed(own_home()) as document:
        document["muted"][item.id] = {"by": user_name(), "until": round(until, 3)}


def note_look(home: Path, now: float) -> None:
    """Remember that this user has looked. A disk or a home that refuses it changes nothing."""
    try:
        with _changed(home) as document:
            document["looked"][user_name()] = round(now, 3)
    except StoreError:
        return


def _is_said_in_run(item: AttentionItem) -> bool:
    """Whether a mark is stored with the run. For a copy of another host's run it is stored like one
    of the machine, since the copy's files must not change, and so it is for a run without a
    folder.
    """
    if not item.is_of_run:
        return False
    run = run_of(item)
    return run.path.is_dir() and not pulled_from(run)


def _is_seen(item: str, said: Document, now: float) -> bool:
    return now - (finite(said, "wall") or 0.0) < (_SEEN_OF_RUN_S if "@" in item else SEEN_S)


def run_of(item: AttentionItem) -> RunDir:
    """The run of an entry."""
    path = Path(item.path)
    return RunDir(path, item.run_id if "@" in item.run_id else "")


@contextmanager
def _changed(home: Path) -> Iterator[dict[str, Any]]:
    """Open the document of marks under its lock for a change; expired marks are dropped. Raises
    StoreError.
    """
    path = home / "attention.json"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(home / "attention.lock", flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            document = _sound(read_json(path) or NOTHING, time.time())
            yield document
            write_json(path, document)
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}", hint=remedy(error)) from error


def _sound(found: Document, now: float) -> dict[str, Any]:
    def kept(name: str, holds: Callable[[str, Document], bool]) -> dict[str, Any]:
        said = mapping(found, name)
        return {i: dict(mapping(said, i)) for i in said if holds(i, mapping(said, i))}

    return {
        "schema": SCHEMA,
        "acked": kept("acked", lambda item, one: _is_seen(item, one, now)),
        "muted": kept("muted", lambda _, one: (finite(one, "until") or 0.0) > now),
        "looked": {u: wall for u, wall in mapping(found, "looked").items() if finite_of(wall)},
    }
