"""How the cockpit feels over a terminal, and what it costs: Albor beside W&B's, on one pty harness.

    python benchmarks/cockpit/cockpit.py [--starts 11] [--watch 40] [--history HOME] [--peers DIR]

First chart: from exec to three braille cells side by side, in turns. Keys: from the key to the
end of the first frame after it, on screens where nothing else moves. Watching: one run that logs
10 steps/s x 8 metrics under a guard, 160x45; bytes, CPU and memory of the cockpit after a warm-up,
and from the same recording how long the step and the loss on the screen were behind the state file
and how long no chart cell changed. Nothing changing: an ended run. Slow: the terminal reads 600
bytes a second, then none at all. Dead: kill -9 of guard and trainer until the screen says so. Each
figure stands beside its bar; the load is printed, since timings on a busy machine say nothing.

`--history HOME` is a home made by make_history.py; `--peers DIR` has DIR/wandb/bin/wandb.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui")]

from pty_session import (  # noqa: E402
    Chunk,
    PtySession,
    guarded_run,
    is_paused,
    kill_both,
    replay,
)

from albor_core.run.rundir import RunDir, read_json  # noqa: E402

sys.path.append(str(ROOT / "benchmarks"))
from arguments import above_zero, positive, there  # noqa: E402

BIN = Path(sys.executable).parent
ROWS, COLUMNS = 45, 160
CHART = rb"(?:\xe2[\xa0-\xa3][\x80-\xbf]){3}"
FRAME_END = rb"\x1b\[\?2026l"
WARM_S = 8.0  # charts fill, modules load
KEY_GAP_S = 0.25
Opener = Callable[[], PtySession]
_STEP = re.compile(r"step ([\d,]+) /")
_LOSS = re.compile(r"^\s*(\d+\.\d+)\s", re.MULTILINE)
WANDB_RUN = """
import math, os, random, signal, sys, time, wandb
signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # wandb finishes the run at exit
run = wandb.init(mode="offline", project="bench", name="bench")
print(run.dir, flush=True)
end, step = time.time() + float(os.environ["SECONDS"]), 0
while time.time() < end:
    run.log({f"m{i}": random.random() + 9 / (1 + step / 100) for i in range(8)})
    step += 1
    time.sleep(0.1)
run.finish()
"""


@dataclass
class Figure:
    """One line of the table; `peer` is None where there is none."""

    name: str
    value: float | None
    unit: str
    bar: float | None = None
    peer: float | None = None

    def line(self) -> str:
        shown = "-" if self.value is None else f"{self.value:,.2f}".rstrip("0").rstrip(".")
        bar = "" if self.bar is None else f"<= {self.bar:g}"
        word = ""
        if self.bar is not None and self.value is not None:
            word = "met" if self.value <= self.bar else "MISSED"
        beside = ""
        if self.peer is not None:
            ratio = f" ({self.value / self.peer:.2f}x)" if self.value and self.peer else ""
            beside = f"{self.peer:,.2f}{ratio}"
        return f"{self.name:52}{shown:>10} {self.unit:7}{bar:>9} {word:8}{beside}"


def albor(home: Path, *arguments: str) -> PtySession:
    return PtySession(
        [str(BIN / "albor-tui"), *arguments],
        rows=ROWS,
        columns=COLUMNS,
        env={"ALBOR_HOME": str(home)},
    )


def leet(wandb: Path, folder: Path) -> PtySession:
    return PtySession([str(wandb), "leet", "run", str(folder)], rows=ROWS, columns=COLUMNS)


def p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(0.99 * (len(values) - 1)))]


# -- starting ---------------------------------------------------------------------------------


def first_chart(open_: Opener) -> tuple[float, float]:
    """Milliseconds from exec to a chart, and those of CPU in them."""
    with open_() as session:
        took = session.until_bytes(CHART, 60) - session.began
        return 1e3 * took, 1e3 * session.cost().cpu_s


def starts(count: int, contestants: dict[str, Opener]) -> dict[str, list[tuple[float, float]]]:
    """Starts in turns; the first round warms the page cache and is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for number in range(count + 1):
        for name, open_ in contestants.items():
            took = first_chart(open_)
            if number:
                times[name].append(took)
    return times


# -- keys -------------------------------------------------------------------------------------


def key_times(session: PtySession, keys: Sequence[str]) -> list[float]:
    """Milliseconds from each key to the end of the first frame after it."""
    times = []
    for key in keys:
        session.pump(KEY_GAP_S)
        start = len(session.recording)
        pressed = session.press(key)
        times.append(1e3 * (session.until_bytes(FRAME_END, 10, start) - pressed))
    return times


# -- watching ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watch:
    """What watching cost, and how far behind it was (seconds, worst)."""

    bytes_s: float
    cpu_percent: float
    rss_mb: float
    step_behind: float | None = None
    loss_behind: float | None = None
    chart_still: float | None = None


@dataclass(frozen=True)
class Peer:
    """W&B's on a live run and on one that has ended, and its milliseconds from key to frame."""

    live: Watch
    idle: Watch
    keys: list[float]


Moment = tuple[float, int, float]  # when a state was published, its step and loss


def watched(session: PtySession, seconds: float, run: RunDir | None = None) -> Watch:
    """Watch for `seconds` after a warm-up; with a run, compare with its state file."""
    session.pump(WARM_S)
    states: list[Moment] = []
    before, began, size = session.cost(), time.monotonic(), len(session.raw)
    while time.monotonic() - began < seconds:
        session.pump(0.02)
        state = read_json(run.state) if run is not None else None
        if state and (not states or states[-1][1] != state["global_step"]):
            states.append((state["mono_ns"] / 1e9, state["global_step"], state["loss"]))
    took, after = time.monotonic() - began, session.cost()
    shared = (
        (len(session.raw) - size) / took,
        100 * (after.cpu_s - before.cpu_s) / took,
        after.rss_bytes / 2**20,
    )
    if run is None:
        return Watch(*shared)
    end = session.recording[-1].at if session.recording else began
    frames = list(replay(whole_frames(session.recording), ROWS, COLUMNS))
    seen = [(at, text) for at, text in frames if began <= at <= end]
    return Watch(
        *shared,
        behind(seen, states, shown_step, 1),
        behind(seen, states, shown_loss, 2),
        stillness(seen, began, end),
    )


def whole_frames(recording: Sequence[Chunk]) -> list[Chunk]:
    """Chunks joined up to each end of a frame: between two there is no picture."""
    joined, waiting = [], b""
    for chunk in recording:
        waiting += chunk.data
        cut = waiting.rfind(b"\x1b[?2026l")
        if cut >= 0:
            joined.append(Chunk(chunk.at, waiting[: cut + 8]))
            waiting = waiting[cut + 8 :]
    return joined


def shown_step(text: str) -> float | None:
    found = _STEP.search(text)
    return float(found[1].replace(",", "")) if found else None


def shown_loss(text: str) -> float | None:
    lines = text.splitlines()
    for label, values in itertools.pairwise(lines):
        if label.strip().startswith("loss ") and "ema" in label:
            found = _LOSS.match(values)
            return float(found[1]) if found else None
    return None


def behind(
    frames: list[tuple[float, str]],
    states: list[Moment],
    read: Callable[[str], float | None],
    field: int,
) -> float:
    """The longest time that a newer value was published and not yet on the screen."""
    worst, at_state = 0.0, 0
    for (at, text), (until, _) in itertools.pairwise(frames):
        value = read(text)
        if value is None:
            continue
        for i in range(at_state, len(states)):
            if field == 1:
                same = states[i][1] == value
            else:
                same = abs(states[i][2] - value) <= 0.0006 * max(1.0, abs(value))
            if same and states[i][0] <= at:
                at_state = i
                if field == 1:
                    break
        if at_state + 1 < len(states):
            worst = max(worst, until - states[at_state + 1][0])
    return worst


def stillness(frames: list[tuple[float, str]], began: float, end: float) -> float:
    """The longest time without a changed chart cell."""
    last, worst, old = began, 0.0, ""
    for at, text in frames:
        cells = re.sub(r"[^\u2800-\u28ff\n]", " ", text)
        if cells != old:
            worst, last, old = max(worst, at - last), at, cells
    return max(worst, end - last)


def dead_after(session: PtySession, run: RunDir) -> float:
    """Seconds from the kill until the screen does not say running any more."""
    session.until("running", 20)
    session.pump(3)
    killed = time.monotonic()
    kill_both(run)
    return session.until(lambda s: " running " not in s.text(), 30) - killed


# -- slow links -------------------------------------------------------------------------------


def slow_link(session: PtySession, run: RunDir, rate: float, seconds: float) -> list[float]:
    """How many seconds the step on the screen was behind, sampled while the terminal reads slowly
    and what was under way before has come."""
    session.pump(WARM_S)
    session.read_rate = rate
    session.pump(2)
    session.until(lambda s: s.waiting < 1000, 60)
    found, began = [], time.monotonic()
    while time.monotonic() - began < seconds:
        session.pump(0.2)
        found.append(late(session, run))
    return found


def late(session: PtySession, run: RunDir) -> float:
    """Seconds between the step in the state file and the one on the screen, at ten a second."""
    state = read_json(run.state) or {}
    return (state.get("global_step", 0) - (shown_step(session.text()) or 0.0)) / 10


def deaf_terminal(session: PtySession, run: RunDir) -> tuple[float, float, float]:
    """A terminal that stops reading: MB that it cost, seconds from the key p to a trainer that is
    held, and bytes that waited for it."""
    session.pump(WARM_S)
    before, start = session.cost().rss_bytes, len(session.raw)
    session.read_rate = 0
    for _ in range(10):  # each a whole new screen
        session.press("t2t1")
        session.pump(1)
    pressed = session.press("p")
    while not is_paused(run) and time.monotonic() - pressed < 30:
        time.sleep(0.01)
    held = time.monotonic() - pressed
    grown = session.cost().rss_bytes - before
    session.read_rate = None
    session.pump(0.5)
    return grown / 2**20, held, float(len(session.raw) - start)


def slow(home: Path, run: RunDir) -> list[Figure]:
    with albor(home, str(run.path)) as session:
        behind = slow_link(session, run, 600, 20)
        start = len(session.raw) - 6000
        share = 3 * len(re.findall(rb"\xe2[\xa0-\xa3][\x80-\xbf]", session.raw[start:])) / 6000
    with albor(home, str(run.path)) as session:
        grown, held, waited = deaf_terminal(session, run)
        session.until(" paused ", 20)  # before that the key would pause once more
        session.press("p")
        session.until("running", 20)
    return [
        Figure("600 B/s: step behind the state file, median", statistics.median(behind), "s"),
        Figure("600 B/s: step behind the state file, worst", max(behind), "s", 5),
        Figure("600 B/s: cells of charts, part of the bytes", 100 * share, "%", 20),
        Figure("stopped reader: memory grows by", grown, "MB", 15),
        Figure("stopped reader: key p until the trainer is held", held, "s", 5),
        Figure("stopped reader: bytes of 20 new screens that came", waited / 1e3, "KB", 120),
    ]


# -- all of it --------------------------------------------------------------------------------


@contextmanager
def wandb_run(python: Path, folder: Path, seconds: float) -> Iterator[Path]:
    """A W&B run that logs eight metrics ten times a second, offline."""
    environ = {**os.environ, "SECONDS": str(seconds), "WANDB_DIR": str(folder), "WANDB_SILENT": "1"}
    process = subprocess.Popen(
        [str(python), "-c", WANDB_RUN],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Path(process.stdout.readline().strip()).parent
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=positive, default=11)
    parser.add_argument("--watch", type=above_zero, default=40.0, metavar="SECONDS")
    parser.add_argument("--history", type=there, help="a home made by make_history.py")
    parser.add_argument("--peers", type=there, help="a folder with wandb/bin/wandb")
    options = parser.parse_args()
    wandb = options.peers / "wandb" / "bin" / "wandb" if options.peers else None
    has_peer = wandb is not None and wandb.exists()
    print(f"load before {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, {speed()}", flush=True)
    print(f"{'':52}{'albor':>10} {'':7}{'bar':>9} {'':8}{'leet' if has_peer else ''}", flush=True)
    # whoever watched the runs may write to their folder for a second after they have ended
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        home = Path(scratch) / "home"
        os.environ["ALBOR_HOME"] = str(home)
        for figure in measured(options, home, Path(scratch), wandb if has_peer else None):
            print(figure.line(), flush=True)
    print(f"load after {os.getloadavg()[0]:.2f}, {speed()}")


def speed() -> str:
    """How fast a core is at the moment: shared machines change by a factor of three."""
    began = time.process_time()
    sum(range(10_000_000))
    return f"ten million additions take {1e3 * (time.process_time() - began):.0f} ms of CPU"


def measured(
    options: argparse.Namespace, home: Path, scratch: Path, wandb: Path | None
) -> Iterator[Figure]:
    """The figures, each as soon as it is known."""
    with guarded_run("ended", rate=0, steps=3000) as ended:
        while not ended.exit.exists():
            time.sleep(0.2)
    with guarded_run("alive", rate=10, steps=10**7) as run:
        yield from starting(options, home, run, ended, scratch, wandb)
        peer = peers(options, scratch, wandb)
        yield from pressing(options, home, ended, peer.keys if peer else ())
        with albor(home, str(run.path)) as session:
            mine = watched(session, options.watch, run)
        with albor(home, str(ended.path)) as session:
            idle = watched(session, options.watch / 2)
        live, still = (peer.live, peer.idle) if peer else (None, None)
        yield from (
            Figure("watching: terminal output", mine.bytes_s, "B/s", 2048, live and live.bytes_s),
            Figure("watching: CPU", mine.cpu_percent, "%", 5, live and live.cpu_percent),
            Figure("watching: memory", mine.rss_mb, "MB", 100, live and live.rss_mb),
            Figure("watching: step behind the state file, worst", mine.step_behind, "s", 1.0),
            Figure("watching: loss behind the state file, worst", mine.loss_behind, "s", 1.0),
            Figure("watching: no chart cell changed for, worst", mine.chart_still, "s", 3.0),
            Figure("ended run: terminal output", idle.bytes_s, "B/s", 0, still and still.bytes_s),
            Figure("ended run: CPU", idle.cpu_percent, "%", 1, still and still.cpu_percent),
        )
        yield from slow(home, run)
        with albor(home, str(run.path)) as session:
            yield Figure("killed run shown as dead", dead_after(session, run), "s", 5)


def starting(
    options: argparse.Namespace, home: Path, run: RunDir, ended: RunDir, scratch: Path,
    wandb: Path | None,
) -> list[Figure]:  # fmt: skip
    contestants: dict[str, Opener] = {
        "first chart, a live run": lambda: albor(home, str(run.path)),
        "first chart, an ended run": lambda: albor(home, str(ended.path)),
        "first chart, the list of runs": lambda: albor(home),
    }
    if options.history:
        contestants["first chart, a list of 10,000 runs"] = lambda: albor(options.history)
    if wandb is None:
        times = starts(options.starts, contestants)
    else:
        with wandb_run(wandb.with_name("python"), scratch, 600) as folder:
            time.sleep(20)  # it flushes late
            contestants["leet"] = lambda: leet(wandb, folder)
            times = starts(options.starts, contestants)
    peer = times.pop("leet", None)
    figures = []
    other, other_cpu = zip(*peer, strict=True) if peer else ((), ())
    for name, took in times.items():
        wall, cpu = zip(*took, strict=True)
        beside = statistics.median(other) if other else None
        figures.append(Figure(f"{name}, median", statistics.median(wall), "ms", 500, beside))
        figures.append(Figure(f"{name}, p99", p99(wall), "ms", None, p99(other) if other else None))
        beside = statistics.median(other_cpu) if other else None
        figures.append(Figure("  of that CPU, median", statistics.median(cpu), "ms", None, beside))
    return figures


def pressing(
    options: argparse.Namespace, home: Path, ended: RunDir, peer: Sequence[float]
) -> list[Figure]:
    figures = []
    with albor(home, str(ended.path)) as session:
        session.until_bytes(CHART, 60)
        session.pump(WARM_S)
        times = key_times(session, ["2", "1", "3", "1", "4", "1", "5", "1", "6", "1", "?", "\x1b"])
        times += key_times(session, ["]", "]", "[", "["] * 6)
        looks = key_times(session, ["t"] * 10)
    figures += keys_figures("key on an ended run (leet: its help)", times, peer)
    figures.append(Figure("key t, another theme, median", statistics.median(looks), "ms", 150))
    if options.history:
        with albor(options.history) as session:
            session.until_bytes(CHART, 60)
            session.pump(WARM_S)
            times = key_times(session, ["\x1b[B"] * 30 + ["\x1b[6~"] * 15 + ["\x1b[A"] * 30)
            times += key_times(session, ["s"] * 5 + ["g"] * 5)
        figures += keys_figures("key in a list of 10,000 runs", times)
    return figures


def keys_figures(name: str, times: Sequence[float], peer: Sequence[float] = ()) -> list[Figure]:
    other = (statistics.median(peer), p99(peer)) if peer else (None, None)
    return [
        Figure(f"{name}, median", statistics.median(times), "ms", 50, other[0]),
        Figure(f"{name}, p99", p99(times), "ms", 150, other[1]),
    ]


def peers(options: argparse.Namespace, scratch: Path, wandb: Path | None) -> Peer | None:
    if wandb is None:
        return None
    with wandb_run(wandb.with_name("python"), scratch, options.watch + 60) as folder:
        time.sleep(20)
        with leet(wandb, folder) as session:
            live = watched(session, options.watch)
    with leet(wandb, folder) as session:
        idle = watched(session, options.watch / 2)
        return Peer(live, idle, key_times(session, ["h"] * 30))


if __name__ == "__main__":
    main()
