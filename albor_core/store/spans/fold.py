"""From what a run's files say to its spans, record by record. Pure: reads no file and no clock.

    run
      attempt                   a program's life; alerts are its events
        window                  what one or more log intervals record, a second or longer
          brick NAME            where its time went
        checkpoint.save         the writing of one, beside the steps
        profile                 steps that a profiler traced
          brick NAME
            KERNEL
      restart                   between two attempts

A span is given out when nothing can change it any more: a window with the next one, an attempt when
another one is at work, the run when it is over. The journal tells how long a brick took in a window
and not when: bricks, and kernels in them, lie one after the other from the begin of what they are
in, with their true figures as attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from albor_core.andon.bricks.names import brick_name, in_order, is_of_step
from albor_core.run.headlines import HEADLINES
from albor_core.run.values.lenient import finite_of, is_number, mapping_of, real, text_of, whole_of
from albor_core.store.spans.ids import SpanIds
from albor_core.store.spans.profile import BrickTime, ProfiledSteps
from albor_core.store.spans.span import Scalar, Span, SpanEvent, known, laid_out, nanoseconds

WINDOW_S = 1.0
"""Log intervals that are shorter are joined up to this, so that no loop makes a flood of spans."""
MOST_EVENTS = 128
"""Of an attempt, and of the run: as many as OpenTelemetry's own limit."""
MOST_METRICS = 64
"""Of a window, besides the headline figures."""
_WELL = ("done", "stopped", "andon")  # classes of an attempt's end that are not errors
_NAMES = {one.key: one.name for one in HEADLINES if one.stat == "last"}
_ALERTS = ("andon.alert", "andon.clear")
_MAX_TEXT = 500

Record = Mapping[str, Any]
ReadProfile = Callable[[str], ProfiledSteps | None]


@dataclass
class _Told:
    """Events that a span has had so far, as [name, wall, attributes]."""

    events: list[tuple[str, float, dict[str, Scalar]]] = field(default_factory=list)
    dropped: int = 0

    def add(self, record: Record, wall: float) -> None:
        if len(self.events) >= MOST_EVENTS:
            self.dropped += 1
            return
        data = mapping_of(record.get("data"))
        values = {
            "albor.alert.id": text_of(data.get("id")),
            "albor.alert.rule": text_of(data.get("rule")),
            "albor.alert.severity": text_of(record.get("severity")),
            "albor.alert.metric": text_of(data.get("metric")),
            "albor.alert.value": finite_of(data.get("value")),
            "albor.alert.message": _cut(text_of(data.get("message"))),
            "albor.step": whole_of(record.get("step")),
        }
        self.events.append((str(record["name"]), wall, known(values)))

    def made(self) -> tuple[SpanEvent, ...]:
        return tuple(SpanEvent(name, nanoseconds(at), data) for name, at, data in self.events)


@dataclass
class _Attempt:
    """`first` and `last` are when anything of it was said, `step` the last one that it logged."""

    first: float
    last: float
    step: int | None = None
    code: int | None = None
    signal: str | None = None
    end: str | None = None  # a class of the guard's, else the program's own word
    reason: str | None = None
    is_failed: bool | None = None
    told: _Told = field(default_factory=_Told)

    def see(self, wall: float) -> None:
        self.first, self.last = min(self.first, wall), max(self.last, wall)


@dataclass
class _Window:
    """Log intervals that are one span: `steps` counts them, `measured_ms` is what they say that
    they took, `bricks` are ms in all.
    """

    attempt: int
    key: object
    begin: float
    first_step: int
    step: int
    steps: int
    last: float
    of_step: int = 0
    measured_ms: float | None = None
    bricks: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)

    def take(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            if not is_number(value):
                continue
            if not key.startswith("brick/"):
                self.values[key] = value if isinstance(value, int) else real(value)
            if key == "perf/step_ms" and finite_of(value) is not None:
                self._count(value * self.of_step)
            if key.startswith("brick/") and (ms := finite_of(value)) is not None and ms >= 0:
                name = brick_name(key)
                whole = ms * self.of_step if is_of_step(name) else ms
                self.bricks[name] = self.bricks.get(name, 0.0) + whole
                if not is_of_step(name):
                    self._count(ms)

    def _count(self, ms: float) -> None:
        self.measured_ms = (self.measured_ms or 0.0) + ms


class SpanFold:
    """Folds the records of one run into spans. `taken` gives the complete ones; `to_json` is the
    state besides the open window, at a time when there is none.
    """

    def __init__(self, about: Record, read_profile: ReadProfile = lambda name: None) -> None:
        """`about` is run.json; `read_profile` takes the name of a file in RUN_DIR/traces."""
        self.ids = SpanIds.of(about)
        self._about, self._read_profile = about, read_profile
        self._spans: list[Span] = []
        self._attempts: dict[int, _Attempt] = {}
        self._current = 0
        self._boundary: float | None = None
        self._step: int | None = None
        created = finite_of(about.get("created"))
        self._first = self._last = created
        self._ended: tuple[int, float] | None = None  # the newest end that a guard told of
        self._restart: dict[str, Scalar] = {}
        self._told = _Told()
        self._last_error: str | None = None
        self._last_step: int | None = None
        self._num_attempts = 0
        self._is_told = False  # the run's own span was given out, and nothing came since
        self._window: _Window | None = None

    def taken(self) -> list[Span]:
        """The spans that became complete since the last call."""
        spans, self._spans = self._spans, []
        return spans

    # -- journal.jsonl ---------------------------------------------------------------------------

    def closes(self, record: Record) -> bool:
        """Whether the open window ends before this record of the journal."""
        window = self._window
        if window is None:
            return False
        if whole_of(record.get("attempt")) not in (window.attempt, None) or record.get("t") == "r":
            return True
        is_long = window.last - window.begin >= WINDOW_S
        return record.get("t") == "m" and is_long and record.get("step") != window.step

    def take_journal(self, record: Record) -> None:
        """Add a record of the journal, after `close_window` if `closes` says so."""
        wall = finite_of(record.get("wall"))
        if wall is None:
            return
        number = whole_of(record.get("attempt")) or self._current or 1
        attempt = self._see(number, wall)
        if number != self._current:
            self._current, self._boundary, self._step = number, wall, None
        match record.get("t"):
            case "m":
                self._take_metrics(record, attempt, wall)
            case "e":
                self._take_event(record, attempt, wall)
            case "r":
                self._step = whole_of(record.get("to"))

    def _see(self, number: int, wall: float) -> _Attempt:
        self._see_run(wall)
        attempt = self._attempts.setdefault(number, _Attempt(wall, wall))
        attempt.see(wall)
        return attempt

    def _see_run(self, wall: float) -> None:
        self._is_told = False
        self._first = wall if self._first is None else min(self._first, wall)
        self._last = wall if self._last is None else max(self._last, wall)

    def _take_metrics(self, record: Record, attempt: _Attempt, wall: float) -> None:
        step, values = whole_of(record.get("step")), mapping_of(record.get("v"))
        if step is None or not values:
            return
        window, before = self._window, self._step
        if window is None:
            begin = wall if self._boundary is None else min(self._boundary, wall)
            window = _Window(self._current, record.get("seq", step), begin, step, step, 0, wall)
            self._window = window
        if step != before:
            if not window.steps and before is not None and step > before:
                window.first_step = before + 1
            window.of_step = step - before if before is not None and step > before else 1
            window.steps += window.of_step
        window.step = self._step = attempt.step = self._last_step = step
        window.last = max(window.last, wall)
        window.take(values)

    def _take_event(self, record: Record, attempt: _Attempt, wall: float) -> None:
        data, name = mapping_of(record.get("data")), record.get("name")
        if name == "run.start" and self._window is None:
            self._boundary, self._step = wall, whole_of(record.get("step"))
        elif name == "run.end" and attempt.end is None:
            status = text_of(data.get("status"))
            attempt.code = whole_of(data.get("code"))
            attempt.end, attempt.is_failed = status, status == "failed"
            attempt.reason = _cut(text_of(data.get("message")) or text_of(data.get("reason")))
        elif name == "checkpoint.saved":
            self._save(record, data, attempt, wall)
        elif name == "brick.traced":
            self._profile(data, attempt, wall)
        elif name in _ALERTS:
            attempt.told.add(record, wall)

    def _save(self, record: Record, data: Record, attempt: _Attempt, wall: float) -> None:
        seconds = finite_of(data.get("seconds"))
        if seconds is None or seconds < 0:
            return
        values = {
            "albor.step": whole_of(record.get("step")),
            "albor.checkpoint": _file_name(data.get("path")),
            "albor.checkpoint.bytes": whole_of(data.get("bytes")),
        }
        self._give(
            "checkpoint.save",
            self.ids.span("save", self._current, record.get("seq")),
            self.ids.attempt(self._current),
            (max(attempt.first, wall - seconds), wall),
            known(values),
        )

    # -- windows and bricks ------------------------------------------------------------------------

    def close_window(self) -> None:
        """Give out the open window, if there is one, and its bricks."""
        window, self._window = self._window, None
        if window is None:
            return
        begin = window.begin
        if window.measured_ms is not None:  # a pause before it does not belong to it
            begin = max(begin, window.last - window.measured_ms / 1000)
        self._boundary = window.last
        span_id = self.ids.span("window", window.attempt, window.key)
        place = nanoseconds(begin), nanoseconds(window.last)
        values: dict[str, Scalar | None] = {
            "albor.attempt": window.attempt,
            "albor.step": window.step,
            "albor.step.first": window.first_step,
            "albor.steps": window.steps,
            **_figures(window.values),
        }
        above = self.ids.attempt(window.attempt)
        self._spans.append(Span("window", span_id, above, *place, known(values)))
        ordered = {name: window.bricks[name] * 1e6 for name in _in_time(window.bricks)}
        for name, (start, end) in laid_out(*place, ordered).items():
            ms = window.bricks[name]
            told: dict[str, Scalar] = {"albor.brick": name, "albor.brick.ms": ms}
            if is_of_step(name) and window.steps:
                told["albor.brick.ms_per_step"] = ms / window.steps
            brick_id = self.ids.span("brick", window.attempt, window.key, name)
            self._spans.append(Span(f"brick {name}", brick_id, span_id, start, end, told))

    def _profile(self, data: Record, attempt: _Attempt, wall: float) -> None:
        file = _file_name(data.get("path"))
        found = None if file is None else self._read_profile(file)
        if file is None or found is None:
            return
        start = min(max(attempt.first, found.start), wall)
        place = nanoseconds(start), nanoseconds(min(wall, max(start, found.end)))
        span_id = self.ids.span("profile", self._current, file)
        steps = whole_of(data.get("steps"))
        values = known({"albor.profile": f"traces/{file}", "albor.steps": steps})
        above = self.ids.attempt(self._current)
        self._spans.append(Span("profile", span_id, above, *place, values))
        lengths = {name: brick.us * 1e3 for name, brick in found.bricks.items()}
        for name, inside in laid_out(*place, lengths).items():
            self._profiled(file, name, found.bricks[name], span_id, inside)

    def _profiled(
        self, file: str, name: str, brick: BrickTime, above: str, place: tuple[int, int]
    ) -> None:
        of = ("profile", self._current, file, name)
        span_id = self.ids.span(*of)
        told: dict[str, Scalar] = {
            "albor.brick": name,
            "albor.brick.ms": brick.us / 1e3,
            "albor.brick.count": brick.count,
        }
        self._spans.append(Span(f"brick {name}", span_id, above, *place, told))
        lengths = {kernel: one.us * 1e3 for kernel, one in brick.kernels.items()}
        for kernel, inside in laid_out(*place, lengths).items():
            one = brick.kernels[kernel]
            figures: dict[str, Scalar] = {
                "albor.kernel": kernel[:_MAX_TEXT],
                "albor.kernel.count": one.count,
                "albor.kernel.us": one.us,
            }
            kernel_id = self.ids.span(*of, kernel)
            self._spans.append(Span(kernel[:200], kernel_id, span_id, *inside, figures))

    # -- guard/attempts.jsonl and system.jsonl -----------------------------------------------------

    def take_attempts(self, record: Record) -> None:
        """Add a record of the guard."""
        number, wall = whole_of(record.get("attempt")), finite_of(record.get("wall"))
        kind = record.get("t")
        if number is None or wall is None or kind not in ("attempt.start", "attempt.end"):
            return
        attempt = self._see(number, wall)
        if kind == "attempt.start":
            if self._ended is not None:
                above, place = self.ids.run, (self._ended[1], wall)
                told = {**self._restart, "albor.attempt": number}
                self._give("restart", self.ids.span("restart", number), above, place, told)
            self._ended = None
            return
        attempt.code = whole_of(record.get("code"))
        attempt.signal, attempt.end = text_of(record.get("signal")), text_of(record.get("class"))
        attempt.reason, attempt.is_failed = _cut(text_of(record.get("reason"))), None
        attempt.is_failed = attempt.end not in _WELL
        self._ended = number, wall
        self._restart = known(
            {
                "albor.restart.after": attempt.end,
                "albor.restart.reason": attempt.reason,
                "albor.restart.delay_s": finite_of(record.get("delay_s")),
            }
        )

    def take_system(self, record: Record) -> None:
        """Add a record of the watcher: its alerts become events of the run."""
        wall = finite_of(record.get("wall"))
        if record.get("t") == "e" and record.get("name") in _ALERTS and wall is not None:
            self._see_run(wall)
            self._told.add(record, wall)

    # -- ends --------------------------------------------------------------------------------------

    def settle(self) -> None:
        """All files were read up to a record of the newest attempt: earlier ones are over."""
        for number in sorted(self._attempts):
            if number < self._current:
                self._end_attempt(number, is_alive=False)

    def finish(self, *, is_alive: bool = False) -> None:
        """All files were read to their end: give out all that is left, the run last. Where it
        `is_alive`, its spans end with what was last said.
        """
        self.close_window()
        if self._is_told:
            return
        for number in sorted(self._attempts):
            self._end_attempt(number, is_alive=is_alive)
        if self._first is None or self._last is None:
            return
        values = {
            "albor.run": text_of(self._about.get("id")),
            "albor.run.name": text_of(self._about.get("name")),
            "albor.experiment": text_of(self._about.get("experiment")),
            "albor.attempts": self._num_attempts,
            "albor.step": self._last_step,
            "albor.seed": whole_of(self._about.get("seed")),
            "albor.is_running": True if is_alive else None,
        }
        self._spans.append(
            Span(
                f"run {self._about.get('name') or self._about.get('id')}",
                self.ids.run,
                self.ids.parent_id,
                nanoseconds(self._first),
                nanoseconds(self._last),
                known(values),
                self._told.made(),
                self._told.dropped,
                self._last_error,
            )
        )
        self._is_told = not is_alive

    def _end_attempt(self, number: int, *, is_alive: bool) -> None:
        attempt = self._attempts.pop(number)
        self._num_attempts = max(self._num_attempts, number)
        is_silent = attempt.is_failed is None and not is_alive
        reason = "ended without a word" if is_silent else attempt.reason or attempt.end or ""
        self._last_error = reason if is_silent or attempt.is_failed else None
        values = {
            "albor.attempt": number,
            "albor.step": attempt.step,
            "albor.exit.class": attempt.end,
            "albor.exit.code": attempt.code,
            "albor.exit.signal": attempt.signal,
            "albor.exit.reason": attempt.reason,
        }
        self._spans.append(
            Span(
                f"attempt {number}",
                self.ids.attempt(number),
                self.ids.run,
                nanoseconds(attempt.first),
                nanoseconds(attempt.last),
                known(values),
                attempt.told.made(),
                attempt.told.dropped,
                self._last_error,
            )
        )

    def _give(
        self,
        name: str,
        span_id: str,
        above: str,
        place: tuple[float, float],
        told: Mapping[str, Scalar],
    ) -> None:
        start, end = nanoseconds(min(place)), nanoseconds(place[1])
        self._spans.append(Span(name, span_id, above, start, max(start, end), told))

    # -- memory ------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """What `load` takes, as strict JSON."""
        return {
            **{name: getattr(self, f"_{name}") for name in _REMEMBERED},
            "attempts": {str(number): asdict(one) for number, one in self._attempts.items()},
            "told": asdict(self._told),
        }

    def load(self, memory: Mapping[str, Any]) -> None:
        """Go on from there. Raises LookupError, TypeError, ValueError for what `to_json` never
        gave.
        """
        for name in _REMEMBERED:
            setattr(self, f"_{name}", memory[name])
        if self._ended is not None:
            number, wall = self._ended
            self._ended = int(number), float(wall)
        self._told = _told_of(memory["told"])
        self._attempts = {
            int(number): _Attempt(**{**found, "told": _told_of(found["told"])})
            for number, found in memory["attempts"].items()
        }


_REMEMBERED = (
    *("current", "boundary", "step", "first", "last", "ended", "restart"),
    *("last_error", "last_step", "num_attempts", "is_told"),
)


def _told_of(found: Mapping[str, Any]) -> _Told:
    events = [(str(name), float(at), dict(data)) for name, at, data in found["events"]]
    return _Told(events, int(found["dropped"]))


def _in_time(bricks: Mapping[str, float]) -> list[str]:
    """As they come in an interval: what lies between steps was before the first of them."""
    return sorted(in_order(bricks), key=is_of_step)


def _figures(values: Mapping[str, float]) -> dict[str, Scalar | None]:
    """The headline figures by their names, others by their keys."""
    named: dict[str, Scalar | None] = {
        f"albor.{_NAMES[key]}": value for key, value in values.items() if key in _NAMES
    }
    others = [(key, value) for key, value in values.items() if key not in _NAMES]
    return {**named, **{f"albor.metric.{key}": value for key, value in others[:MOST_METRICS]}}


def _file_name(path: object) -> str | None:
    name = (text_of(path) or "").rpartition("/")[2]
    return name if name and name not in (".", "..") else None


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_MAX_TEXT]
