"""Sends the spans of a run that lives, from a thread of its index process, holding nothing up.

The run's files are the queue: a batch is read, posted, and only then the next one; so nothing grows
while a collector is away, and nothing is lost when it comes back. How far it came is kept in
.albor/spans.json with each batch that arrived: who is killed and started again goes on there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from albor_core.run.errors import AlborError
from albor_core.run.files.spans_file import SpansSent, read_spans_sent, write_spans_sent
from albor_core.run.rundir import RunDir
from albor_core.run.values.quantity import counted
from albor_core.store.spans.collector import Collector, collector_of
from albor_core.store.spans.otlp import document, encoded
from albor_core.store.spans.post import PostError, Taken, post_spans
from albor_core.store.spans.reading import SpanReader
from albor_core.store.spans.span import Span

LOOK_S = 1.0
WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Before a next try, by how many failed in a row."""
PATIENCE_S, GIVEN_UP_S = 60.0, 300.0
"""A collector that took nothing for so long is given up, and costs a try so often from then on."""
CLOSE_S = 2.0
"""How long the end of a run waits for its last spans to arrive."""
NO_REASON = "the collector gave no reason"
_MOST_COUNTED = 20_000  # of what was not sent

Post = Callable[[Collector, bytes], Taken]


class SpanSender:
    """`begin`, and at the end of the run or of this process `close`. Nothing of it raises."""

    def __init__(
        self,
        run: RunDir,
        collector: Collector,
        *,
        post: Post = post_spans,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._collector, self._post, self._clock = run, collector, post, clock
        self._wake = threading.Condition()
        self._is_closing = self._is_over = self._has_ended = False
        self._lock = threading.Lock()  # of the file: after `close` the thread writes no more
        self._sent = replace(
            read_spans_sent(run) or SpansSent(), place=collector.place, why="", unsent=0
        )
        self._is_left = False
        self._failed_at: float | None = None
        self._failures = 0
        self._has_given_up = False
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)

    def begin(self) -> None:
        with suppress(RuntimeError):  # no thread to be had
            self._thread.start()

    def close(self, *, is_over: bool, timeout_s: float = CLOSE_S) -> None:
        """Have what is left sent, for at most so long. `is_over`: no process works on the run,
        so that it and its last attempt have ended.
        """
        with self._wake:
            self._is_closing, self._is_over = True, is_over
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        with self._lock:
            self._is_left = True
            if is_over and not self._has_ended:
                self._tell_unsent()

    # -- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._follow()
        except Exception as error:  # a fault of ours must be told, and costs the run nothing
            _log_line(f"spans are not sent any more: {type(error).__name__}")
            self._keep(why=f"{type(error).__name__} while they were made")

    def _follow(self) -> None:
        reader = SpanReader(self._run, self._sent.memory)
        while True:
            is_closing = self._is_closing  # asked before the files: they have all by then
            spans = reader.batch()
            if spans and not self._deliver(reader, spans):
                return
            if spans:
                continue
            if is_closing:
                break
            with self._wake:
                if not self._is_closing:
                    self._wake.wait(LOOK_S)
        if self._is_over:
            last = reader.finish()
            self._has_ended = not last or self._deliver(reader, last)

    def _deliver(self, reader: SpanReader, spans: list[Span]) -> bool:
        """Post until it arrived or was refused for good; False where there is no time for it."""
        body = encoded(document(spans, reader.fold.ids, reader.about))
        while True:
            try:
                taken = self._post(self._collector, body)
            except PostError as error:
                if error.is_final:
                    self._drop(reader, spans, error.why)
                    return True
                if not self._wait(error):
                    return False
                continue
            if self._has_given_up:
                _log_line(f"{self._collector.place}: takes spans again")
            self._failures, self._failed_at, self._has_given_up = 0, None, False
            self._arrived(reader, spans, taken)
            return True

    def _arrived(self, reader: SpanReader, spans: list[Span], taken: Taken) -> None:
        """A batch that the collector took, all of it or in part; what it refused is not sent again,
        as OTLP has it.
        """
        dropped = min(taken.refused, len(spans))
        if dropped:
            refused = f"{counted(dropped, 'span', 'was', 'were')} refused"
            self._tell_once(f"{refused}: {taken.said}" if taken.said else refused)
            why = taken.said or NO_REASON
            self._keep(reader, sent=len(spans) - dropped, dropped=dropped, why=why)
            return
        if taken.said:
            self._tell_once(f"warns: {taken.said}")
        self._keep(reader, sent=len(spans), warning=taken.said)

    def _drop(self, reader: SpanReader, spans: list[Span], why: str) -> None:
        """A batch that the collector will never take: the next one may be."""
        self._tell_once(f"{why}; {counted(len(spans), 'span', 'was', 'were')} dropped")
        self._keep(reader, dropped=len(spans), why=why)

    def _wait(self, error: PostError) -> bool:
        """Wait until the next attempt; False if there is none, since this process ends."""
        now = self._clock()
        self._failures += 1
        self._failed_at = now if self._failed_at is None else self._failed_at
        if not self._has_given_up and now - self._failed_at >= PATIENCE_S:
            self._has_given_up = True
            self._tell_once(f"{error.why}; spans wait in the run's files")
        self._keep(why=error.why)
        wait_s = WAITS_S[min(self._failures, len(WAITS_S)) - 1]
        until = now + max(GIVEN_UP_S if self._has_given_up else wait_s, error.retry_after_s)
        with self._wake:
            if self._is_closing:
                return False
            while not self._is_closing and (left := until - self._clock()) > 0:
                self._wake.wait(left)
        return True  # where it is closing, one last try

    def _tell_once(self, what: str) -> None:
        if what != self._sent.told:
            self._sent = replace(self._sent, told=what)
            _log_line(f"{self._collector.place}: {what}")

    def _keep(
        self,
        reader: SpanReader | None = None,
        *,
        sent: int = 0,
        dropped: int = 0,
        why: str = "",
        warning: str = "",
    ) -> None:
        with self._lock:
            if self._is_left:
                return
            self._sent = replace(
                self._sent,
                sent=self._sent.sent + sent,
                dropped=self._sent.dropped + dropped,
                why=why,
                refusal=why if dropped else self._sent.refusal,
                warning=warning or self._sent.warning,
                wall=time.time(),
                memory=self._sent.memory if reader is None else reader.memory(),
            )
            self._write()

    def _write(self) -> None:
        with suppress(OSError, ValueError):  # a full disk: more is sent again, once
            write_spans_sent(self._run, self._sent)

    def _tell_unsent(self) -> None:
        """The end of the run did not wait: how many spans its collector has not got."""
        with suppress(AlborError, OSError):
            reader = SpanReader(self._run, self._sent.memory)
            count = 0
            for _ in reader.spans():
                count += 1
                if count == _MOST_COUNTED:
                    break
            why = self._sent.why or "the collector is too slow"
            self._sent = replace(self._sent, unsent=count, why=why, wall=time.time())
            many = counted(count, "span", "was", "were")
            _log_line(
                f"{self._collector.place}: {why}; {many} not sent;"
                f" next: albor runs export {self._run.id} --format otlp -o FILE"
            )
            self._write()


def sender_of(run: RunDir) -> SpanSender | None:
    """The started sender of a run's spans; None if none is configured."""
    collector, why = collector_of(run, os.environ)
    if why:
        _log_line(f"no spans are sent: {why}")
        with suppress(OSError, ValueError):
            write_spans_sent(run, replace(read_spans_sent(run) or SpansSent(), why=why))
    if collector is None:
        return None
    try:
        if not SpanReader(run).fold.ids.is_sampled:
            _log_line("no spans are sent: TRACEPARENT says that its trace is not recorded")
            return None
        sender = SpanSender(run, collector)
    except AlborError as error:
        _log_line(f"no spans are sent: {error.message}")
        return None
    sender.begin()
    return sender


def _log_line(message: str) -> None:
    sys.stderr.write(f"index: {message}\n")
    sys.stderr.flush()
