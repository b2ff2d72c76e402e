"""A build that kills itself at the N-th time that it makes something last on disk (0: never)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from albor_core.data.pipeline.build import build
from albor_core.data.pipeline.recipe import load_recipe

calls = 0
fsync = os.fsync


def counted(descriptor: int) -> None:
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)


if __name__ == "__main__":
    recipe, out, at, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    os.fsync = counted
    build(load_recipe(recipe), out, workers=int(workers))
    print(calls)
