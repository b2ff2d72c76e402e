"""Runs of Albor on another host, read over the user's own ssh, files brought by rsync or tar.

Nothing that a user or a host names is ever part of a command line of a shell: the remote command is
the one word `sh`, and what it is to do comes on its stdin, names quoted; rsync gets its list by
stdin as well, and the folder by its own protocol. Three connections at most for any number of runs:
where they are, what they are, their files.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from albor_core.integrations.importers.copies.bounded_pipe import (
    BeyondBounds,
    BoundedPipe,
    members,
    time_for,
    time_of,
)
from albor_core.integrations.importers.copies.copied_runs import (
    GROWTH,
    HEADS,
    MAX_HEAD_BYTES,
    Copy,
    FoundRun,
    Stamp,
    put_file,
    room_for,
)
from albor_core.run.errors import AlborError, NotFoundError, TryAgainError, UsageError
from albor_core.run.home.runs import place_of
from albor_core.run.rundir import is_run_id
from albor_core.run.values.clean import clean

_HOST = re.compile(
    r"(?:[A-Za-z0-9_][\w.+-]*@)?(?:[A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:.]+(?:%\w+)?\])", re.ASCII
)
_PLACE = re.compile(
    r"(?P<host>(?:[^@:\[\]]*@)?(?:\[[^\]]*\]|[^:\[\]@]*))(?::(?P<folder>.*))?", re.S
)
_TIME = re.compile(r"\d{1,12}\.\d{1,12}", re.ASCII)
_BEGINS = b"albor-pull 1\n"
_VANISHED = (0, 23, 24)  # of rsync: files went or could not be read; they come with the next pull
_MISUNDERSTOOD = (1, 2, 4, 12)  # an option, or the protocol: one that breaks off says so to tar
_LOST = 255  # of ssh: no connection
_MAX_LISTING = 256 << 20
_MEMBER_BYTES = 16 << 10  # of tar, around a file
_RSYNC_QUIET_S = 120
_ENDS_S = 30.0
_PIECE = 1 << 16

_WHERE = """\
case $dir in
  '') dir=${ALBOR_HOME:-$HOME/.albor} ;;
  '~') dir=$HOME ;;
  '~/'*) dir=$HOME/${dir#??} ;;
esac
command -v rsync >/dev/null 2>&1 && echo rsync
find / -maxdepth 0 -printf '' 2>/dev/null || { echo lacking; exit 0; }
cd -- "$dir" >/dev/null || { echo none; exit 0; }
printf 'dir %s\\n' "$(pwd -P)"
if [ -f run.json ]; then
  echo self
else
  find . -mindepth 2 -maxdepth 2 -name run.json -type f -printf 'run %P\\n'
  if [ -d runs ]; then
    find runs -mindepth 2 -maxdepth 2 -name run.json -type f -printf 'run %p\\n'
    find runs -maxdepth 1 -name '*.json' -type f \\
      -exec sh -c 'for f do printf "pointer "; cat "$f"; echo; done' sh {} +
  fi
fi
echo end
"""
_WHAT = """\
heads() {
  list | while IFS= read -r d; do
    for f in NAMES; do
      if [ -f "$d/$f" ] && [ ! -L "$d/$f" ]; then printf '%s\\0' "$d/$f"; fi
    done
  done
}
if [ -n "$(heads | head -c 1)" ]; then
  echo heads
  heads | tar -C / -b 20 -cf - --null --no-recursion -T - 2>/dev/null
else
  echo none
fi
echo
list | tr '\\n' '\\0' | xargs -0 sh -c 'find -H "$@" -name .albor -prune -o -type f \\
  -printf "%H\\t%s\\t%T@\\t%i\\t%P\\n"' sh
echo end
"""
_FILES = """\
list | tr '\\n' '\\0' | tar -C / -b 20 -cf - --null --no-recursion -T -
"""


def parse_place(text: str) -> tuple[str, str]:
    """Host and folder of HOST[:DIR]; the folder is "" where none is given. Raises UsageError for
    what cannot be a host, such as an option of ssh.
    """
    found = _PLACE.fullmatch(text)
    host, folder = (found["host"], found["folder"] or "") if found is not None else (text, "")
    if not _HOST.fullmatch(host):
        is_path = os.path.lexists(text)
        hint = f"albor runs import {shlex.quote(text)}" if is_path else "albor runs pull user@gpu1"
        raise UsageError(f"cannot pull from {host!r}: it is not a host", hint=hint)
    if not folder.isprintable():
        raise UsageError(f"cannot pull from {folder!r}: it is not the name of a folder")
    return host, folder


class RemoteFolder:
    """The runs of a folder of a host, or of its Albor home where no folder is given."""

    def __init__(self, host: str, folder: str) -> None:
        self.host, self._folder = host, folder
        self._ssh = host.replace("[", "").replace("]", "")
        self._has_rsync = False
        self.skipped = 0
        """Runs there that are copies of other hosts' runs."""

    @property
    def transport(self) -> Literal["rsync", "tar"]:
        """rsync, or tar where one side lacks it; known after `find`."""
        return "rsync" if self._has_rsync and shutil.which("rsync") else "tar"

    def find(self) -> Sequence[FoundRun]:
        """Raises NotFoundError where there is no such folder, TryAgainError where the host does not
        answer, AlborError where it is not what is expected.
        """
        folders = self._where()
        if not folders:
            return ()
        found = self._what(folders)
        own = [run for run in found if "pulled.json" not in run.files]
        self.skipped = len(found) - len(own)
        return own

    def fetch(self, copies: Sequence[Copy]) -> None:
        """Copy files of runs. Raises TryAgainError if the connection breaks off, AlborError."""
        if not any(copy.names for copy in copies):
            return
        if self.transport == "rsync":
            self._has_rsync = self._fetch_by_rsync(copies)
        if self.transport == "tar":
            self._fetch_by_tar(copies)

    # -- what is there

    def _where(self) -> list[str]:
        folders: dict[str, None] = {}
        base, is_whole = "", False
        script = f"dir={shlex.quote(self._folder)}\n{_WHERE}"
        with self._told_if_torn(), self._script(script) as out:
            for raw in out.lines():
                word, _, rest = raw.decode("utf-8", "surrogateescape").rstrip("\n").partition(" ")
                if word == "rsync":
                    self._has_rsync = True
                elif word == "dir":
                    base = rest
                elif word == "lacking":
                    raise AlborError(
                        f"cannot pull from {self.host}: its find is not GNU's, and does not know"
                        " -printf",
                        hint=f"install findutils on {self.host}",
                    )
                elif word in ("none", "end"):
                    is_whole = True
                    break
                elif (folder := _folder_said(word, rest, base)) is not None:
                    folders[folder] = None
        if not is_whole:
            raise self._broken("it stopped listing its runs")
        if not base:
            what = self._folder or "an Albor home (ALBOR_HOME, or ~/.albor)"
            raise NotFoundError(
                f"cannot find {what} on {self.host}",
                hint=f"albor runs pull {self.host}:FOLDER, with the folder that its runs are in",
            )
        return [folder for folder in folders if "\n" not in folder]

    def _what(self, folders: Sequence[str]) -> list[FoundRun]:
        """Heads first, then the list of files: what the heads tell of is in those."""
        script = _list_of(folders) + _WHAT.replace("NAMES", " ".join(HEADS))
        heads: dict[str, dict[str, bytes]] = {folder: {} for folder in folders}
        files: dict[str, dict[str, Stamp]] = {folder: {} for folder in folders}
        most = _MAX_LISTING + len(folders) * len(HEADS) * (MAX_HEAD_BYTES + _MEMBER_BYTES)
        with self._told_if_torn(), self._script(script, most) as out:
            if out.line() == b"heads\n":
                self._read_heads(out, heads)
            is_whole = False
            for raw in out.lines():
                line = raw.lstrip(b"\0").decode("utf-8", "surrogateescape").rstrip("\n")
                is_whole = line == "end"
                parts = line.split("\t")
                if len(parts) == 5 and parts[0] in files and parts[1].isdecimal():
                    folder, size, changed, inode, name = parts
                    if inode.isdecimal() and _TIME.fullmatch(changed):
                        files[folder][name] = (int(size), _nanoseconds(changed), int(inode))
        if not is_whole:
            raise self._broken("it stopped listing files")
        return [FoundRun(f, files[f], heads[f]) for f in folders if "run.json" in heads[f]]

    def _read_heads(self, out: BoundedPipe, heads: Mapping[str, dict[str, bytes]]) -> None:
        by_path = {f"{f}/{name}".lstrip("/"): (f, name) for f in heads for name in HEADS}
        for path, member, archive in members(out, len(by_path)):
            if path in by_path and member.size <= MAX_HEAD_BYTES:
                folder, name = by_path[path]
                content = archive.extractfile(member)
                heads[folder][name] = b"" if content is None else content.read()

    # -- files

    def _fetch_by_tar(self, copies: Sequence[Copy]) -> None:
        targets = {
            f"{copy.folder}/{name}".lstrip("/"): (copy.target / name, size)
            for copy in copies
            for name, size in copy.files.items()
        }
        script = _list_of([f"/{path}" for path in targets]) + _FILES
        listed = sum(size for _, size in targets.values())
        most = 2 * listed + 4 * GROWTH + len(targets) * _MEMBER_BYTES  # live files go on growing
        with self._told_if_torn(), self._script(script, most) as out:
            for path, member, archive in members(out, len(targets)):
                if path not in targets or (content := archive.extractfile(member)) is None:
                    continue
                target, size = targets[path]
                if room := room_for(target, member.size, size):
                    put_file(target, content, time_of(member), room)

    def _fetch_by_rsync(self, copies: Sequence[Copy]) -> bool:
        """False where the two do not understand each other, as where a shell greets."""
        groups: dict[tuple[str, Path], dict[str, int]] = {}
        for copy in copies:
            parent, _, own = copy.folder.rpartition("/")
            names = groups.setdefault((parent, copy.target.parent), {})
            names.update({f"{own}/{name}": size for name, size in copy.files.items()})
        return all(
            self._rsync(f"{parent}/", target, names) for (parent, target), names in groups.items()
        )

    def _rsync(self, folder: str, target: Path, names: Mapping[str, int]) -> bool:
        argv = ["rsync", "--files-from=-", "--from0", "--protect-args", "--times", "--ignore-times"]
        argv += ["--ignore-missing-args", "--no-implied-dirs", "--chmod=D700,F600"]
        largest = max(names.values(), default=0) + GROWTH
        argv += [f"--max-size={largest}", f"--timeout={_RSYNC_QUIET_S}", "--no-devices"]
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as errors:
            asked.write("\0".join(names).encode("utf-8", "surrogateescape"))
            asked.seek(0)
            process = subprocess.Popen(
                [*argv, "--", f"{self.host}:{folder}", f"{target}/"],
                stdin=asked,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                umask=0o077,
            )
            with suppress(OSError):  # before it has a connection, and a second process for files
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest, largest))
            try:
                code = process.wait(time_for(sum(names.values()) + GROWTH))
            except BaseException as error:
                process.kill()
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise self._broken("it sends nothing, or too slowly") from error
                raise
            errors.seek(0)
            said = errors.read(_PIECE)
        if code not in (*_VANISHED, *_MISUNDERSTOOD):
            raise self._broken(_last_line(said) or f"rsync ended with {code}")
        return code in _VANISHED

    # -- the connection

    @contextmanager
    def _told_if_torn(self) -> Iterator[None]:
        try:
            yield
        except BeyondBounds as error:
            raise self._broken(str(error)) from error
        except (tarfile.TarError, EOFError) as error:
            raise self._broken(f"what it sent is not whole: {error}") from error

    @contextmanager
    def _script(self, script: str, limit: int = _MAX_LISTING) -> Iterator[BoundedPipe]:
        """The output of a script on the host, without what its start-up files print."""
        head = "unset CDPATH; LC_ALL=C; export LC_ALL; echo 'albor-pull 1'\n"
        with tempfile.TemporaryFile() as said:
            said.write((head + script).encode("utf-8", "surrogateescape"))
            said.seek(0)
            try:
                process = subprocess.Popen(
                    ["ssh", "-T", "--", self._ssh, "sh"],
                    stdin=said,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            except FileNotFoundError as error:
                raise AlborError(
                    "cannot pull: ssh is not installed", hint="install OpenSSH's client"
                ) from error
            with process:
                assert process.stdout is not None and process.stderr is not None
                pipe = BoundedPipe(process.stdout.fileno(), process.stderr.fileno(), limit)
                try:
                    has_begun = any(line == _BEGINS for line in pipe.lines())
                    if has_begun:
                        yield pipe
                    while pipe.read(_PIECE):  # the end of it, so that it can end well
                        pass
                    code = process.wait(_ENDS_S)
                except BaseException as error:
                    process.kill()
                    if not isinstance(error, subprocess.TimeoutExpired):
                        raise
                    code = 0
                if code == _LOST or not has_begun:
                    raise self._broken(_last_line(pipe.errors) or "it did not answer")

    def _broken(self, why: str) -> TryAgainError:
        return TryAgainError(
            f"cannot pull from {self.host}: {clean(why)}", hint=f"ssh {self._ssh} true"
        )


def _nanoseconds(changed: str) -> int:
    """Nanoseconds of a time that `find` prints, such as 1764072000.1234567890."""
    seconds, _, rest = changed.partition(".")
    return int(seconds) * 10**9 + int(rest[:9].ljust(9, "0"))


def _folder_said(word: str, rest: str, base: str) -> str | None:
    """The run directory that a line of _WHERE tells of."""
    if word == "self":
        return base
    if word == "run":
        folder = f"{base}/{rest}".removesuffix("/run.json")
        return folder if is_run_id(folder.rpartition("/")[2]) else None
    if word != "pointer":
        return None
    try:
        found = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    return place_of(found) if isinstance(found, dict) else None


def _list_of(lines: Sequence[str]) -> str:
    """A shell function that prints lines, taken as they are."""
    return "\n".join(["list() { cat <<'ALBOR-END'", *lines, "ALBOR-END", "}", ""])


def _last_line(raw: bytes) -> str:
    lines = [line.strip() for line in raw.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
