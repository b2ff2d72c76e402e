"""What a tracked program prints, on the tab of its log, while it lives and when it has died."""

from __future__ import annotations

import os
import subprocess
import sys

from screen_stage import text_of
from settled import until

from albor_core.feed.view.run_view import RunView
from albor_tui.app import AlborApp
from albor_tui.model.source import LiveSource

PROGRAM = """
from albor_core import track
with track.start() as run:
    print(run.id, run.path, flush=True)
    for part in range(101):
        print(f"\\r{part} % of the data", end="")
    print(flush=True)
    input()
    raise OSError("no route to the data")
"""


async def test_the_tab_shows_a_tracked_programs_output_and_its_traceback(albor_home):
    environ = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert program.stdin is not None and program.stdout is not None
    run, path = program.stdout.readline().split()
    app = AlborApp(LiveSource(), run=RunView(id=run, path=path), tab="logs")
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "100 % of the data" in text_of(app.screen))
        assert "99 % of the data" not in text_of(app.screen)
        program.stdin.write("\n")
        program.stdin.close()
        await until(pilot, lambda: "OSError: no route to the data" in text_of(app.screen))
    program.stdout.close()
    assert program.wait(60) == 1
