"""A run as spans: parsed by OpenTelemetry's own messages, whole, in place, the same every time."""

from __future__ import annotations

import base64
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from albor_core.run.rundir import RunDir
from albor_core.run.values.traceparent import parse_traceparent
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.query.reader import Reader
from albor_core.store.spans.export import write_spans
from albor_core.store.spans.fold import MOST_EVENTS
from albor_core.store.spans.otlp import document
from albor_core.store.spans.profile import MOST_KERNELS, OTHERS
from albor_core.store.spans.reading import SpanReader
from albor_core.store.spans.span import Span, SpanEvent
from albor_core.store.upkeep.rebuild import rebuild

T0 = 1_800_000_000.0
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def parsed(text: str | bytes) -> ExportTraceServiceRequest:
    """OTLP's JSON is protobuf's but for ids, which are in hexadecimal."""
    found = json.loads(text)
    for resource in found["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return json_format.ParseDict(found, ExportTraceServiceRequest())


def spans_of(run: RunDir) -> dict[str, Any]:
    """By span id, as parsed from the exported document."""
    text = io.StringIO()
    count = write_spans([run], text)
    made = parsed(text.getvalue())
    found = {
        one.span_id.hex(): one for part in made.resource_spans for one in part.scope_spans[0].spans
    }
    assert len(found) == count
    return found


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def guard_line(run: RunDir, **record: Any) -> None:
    with run.attempts.open("a") as file:
        file.write(json.dumps(record) + "\n")


def interval(journal: Any, step: int, wall: float, **values: float) -> None:
    bricks = {f"brick/{k}_ms": v for k, v in values.items()}
    numbers = {"train/loss": 3.0 - step / 100, "train/tokens": 1024 * step, "perf/step_ms": 200.0}
    journal.metrics(step, {**numbers, **bricks}, mono=wall, wall=wall)


def said(journal: Any, kind: str, wall: float, **fields: Any) -> None:
    """A line at a time of the past."""
    journal.append(kind, **fields)
    lines = journal_lines(journal)
    lines[-1]["wall"] = wall
    rewrite(journal, lines)


def journal_lines(journal: Any) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in Path(journal.path).read_bytes().splitlines()]


def rewrite(journal: Any, lines: list[dict[str, Any]]) -> None:
    import zlib

    made = b""
    for line in lines:
        body = json.dumps({k: v for k, v in line.items() if k != "crc"}, separators=(",", ":"))
        head = body.encode()[:-1]
        made += head + b',"crc":%d}\n' % zlib.crc32(head)
    Path(journal.path).write_bytes(made)


@pytest.fixture
def trained(bench: Any) -> RunDir:
    """Two attempts, the first killed at step 20: an evaluation, a checkpoint, an alert, a trace."""
    run = bench.run("r1")
    about = json.loads(run.run_json.read_text())
    run.run_json.write_text(json.dumps({**about, "created": T0}))
    guard_line(run, t="attempt.start", wall=T0 + 1, attempt=1, pid=1)
    one = bench.journal(run, 1)
    event = {"step": 0, "name": "run.start", "severity": "info", "data": {}}
    said(one, "e", T0 + 2, **event)
    interval(one, 10, T0 + 4.2, forward=80.0, backward=100.0, other=20.0, eval=150.0)
    interval(one, 20, T0 + 6.3, forward=80.0, backward=110.0, other=10.0)
    alert = {"id": "a@1.20", "rule": "loss > 1", "message": "loss is 2.8", "value": 2.8}
    event = {"step": 20, "name": "andon.alert", "severity": "warning", "data": alert}
    said(one, "e", T0 + 6.4, **event)
    data = {"path": "/x/checkpoints/step-00000020", "bytes": 77, "seconds": 0.5}
    said(one, "e", T0 + 7, step=20, name="checkpoint.saved", severity="info", data=data)
    guard_line(
        run, t="attempt.end", wall=T0 + 8, attempt=1, code=137, signal="SIGKILL", step=20,
        reason="killed: SIGKILL (137) at step 20", delay_s=2.0, **{"class": "killed"},
    )  # fmt: skip
    guard_line(run, t="attempt.start", wall=T0 + 10, attempt=2, pid=2)
    two = bench.journal(run, 2)
    said(two, "r", T0 + 11, to=20)
    event = {"step": 20, "name": "run.start", "severity": "info", "data": {}}
    said(two, "e", T0 + 11, **event)
    interval(two, 30, T0 + 13, forward=90.0, backward=100.0, other=10.0)
    trace = {"path": "/x/traces/step-00000030.json.gz", "steps": 3}
    write_trace(run, "step-00000030.json.gz", T0 + 13)
    said(two, "e", T0 + 15, step=30, name="brick.traced", severity="info", data=trace)
    data = {"status": "completed", "reason": "completed", "code": 0}
    said(two, "e", T0 + 16, step=30, name="run.end", severity="info", data=data)
    guard_line(
        run, t="attempt.end", wall=T0 + 17, attempt=2, code=0, signal=None, step=30,
        reason="done: exited with code 0", delay_s=None, **{"class": "done"},
    )  # fmt: skip
    return run


def write_trace(run: RunDir, name: str, begin: float) -> None:
    """A GPU's: 20 kernels of a forward, one of a backward, launched in their ranges."""
    events: list[dict[str, Any]] = []

    def add(cat: str, called: str, ts: float, dur: float, **args: Any) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": called, "ts": ts, "dur": dur, "tid": 1, "args": args}
        )

    add("user_annotation", "brick forward", 0, 1000)
    add("user_annotation", "brick backward", 1000.5, 500)
    for n in range(20):
        add("cuda_runtime", "cudaLaunchKernel", 10 + n, 1, correlation=n)
        add("kernel", f"gemm_{n:02d}", 2000 + n, 1 + n, correlation=n)
    add("cuda_runtime", "cudaLaunchKernel", 1200, 1, correlation=99)
    add("kernel", "gemm_00", 5000, 40, correlation=99)
    run.traces.mkdir()
    found = {"baseTimeNanoseconds": int(begin * 1e9), "traceEvents": events}
    (run.traces / name).write_bytes(gzip.compress(json.dumps(found).encode()))


def named(spans: dict[str, Any], name: str) -> list[Any]:
    return [one for one in spans.values() if one.name == name]


def test_every_field_of_a_span_arrives_as_opentelemetry_has_it() -> None:
    from albor_core.store.spans.ids import SpanIds

    ids = SpanIds("k", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    event = SpanEvent("andon.alert", T0_NS + 5, {"albor.step": 4})
    values = {"text": "a\ud800b", "yes": True, "count": 2**53 + 1, "loss": 0.1, "nan": float("nan")}
    span = Span(
        "s", "00f067aa0ba902b7", "b7ad6b7169203331", T0_NS, T0_NS + 7, values, (event,), 3, "x"
    )
    about = {"id": "r1", "name": "n", "experiment": "e", "kind": "train", "host": "h"}
    request = parsed(json.dumps(document([span], ids, about)))
    (resource,) = request.resource_spans
    assert attributes(resource.resource)["service.name"] == "albor"
    assert attributes(resource.resource)["albor.run"] == "r1"
    assert attributes(resource.resource)["host.name"] == "h"
    (scope,) = resource.scope_spans
    assert scope.scope.name == "albor"
    (made,) = scope.spans
    assert made.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert made.span_id.hex() == "00f067aa0ba902b7"
    assert made.parent_span_id.hex() == "b7ad6b7169203331"
    assert (made.name, made.kind, made.flags) == ("s", made.SPAN_KIND_INTERNAL, 1)
    assert (made.start_time_unix_nano, made.end_time_unix_nano) == (T0_NS, T0_NS + 7)
    found = attributes(made)
    assert found.pop("nan") != found.get("nan")
    assert found == {"text": "a\\ud800b", "yes": True, "count": 2**53 + 1, "loss": 0.1}
    assert made.events[0].name == "andon.alert"
    assert made.events[0].time_unix_nano == T0_NS + 5
    assert attributes(made.events[0]) == {"albor.step": 4}
    assert made.dropped_events_count == 3
    assert (made.status.code, made.status.message) == (made.status.STATUS_CODE_ERROR, "x")


T0_NS = int(T0) * 10**9


def test_a_run_is_a_tree_whose_parents_contain_their_children(trained: RunDir) -> None:
    spans = spans_of(trained)
    (root,) = [one for one in spans.values() if not one.parent_span_id]
    assert root.name == "run r1"
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (T0_NS, T0_NS + 17 * 10**9)
    for one in spans.values():
        assert one.start_time_unix_nano <= one.end_time_unix_nano
        if one.parent_span_id:
            above = spans[one.parent_span_id.hex()]
            assert above.start_time_unix_nano <= one.start_time_unix_nano, one.name
            assert above.end_time_unix_nano >= one.end_time_unix_nano, one.name
    above = {
        one.name: spans[one.parent_span_id.hex()].name for one in spans.values() if one is not root
    }
    assert above["attempt 1"] == above["restart"] == "run r1"
    assert above["window"].startswith("attempt")
    assert above["checkpoint.save"] == "attempt 1"
    assert above["profile"] == "attempt 2"
    assert above["gemm_19"] == "brick forward"


def test_windows_and_bricks_tell_the_journals_figures(trained: RunDir) -> None:
    spans = spans_of(trained)
    first = min(named(spans, "window"), key=lambda one: one.start_time_unix_nano)
    told = attributes(first)
    assert (told["albor.step.first"], told["albor.step"], told["albor.steps"]) == (1, 10, 10)
    assert told["albor.loss"] == 2.9
    assert told["albor.tokens"] == 10_240
    # 10 steps of 200 ms and an evaluation of 150: the 50 ms before are no part of it
    assert first.end_time_unix_nano - first.start_time_unix_nano == pytest.approx(2.15e9, abs=1e3)
    inside = [one for one in spans.values() if one.parent_span_id == first.span_id]
    assert [one.name for one in inside] == [
        *("brick eval", "brick forward", "brick backward", "brick other"),
    ]
    forward = attributes(inside[1])
    assert (forward["albor.brick.ms"], forward["albor.brick.ms_per_step"]) == (800.0, 80.0)
    assert inside[1].start_time_unix_nano == inside[0].end_time_unix_nano
    resumed = max(named(spans, "window"), key=lambda one: one.start_time_unix_nano)
    assert attributes(resumed)["albor.step.first"] == 21


def test_a_killed_attempt_is_an_error_and_its_alerts_are_events(trained: RunDir) -> None:
    spans = spans_of(trained)
    (killed,), (well,) = named(spans, "attempt 1"), named(spans, "attempt 2")
    assert killed.status.code == killed.status.STATUS_CODE_ERROR
    assert killed.status.message == "killed: SIGKILL (137) at step 20"
    assert well.status.code == well.status.STATUS_CODE_UNSET
    assert named(spans, "run r1")[0].status.code == well.status.STATUS_CODE_UNSET
    (alert,) = killed.events
    assert attributes(alert)["albor.alert.message"] == "loss is 2.8"
    (restart,) = named(spans, "restart")
    assert restart.end_time_unix_nano - restart.start_time_unix_nano == 2 * 10**9
    assert attributes(restart)["albor.restart.after"] == "killed"
    (save,) = named(spans, "checkpoint.save")
    assert attributes(save) == {
        "albor.step": 20, "albor.checkpoint": "step-00000020", "albor.checkpoint.bytes": 77,
    }  # fmt: skip


def test_kernels_of_a_trace_are_children_of_the_brick_that_launched_them(trained: RunDir) -> None:
    spans = spans_of(trained)
    (profile,) = named(spans, "profile")
    bricks = [one for one in spans.values() if one.parent_span_id == profile.span_id]
    assert [one.name for one in bricks] == ["brick forward", "brick backward"]
    kernels = [one for one in spans.values() if one.parent_span_id == bricks[0].span_id]
    assert len(kernels) == MOST_KERNELS + 1
    assert attributes(kernels[0]) == {
        "albor.kernel": "gemm_19", "albor.kernel.count": 1, "albor.kernel.us": 20.0,
    }  # fmt: skip
    assert attributes(kernels[-1])["albor.kernel"] == OTHERS
    assert sum(attributes(one)["albor.kernel.us"] for one in kernels) == sum(range(1, 21))
    (backward,) = [one for one in spans.values() if one.parent_span_id == bricks[1].span_id]
    assert attributes(backward)["albor.kernel.us"] == 40.0


@pytest.mark.parametrize(
    "damage", [b"", b"no gzip", gzip.compress(b"{", mtime=0), gzip.compress(b"[]", mtime=0)]
)
def test_a_damaged_trace_costs_its_kernels_only(trained: RunDir, damage: bytes) -> None:
    (trained.traces / "step-00000030.json.gz").write_bytes(damage)
    spans = spans_of(trained)
    assert not named(spans, "profile")
    assert len(named(spans, "window")) == 3


def test_short_intervals_are_joined_and_no_step_is_counted_twice(bench: Any) -> None:
    run = bench.run()
    journal = bench.journal(run)
    for step in range(1, 41):
        journal.metrics(step, {"loss": 1.0}, mono=0.0, wall=T0 + step / 10)
        journal.metrics(step, {"other": 2.0}, mono=0.0, wall=T0 + step / 10)
    windows = named(spans_of(run), "window")
    assert 3 <= len(windows) <= 5
    assert sum(attributes(one)["albor.steps"] for one in windows) == 40
    assert {attributes(one)["albor.metric.other"] for one in windows} == {2.0}


def test_alerts_of_an_attempt_are_bounded_and_what_is_dropped_is_counted(bench: Any) -> None:
    run = bench.run()
    journal = bench.journal(run)
    for number in range(MOST_EVENTS + 5):
        journal.event("andon.alert", id=str(number))
    (attempt,) = named(spans_of(run), "attempt 1")
    assert (len(attempt.events), attempt.dropped_events_count) == (MOST_EVENTS, 5)
    assert attempt.status.message == "ended without a word"


def test_whoever_goes_on_from_a_memory_gives_what_one_reader_gives(
    trained: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(SpanReader(trained).spans())
    monkeypatch.setattr("albor_core.store.spans.reading.BATCH", 1)
    memory, found = None, dict[str, Span]()
    for _ in range(20):
        reader = SpanReader(trained, memory)
        found |= {one.span_id: one for one in reader.batch()}
        memory = json.loads(json.dumps(reader.memory()))
    last = SpanReader(trained, memory)
    found |= {one.span_id: one for one in last.spans()}
    assert found == {one.span_id: one for one in whole}
    assert SpanReader(trained, last.memory()).finish() == []


@pytest.mark.parametrize("memory", [{"offsets": 3}, {"offsets": {}, "fold": {}}, {"x": 1}])
def test_a_memory_of_another_shape_begins_anew(trained: RunDir, memory: Any) -> None:
    assert list(SpanReader(trained, memory).spans()) == list(SpanReader(trained).spans())


def test_the_stores_have_the_ids_of_run_and_attempts_and_a_rebuild_gives_the_same(
    bench: Any, trained: RunDir
) -> None:
    bench.index(trained)
    spans = spans_of(trained)
    expected = {
        "run": named(spans, "run r1")[0].span_id.hex(),
        "attempt 1": named(spans, "attempt 1")[0].span_id.hex(),
        "attempt 2": named(spans, "attempt 2")[0].span_id.hex(),
    }
    trace_id = named(spans, "run r1")[0].trace_id.hex()
    rows = {name: (trace_id, span_id) for name, span_id in expected.items()}
    for store in (local_store(trained), global_store()):
        with Reader(store) as reader:
            assert reader.span_ids("r1") == rows
    rebuild(None, [trained])
    for store in (local_store(trained), global_store()):
        with Reader(store) as reader:
            assert reader.span_ids("r1") == rows


def test_a_run_that_traceparent_names_a_parent_of_is_its_child(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    run, other = bench.run("child"), bench.run("twin")
    monkeypatch.delenv("TRACEPARENT")
    bench.journal(run).metrics(1, {"loss": 1.0})
    bench.journal(other).metrics(1, {"loss": 1.0})
    (root,), (twin,) = named(spans_of(run), "run child"), named(spans_of(other), "run twin")
    assert root.trace_id.hex() == twin.trace_id.hex() == PARENT[3:35]
    assert root.parent_span_id.hex() == "b7ad6b7169203331"
    assert root.span_id != twin.span_id


@pytest.mark.parametrize(
    "text",
    [
        "", "00-0-0-01", PARENT.upper(), PARENT + "-x", "ff" + PARENT[2:],
        "00-" + "0" * 32 + PARENT[35:], PARENT[:36] + "0" * 16 + "-01",
    ],
)  # fmt: skip
def test_what_is_no_traceparent_is_no_parent(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_later_version_of_traceparent_is_read_as_far_as_it_is_known() -> None:
    found = parse_traceparent("01" + PARENT[2:-2] + "00-more")
    assert found is not None
    assert (found.span_id, found.is_sampled) == ("b7ad6b7169203331", False)
