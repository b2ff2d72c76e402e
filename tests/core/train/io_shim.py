"""Every operation by which a process changes the disk, counted, and broken on purpose at one of
them: in place of the functions of `os`, for one process of a test.

`Shim(act)` asks `act(number, name, path)` before each operation: None lets it happen, KILL dies by
SIGKILL before it, SHORT after half of its bytes, an errno makes it fail. What happened is in `log`.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

KILL, SHORT = "kill", "short"
Act = Callable[[int, str, str], "str | int | None"]
_BY_FD = ("write", "fsync", "fdatasync", "ftruncate")
_BY_PATH = ("rename", "replace", "link", "unlink", "mkdir", "rmdir")


class Shim:
    """Stands between this process and `os` from `install` on; not to be taken out again."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._count = 0
        self._real: dict[str, Any] = {}
        self.log: list[tuple[str, str, str]] = []
        """(name, path, second path or bytes of a write), in the order in which they happened."""

    def install(self) -> None:
        for name in (*_BY_FD, *_BY_PATH, "open", "fdopen"):
            self._real[name] = getattr(os, name)
        for name in _BY_FD:
            setattr(os, name, self._on_fd(name))
        for name in _BY_PATH:
            setattr(os, name, self._on_path(name))
        os.open = self._open  # type: ignore[assignment]
        os.fdopen = self._fdopen  # type: ignore[assignment]

    def _ask(self, name: str, path: str, other: str = "", *, torn: Callable[[], Any]) -> None:
        self._count += 1
        what = self._act(self._count, name, path)
        if what == SHORT:
            torn()
        if what in (KILL, SHORT):
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(what, int):
            self.log.append((f"{name}!", path, other))
            raise OSError(what, os.strerror(what), path)
        self.log.append((name, path, other))

    def _path_of(self, fd: int) -> str:
        try:
            return str(Path(f"/proc/self/fd/{fd}").readlink())
        except OSError:
            return ""

    def _on_fd(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(fd: int, *rest: Any) -> Any:
            if fd <= 2:
                return real(fd, *rest)
            half = (lambda: real(fd, bytes(rest[0])[: len(rest[0]) // 2])) if rest else None
            torn = half if name == "write" and half is not None else (lambda: None)
            size = str(len(rest[0])) if name == "write" else ""
            self._ask(name, self._path_of(fd), size, torn=torn)
            return real(fd, *rest)

        return call

    def _on_path(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(path: Any, *rest: Any, **more: Any) -> Any:
            folder = more.get("dir_fd")
            place = os.fspath(path)
            place = place.decode() if isinstance(place, bytes) else place
            if folder is not None:
                place = f"{self._path_of(folder)}/{place}"
            other = os.fspath(rest[0]) if name in ("rename", "replace", "link") else ""
            self._ask(name, place, str(other), torn=lambda: None)
            return real(path, *rest, **more)

        return call

    def _open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            self._ask("create", os.fspath(path), torn=lambda: None)
        return int(self._real["open"](path, flags, *rest, **more))

    def _fdopen(self, fd: int, mode: str = "r", *rest: Any, **more: Any) -> Any:
        file = self._real["fdopen"](fd, mode, *rest, **more)
        return _Through(file) if "w" in mode else file


class _Through:
    """A binary file whose writes go through `os.write`, one each."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, content: bytes) -> int:
        view = memoryview(content)
        while view:
            view = view[os.write(self._file.fileno(), view) :]
        return len(content)

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        return int(self._file.fileno())

    def __enter__(self) -> _Through:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


ERRNOS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EROFS")}
