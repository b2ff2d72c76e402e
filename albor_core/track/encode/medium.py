"""A medium before it is written, why one is refused, and what is too much."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from albor_core.run.values.quantity import byte_size

_ENVIRONMENT = {
    "max_bytes": "ALBOR_MEDIA_MAX_BYTES",
    "max_pixels": "ALBOR_MEDIA_MAX_PIXELS",
    "max_count": "ALBOR_MEDIA_MAX_COUNT",
    "max_total": "ALBOR_MEDIA_MAX_TOTAL",
    "max_queue": "ALBOR_MEDIA_MAX_QUEUE",
    "max_artifact": "ALBOR_ARTIFACT_MAX_BYTES",
}


@dataclass(frozen=True)
class Limits:
    """What a run keeps at most; each by an environment variable, a whole number above 0."""

    max_bytes: int = 64 << 20
    """Of one medium, encoded, and of a file that is read for one (ALBOR_MEDIA_MAX_BYTES)."""
    max_pixels: int = 64 << 20
    """Of one picture, whatever its file weighs (ALBOR_MEDIA_MAX_PIXELS)."""
    max_count: int = 100_000
    """Media of a run (ALBOR_MEDIA_MAX_COUNT)."""
    max_total: int = 20 << 30
    """Bytes of all files of a run, equal ones once (ALBOR_MEDIA_MAX_TOTAL)."""
    max_queue: int = 256 << 20
    """Bytes that wait for the disk (ALBOR_MEDIA_MAX_QUEUE)."""
    max_artifact: int = 2 << 30
    """Of one artefact that is copied (ALBOR_ARTIFACT_MAX_BYTES)."""

    def for_call(self, max_bytes: int | None) -> Limits:
        """These limits with those of a single call."""
        if max_bytes is None:
            return self
        if type(max_bytes) is not int or max_bytes <= 0:
            raise RefusedError("media_unreadable", f"max_bytes {max_bytes!r} is not a whole number")
        return replace(self, max_bytes=max_bytes, max_artifact=max_bytes)


def limits_of(environment: Mapping[str, str]) -> Limits:
    """The limits that an environment asks for; one that is not above 0 is told, and not used."""
    found: dict[str, int] = {}
    for one in fields(Limits):
        name = _ENVIRONMENT[one.name]
        said = environment.get(name, "")
        if said.isascii() and said.isdigit() and int(said[:19]) > 0:
            found[one.name] = int(said[:19])
        elif said:
            warn(f"{name}={said!r} is not a whole number above 0: {one.default:,} is used")
    return Limits(**found)


class RefusedError(Exception):
    """Why a medium is not kept: the kind that `track.odd` counts, and the reason."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason

    @classmethod
    def too_large(cls, size: int, most: int) -> RefusedError:
        return cls("media_too_large", f"{byte_size(size)}, and {byte_size(most)} are allowed")

    @classmethod
    def unreadable(cls, error: BaseException) -> RefusedError:
        if isinstance(error, OSError) and error.strerror:
            return cls("media_unreadable", error.strerror)
        return cls("media_unreadable", f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Medium:
    """A copy of something: `content` is its file, or makes it, in the writer's thread. `held` is
    how many bytes of memory it takes until then. `inline` is what a line of the journal may have
    in place of a file.
    """

    form: str
    content: bytes | Callable[[], bytes]
    meta: Mapping[str, Any] = field(default_factory=dict)
    held: int = 0
    inline: Any = None

    @property
    def size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.held


def warn(text: str) -> None:
    """A line on stderr, if there is one."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"albor: {text}\n")
        sys.stderr.flush()
