"""On PYTHONPATH, where a loop is to be killed: the process that logs writes down each value that
`log` returned for, and dies by SIGKILL after so many.
"""

import os
import sys
from pathlib import Path

LEFT = int(os.environ.get("LOOP_DIES_AFTER", "0"))


def arm(track):
    from albor_core.run.values.metrics import Odd, tidy

    log, left = track.Run.log, iter(range(LEFT - 1, -1, -1))

    def watched(run, values, step=None):
        log(run, values, step)
        with Path(os.environ["LOOP_ACKNOWLEDGED"]).open("a") as file:
            for name, value in tidy(values, Odd()).items():
                file.write(f"{run.id} {run.step} {name} {float(value)!r}\n")
        if next(left) == 0:
            os.kill(os.getpid(), 9)

    track.Run.log = watched


if LEFT and not any(word.startswith("albor_core") for word in sys.orig_argv[1:]):
    from albor_core import track

    arm(track)
