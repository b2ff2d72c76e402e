"""Sends alerts to the sinks of a run, from the index process, without ever blocking it.

Each sink has a thread of its own, begun with its first alert, and a bounded queue. A failing sink
is retried, ever less often; after DEAD_TRIES failures in a row it is shown as dead, and retried
every few minutes. Alerts that come faster than a person reads become a summary.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from albor_core.andon.channels.command import alert_environment, run_command
from albor_core.andon.channels.delivery_error import DeliveryError
from albor_core.andon.channels.message import About, Notice, NoticeWriter, request_of
from albor_core.andon.channels.readiness import sink_problem
from albor_core.andon.channels.sinks import SENT_KINDS, Sink
from albor_core.andon.channels.webhook import post_json
from albor_core.run.errors import ConfigError
from albor_core.run.files.watch_file import SinkState
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import finite_of, text_of
from albor_core.run.values.quantity import counted
from albor_core.run.values.redact import own_environment

MOST_WAITING = 100
"""Alerts that a sink may have waiting; the oldest are dropped and counted."""
DEAD_TRIES = 3
WAITS_S = (1.0, 4.0, 15.0, 60.0, 300.0)
"""Before a next try, by how many failed in a row; the last one repeats."""
BURST, REFILL_S = 5, 12.0
"""Notices that go out at once, and how long another one takes from then on."""
STALE_S = 3600.0
_REMEMBERED = 2000  # alerts that are known to have been put
_CLOSE_S = 8.0  # how long the end of a run waits for its last alerts to arrive

Deliver = Callable[[Notice], None]
Alert = Mapping[str, Any]


class Channel:
    """The queue of one sink. `tend` sends what is due and returns when it wants to be called again;
    any thread may `put`, one thread tends.
    """

    def __init__(
        self,
        sink: Sink,
        writer: NoticeWriter,
        deliver: Deliver,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        problem: str = "",
    ) -> None:
        self.sink, self._writer, self._deliver = sink, writer, deliver
        self._clock, self._wall = clock, wall
        self._lock = threading.Condition()
        self._waiting: deque[Alert] = deque()
        self._lost = self._failures = 0
        self._why, self._since = problem, wall() if problem else None
        self._is_dead = bool(problem)
        self._try_at = self._refilled_at = clock()
        self._tokens = float(BURST)
        self._closing = False
        self._thread: threading.Thread | None = None

    def use(self, writer: NoticeWriter) -> None:
        """Write notices with this writer from now on: it knows more secrets."""
        with self._lock:
            self._writer = writer

    @property
    def is_at_work(self) -> bool:
        """Whether its thread is running."""
        return self._thread is not None and self._thread.is_alive()

    def put(self, alert: Alert) -> None:
        """Queue an alert to be sent soon. Never blocks."""
        with self._lock:
            self._waiting.append(alert)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self._lost += 1
            self._lock.notify()

    def state(self) -> SinkState:
        """The current state of the sink."""
        with self._lock:
            why = self._why if self._is_dead else ""
            if self._lost:
                why += f"{'; ' if why else ''}{counted(self._lost, 'alert', 'was', 'were')} dropped"
            since = self._since if self._is_dead else None
            return SinkState(self.sink.name, not self._is_dead, why, since)

    def tend(self) -> float | None:
        """Send what is due; return the seconds until more may be due, None while nothing waits."""
        with self._lock:
            now = self._clock()
            if not self._waiting:
                return None
            if now < self._try_at and not self._closing:
                return self._try_at - now
            self._tokens = min(BURST, self._tokens + (now - self._refilled_at) / REFILL_S)
            self._refilled_at = now
            if self._tokens < 1 and not self._closing:
                return (1 - self._tokens) * REFILL_S
            is_flood = len(self._waiting) > BURST or self._tokens < 2 or self._closing
            taken = list(self._waiting) if is_flood else [self._waiting[0]]
            lost, is_last = self._lost, self._closing
        notice = self._notice(taken, lost)
        try:
            self._deliver(notice)
        except DeliveryError as error:
            self._failed(error, taken, is_last=is_last)
        except Exception as error:  # a fault of ours must not end the thread
            fault = DeliveryError(f"{type(error).__name__}", is_final=True)
            self._failed(fault, taken, is_last=is_last)
        else:
            self._arrived(taken, lost)
        return 0.0

    def _notice(self, alerts: Sequence[Alert], lost: int) -> Notice:
        if len(alerts) == 1 and not lost:
            return self._writer.notice(alerts[0])
        return self._writer.summary(alerts, lost)

    def _arrived(self, taken: Sequence[Alert], lost: int) -> None:
        with self._lock:
            self._drop(taken)
            self._tokens -= 1
            self._lost -= lost
            self._failures, self._is_dead, self._why, self._since = 0, False, "", None

    def _failed(self, error: DeliveryError, taken: Sequence[Alert], *, is_last: bool) -> None:
        """Count a failure. `is_last`: the attempt began when the sink was already to close, so that
        waiting alerts get no other."""
        with self._lock:
            if error.is_final:  # the next one may be taken, this one never is
                self._lost += self._drop(taken)
            if not self._failures and self._since is None:
                self._since = self._wall()
            self._failures += 1
            self._why = error.why
            self._is_dead = self._is_dead or error.is_final or self._failures >= DEAD_TRIES
            wait_s = WAITS_S[min(self._failures, len(WAITS_S)) - 1]
            self._try_at = self._clock() + max(wait_s, error.retry_after_s)
            if is_last:  # no other try follows
                self._lost += self._drop(list(self._waiting))

    def _drop(self, taken: Sequence[Alert]) -> int:
        """Remove sent alerts from the queue, whose oldest may have been dropped meanwhile."""
        gone = {id(alert) for alert in taken}
        before = len(self._waiting)
        self._waiting = deque(alert for alert in self._waiting if id(alert) not in gone)
        return before - len(self._waiting)

    def begin(self) -> None:
        """Start the thread that tends the queue."""
        if self._thread is None:
            name = f"sink-{self.sink.name}"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Try waiting alerts once more, and accept no further ones."""
        with self._lock:
            self._closing = True
            if self._is_dead and self._failures:  # it had its tries
                self._lost += self._drop(list(self._waiting))
            self._lock.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the last attempt."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        while True:
            wait_s = self.tend()
            with self._lock:
                if self._closing and not self._waiting:
                    return
                if wait_s is None and not self._waiting:
                    self._lock.wait()
                elif wait_s and not self._closing:
                    self._lock.wait(wait_s)


class Sender:
    """Gets every alert of a run and sends each once to the sinks that want it. Nothing raises,
    and only `close` waits.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        run: RunDir,
        *,
        environment: Mapping[str, str] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._run, self._wall = run, wall
        self._environment = own_environment() if environment is None else environment
        self._elsewhere: list[Sink] = []
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._channels: list[Channel] = []
        self._leaving: list[Channel] = []
        self._secrets: tuple[str, ...] = ()
        self.take(sinks)

    def take(self, sinks: Sequence[Sink]) -> None:
        """Send to these sinks from now on. A sink that was there before continues; one that was
        removed from the list gets its waiting alerts, once."""
        environment = self._environment
        now = known_secrets(sinks, environment)
        self._secrets = tuple(dict.fromkeys((*self._secrets, *now)))
        writer = NoticeWriter(About.of(self._run), environment, self._secrets)
        self._elsewhere = [sink for sink in sinks if sink.kind not in SENT_KINDS]
        served, self._channels = {channel.sink: channel for channel in self._channels}, []
        for sink in (one for one in sinks if one.kind in SENT_KINDS):
            channel = served.pop(sink, None)
            if channel is None:
                deliver = deliverer(sink, environment, self._run)
                problem = sink_problem(sink, environment)
                channel = Channel(sink, writer, deliver, problem=problem)
            channel.use(writer)
            self._channels.append(channel)
        for channel in served.values():
            channel.close()
        self._leaving = [one for one in (*self._leaving, *served.values()) if one.is_at_work]

    def put(self, alert: Alert) -> None:
        """Send an alert, as `Alert.to_json` gives it with `state` and `wall`, once. Alerts older
        than STALE_S, which occur when a journal is read again, are not sent.
        """
        said_at = finite_of(alert.get("wall"))
        if said_at is not None and said_at < self._wall() - STALE_S:
            return
        key = (str(alert.get("id")), str(alert.get("state") or "fired"))
        if key in self._known:
            return
        self._known[key] = None
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        severity = text_of(alert.get("severity")) or ""
        for channel in self._channels:
            if channel.sink.wants(severity):
                channel.put(alert)
                with suppress(RuntimeError):  # no thread to be had: the next alert asks again
                    channel.begin()

    def states(self) -> tuple[SinkState, ...]:
        """The state of every sink, dead or not, including those that a terminal serves."""
        here = [channel.state() for channel in self._channels]
        return (*here, *(SinkState(sink.name) for sink in self._elsewhere))

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Send the last alerts, within this time in all."""
        deadline = time.monotonic() + timeout_s
        for channel in self._channels:
            channel.close()
        for channel in (*self._channels, *self._leaving):
            channel.join(max(0.0, deadline - time.monotonic()))


def known_secrets(sinks: Sequence[Sink], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The URLs of sinks, to be removed from all messages."""
    urls = [sink.url if sink.url_env is None else environment.get(sink.url_env) for sink in sinks]
    return tuple(url for url in urls if url and "://" in url)


def deliverer(sink: Sink, environment: Mapping[str, str], run: RunDir | None) -> Deliver:
    """The function that delivers a notice to a sink of SENT_KINDS; it raises DeliveryError."""

    def post(notice: Notice) -> None:
        try:
            url = sink.address(environment)
        except ConfigError as error:
            why = error.message.removeprefix(f"{sink.name}: ")
            raise DeliveryError(why, is_final=True) from None
        place, body = request_of(notice, sink.format, url)
        post_json(place, body, allow_http=sink.allow_http, allow_private=sink.allow_private)

    def run_it(notice: Notice) -> None:
        said = notice.fields.get("alert")
        words = alert_environment(
            {"text": notice.line, "severity": notice.severity, **(said or {})}
        )
        place = {} if run is None else {"ALBOR_RUN_ID": run.id, "ALBOR_RUN_DIR": str(run.path)}
        stdin = json.dumps(notice.fields, allow_nan=False).encode()
        ended = run_command(sink.argv, stdin, {**environment, **place, **words})
        if ended.problem or ended.code:
            why = ended.problem or f"{sink.argv[0]!r} exited with {ended.code}"
            raise DeliveryError(why, is_final=True)  # what it did may not be done twice

    return post if sink.kind == "webhook" else run_it


def send_test(sink: Sink, run: RunDir | None) -> float:
    """Send a test notice once, now; return the seconds it took. Raises DeliveryError."""
    environment = own_environment()
    about = About("test", host=os.uname().nodename) if run is None else About.of(run)
    writer = NoticeWriter(about, environment, known_secrets([sink], environment))
    began = time.monotonic()
    deliverer(sink, environment, run)(writer.test(time.time()))
    return time.monotonic() - began
