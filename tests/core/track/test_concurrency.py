"""Forks, threads and workers: what they say is whole, and no other file is touched."""

import contextlib
import multiprocessing
import os
import threading
import warnings
from pathlib import Path

import pytest

from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.errors import InUseError
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setenv("ALBOR_CONSOLE", "0")
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def steps(run, key):
    lines = [line.record for line in read_journal(RunDir(Path(run.path)).journal)]
    assert None not in lines
    return [line["step"] for line in lines if line["t"] == "m" and key in line["v"]]


def in_child(work):
    """Run `work` in a forked child; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            warnings.simplefilter("ignore")
            work()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_32_threads_log_at_once_and_every_value_is_there():
    def work(number):
        for step in range(50):
            run.log({f"k{number}": float(step)}, step=step)
            run.event("tick", thread=number)

    with track.start() as run:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number in range(32):
        assert sorted(steps(run, f"k{number}")) == list(range(50))
    lines = [line.record for line in read_journal(run.dir.journal)]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


def test_threads_that_log_while_the_run_is_closed_write_into_no_other_file(tmp_path):
    """A closed descriptor's number is soon that of another file."""
    run = track.start()
    started, stop = threading.Barrier(9), threading.Event()

    def work(number):
        started.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while not stop.is_set():
                run.log({f"k{number}": 1.0})
                run.event("tick")
                run.sample("text")
                run.params({"a": 1})
                run.set_goals({"wer": "min"})
                run.beat()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    while not steps(run, "k0"):
        pass
    run.finish()
    files = [(tmp_path / f"other-{n}").open("w+b") for n in range(64)]
    for _ in range(200):
        run.log({"late": 1.0})
    stop.set()
    for thread in threads:
        thread.join()
    assert [file.read() for file in files] == [b""] * 64
    for file in files:
        file.close()
    lines = [line.record for line in read_journal(run.dir.journal)]
    assert lines[-1]["name"] == "run.end"
    assert run.dir.exit.is_file()


def test_a_fork_while_another_thread_logs_neither_hangs_nor_writes():
    stop = threading.Event()
    with track.start() as run:

        def work():
            while not stop.is_set():
                run.log({"x": 1.0})

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(20):
                assert (
                    in_child(lambda: (run.log({"y": 1.0}), run.event("child"), run.finish())) == 0
                )
        finally:
            stop.set()
            thread.join()
    assert not steps(run, "y")
    assert run.dir.exit.is_file()


def test_a_fork_after_the_end_does_nothing():
    run = track.start()
    run.finish()
    before = run.dir.journal.read_bytes()
    assert in_child(lambda: (run.log({"y": 1.0}), run.finish("failed"))) == 0
    assert run.dir.journal.read_bytes() == before


def test_a_forked_child_begins_a_run_of_its_own_and_cannot_take_its_parents(tmp_path):
    with track.start(id="parent") as run:
        run.log({"x": 1.0}, step=1)

        def work():
            with pytest.raises(InUseError, match=f"process {os.getppid()} works on it"):
                track.start(id="parent", resume="allow")
            with track.start(id="child") as own:
                own.log({"x": 2.0}, step=1)

        assert in_child(work) == 0
        run.log({"x": 3.0}, step=2)
    assert steps(run, "x") == [1, 2]
    child = RunDir(run.path.parent / "child")
    assert steps(child, "x") == [1]
    assert child.exit.is_file()


def _worker(number):
    """Of a pool: a run of its own."""
    os.environ["ALBOR_CONSOLE"] = "0"
    with track.start(id=f"w{number}") as run:
        for step in range(5):
            run.log({"x": float(step)}, step=step)
    return number


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_track_runs_of_their_own_while_the_parent_tracks_one(method):
    context = multiprocessing.get_context(method)
    with track.start(id="parent") as run:
        run.log({"x": 1.0}, step=1)
        with context.Pool(2) as pool:
            assert pool.map(_worker, range(4)) == list(range(4))
        run.log({"x": 1.0}, step=2)
    assert steps(run, "x") == [1, 2]
    for number in range(4):
        assert steps(RunDir(run.path.parent / f"w{number}"), "x") == list(range(5))
