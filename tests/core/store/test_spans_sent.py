"""Spans on their way to a collector: what arrives, what is told when it does not, what is kept."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from albor_core.run.files.spans_file import read_spans_sent
from albor_core.run.home.runs import registered_runs
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir
from albor_core.store.spans import sending
from albor_core.store.spans.collector import Collector, collector_of, keep_collector, otlp_file
from albor_core.store.spans.post import PostError, Taken, post_spans
from albor_core.store.spans.reading import SpanReader
from albor_core.store.spans.sending import SpanSender

SECRET = "s3cret-header-value"
ENDPOINT, HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"


@dataclass
class FakeCollector:
    """Answers by `answers` in turn, then 200; keeps what it took."""

    port: int = 0
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, request: tuple[str, dict[str, str], dict[str, Any]]) -> tuple[int, bytes]:
        with self.news:
            self.requests.append(request)
            self.news.notify_all()
            return self.answers.pop(0) if self.answers else (200, b"{}")

    def names(self) -> list[str]:
        return [one["name"] for one in self.spans()]

    def spans(self) -> list[dict[str, Any]]:
        return [
            span
            for _, _, body in [*self.requests]
            for part in body["resourceSpans"]
            for span in part["scopeSpans"][0]["spans"]
        ]

    def wait(self, until: Callable[[], bool], limit_s: float = 60.0) -> None:
        with self.news:
            assert self.news.wait_for(until, limit_s), self.names()


@pytest.fixture
def collector() -> Iterator[FakeCollector]:
    fake = FakeCollector()
    fake.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            fake.hold.wait(60)
            status, body = fake.answer((self.path, dict(self.headers), json.loads(raw)))
            self.send_response(status)
            if status == 307:
                self.send_header("Location", f"{fake.endpoint}/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.port = server.server_port
    every = {"poll_interval": 0.01}  # looks this often whether it is to end
    threading.Thread(target=server.serve_forever, kwargs=every, daemon=True).start()
    yield fake
    fake.hold.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "WAITS_S", (0.01,))
    monkeypatch.setattr(sending, "LOOK_S", 0.01)


@pytest.fixture
def run(bench: Any) -> RunDir:
    made = bench.run("r1")
    journal = bench.journal(made)
    for step in range(1, 6):
        journal.metrics(step, {"loss": 1.0 / step}, mono=0.0, wall=1.8e9 + 2 * step)
    return made


def sent_all(run: RunDir, collector: Collector, *, is_over: bool = True) -> SpanSender:
    sender = SpanSender(run, collector)
    sender.begin()
    sender.close(is_over=is_over, timeout_s=60)
    return sender


def expected(run: RunDir) -> list[str]:
    return sorted(one.span_id for one in SpanReader(run).spans())


def test_each_span_arrives_once_at_the_path_with_headers(
    run: RunDir, collector: FakeCollector
) -> None:
    url = f"{collector.endpoint}/v1/traces"
    sent_all(run, Collector(url, {"x-api-key": SECRET}))
    assert sorted(one["spanId"] for one in collector.spans()) == expected(run)
    path, headers, _ = collector.requests[0]
    assert path == "/v1/traces"
    assert headers["Content-Type"] == "application/json"
    assert headers["x-api-key"] == SECRET
    found = read_spans_sent(run)
    assert found is not None
    assert (found.sent, found.dropped, found.unsent) == (len(expected(run)), 0, 0)
    assert SECRET not in run.spans.read_text()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_collector_that_is_busy_is_asked_again(
    run: RunDir, collector: FakeCollector, status: int
) -> None:
    collector.answers = [(status, b"")] * 3
    sender = SpanSender(run, Collector(f"{collector.endpoint}/v1/traces"))
    sender.begin()
    collector.wait(lambda: len(collector.requests) >= 4)
    sender.close(is_over=True, timeout_s=60)
    bodies = [body for _, _, body in collector.requests[:4]]
    assert bodies == bodies[:1] * 4  # the same batch
    assert {one["spanId"] for one in collector.spans()} == {*expected(run)}


@pytest.mark.parametrize("status", [400, 401, 404, 500, 307])
def test_what_is_refused_for_good_is_counted_and_told_once(
    run: RunDir, collector: FakeCollector, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    collector.answers = [(status, SECRET.encode())] * 9
    sent_all(run, Collector(f"{collector.endpoint}/v1/traces", {"x-api-key": SECRET}))
    found = read_spans_sent(run)
    assert found is not None
    assert (found.sent, found.dropped) == (0, len(expected(run)))
    assert found.why == f"the collector answered {status}"
    said = capfd.readouterr().err
    assert f"the collector answered {status}" in said
    assert SECRET not in said
    assert {path for path, _, _ in collector.requests} == {"/v1/traces"}  # nothing is followed


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"code": 3, "message": "span name is\\nmissing"}', "span name is missing"),
        (b'{"error": {"message": "quota exceeded"}}', "quota exceeded"),
        (b"404 page not found\n", "404 page not found"),
        (b"<html><head><title>401 Unauthorized</title></head></html>", "401 Unauthorized"),
        (f"no such key: {SECRET}".encode(), "no such key: [redacted]"),
        (b"nothing at /pathkey9/v1/traces", "nothing at /[redacted]/v1/traces"),
        (b"x" * 70_000, "x" * 159 + "\u2026"),
    ],
)
def test_the_reason_of_a_collector_is_told_short_and_without_secrets(
    run: RunDir, collector: FakeCollector, body: bytes, reason: str
) -> None:
    collector.answers = [(400, body)] * 9
    url = f"{collector.endpoint}/pathkey9/v1/traces"
    sent_all(run, Collector(url, {"authorization": f"Bearer {SECRET}"}))
    found = read_spans_sent(run)
    assert found is not None
    assert found.why == f"the collector answered 400: {reason}"


@pytest.mark.parametrize("body", [b"", b"{}", b"\x0a\x03abc", b"\xff\xfe", b"<p>no", b"[1]"])
def test_an_answer_without_a_reason_is_told_by_its_status(
    collector: FakeCollector, body: bytes
) -> None:
    collector.answers = [(400, body)]
    with pytest.raises(PostError, match=r"^the collector answered 400$"):
        post_spans(Collector(collector.endpoint), b"{}")


def partly(rejected: Any, message: Any) -> bytes:
    said = {"rejectedSpans": rejected, "errorMessage": message}
    return json.dumps({"partialSuccess": said}).encode()


@pytest.mark.parametrize("rejected", ["2", 2, 2.0])
def test_spans_that_a_collector_takes_in_part_are_counted_and_told_with_its_reason(
    run: RunDir, collector: FakeCollector, rejected: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    collector.answers = [(200, partly(rejected, "span is\ntoo old"))]
    sent_all(run, Collector(f"{collector.endpoint}/v1/traces"))
    found = read_spans_sent(run)
    assert found is not None
    assert (found.sent, found.dropped) == (len(expected(run)) - 2, 2)
    assert (found.refusal, found.warning) == ("span is too old", "")
    assert "2 spans were refused: span is too old" in capfd.readouterr().err
    ids = [one["spanId"] for one in collector.spans()]
    assert len(ids) == len({*ids})  # what was refused is not sent again


def test_a_refusal_stays_told_when_later_batches_are_taken(
    bench: Any, run: RunDir, collector: FakeCollector
) -> None:
    where = Collector(f"{collector.endpoint}/v1/traces")
    collector.answers = [(200, partly(1, "no room"))]
    sent_all(run, where, is_over=False)
    bench.journals["r1"].metrics(6, {"loss": 0.1}, mono=0.0, wall=1.8e9 + 12)
    sent_all(run, where)
    found = read_spans_sent(run)
    assert found is not None
    assert (found.dropped, found.why, found.refusal) == (1, "", "no room")


def test_a_refusal_without_a_reason_says_that_there_is_none(
    run: RunDir, collector: FakeCollector
) -> None:
    collector.answers = [(200, partly("1", ""))]
    sent_all(run, Collector(f"{collector.endpoint}/v1/traces"))
    found = read_spans_sent(run)
    assert found is not None
    assert (found.dropped, found.refusal) == (1, "the collector gave no reason")


@pytest.mark.parametrize("rejected", ["0", 0, None])
def test_a_warning_of_a_collector_that_took_all_is_told_once_and_kept(
    run: RunDir, collector: FakeCollector, rejected: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    said = f"use gzip, {SECRET}"
    collector.answers = [(200, partly(rejected, said))] * 9
    sent_all(run, Collector(f"{collector.endpoint}/v1/traces", {"x-api-key": SECRET}))
    found = read_spans_sent(run)
    assert found is not None
    assert (found.sent, found.dropped, found.why) == (len(expected(run)), 0, "")
    assert (found.refusal, found.warning) == ("", "use gzip, [redacted]")
    assert capfd.readouterr().err.count("warns: use gzip, [redacted]") == 1


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        (b"", Taken()),
        (b"ok", Taken()),
        (b"\xff\xfe\x00", Taken()),
        (b"\x0a\x05\x08\x02\x12\x01x", Taken()),
        (b"[1]", Taken()),
        (b"[" * 100_000, Taken()),
        (b"x" * 3_000_000, Taken()),
        (b'{"partialSuccess": null}', Taken()),
        (b'{"partialSuccess": [1]}', Taken()),
        (b'{"partialSuccess": {}}', Taken()),
        (b'{"partialSuccess": {"rejectedSpans": 3, "errorMessage"', Taken()),
        (partly([], {}), Taken()),
        (partly("two", "x"), Taken(0, "x")),
        (partly("", 7), Taken()),
        (partly(True, None), Taken()),
        (partly(-3, "x"), Taken(0, "x")),
        (partly("-3", "x"), Taken(0, "x")),
        (partly(float("nan"), "x"), Taken(0, "x")),
        (partly(float("inf"), "x"), Taken(0, "x")),
        (partly("9" * 5000, "x"), Taken(0, "x")),
        (partly("5", "a\u001bb\ud800"), Taken(5, "a\u241bb<U+D800>")),
        (partly("5", "y" * 300_000), Taken(5, "y" * 159 + "\u2026")),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_an_answer_of_any_kind_is_read_and_never_raises(
    collector: FakeCollector, body: bytes, taken: Taken
) -> None:
    collector.answers = [(200, body)]
    assert post_spans(Collector(collector.endpoint), b"{}") == taken


PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>"


@pytest.fixture
def raw() -> Iterator[Callable[[bytes], Collector]]:
    """A collector whose answer, head and all, is these bytes, behind which the connection ends."""
    with ExitStack() as stack:

        def serve(said: bytes) -> Collector:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def answer() -> None:
                with listener.accept()[0] as connection:
                    asked = b""
                    while not asked.endswith(b"\r\n\r\n{}"):
                        asked += connection.recv(4096)
                    connection.sendall(said)

            threading.Thread(target=answer, daemon=True).start()
            return Collector(f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces")

        yield serve


def answered(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    head = "\r\n".join((f"HTTP/1.1 {status}", *headers, "", ""))
    return head.encode() + body


@pytest.mark.parametrize(
    ("body", "headers", "title"),
    [
        (PAGE, ("Content-Type: text/html; charset=utf-8",), ": Sign in"),
        (PAGE, ("Content-Type: application/json",), ": Sign in"),
        (b"\xef\xbb\xbf \n" + PAGE, (), ""),
        (b"  <p>hello", (), ""),
        (b"welcome", ("Content-Type: text/html",), ": welcome"),
        (b"", ("Content-Type: TEXT/HTML", "Content-Length: 0"), ""),
        (gzip.compress(PAGE, mtime=0), ("Content-Encoding: gzip",), ": Sign in"),
        (PAGE, ("Content-Encoding: gzip",), ": Sign in"),  # which it is not
        (PAGE, ("Content-Length: 9999",), ": Sign in"),
    ],
)
def test_a_web_page_is_no_answer_of_a_collector(
    raw: Callable[[bytes], Collector], body: bytes, headers: tuple[str, ...], title: str
) -> None:
    with pytest.raises(PostError) as refused:
        post_spans(raw(answered(body, *headers)), b"{}")
    said = f"the answer is a web page, not a collector's{title}"
    assert (refused.value.why, refused.value.is_final) == (said, True)


def test_spans_that_went_to_a_web_page_are_not_counted_as_sent(
    run: RunDir, collector: FakeCollector, capfd: pytest.CaptureFixture[str]
) -> None:
    collector.answers = [(200, PAGE)] * 9
    sent_all(run, Collector(f"{collector.endpoint}/v1/traces"))
    found = read_spans_sent(run)
    assert found is not None
    assert (found.sent, found.dropped) == (0, len(expected(run)))
    assert "the answer is a web page, not a collector's: Sign in" in capfd.readouterr().err


REFUSED_3 = gzip.compress(partly("3", "too old"), mtime=0)
ZIPPED, BINARY = "Content-Encoding: gzip", "Content-Type: application/x-protobuf"
CHUNKED = "Transfer-Encoding: chunked"
CUT_OFF = Taken(0, "its answer was cut off")


@pytest.mark.parametrize(
    ("body", "headers", "taken"),
    [
        (REFUSED_3, (ZIPPED,), Taken(3, "too old")),
        (REFUSED_3, ("content-encoding: X-GZIP",), Taken(3, "too old")),
        (partly("3", "too old"), (ZIPPED,), Taken(3, "too old")),
        pytest.param(
            gzip.compress(b" " * 50_000_000, mtime=0), (ZIPPED,), Taken(), id="50 MB of blanks"
        ),
        (REFUSED_3[:-12], (ZIPPED,), CUT_OFF),
        (REFUSED_3[:10] + b"\xff" * 40, (ZIPPED,), Taken(0, "its answer cannot be unpacked")),
        (b"", (ZIPPED, "Content-Length: 0"), Taken()),
        (b"\x0a\x05\x08\x02\x12\x01x", (BINARY,), Taken()),
        (b"\x0a\x3c\x08\x02\x12\x38" + b"x" * 56, (BINARY,), Taken()),  # begins with a "\n<"
        (b'{"partial', ("Content-Length: 90",), CUT_OFF),
        (b"", ("Content-Length: 90",), CUT_OFF),
        (b'5\r\n{"par', (CHUNKED,), CUT_OFF),
        (b'9\r\n{"par', (CHUNKED,), CUT_OFF),
        (b"2\r\n{}\r\n0\r\n\r\n", (CHUNKED,), Taken()),
        (partly("3", ""), ("Content-Length: 900",), Taken(3)),
        (partly("0", "use gzip"), ("Content-Length: 900",), Taken(0, "use gzip")),
    ],
)
def test_an_answer_that_is_packed_or_cut_off_is_read_as_far_as_it_goes(
    raw: Callable[[bytes], Collector], body: bytes, headers: tuple[str, ...], taken: Taken
) -> None:
    assert post_spans(raw(answered(body, *headers)), b"{}") == taken


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "the collector closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the collector answered something that is not HTTP"),
        (b"\0\0\x12\4\0\0", "the collector answered something that is not HTTP"),
        (
            answered(gzip.compress(b"no key", mtime=0), ZIPPED, status="401 No"),
            "the collector answered 401: no key",
        ),
        (
            answered(b"4\r\nslow", CHUNKED, status="503 No"),
            "the collector answered 503: slow",
        ),
    ],
)
def test_what_is_no_whole_answer_is_told_in_words(
    raw: Callable[[bytes], Collector], said: bytes, why: str
) -> None:
    with pytest.raises(PostError) as refused:
        post_spans(raw(said), b"{}")
    assert refused.value.why == why


def test_a_dead_collector_ends_nothing_late_and_what_is_left_is_told(
    run: RunDir, capfd: pytest.CaptureFixture[str]
) -> None:
    sent_all(run, Collector("http://127.0.0.1:9/v1/traces"))
    found = read_spans_sent(run)
    assert found is not None
    assert (found.sent, found.unsent) == (0, len(expected(run)))
    assert found.why == "no connection: Connection refused"
    assert "next: albor runs export r1 --format otlp" in capfd.readouterr().err


def test_a_slow_collector_is_left_at_the_end_of_the_run(
    run: RunDir, collector: FakeCollector
) -> None:
    collector.hold.clear()
    sender = SpanSender(run, Collector(f"{collector.endpoint}/v1/traces"))
    sender.begin()
    sender.close(is_over=True, timeout_s=0.05)  # returns while the collector still holds the answer
    assert collector.requests == []
    found = read_spans_sent(run)
    assert found is not None
    assert (found.sent, found.unsent, found.why) == (
        *(0, len(expected(run))),
        "the collector is too slow",
    )


def test_whoever_is_started_again_sends_what_is_new_only(
    bench: Any, run: RunDir, collector: FakeCollector
) -> None:
    where = Collector(f"{collector.endpoint}/v1/traces")
    sent_all(run, where, is_over=False)
    before = {one["spanId"] for one in collector.spans()}
    assert before
    bench.journals["r1"].metrics(6, {"loss": 0.1}, mono=0.0, wall=1.8e9 + 12)
    sent_all(run, where)
    ids = [one["spanId"] for one in collector.spans()]
    assert len(ids) == len({*ids})
    assert sorted(ids) == expected(run)
    count = len(collector.requests)
    sent_all(run, where)  # an ended run has nothing new
    assert len(collector.requests) == count


def test_a_collector_that_is_given_up_is_told_once_and_gets_all_when_it_is_back(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sending, "PATIENCE_S", 0.0)
    monkeypatch.setattr(sending, "GIVEN_UP_S", 0.01)
    taken: list[bytes] = []
    tries = iter(range(100))
    is_back = threading.Event()

    def post(_: Collector, body: bytes) -> Taken:
        if next(tries) < 5:
            raise PostError("no connection: Connection refused")
        taken.append(body)
        is_back.set()
        return Taken()

    sender = SpanSender(run, Collector("http://127.0.0.1:9/v1/traces"), post=post)
    sender.begin()
    assert is_back.wait(60)
    sender.close(is_over=True, timeout_s=60)
    said = capfd.readouterr().err
    assert said.count("spans wait in the run's files") == 1
    assert said.count("takes spans again") == 1
    found = read_spans_sent(run)
    assert found is not None
    assert (found.sent, found.unsent) == (len(expected(run)), 0)


def test_a_post_is_bounded_whatever_the_collector_does(collector: FakeCollector) -> None:
    collector.hold.clear()
    with pytest.raises(PostError, match=r"no answer within 0\.05 s"):
        post_spans(Collector(collector.endpoint, timeout_s=0.05), b"{}")


def test_variables_are_read_as_other_exporters_read_them(run: RunDir) -> None:
    def found(**words: str) -> tuple[Collector | None, str]:
        return collector_of(run, {f"OTEL_EXPORTER_OTLP_{k}": v for k, v in words.items()})

    base = {"ENDPOINT": "http://h:4318/x/"}
    assert found() == (None, "")
    assert found(**base) == (Collector("http://h:4318/x/v1/traces"), "")
    asked = found(ENDPOINT="http://h/x?tok=1")
    assert asked == (Collector("http://h/x/v1/traces?tok=1"), "")
    assert found(**base, TRACES_ENDPOINT="http://t/own") == (Collector("http://t/own"), "")
    told, _ = found(**base, HEADERS="a=1, b=x%20y", TRACES_HEADERS="a=2", TIMEOUT="2500")
    assert told == Collector("http://h:4318/x/v1/traces", {"a": "2", "b": "x y"}, 2.5)
    assert collector_of(run, {ENDPOINT: "http://h", "OTEL_SDK_DISABLED": "true"}) == (None, "")
    assert collector_of(run, {ENDPOINT: "http://h", "OTEL_TRACES_EXPORTER": "none"}) == (None, "")


@pytest.mark.parametrize("url", ["ftp://h", "http://u:pw@h", "http://h h", "h:4318"])
def test_an_endpoint_that_cannot_be_is_told_without_repeating_it(run: RunDir, url: str) -> None:
    found, why = collector_of(run, {ENDPOINT: url})
    assert found is None
    assert why.startswith("OTEL_EXPORTER_OTLP_")
    assert url not in why


@pytest.mark.parametrize("variable", ["HEADERS", "TRACES_HEADERS"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"a=1,{SECRET}", "entry 2 has no ="),
        (f"x-api-key: {SECRET}", "entry 1 has no ="),
        (f"={SECRET}", "entry 1 cannot be a header of such a request"),
        (f"a b={SECRET}", "entry 1 cannot be a header of such a request"),
        (f"a=1,b={SECRET}%0A", "entry 2 has no value that a header may have"),
        (f"a={SECRET},host=x", "entry 2 cannot be a header of such a request"),
    ],
)
def test_a_header_that_cannot_be_is_told_by_its_place_and_nothing_is_sent(
    run: RunDir, variable: str, text: str, why: str
) -> None:
    name = f"OTEL_EXPORTER_OTLP_{variable}"
    found, said = collector_of(run, {ENDPOINT: "http://h", name: text})
    assert found is None
    assert said.startswith(f"{name}: {why}")
    assert SECRET not in said
    assert collector_of(run, {name: text}) == (None, "")  # nobody asked for traces


def test_a_comma_at_the_end_of_headers_is_none_of_them(run: RunDir) -> None:
    found, why = collector_of(run, {ENDPOINT: "http://h", HEADERS: "a=1,b=x%2Cy, ,"})
    assert (found and found.headers, why) == ({"a": "1", "b": "x,y"}, "")


@pytest.mark.parametrize(("flags", "is_sent"), [("01", True), ("00", False)])
def test_a_run_in_a_trace_that_is_not_recorded_sends_nothing(
    bench: Any, monkeypatch: pytest.MonkeyPatch, collector: FakeCollector, flags: str, is_sent: bool
) -> None:
    monkeypatch.setenv("TRACEPARENT", f"00-{'a' * 32}-{'b' * 16}-{flags}")
    monkeypatch.setenv(ENDPOINT, collector.endpoint)
    run = bench.run("below")
    bench.journal(run).metrics(1, {"loss": 1.0})
    sender = sending.sender_of(run)
    assert (sender is not None) == is_sent
    if sender is not None:
        sender.close(is_over=True, timeout_s=60)
        assert {one["traceId"] for one in collector.spans()} == {"a" * 32}
    assert bool(collector.requests) == is_sent


def test_headers_of_a_config_go_to_its_endpoint_only(run: RunDir) -> None:
    keep_collector(run, "http://own:4318", {"x-api-key": SECRET})
    assert otlp_file("r1").stat().st_mode & 0o777 == 0o600
    own, _ = collector_of(run, {})
    assert own == Collector("http://own:4318/v1/traces", {"x-api-key": SECRET})
    assert SECRET not in repr(own)
    elsewhere, _ = collector_of(run, {ENDPOINT: "http://other"})
    assert elsewhere == Collector("http://other/v1/traces")
    keep_collector(run, "http://own:4318", {"x-api-key": "hidden"})  # of the run's own copy
    assert collector_of(run, {})[0] == own
    keep_collector(run, None, {})
    assert collector_of(run, {}) == (None, "")


PROGRAM = """
import sys
from albor_core import track
run = track.start("foreign", config={"lr": 0.1})
step = 0
for word in sys.stdin:
    if word.strip() == "end":
        break
    step += 1
    run.log({"loss": 1.0 / step}, step)
    print(step, flush=True)
run.finish()
"""


@pytest.mark.slow
def test_a_foreign_program_is_traced_across_a_kill_of_its_index_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: FakeCollector
) -> None:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    environment = {**os.environ, ENDPOINT: collector.endpoint, HEADERS: f"x-api-key={SECRET}"}
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert program.stdin is not None
    assert program.stdout is not None

    def log_until(is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 90
        while not is_enough():
            assert time.monotonic() < deadline, collector.names()
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write("go\n")
            program.stdin.flush()
            program.stdout.readline()
            time.sleep(0.05)

    try:
        log_until(lambda: "window" in collector.names())
        (run,) = registered_runs()
        log_until(lambda: run.spans.exists())
        index = lock_holder(run.index_lock)
        assert index is not None
        os.kill(index, signal.SIGKILL)
        windows = collector.names().count("window")
        log_until(lambda: collector.names().count("window") > windows)
        program.stdin.write("end\n")
        program.stdin.flush()
        assert program.wait(60) == 0
        collector.wait(lambda: "run foreign" in collector.names())
    finally:
        program.kill()
        program.wait()
    assert {one["spanId"] for one in collector.spans()} == {*expected(run)}
    first = collector.requests[0][2]
    assert collector.requests.count(collector.requests[0]) == 1, first
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
