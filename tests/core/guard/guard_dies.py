"""python guard_dies.py NTH TOLD RUN_DIR: a guard that SIGKILL meets before its NTH disk operation.

With NTH 0 it lives; how many operations it took is written to TOLD.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "train"))

from io_shim import KILL, Shim

from albor_core.guard.__main__ import main

if __name__ == "__main__":
    nth, told, run_dir = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    shim = Shim(lambda number, name, path: KILL if number == nth else None)
    shim.install()
    code = main([run_dir])
    told.write_text(str(len(shim.log)))
    sys.exit(code)
