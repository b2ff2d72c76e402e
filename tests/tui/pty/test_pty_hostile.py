"""A thousand hostile names and log lines on a real terminal; nothing but text comes of
them. One recording of a walk through every place that shows data; the tests read it."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pty_scan import foreign, has_flood
from pty_session import PtySession, cockpit

from albor_core.run.home.new_run import create_run
from albor_core.run.rundir import RunDir

pytestmark = pytest.mark.slow
MANY = 1000
SEEDS = {
    "x1": ("[/", "[b", "[bold red]x[/]", "[type=x, v={'a[0]'}]", "[[[[", "\\[/]"),
    "x2": ("[@click=app.quit]press[/]", "[link=file:///etc/passwd]here[/link]"),
    "x3": ("\x1b[2J\x1b[1;1H", "\x9b31m", "\x1b[31mred\x1b[0m", "\x1b(0qqq", "\x1bc",
           "\x1b[?1049l"),
    "x4": ("\x1b]52;c;cm0gLXJmIC8=\x07", "\x1b]0;owned\x07", "\x1b]8;;http://e/\x07l\x1b]8;;\x07",
           "\x1b]777;notify;a;b\x07", "\x9d0;owned\x9c"),
    "x5": ("\x1b[6n", "\x1b[c", "\x1b[>q", "\x1bP$q q\x1b\\", "\x1b[5n", "\x05", "\x1b[21t"),
    "x6": ("\u202egnp.exe", "a\u200b\u2066b", "e" + "\u0301" * 300, "\u8a13\u7df4\uff37",
           "\ufeffx"),
    "x7": ("ok\r\nrun-1  done", "tab\tbed", "up\x0b\x0c", "back\x08\x08\x08gone", "nul\x00"),
}  # fmt: skip


def hostile(chance: random.Random, number: int) -> str:
    """A string of hostile pieces between plain ones."""
    pool = [text for texts in SEEDS.values() for text in texts]
    pieces = [f"n{number}"] + [chance.choice(pool) for _ in range(chance.randrange(1, 4))]
    return chance.choice(("", " ", "-")).join(pieces)


@dataclass
class Walk:
    """What a walk through the cockpit put on the terminal."""

    raw: bytes
    pages: list[str]
    status: int | None
    shown: str


def make_runs(folder: Path) -> RunDir:
    """MANY runs with hostile names; the last one has hostile log lines, config and events too."""
    chance = random.Random(7)
    now = time.time()
    for number in range(MANY):
        name = hostile(chance, number)
        run = create_run(
            folder, f"r{number:04d}", experiment=hostile(chance, number)[:40], name=name,
            kind="guard", argv=["x", name], created=now - 10 * (MANY - number),
            config=f"# {name!r}\nname: {json.dumps(name)}\n".encode("utf-8", "replace"),
        )  # fmt: skip
    run.logs.mkdir(exist_ok=True)
    lines = (hostile(chance, number) for number in range(MANY))
    raw = "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n\xff\xfe broken \x9b31m bytes\n"
    run.log(1).write_bytes(raw)
    events = [
        {"t": "e", "seq": i, "attempt": 1, "step": i, "wall": now, "name": hostile(chance, i),
         "severity": "warning", "data": {"message": hostile(chance, i), "rule": hostile(chance, i)}}
        for i in range(50)
    ]  # fmt: skip
    run.journal.write_text("".join(json.dumps(event) + "\n" for event in events))
    return run


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    home = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(home))
        run = make_runs(home / "out")
        with cockpit(str(run.path.parent), env={"ALBOR_HOME": str(home)}) as session:
            yield stroll(session, run)


def stroll(session: PtySession, run: RunDir) -> Walk:
    pages: list[str] = []

    def go(keys: str, seconds: float) -> None:
        session.press(keys)
        session.pump(seconds)
        pages.append(session.text())

    session.until("need you", 60)  # a thousand lost runs: Attention is in front
    pages.append(session.text())
    for _ in range(30):
        go("\x1b[6~", 0.1)  # page down
    go("\x1b", 1.0)
    session.until("n999", 60)
    pages.append(session.text())
    for _ in range(30):
        go("\x1b[6~", 0.1)  # page down
    for number in range(12):  # press every cell that might be a link
        session.press(f"\x1b[<0;{20 + number};{8 + number}M\x1b[<0;{20 + number};{8 + number}m")
    session.pump(0.5)
    if "Overview" in session.text():  # a double click opened one
        go("q", 1.0)
    go("\x1b[H", 0.5)
    go("\r", 2.0)
    session.until("Overview", 20)
    for tab in "23456789":
        go(tab, 0.7)
    go("5", 1.0)
    for _ in range(30):
        go("\x1b[5~", 0.1)  # page up through the log
    go("q", 1.0)
    for key in ("?", "\x1b", "T", "\x1b", "x", "\x1b", "\x10"):
        go(key, 0.5)
    shown = session.text()
    go("\x1b", 0.3)
    session.press("\x03")
    return Walk(session.raw, pages, session.status(15), shown)


def test_x1_markup_in_names_is_shown_as_it_is_written(walk):
    everything = "\n".join(walk.pages)
    for text in ("[/", "[bold red]x[/]", "[type=x"):
        assert text in everything
    assert "Traceback" not in everything and "MarkupError" not in everything


def test_x2_no_action_of_a_name_fires_when_it_is_clicked(walk):
    assert walk.status == 0  # it left when it was asked to, and not before
    assert "[@click=app.quit]press" in "\n".join(walk.pages)


def test_x3_no_escape_byte_of_data_reaches_the_terminal(walk):
    assert foreign(walk.raw) == []
    assert "\u241b" in "\n".join(walk.pages)  # the picture of ESC: data was shown, not dropped


def test_x4_no_clipboard_no_title_no_link_no_notification(walk):
    shapes = re.findall(rb"\x1b\](.*?)(?:\x07|\x1b)", walk.raw)
    assert all(re.fullmatch(rb"22;[a-z-]+", shape) for shape in shapes)  # the pointer's, Textual's
    assert walk.raw.count(b"\x07") == len(shapes)
    assert "owned" in "\n".join(walk.pages)


def test_x5_no_query_of_data_makes_the_terminal_type(walk):
    asked = set(re.findall(rb"\x1b\[[?>]?[\d;]*(?:n|c|t|q|\$p)|\x1bP|\x05", walk.raw))
    assert asked <= {b"\x1b[?2026$p", b"\x1b[?2048$p"}


def test_x6_nothing_turns_the_line_round_and_no_flood_of_marks(walk):
    text = walk.raw.decode("utf-8")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\ufeff]", text)
    assert not has_flood(text)
    assert "<U+202E>" in "\n".join(walk.pages)


def test_x7_no_name_forges_a_row(walk):
    lists = [page for page in walk.pages if "Overview" not in page]  # a log may break its lines
    forged = [line for page in lists for line in page.splitlines() if "run-1  done" in line]
    assert forged, "the name with a line break was never on the screen"
    for line in forged:
        assert "\u240d\u240a" in line or "\u2026" in line, line


def test_the_scanner_sees_what_a_careless_program_prints(tmp_path):
    """The list is no good if nothing is ever found."""
    everything = [text for texts in SEEDS.values() for text in texts]
    code = f"import sys\nfor s in {everything!r}: sys.stdout.write(s)"
    with PtySession([sys.executable, "-c", code], answers=False) as session:
        assert session.status(30) == 0
        found = " ".join(foreign(session.raw))
    for piece in ("[2J", "]52", "]0;owned", "]8;;", "[6n", "P$q", "u202e", "u200b", "x9b"):
        assert piece in found, piece
