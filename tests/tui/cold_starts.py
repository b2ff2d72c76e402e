"""Cold starts of the cockpit on a slow disk and a slow store: no frame says what was not read.

    python tests/tui/cold_starts.py [--starts 40] [--home DIR] [SCENE ...]

Scenes: `live` (a run at work under its guard), `ended`, `foreign` (imported), `many` (a home of
10,000 runs, made by benchmarks/tracker/make_history.py unless --many names one). Each start is a
cockpit of its own, headless, that begins on the list or on a tab of the run, walks on from there
and leaves; each read of a file waits up to 20 ms before it, each question to a store up to 60 ms
(a fifth of that among 10,000). What a settled cockpit says of the same screens is the truth: any
other negative fact in any frame is a lie, printed with its frame. Ends with 1 where there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from demo_store import start_live, stop_live
from slow_reads import FILES, badge, braked, claims, lies, recorded, shown_on

from albor_core.feed.view.run_view import RunView
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.index.indexer import Indexer
from albor_tui.app import AlborApp
from albor_tui.model.run_tabs import TABS
from albor_tui.model.source import LiveSource

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WAITS = {FILES: 0.020}  # seconds at most before a read; of a store:
QUESTION_S = 0.060
SIZES = ((160, 45), (80, 24), (120, 34))
STROKES = {tab.key: tab.stroke for tab in TABS}
WALK = ("exclamation_mark", "escape", "A", "escape", "D", "escape", "enter", *STROKES.values())


class Scene(NamedTuple):
    """A home, and the run of it that is opened; how slow its reads are, of 1."""

    home: Path
    run: RunDir
    slowness: float = 1.0


def ended(home: Path) -> RunDir:
    """A run that failed and left everything that a screen can show."""
    made = subprocess.run(
        [
            *(sys.executable, str(HERE / "sim_run.py"), str(home / "runs"), "--rich"),
            *("--steps", "200", "--rate", "0", "--name", "ended"),
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "ALBOR_HOME": str(home)},
        check=True,
        text=True,
    )
    run = RunDir(Path(made.stdout.strip()))
    resolved = {"optimizer": {"lr": 3e-4}, "training": {"max_steps": 200, "seed": 1}}
    run.config_yaml.write_text("optimizer:\n  lr: 3e-4\n")
    write_json(run.config_resolved, resolved)
    run.logs.mkdir(exist_ok=True)
    run.log(1).write_text("".join(f"step {n} loss {9 / n:.3f}\n" for n in range(1, 200)))
    write_json(
        run.exit,
        {
            **json.loads(run.exit.read_text()),
            **{"code": 1, "reason": "failed", "message": "CUDA out of memory"},
        },
    )
    line = {"attempt": 1, "started": time.time() - 90, "ended": time.time() - 9, "code": 1}
    told = {"class": "exception", "action": "give_up", "reason": "CUDA out of memory", "step": 200}
    run.guard.mkdir(exist_ok=True)
    run.attempts.write_text(json.dumps({**line, **told}) + "\n")
    annotate(run, "tag", "paper")
    annotate(run, "note", "the one that the others are compared with")
    index(run)
    return run


def foreign(home: Path) -> RunDir:
    """A history that was imported, without a console, a guard or a machine."""
    run = create_run(
        home / "runs", "foreign-1", experiment="asr", name="foreign", kind="imported", argv=[]
    )
    journal = Journal(run.journal, attempt=1)
    for step in range(1, 60):
        journal.metrics(step, {"val/wer": 0.9 / step, "val/mse": 3.0 / step})
    journal.append("p", key="lr", value=1e-3)
    journal.event("run.end", step=60, status="completed", reason="completed", code=0)
    journal.close()
    index(run)
    return run


def index(run: RunDir) -> None:
    with Indexer(run, global_store()) as indexer:
        indexer.drain()


@contextmanager
def scene_of(name: str, folder: Path, many: Path | None) -> Iterator[Scene]:
    """A scene, ready to be looked at."""
    home = folder / name if name != "many" else (many or folder / "many") / "home"
    os.environ["ALBOR_HOME"] = str(home)
    if name == "many":
        maker = ROOT / "benchmarks" / "tracker" / "make_history.py"
        if not home.is_dir():
            subprocess.run(
                [sys.executable, str(maker), str(home.parent), "--steps", "30"], check=True
            )
        yield Scene(home, ended(home), 0.2)
        return
    if name == "live":
        (run,) = started = start_live(1)
        try:
            yield Scene(home, run)
        finally:
            stop_live(started)
        return
    if name == "foreign":
        ended(home)
    yield Scene(home, (ended if name == "ended" else foreign)(home))


def cockpit(scene: Scene, tab: str | None) -> AlborApp:
    """A cockpit that nothing was read for yet: on the list, or on a tab of the run."""
    view = RunView(id=scene.run.id, path=str(scene.run.path))
    return AlborApp(LiveSource(None), run=None if tab is None else view, tab=tab or "")


async def still(pilot: Any, most_s: float, quiet_s: float) -> None:
    """Until the screen has not changed for `quiet_s`, or `most_s` are over."""
    began = since = time.monotonic()
    last = ""
    while time.monotonic() < min(began + most_s, since + quiet_s):
        await pilot.pause(0.05)
        now = shown_on(pilot.app.screen)
        if now != last:
            last, since = now, time.monotonic()


async def truth_of(scene: Scene, size: tuple[int, int]) -> tuple[dict[str, frozenset[str]], int]:
    """What each screen says when all was read, and how many entries need a person."""
    told: dict[str, frozenset[str]] = {}
    needs = 0
    for tab, walk in ((None, ("", *WALK)), (TABS[0].key, ("", *STROKES.values()))):
        app = cockpit(scene, tab)
        frames = recorded(app)
        async with app.run_test(size=size) as pilot:
            await still(pilot, 30.0, 3.0)
            for key in walk:
                if key:
                    await pilot.press(key)
                await still(pilot, 9.0, 1.2)
                name, text = frames[-1]
                told[name] = told.get(name, frozenset()) | claims(text)
                needs = max(needs, badge(text) or 0)
    return told, needs


async def start(
    scene: Scene, tab: str | None, walk: list[str], size: tuple[int, int], seed: int
) -> list[tuple[str, str]]:
    """The frames of one cold start."""
    rng = random.Random(seed)

    def hold(kind: str) -> None:
        time.sleep(rng.random() * WAITS.get(kind, QUESTION_S) * scene.slowness)

    app = cockpit(scene, tab)
    frames = recorded(app)
    with braked(scene.home, hold):
        async with app.run_test(size=size) as pilot:
            await still(pilot, 2.5, 1.0)
            for key in walk:
                await pilot.press(key)
                await still(pilot, 1.0, 0.4)
    return frames


def check(name: str, scene: Scene, starts: int) -> int:
    """All cold starts of a scene; how many of them told a lie."""
    truth, needs = asyncio.run(truth_of(scene, SIZES[0]))
    liars = frames_seen = 0
    seen: set[tuple[str, str]] = set()
    for number in range(starts):
        rng, size = random.Random(number), SIZES[number % len(SIZES)]
        if number % 2:
            tab: str | None = TABS[number // 2 % len(TABS)].key
            walk = [STROKES[rng.choice(TABS).key] for _ in range(2)]
        else:
            tab = None
            walk = ["escape", rng.choice(("exclamation_mark", "A", "D")), "escape", "enter"]
            walk += [STROKES[rng.choice(TABS).key]]
        frames = asyncio.run(start(scene, tab, walk, size, number))
        found = lies(frames, truth, needs)
        liars, frames_seen = liars + bool(found), frames_seen + len(frames)
        for where, claim, text in found:
            if (where, claim) not in seen:
                seen.add((where, claim))
                print(f"{name} start {number}, {size[0]}x{size[1]}: {where} says {claim!r}")
                print("\n".join(f"    | {line.rstrip()}" for line in text.splitlines()))
        if number % 10 == 9:
            print(
                f"{name}: {number + 1} starts, {frames_seen} frames, {liars} with a lie", flush=True
            )
    print(f"{name}: {starts} starts, {frames_seen} frames, {liars} starts with a lie", flush=True)
    return liars


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenes", nargs="*", default=["live", "ended", "foreign", "many"])
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--many", type=Path, help="a folder that make_history.py filled")
    options = parser.parse_args()
    liars = 0
    with tempfile.TemporaryDirectory(prefix="albor-cold-", ignore_cleanup_errors=True) as folder:
        for name in options.scenes:
            with scene_of(name, Path(folder), options.many) as scene:
                liars += check(name, scene, options.starts)
    raise SystemExit(liars > 0)


if __name__ == "__main__":
    main()
