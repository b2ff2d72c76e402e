"""Kernels without a GPU: interpreted, or compiled, each in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle import ROOT, python

from albor_core.kernels.toolchain import HAS_TRITON

needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
COMPILE = """
import importlib, sys
from albor_core.kernels.aot import ARCHITECTURES, DTYPES, compile_launch
op = importlib.import_module(sys.argv[1]).OP
for dtype in DTYPES:
    for launch in op.launches(dtype):
        for chip in ARCHITECTURES:
            built = compile_launch(launch, chip)
            print(launch.name, dtype, chip, built.size, built.stack)
"""


def interpreted_lines(script: str, **env: str) -> list[dict[str, Any]]:
    """The JSON lines that a script under tests/ prints where Triton interprets its kernels."""
    child = python(str(ROOT / "tests" / script), TRITON_INTERPRET="1", **env)
    assert child.returncode == 0, child.stderr[-2000:]
    return [json.loads(line) for line in child.stdout.splitlines()]


def compiled(module: str, cache: Path) -> list[list[str]]:
    """(kernel, dtype, architecture, bytes, stack) of each launch of a module's `OP`."""
    child = python("-c", COMPILE, module, timeout_s=280, TRITON_CACHE_DIR=str(cache))
    assert child.returncode == 0, child.stderr[-2000:]
    return [line.split() for line in child.stdout.splitlines()]
