"""A child goes with its parent, however that ends."""

from __future__ import annotations

import subprocess
import sys

CHILD = """
import os, sys, signal
from albor_core.run.program.parent_death import die_with_parent
die_with_parent(int(sys.argv[1]) if len(sys.argv) > 1 else None)
print("ready", flush=True)
signal.pause()
"""
PARENT = """
import os, signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
signal.pause()
"""


def test_child_is_killed_with_its_parent():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        rest = parent.communicate(timeout=60)[0]  # ends when the child has let go of the pipe
    assert rest == ""


def test_child_whose_parent_is_gone_already_ends_at_once():
    gone = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, timeout=60)
    assert (gone.returncode, gone.stdout, gone.stderr) == (1, b"", b"")
