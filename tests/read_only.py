"""What a program does where a folder is on a read-only mount, or on a small disk."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_MOUNTED = """
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 77
touch "$1/x" 2>/dev/null && exit 77
shift; exec "$@"
"""

_SMALL = """
mkdir -p "$1" && mount -t tmpfs -o "size=$2,mode=700" tmpfs "$1" || exit 77
shift 2; exec "$@"
"""


def where_read_only(
    folder: Path, argv: Sequence[object], **more: Any
) -> subprocess.CompletedProcess[str]:
    """`argv` to its end in a mount namespace of its own, as root there, in which nothing below
    `folder` can be written; the test is skipped where the system has no such thing.
    """
    return _mounted([_MOUNTED, "sh", str(folder), *map(str, argv)], more)


def on_a_small_disk(
    folder: Path, size: str, argv: Sequence[object], **more: Any
) -> subprocess.CompletedProcess[str]:
    """As `where_read_only`, with a file system of `size` at `folder`, which goes with its end."""
    return _mounted([_SMALL, "sh", str(folder), size, *map(str, argv)], more)


def _mounted(script: list[str], more: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    words = ["unshare", "-Urm", "sh", "-c", *script]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, **more
        )
    except FileNotFoundError:
        pytest.skip("no unshare")
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    return done
