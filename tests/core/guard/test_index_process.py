"""The index process beside a program: one at a time, whoever tends it."""

from __future__ import annotations

import subprocess
import sys
import threading

from albor_core.guard.process import index_process
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.rundir import RunDir


def test_the_last_words_and_the_thread_that_tends_start_one_index_process_together(
    tmp_path, monkeypatch
):
    (tmp_path / "guard").mkdir()
    started: list[subprocess.Popen[bytes]] = []
    is_inside, may_go = threading.Event(), threading.Event()

    def asks_the_kernel(path):
        if not is_inside.is_set():
            is_inside.set()
            may_go.wait()

    def start(*words, **options):
        started.append(real([sys.executable, "-c", ""]))
        return started[-1]

    real = subprocess.Popen
    monkeypatch.setattr(index_process, "lock_holder", asks_the_kernel)
    monkeypatch.setattr(index_process.subprocess, "Popen", start)
    monkeypatch.setattr(index_process.os, "setpriority", lambda *words: None)
    sidecar = IndexProcess(RunDir(tmp_path))
    thread = threading.Thread(target=sidecar.tend)
    last_words = threading.Thread(target=sidecar.finish)
    thread.start()
    is_inside.wait()
    last_words.start()
    last_words.join(0.2)  # long enough for one that waits for nobody
    may_go.set()
    thread.join()
    last_words.join()
    for process in started:
        process.wait()
    assert len(started) == 1
