"""The library of chaosio.c: compiled, loaded into a run's processes, armed while they live."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("chaosio.c")
TRAINER, ANYBODY = "albor_core.train", "-"


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path) -> Path:
    """Compile it into `folder`."""
    library = folder / "chaosio.so"
    gcc = compiler()
    assert gcc is not None, "make chaos needs a C compiler: gcc or cc"
    options = ("-O2", "-Wall", "-Werror", "-shared", "-fPIC")
    subprocess.run([gcc, *options, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


class Shim:
    """One run's processes through the library: what is armed, and what it has hit."""

    def __init__(self, library: Path, root: Path, folder: Path) -> None:
        """It watches what lies below `root`; its own files are in `folder`, which is elsewhere."""
        self._library, self._root = library, root
        self._arm, self._clock = folder / "arm", folder / "clock"
        self._struck, self._log = folder / "arm.struck", folder / "hits"
        self._serials = itertools.count(1)
        self._serial = 0

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "CHAOS_ROOT": str(self._root),
            "CHAOS_ARM": str(self._arm),
            "CHAOS_LOG": str(self._log),
            "CHAOS_CLOCK": str(self._clock),
        }

    def arm(
        self,
        action: str | int,
        *,
        nth: int = 1,
        every: bool = False,
        ops: str = "-",
        who: str = ANYBODY,
        part: str = "-",
    ) -> None:
        """`action` is kill, short or an errno; see chaosio.c."""
        self._struck.unlink(missing_ok=True)
        self._serial = next(self._serials)
        draft = self._arm.with_suffix(".new")
        draft.write_text(f"{self._serial} {action} {nth} {int(every)} {ops} {who} {part}\n")
        draft.rename(self._arm)

    def disarm(self) -> None:
        self._arm.unlink(missing_ok=True)

    def hits(self) -> list[str]:
        """`op path` of each call that was hit since it was armed last."""
        if not self._log.exists():
            return []
        lines = [line.split("\t") for line in self._log.read_text(errors="replace").splitlines()]
        return [f"{line[2]} {line[3]}" for line in lines if line[0] == str(self._serial)]

    def skew(self, seconds: int) -> None:
        """Set the wall clock of all processes so much ahead."""
        draft = self._clock.with_suffix(".new")
        draft.write_text(str(seconds))
        draft.rename(self._clock)
