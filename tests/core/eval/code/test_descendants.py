"""Processes are counted while they end: what is gone is left out, and nothing raises."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from albor_core.eval.code.sandbox import kernel

CHURN = """
import os
for _ in range(600):
    if not os.fork():
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_processes_that_end_while_they_are_counted_are_left_out():
    with subprocess.Popen([sys.executable, "-c", CHURN]) as churn:
        seen = [set(kernel.descendants(os.getpid()))]
        while churn.poll() is None:
            seen.append(set(kernel.descendants(os.getpid())))
    assert any(churn.pid in pids for pids in seen)
    assert churn.pid not in kernel.descendants(os.getpid())
