"""From what a built thing came: its inputs by hash, the command, the seed, the versions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from albor_core.run.program.provenance import versions
from albor_core.run.values.redact import announced_secrets, redact


def lineage(inputs: Mapping[str, str], seed: Any = None) -> dict[str, Any]:
    """For a record, without secrets. `inputs`: what was read -> its BLAKE3. A record whose bytes
    must follow from its inputs alone (a corpus, packed shards) has no place for it.
    """
    environment = dict(os.environ)
    argv, _ = redact([*sys.argv], environment, announced_secrets(sys.argv, environment))
    return {"inputs": dict(inputs), "argv": argv, "seed": seed, "versions": versions()}
