"""pulled.json (schema albor.pulled/1): that a run directory is a copy, of which host and folder.

A copy is read-only: what people say of it, and what is asked of it, belongs where the run is. It is
written before the first file of a copy arrives, so that no half of one is taken for a run of here.
"""

from __future__ import annotations

import os
from dataclasses import asdict

from albor_core.run.errors import InUseError
from albor_core.run.files.whole_file import write_json
from albor_core.run.light_dataclass import dataclass
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import finite, text

SCHEMA = "albor.pulled/1"
_SOMEWHERE = "another host"


@dataclass(frozen=True)
class Pulled:
    """`host` and `folder` are what a copy is brought up to date from; `wall` is when it was."""

    host: str
    folder: str
    wall: float | None = None


def write_pulled(run: RunDir, pulled: Pulled) -> None:
    """Replace it. Raises OSError."""
    write_json(run.pulled, {"schema": SCHEMA, **asdict(pulled)})


def read_pulled(run: RunDir) -> Pulled | None:
    """The origin of a copied run; None for a run of this home. An unreadable file still means that
    it is a copy.
    """
    if not os.path.lexists(run.pulled):
        return None
    found = read_json(run.pulled) or {}
    return Pulled(text(found, "host") or _SOMEWHERE, text(found, "folder"), finite(found, "wall"))


def pulled_from(run: RunDir) -> str:
    """The host that a run was copied from; "" for a run of here."""
    pulled = read_pulled(run)
    return "" if pulled is None else pulled.host


def refuse_pulled(run: RunDir, verb: str, there: str) -> None:
    """Raise InUseError if `run` is a copy; `there` is the command that helps on its host."""
    if host := pulled_from(run):
        raise InUseError(
            f"cannot {verb} {run.id}: it was pulled from {host} and is read-only here",
            hint=f"on {host}: {there}",
        )
