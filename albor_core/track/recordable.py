"""What a program gives as its configuration, as JSON data without secrets."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from albor_core.run.errors import UsageError
from albor_core.run.values.metrics import as_json
from albor_core.run.values.redact import redact


def recordable(config: object) -> dict[str, Any]:
    """`config` as JSON data without secrets. Raises UsageError for what cannot be one."""
    if config is None:
        return {}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    elif callable(getattr(config, "to_dict", None)):
        config = config.to_dict()  # type: ignore[attr-defined]
    elif not isinstance(config, Mapping) and hasattr(config, "__dict__"):
        config = vars(config)
    if not isinstance(config, Mapping):
        raise UsageError(
            f"config must be a mapping, dataclass or Namespace, not {type(config).__name__}",
            hint="give a mapping, a dataclass or an argparse.Namespace",
        )
    said: dict[str, Any] = as_json(config)
    safe, _ = redact(said, dict(os.environ))
    return safe
