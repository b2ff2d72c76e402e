"""What a patch of git changes, counted: never applied, never trusted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from albor_core.run.values.quantity import counted

MOST_FILES = 200
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_FILE = "diff --git "
_CUT = re.compile(r"\n\[cut at [\d,]+ bytes\]\n\Z")


@dataclass(frozen=True)
class FileChange:
    """One file of a patch by the name it has afterwards. Lines are None of a binary file."""

    name: str
    added: int | None = 0
    removed: int | None = 0

    @property
    def words(self) -> str:
        """`loop.py +80 -10`."""
        return f"{self.name} binary" if self.added is None else f"{self.name} {self.lines}"

    @property
    def lines(self) -> str:
        """`+80 -10`."""
        return f"+{self.added:,} -{self.removed:,}"


@dataclass(frozen=True)
class Patch:
    """How much a patch changes. `files` are at most MOST_FILES of `num_files`; a patch that was cut
    changes more than it says."""

    files: tuple[FileChange, ...] = ()
    num_files: int = 0
    added: int = 0
    removed: int = 0
    is_cut: bool = False

    @property
    def words(self) -> str:
        """`+120 -14 in 3 files`, and that it says less than there was."""
        least = "at least " if self.is_cut else ""
        lines = f"+{self.added:,} -{self.removed:,}"
        return f"{least}{lines} in {counted(self.num_files, 'file')}"


def read_patch(text: str) -> Patch:
    """The files that `git diff` text names, with their lines."""
    is_cut = _CUT.search(text) is not None
    found: list[FileChange] = []
    for part in _files(text):
        found.append(_change(part))
    return Patch(
        files=tuple(found[:MOST_FILES]),
        num_files=len(found),
        added=sum(one.added or 0 for one in found),
        removed=sum(one.removed or 0 for one in found),
        is_cut=is_cut,
    )


def _files(text: str) -> list[list[str]]:
    """The lines of each file. A line that only looks like the head of one is inside a hunk, where
    it begins with a sign."""
    parts: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith(_FILE):
            parts.append([line])
        elif parts:
            parts[-1].append(line)
    return parts


def _change(lines: list[str]) -> FileChange:
    name, added, removed = _name_of_head(lines[0]), 0, 0
    old = new = 0  # lines that the hunk has still to come
    for line in lines[1:]:
        if old > 0 or new > 0:
            sign = line[:1]
            added += sign == "+"
            removed += sign == "-"
            old -= sign in ("-", " ", "")
            new -= sign in ("+", " ", "")
        elif hunk := _HUNK.match(line):
            old, new = (int(count) if count is not None else 1 for count in hunk.groups())
        elif line.startswith(("+++ b/", "rename to ")):
            name = line.removeprefix("+++ b/").removeprefix("rename to ").rstrip("\t")
        elif line.startswith(("Binary files ", "GIT binary patch")):
            return FileChange(name, None, None)
    return FileChange(name, added, removed)


def _name_of_head(line: str) -> str:
    """The name in a head `a/NAME b/NAME`, of a file that was removed, or whose content did not
    change."""
    both = line.removeprefix(_FILE)
    half = both[: len(both) // 2]
    return half.removeprefix("a/") if both == f"{half} b/{half.removeprefix('a/')}" else both
