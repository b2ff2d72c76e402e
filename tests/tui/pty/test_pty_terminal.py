"""U1 to U10 on a real terminal: terminals that die, shrink, stall or cannot, and data that is
missing, foreign or garbage. Each test starts the program as a person does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pty_session import COCKPIT, LiveRun, PtySession, cockpit, guarded_run, is_paused, shown_step

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer

pytestmark = pytest.mark.slow
FRAME_END = rb"\x1b\[\?2026l"
MB = 1 << 20
DEEP = 2_000  # bytes: three seconds of the slow link, half of what the kernel counts at most


@pytest.fixture
def live(tmp_path):
    with LiveRun(tmp_path / "out") as run:
        yield run


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended_run(folder: Path, name: str, *, indexed: bool = True) -> Path:
    """A small run of two hours ago with a journal, in the store of this home."""
    run = create_run(folder, name, experiment="e", name=name, kind="guard", argv=["x"])
    journal, began = Journal(run.journal, attempt=1), time.time() - 7200
    for step in range(1, 60):
        journal.metrics(step, {"train/loss": 3 - step / 100}, wall=began + step, mono=float(step))
    journal.close()
    if indexed:
        with Indexer(run, global_store()) as indexer:
            indexer.drain()
    return run.path


def age_of_news(session: PtySession) -> int:
    found = re.search(r"last news (\d+)s ago", session.text())
    return int(found[1]) if found else -1


def test_u1_kill_9_of_the_cockpit_leaves_the_run_and_a_terminal_that_can_be_mended(live):
    shell = PtySession(["/bin/sh"], rows=40, columns=120, answers=False)
    with shell:
        shell.press(f"{' '.join(COCKPIT)} {live.path}\n")
        shell.until("Overview", 60)
        program = next(iter(psutil.Process(shell.pid).children()))
        program.kill()
        shell.press("\n")
        shell.press("stty sane; reset -Q; stty -a; echo mended\n")
        shell.until(lambda s: b"mended\r\n" in s.raw[-4000:], 20)
        told = shell.raw[-4000:]
        assert b" icanon" in told and b" echo" in told and b"-icanon" not in told
        assert live.goes_on()


def test_ctrl_z_gives_the_shell_back_and_fg_the_cockpit(live):
    with PtySession(["/bin/bash", "--norc", "-i"], rows=40, columns=120, answers=False) as shell:
        shell.press(f"{' '.join(COCKPIT)} {live.path}\n")
        shell.until("Overview", 60)
        shell.press("\x1a")
        shell.until(lambda s: b"\x1b[?1049l" in s.raw[-2000:], 20)
        shell.press("echo $((6 * 7)) here\n")
        shell.until(lambda s: b"42 here" in s.raw[-2000:], 20)
        shell.press("fg\n")
        shell.until("Overview", 20)
        assert live.goes_on()


def test_u2_a_connection_that_dies_without_a_signal_ends_the_cockpit(live):
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "import albor_tui.terminal.hangup as h; h.signal.signal = lambda *a: None; "
        f"from albor_tui.main import main; sys.exit(main([{str(live.path)!r}]))"
    )
    with PtySession([sys.executable, "-c", code]) as session:
        session.until("running", 60)
        session.hang_up()
        before, began = session.cost().cpu_s, time.monotonic()
        while session.is_alive and time.monotonic() - began < 10:
            last = session.cost().cpu_s or before
            time.sleep(0.05)
        assert time.monotonic() - began <= 5
        assert last - before < 1.0  # leaving costs something; spinning would cost all of it
    assert live.goes_on()


def test_u3_a_storm_of_resizes_ends_with_the_last_size_and_no_growth(live):
    with cockpit(str(live.path)) as session:
        session.until("Overview", 60)
        session.pump(3)
        session._set_size(200, 500)
        enough = time.monotonic() + 2
        while time.monotonic() < enough:
            session._read(0.05)
        before = session.cost().rss_bytes  # what the largest screen takes once is no growth
        sizes = [(1, 1), (2, 5), (24, 80), (200, 500), (45, 160), (10, 20), (3, 300), (1, 80)]
        for turn in range(400):
            rows, columns = sizes[turn % len(sizes)]
            session._set_size(rows, columns)  # the emulated screen would cost more than the storm
            session._read(0.005)
        session.resize(30, 100)
        session.until(lambda s: s.text().splitlines()[-1].strip() != "", 20)
        session.pump(2)
        assert "Traceback" not in session.text()
        assert session.cost().rss_bytes - before < 40 * MB
        session.press("\x03")
        assert session.status(10) == 0


def test_u4_a_slow_link_brings_numbers_before_charts_and_nothing_is_queued(live):
    with cockpit(str(live.path)) as session:
        session.until("Overview", 60)
        session.pump(2)
        session.read_rate = 600  # a third of what the screen of this run would send
        session.pump(1.5)
        session.until(lambda s: s.waiting < DEEP / 2, 40)  # what was under way is over
        start, waiting, steps, began = len(session.raw), [], set(), time.monotonic()
        while time.monotonic() - began < 6:
            session.pump(0.2)
            waiting.append(session.waiting)
            steps.add(shown_step(session))
        print(f"under way {max(waiting)}, steps {sorted(steps)}")
        assert max(waiting) < DEEP  # with a queue it would be what the kernel holds
        assert len(steps) >= 3
        assert charts_in(session.raw[start:]) < 0.2  # a half where everything fits
        session.press("\x03")
        assert session.status(20) == 0


def charts_in(raw: bytes) -> float:
    """Which part of the bytes are cells of charts."""
    return 3 * len(re.findall(rb"\xe2[\xa0-\xa3][\x80-\xbf]", raw)) / len(raw)


def test_u4_a_terminal_that_stops_reading_still_commands_and_costs_no_memory():
    with guarded_run("held") as run, cockpit(str(run.path)) as session:
        session.until("Overview", 60)
        session.until("running", 20)
        session.pump(2)
        before, start = session.cost().rss_bytes, len(session.raw)
        session.read_rate = 0
        for _ in range(6):  # every tab is a whole new screen
            session.press("t2t1")
            session.pump(0.6)
        session.press("p")
        wait_until(lambda: is_paused(run))
        assert session.cost().rss_bytes - before < 15 * MB
        session.read_rate = None
        session.until("paused", 10)
        assert len(session.raw) - start < 120_000  # twenty-four screens of 30 KB waited for nobody
        session.read_rate = 0
        session.press("\x03")
        assert session.status(10) == 0


def test_u5_garbage_in_a_store_is_a_mark_on_the_screen(tmp_path):
    rubbish = ended_run(tmp_path / "out", "rubbish")
    ended_run(tmp_path / "out", "healthy")
    shutil.rmtree(rubbish)
    with sqlite3.connect(global_store()) as db:
        spoil(db, "rubbish")
    with cockpit() as session:
        session.until("healthy", 60)
        session.press("\x1b[B")
        session.pump(1)
        session.press("\r")
        session.until("Overview", 20)
        session.pump(1)
        assert session.is_alive and "Traceback" not in session.text()
        session.press("\x03")
        assert session.status(10) == 0


def spoil(db: sqlite3.Connection, run: str) -> None:
    """Put what no column should hold into every number of a run, and too much into its name."""
    values = (float("inf"), -float("inf"), 1e308, None, "text", b"\xff\xfe", -5)
    row = db.execute("SELECT id FROM runs WHERE run = ?", (run,)).fetchone()[0]
    for table, of in (("runs", "id"), ("keys", "run_id"), ("events", "run_id")):
        for _, column, kind, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
            if kind.upper() in ("REAL", "INTEGER") and not column.endswith("id"):
                value = values[len(column) % len(values)]
                with contextlib.suppress(sqlite3.Error):
                    db.execute(f"UPDATE {table} SET {column} = ? WHERE {of} = ?", (value, row))
    db.execute("UPDATE runs SET name = ? WHERE id = ?", ("n" * 10_000_000, row))
    db.execute("UPDATE runs SET host = CAST(x'fffe00c3' AS TEXT) WHERE id = ?", (row,))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("gone", "its state file is missing"),
        ("half", "training_state.json is not complete JSON"),
        ("newer", "running  alive  pretrain  its state file is albor.state/99, of another version"),
        ("foreign", "training_state.json is not complete JSON"),
    ],
)
def test_u6_a_state_file_that_is_no_use_is_said_and_never_shown_as_running_news(live, what, words):
    documents = {
        "half": b'{"schema":"albor.state/1","glob',
        "newer": b'{"schema":"albor.state/99","global_step":777777}',
        "foreign": b"\x00\x01\x02 not json",
    }
    with cockpit(str(live.path)) as session:
        session.until("running", 60)
        live.process.send_signal(signal.SIGSTOP)
        try:
            state = live.path / "training_state.json"
            state.unlink() if what == "gone" else state.write_bytes(documents[what])
            session.until(words, 30)
            session.until(lambda s: age_of_news(s) >= 3, 20)  # it grows: nothing is frozen
            assert age_of_news(session) < 30
            assert session.is_alive
        finally:
            live.process.send_signal(signal.SIGCONT)


def test_u7_twenty_monitors_cost_a_run_nothing_that_it_notices(live, tmp_path):
    """Beside a run that nobody watches: a busy machine slows down both."""
    sessions: list[PtySession] = []
    with LiveRun(tmp_path / "out", name="unwatched") as other:
        try:
            for _ in range(20):
                sessions.append(cockpit(str(live.path), rows=24, columns=80))
            deadline = time.monotonic() + 90
            while not all(b"running" in s.raw for s in sessions):
                assert time.monotonic() < deadline
                for session in sessions:
                    session._read(0.01)
            first, began = (live.step, other.step), time.monotonic()
            while time.monotonic() - began < 5:
                for session in sessions:
                    session._read(0.005)
            watched, unwatched = live.step - first[0], other.step - first[1]
        finally:
            for session in sessions:
                session.close()
    print(f"steps with 20 monitors: {watched}, with none: {unwatched}")
    assert watched >= 0.85 * unwatched - 1  # the benchmark has the 2 %
    seqs = [json.loads(line)["seq"] for line in (live.path / "journal.jsonl").open()]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert live.process.poll() is None


def test_u8_a_store_that_is_replaced_under_the_cockpit_is_read_again(tmp_path):
    shutil.rmtree(ended_run(tmp_path / "out", "before"))  # the store alone remembers it
    with cockpit() as session:
        session.until("before", 60)
        store = global_store()
        aside = tmp_path / "aside.db"
        with sqlite3.connect(store) as db:
            db.execute("VACUUM INTO ?", (str(aside),))
        with sqlite3.connect(aside) as db:
            db.execute("UPDATE runs SET name = 'after-the-rebuild' WHERE run = 'before'")
        for suffix in ("-wal", "-shm"):
            Path(f"{store}{suffix}").unlink(missing_ok=True)
        aside.replace(store)
        session.until("after-the-rebuild", 10)
        assert session.is_alive


def test_u9_a_widget_that_breaks_says_so_and_the_others_live(live):
    code = (
        "import sys\n"
        "from albor_tui.widgets.run.gpu_panel import GpuPanel\n"
        "def broken(self, width, height): raise ValueError('this panel is broken')\n"
        "GpuPanel.draw = broken\n"
        f"from albor_tui.main import main; sys.exit(main([{str(live.path)!r}]))"
    )
    with PtySession([sys.executable, "-c", code]) as session:
        session.until("this panel is broken", 60)
        at = shown_step(session)
        session.until(lambda s: shown_step(s) > at, 20)
        session.press("\x03")
        assert session.status(10) == 0


def test_u10_a_terminal_without_utf_8_gets_ascii_only(live):
    with cockpit(str(live.path), env={"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}) as session:
        session.until_bytes(rb"running", 60)
        session.pump(2)
        assert session.raw.isascii()


def test_u10_sixteen_colours_are_sixteen(live):
    with cockpit(str(live.path), env={"TERM": "xterm", "COLORTERM": ""}) as session:
        session.until("running", 60)
        session.pump(2)
        assert not re.search(rb"[\[;][34]8;[25];", session.raw)
        assert re.search(rb"\x1b\[[\d;]*3[0-7]", session.raw)


def test_u10_no_color_is_no_colour(live):
    with cockpit(str(live.path), env={"NO_COLOR": "1"}) as session:
        session.until("running", 60)
        session.pump(2)
        sgr = set(b";".join(re.findall(rb"\x1b\[([\d;]*)m", session.raw)).split(b";"))
        colours = {code for code in sgr if re.fullmatch(rb"3[0-8]|4[0-8]|9[0-7]|10[0-7]", code)}
        grey = re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", session.raw)
        assert not colours - {b"38", b"48"}
        assert all(r == g == b for r, g, b in grey)


def test_reduced_motion_moves_nothing_by_itself(tmp_path):
    path = ended_run(tmp_path / "out", "still")
    with cockpit("--reduced-motion", str(path)) as session:
        session.until("Overview", 60)
        session.until_still(1.0)
        for key in ("?", "\x1b", "]", "["):
            start = len(session.recording)
            session.press(key)
            session.until_bytes(FRAME_END, 10, start)
            session.until_still(0.7)
        quiet = len(session.raw)
        session.pump(2)
        assert len(session.raw) == quiet


def test_inside_tmux_it_draws_and_a_killed_client_leaves_it_alone(live, tmp_path):
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("tmux is not installed")
    socket = str(tmp_path / "tmux")
    command = f"{' '.join(COCKPIT)} {live.path}"
    with PtySession([tmux, "-S", socket, "new-session", command], rows=40, columns=120) as client:
        client.until("Overview", 60)
        client.until("running", 20)
        os.kill(client.pid, signal.SIGKILL)
    with PtySession([tmux, "-S", socket, "attach"], rows=30, columns=100) as again:
        again.until("Overview", 20)
        at = shown_step(again)
        again.until(lambda s: shown_step(s) > at, 20)
        again.press("\x03")
        assert again.status(15) == 0
    assert live.goes_on()


@pytest.mark.parametrize("program", ["mosh", "screen"])
def test_inside_other_multiplexers_where_there_are_any(program, live):
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed here")
    if program == "mosh":
        pytest.skip("mosh needs an SSH login without a password: see the how-to for a try by hand")
    with PtySession([path, *COCKPIT, str(live.path)], rows=40, columns=120) as session:
        session.until("Overview", 60)
        session.press("\x03")
        assert session.status(15) is not None
