"""python guard_locked_out.py HOW RUN_DIR: a guard whose first program comes second.

Another attempt's program, which a guard killed in that moment would have left behind, takes
run.lock first; ours is locked out, and when the guard looks who was faster, that one has ended
(here it is the guard's own child, so the guard itself ends it with our tree). With HOW "unnamed" it
ended before it wrote child.json.
"""

from __future__ import annotations

import subprocess
import sys

from guard_harness import wait_until

from albor_core.guard import loop
from albor_core.guard.__main__ import main
from albor_core.run.liveness import lock_holder

LOCKS = (
    "import pathlib, sys; from albor_core.run.liveness import take_lock;"
    "take_lock(pathlib.Path(sys.argv[1])); sys.stdin.read()"
)


class Faster:
    """Stands before the guard's own `spawn` and `find_trainer`."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.spawn, self.find_trainer = loop.spawn, loop.find_trainer
        self.other = None

    def starts(self, run, launch, attempt, nonce, log, **options):
        if self.other is None:
            if self.how == "unnamed":
                argv = [sys.executable, "-c", LOCKS, str(run.run_lock)]
                self.other = subprocess.Popen(argv, stdin=subprocess.PIPE)
            else:
                self.other = self.spawn(run, launch, attempt, "f" * 32, log, **options)
            wait_until(lambda: lock_holder(run.run_lock) == self.other.pid)
        return self.spawn(run, launch, attempt, nonce, log, **options)

    def looks(self, run):
        if self.other is not None:
            if self.how == "unnamed":
                self.other.kill()
            wait_until(lambda: lock_holder(run.run_lock) is None)
        return self.find_trainer(run)


if __name__ == "__main__":
    faster = Faster(sys.argv[1])
    loop.spawn, loop.find_trainer = faster.starts, faster.looks
    sys.exit(main(sys.argv[2:]))
