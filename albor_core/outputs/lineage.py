"""Lineage of a built thing: its inputs by hash, the command, the seed, the versions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from albor_core.run.program.provenance import versions
from albor_core.run.values.redact import announced_secrets, redact


def lineage(inputs: Mapping[str, str], seed: Any = None) -> dict[str, Any]:
    """The lineage for a record, without secrets. `inputs` maps names to the BLAKE3 of what was
    read. Records whose bytes must depend on their inputs alone (a corpus, packed shards) do not
    include it.
    """
    environment = dict(os.environ)
    argv, _ = redact([*sys.argv], environment, announced_secrets(sys.argv, environment))
    return {"inputs": dict(inputs), "argv": argv, "seed": seed, "versions": versions()}
