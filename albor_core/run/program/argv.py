"""How one of our programs starts another: by argv, whatever folder the user stands in.

`-P` keeps the working directory out of the import path: a random.py there is none of ours. A
checkout that was never installed is found through PYTHONPATH, before what the user's own holds.
Standard library only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def module_argv(module: str, *arguments: str) -> list[str]:
    """The argv that runs one of our modules with this interpreter."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_env() -> dict[str, str]:
    """The environment to run it in."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  25 ms of email

    environment = dict(os.environ)
    try:
        version("albor")
    except PackageNotFoundError:
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, [inherited])])
    return environment
