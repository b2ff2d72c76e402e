"""What was decided of an op on this card, kept for runs that are resumed on it.

    ALBOR_HOME/cache/kernels/OP-DTYPE-KEY.json

Checking an op against fp64 and racing it is a good part of a start, and finds the same as long as
card, driver, torch, Triton and kernels are the same: KEY is made of them. A new run decides anew,
so a race on a busy card affects only runs that are resumed there, whose bits must not change
anyway. What was rejected is not kept. The whole model is compared at every start.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from albor_core.kernels import dispatch
from albor_core.kernels.dispatch import Candidate, Choice, FloorCost
from albor_core.run.files.whole_file import write_json

SCHEMA = "albor.kernel_choice/1"


def card(device: torch.device) -> str:
    """The card and what drives it."""
    about = torch.cuda.get_device_properties(device)
    driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: 0)()
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = ""
    versions = torch.__version__, torch.version.cuda, driver, triton
    return " ".join(map(str, (about.name, about.uuid, about.total_memory, *versions)))


class KeptChoices:
    """A folder of choices. What cannot be read is decided anew; a folder that cannot be written to
    must not cause a failure.
    """

    def __init__(
        self, folder: Path, *, reads: bool, card: Callable[[torch.device], str] = card
    ) -> None:
        """Without `reads` all is decided anew, and kept."""
        self._folder, self._reads, self._card = folder, reads, card

    def read(self, op: str, device: torch.device, dtype: str) -> Choice | None:
        """A stored choice, as of `dispatch.Memory`."""
        if not self._reads:
            return None
        try:
            said: dict[str, Any] = json.loads(self._file(op, device, dtype).read_text())
            if said.pop("schema") != SCHEMA:
                return None
            candidates = tuple(Candidate(**one) for one in said.pop("candidates"))
            cost = said.pop("cost")
            return Choice(**said, candidates=candidates, cost=cost and FloorCost(*cost))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, choice: Choice, device: torch.device) -> None:
        """Store a choice, as of `dispatch.Memory`."""
        about = asdict(choice)
        del about["rejected"]
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._file(choice.op, device, choice.dtype)
            write_json(file, {"schema": SCHEMA, **about, "cost": choice.cost and [*choice.cost]})

    def _file(self, op: str, device: torch.device, dtype: str) -> Path:
        key = hashlib.sha256(f"{self._card(device)}\n{device}\n{_room()}".encode()).hexdigest()
        return self._folder / f"{op}-{dtype}-{key[:16]}.json"


@functools.cache
def _room() -> str:
    """A digest of all kernels and of what checks them."""
    digest = hashlib.sha256()
    for file in sorted(Path(dispatch.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
