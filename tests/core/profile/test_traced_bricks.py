"""The newest trace of a run under its bricks, as the cockpit asks for it."""

import os

from made_traces import GPU_STEP, op, step, write

from albor_core.feed.archive.traced import TraceShelf


def test_a_shelf_tells_of_the_newest_trace_and_of_a_newer_one_later(tmp_path):
    shelf = TraceShelf(tmp_path / "traces")
    assert shelf.look().name == ""
    (tmp_path / "traces").mkdir()
    old = write(tmp_path / "traces" / "step-00000002.json.gz", GPU_STEP)
    os.utime(old, (1, 1))
    found = shelf.look()
    assert (found.name, found.is_gpu, round(found.coverage, 3)) == (old.name, True, 0.9)
    forward = found.bricks["forward"]
    assert (forward.launches, forward.syncs) == (3, 0)
    assert forward.kernels[0].share == 0.29
    assert shelf.look() is found
    write(tmp_path / "traces" / "step-00000001.json.gz", [step(1, 0, 9), op("aten::mm", 1, 2)])
    assert shelf.look().name == "step-00000001.json.gz" and not shelf.look().is_gpu


def test_a_trace_that_cannot_be_read_is_told_and_raises_nothing(tmp_path):
    (tmp_path / "step-00000001.json.gz").write_bytes(b"not a trace")
    found = TraceShelf(tmp_path).look()
    assert found.name and "is not a Chrome trace" in found.problem and not found.bricks
