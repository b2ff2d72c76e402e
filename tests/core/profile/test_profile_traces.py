"""Made traces with known answers: what is computed of them, to the microsecond."""

import gzip
import json

import pytest
from made_traces import ADD, GEMM, GPU_STEP, MAIN, brick, call, kernel, op, span, step, write

from albor_core.profile import trace as trace_file
from albor_core.profile.breakdown import break_down
from albor_core.profile.intervals import gaps, self_times, shared, union, without
from albor_core.profile.names import clean_name
from albor_core.profile.trace import read_trace
from albor_core.run.errors import DataError, NotFoundError


def of(tmp_path, events, **head):
    return break_down(read_trace(write(tmp_path / "t.json.gz", events, head=head)))


def test_a_gpu_step_is_explained_to_the_microsecond(tmp_path):
    found = of(tmp_path, GPU_STEP)
    assert (found.steps, found.wall, found.is_gpu) == (1, 1000, True)
    assert found.busy == 630
    assert {one.why: (one.time, one.is_named) for one in found.idle} == {
        "waits for the host in forward": (92, True),
        "launch latency": (18, True),
        "between kernels that were queued": (10, True),
        "copies alone, no kernel": (50, True),
        "after cudaStreamSynchronize in optimizer": (100, True),
        "no range and no known cause": (100, False),
    }
    assert found.coverage == pytest.approx(0.9)


def test_kernels_belong_to_the_brick_that_launched_them_and_overlap_counts_once(tmp_path):
    found = of(tmp_path, GPU_STEP)
    forward, optimizer = found.phases
    assert (forward.name, forward.host, forward.busy) == ("forward", 400, 300 + 90 + 50)
    assert (forward.launches, forward.syncs) == (3, 0)
    assert (optimizer.busy, optimizer.launches, optimizer.syncs) == (240, 1, 1)
    rows = {row.name: (row.time, row.count) for row in found.kernels}
    assert rows["vectorized_elementwise_kernel[CUDAFunctor_add]"] == (530, 3)
    assert rows[GEMM] == (200, 1)
    (only,) = found.by_phase["optimizer"]
    assert (only.time, only.count) == (240, 1)


def test_launches_synchronizations_copies_and_counters(tmp_path):
    found = of(tmp_path, GPU_STEP)
    assert (found.launches, found.graph_launches, found.items) == (4, 0, 1)
    assert found.syncs == {"cudaStreamSynchronize": 1}
    (one,) = found.copies
    assert (one.direction, one.count, one.bytes, one.gb_per_s) == ("DtoH", 1, 50_000, 1.0)
    assert found.counters["matrix_products"] == 1
    assert (found.counters["pcie_bytes"], found.counters["streams"]) == (50_000, 2)


def test_work_that_a_step_leaves_to_the_device_is_part_of_it(tmp_path):
    events = [step(1, 0, 100), step(2, 100, 100), call(150, 1), kernel("k", 250, 50, 1)]
    found = of(tmp_path, [*events, call(400, 2), kernel("later", 410, 5, 2)])
    assert (found.steps, found.wall, found.step_us) == (2, 300, 150)
    assert [row.name for row in found.kernels] == ["k"]


def test_a_kernel_whose_launch_is_not_in_the_trace_explains_no_idle_time(tmp_path):
    found = of(tmp_path, [step(1, 0, 100), brick("forward", 0, 100), kernel("k", 50, 50, 9)])
    assert [(one.time, one.is_named) for one in found.idle] == [(50, False)]
    assert found.coverage == 0.5
    assert any(one.startswith("calls of the driver") for one in found.missing)


def test_operators_of_a_cpu_are_counted_by_their_own_time(tmp_path):
    events = [
        step(1, 0, 100),
        brick("forward", 0, 60),
        brick("backward", 60, 30),
        op("aten::linear", 10, 40),
        op("aten::mm", 15, 30),
        op("aten::fill_", 20, 5),
        op("aten::mm", 60, 20, MAIN + 1),
        op("aten::add", 70, 10),
    ]
    found = of(tmp_path, events)
    assert not found.is_gpu and found.busy == 60
    rows = {row.name: (row.time, row.count) for row in found.kernels}
    assert rows == {
        "aten::mm": (45, 2),
        "aten::linear": (10, 1),
        "aten::add": (10, 1),
        "aten::fill_": (5, 1),
    }
    assert {one.why: one.time for one in found.idle} == {
        "in forward, outside of operators": 20,
        "in backward, outside of operators": 10,
        "no range and no known cause": 10,
    }
    assert found.coverage == pytest.approx(0.9)


def test_steps_without_ranges_are_counted_by_their_optimizer(tmp_path):
    bricks = [(n, 100 * i + at) for i in range(3) for n, at in (("forward", 0), ("optimizer", 50))]
    found = of(tmp_path, [brick(name, begin, 40) for name, begin in bricks])
    assert (found.steps, found.wall) == (3, 290)
    assert any(one.startswith("no ranges of steps") for one in found.missing)


def test_a_trace_of_another_program_is_told_by_its_own_ranges_and_says_what_is_missing(tmp_path):
    events = [
        span("user_annotation", "train_batch", 0, 80),
        span("user_annotation", "inner", 10, 20),
        op("aten::mm", 20, 40),
        span("python_function", "ignored", 0, 500),
    ]
    found = of(tmp_path, events)
    assert [phase.name for phase in found.phases] == ["train_batch"]
    said = " ".join(found.missing)
    for word in ("no ranges of steps", "not of albor train", "device work", "record_shapes"):
        assert word in said
    bare = of(tmp_path, [op("aten::mm", 20, 40)])
    assert bare.phases == () and bare.busy == 40
    assert "no phases are told" in " ".join(bare.missing)


def test_a_list_of_events_alone_is_a_trace_too(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(GPU_STEP))
    assert len(read_trace(path).device) == 5


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_file_that_breaks_off_is_read_as_far_as_it_goes(tmp_path, name):
    many = [step(1, 0, 1e6), *(op(f"aten::o{n}", n, 1) for n in range(5000))]
    path = write(tmp_path / name, many)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    found = read_trace(path)
    assert found.truncated and 500 < len(found.operators) < 5000
    assert "breaks off" in " ".join(break_down(found).missing)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "it is empty"),
        (b"hello", "it is not JSON"),
        (b'{"a": 1}', "it has no traceEvents"),
        (b'{"traceEvents": [{"ph": "X", nonsense}, {"ph": "M"}, {"ph": "M"}]}', "event 1 is not"),
        (b'{"traceEvents": []}', "nothing happens"),
        (b"\x1f\x8b\x08\x00garbage, not a stream of gzip", "damaged"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(tmp_path, content, words):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as refused:
        break_down(read_trace(path))
    assert str(path) in refused.value.message and refused.value.hint
    assert refused.value.exit_code == 7


def test_a_flipped_byte_in_a_compressed_trace_is_damage(tmp_path):
    path = write(tmp_path / "t.json.gz", GPU_STEP * 50)
    raw = bytearray(path.read_bytes())
    raw[-6] ^= 0xFF  # of the sum of what it should unpack to
    path.write_bytes(bytes(raw))
    with pytest.raises(DataError, match="damaged"):
        read_trace(path)


def test_more_events_than_fit_are_refused_with_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "MAX_EVENTS", 10)
    path = write(tmp_path / "t.json.gz", [op("aten::add", n, 1) for n in range(11)])
    with pytest.raises(DataError, match="more than 10 events"):
        read_trace(path)


def test_no_such_file_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="no trace"):
        read_trace(tmp_path / "nothing.json")


def test_events_that_straddle_chunks_and_odd_values_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "_CHUNK", 7)
    odd = [{"ph": "X", "cat": "cpu_op", "name": "n", "ts": "5.5", "dur": True}, 3, None, []]
    odd += [{"ph": "X", "cat": "cpu_op", "name": "n", "ts": "1e999", "dur": 1}]
    path = write(tmp_path / "t.json", [*GPU_STEP, *odd, op("caf\u00e9", 1, 1)])
    found = read_trace(path)
    assert len(found.operators) == 3 and not found.truncated
    assert found.operators[0].name == "caf\u00e9"


@pytest.mark.parametrize(
    "name, clean",
    [
        (ADD, "vectorized_elementwise_kernel[CUDAFunctor_add]"),
        (GEMM, GEMM),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 10>(float*, int)",
         "softmax_warp_forward"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(cutlass::Params)", "Kernel2"),
        ("operator<", "operator"),
        ("", ""),
    ],
)  # fmt: skip
def test_names_lose_the_noise_of_their_templates(name, clean):
    assert clean_name(name) == clean


def test_spans():
    assert union([(5, 6), (0, 2), (1, 3), (4, 4)]) == [(0, 3), (5, 6)]
    assert gaps([(1, 2), (4, 9)], (0, 6)) == [(0, 1), (2, 4)]
    assert shared([(0, 5), (8, 9)], [(1, 2), (4, 10)]) == [(1, 2), (4, 5), (8, 9)]
    assert without([(0, 5), (6, 9)], [(1, 2), (4, 7)]) == [(0, 1), (2, 4), (7, 9)]
    assert self_times([(0, 10), (2, 5), (3, 4), (6, 7), (20, 21)]) == [6, 2, 1, 1, 1]


def test_a_trace_in_a_zip_of_no_bytes_is_empty(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(DataError, match="it is empty"):
        read_trace(path)
