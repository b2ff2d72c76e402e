"""The mirror: fewer bytes, the same picture. The oracle is an emulated terminal that gets every
frame as it is."""

from __future__ import annotations

import random

import pyte
import pytest

from albor_tui.terminal.link import LinkDriver, _is_frame
from albor_tui.terminal.mirror import Mirror

WIDTH, HEIGHT = 40, 8
PENS = (
    "", "1", "2;3", "38;2;10;20;30", "1;38;2;10;20;30;48;2;1;2;3", "4;31;44", "7", "97;100",
    "38;5;200;48;5;17", "9;38;2;200;0;0", "48;2;1;2;3", "1;4;93", "22;39",
)  # fmt: skip
TEXTS = ("loss", " ", "     ", "2.31", "\u28ff\u2801\u2880", "\u2500\u2502", "x" * 20, "0")
WIDE = ("\u8a13\u7df4", "e\u0301", "\U0001f600")


def frame_of(chance: random.Random, texts: tuple[str, ...], most: int = 30) -> str:
    parts = []
    for _ in range(chance.randrange(1, most)):
        row, column = chance.randrange(HEIGHT), chance.randrange(WIDTH)
        parts.append(f"\x1b[{row + 1};{column + 1}H")
        for _ in range(chance.randrange(1, 4)):
            pen, text = chance.choice(PENS), chance.choice(texts)[: WIDTH - column]
            column += len(text)  # Textual's frames end at the edge
            parts.append(f"\x1b[{pen}m{text}\x1b[0m" if pen else text)
        parts.append("\n" if row < HEIGHT - 1 and chance.random() < 0.2 else "")
    return "".join(parts) + "\x1b[1;1H"


def terminal() -> tuple[pyte.Screen, pyte.Stream]:
    screen = pyte.Screen(WIDTH, HEIGHT)
    screen.reset_mode(pyte.modes.DECAWM)
    return screen, pyte.Stream(screen)


def picture(screen: pyte.Screen) -> list[list[object]]:
    """Every cell; of a blank only what can be seen of it."""
    found = []
    for y in range(HEIGHT):
        row: list[object] = []
        for x in range(WIDTH):
            cell = screen.buffer[y][x]
            if cell.data == " " and not (cell.underscore or cell.reverse or cell.strikethrough):
                row.append((" ", cell.bg))
            else:
                row.append(cell)
        found.append(row)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_the_difference_makes_the_picture_that_the_frames_make(seed):
    chance = random.Random(seed)
    mirror = Mirror(WIDTH, HEIGHT)
    (plain, to_plain), (thin, to_thin) = terminal(), terminal()
    for _ in range(12):
        for _ in range(chance.randrange(1, 4)):  # several frames in one difference
            frame = frame_of(chance, TEXTS)
            to_plain.feed(frame.replace("\n", "\r\n"))
            mirror.draw(frame)
        while drawn := mirror.next_difference(most=chance.choice((64, 1 << 30))):
            to_thin.feed(drawn)
        assert mirror.is_current
        assert picture(thin) == picture(plain)


@pytest.mark.parametrize("seed", range(10))
def test_wide_and_combining_characters_end_where_the_terminal_thinks(seed):
    chance = random.Random(seed)
    mirror, (thin, to_thin) = Mirror(WIDTH, HEIGHT), terminal()
    (plain, to_plain) = terminal()
    for _ in range(8):
        row = chance.randrange(HEIGHT)
        words = [chance.choice(TEXTS[:4] + WIDE) for _ in range(5)]
        frame = f"\x1b[{row + 1};1H" + " " * WIDTH + f"\x1b[{row + 1};2H" + "".join(words)
        to_plain.feed(frame)
        mirror.draw(frame)
        to_thin.feed(mirror.next_difference())
        assert thin.display == plain.display


def test_a_cell_keeps_few_marks_and_no_mark_is_a_cell():
    mirror = Mirror(WIDTH, HEIGHT)
    mirror.draw("\x1b[1;1He" + "\u0301" * 500 + "x\u200by\u200b" + "\x1b[1;1H")
    sent = mirror.next_difference()
    assert sent.count("\u0301") < 8
    screen, stream = terminal()
    stream.feed(sent.replace("\u200b", ""))
    assert screen.display[0].replace("\u0301", "").strip() == "\xe9xy"


def test_nothing_changed_is_no_byte_and_one_digit_is_few():
    mirror = Mirror(80, 24)
    line = "\x1b[3;1H\x1b[38;2;220;220;220;48;2;10;10;10m step   {} / 100,000 \x1b[0m\x1b[1;1H"
    mirror.draw(line.format("1,234"))
    mirror.next_difference()
    mirror.draw(line.format("1,234"))
    assert mirror.next_difference() == ""
    mirror.draw(line.format("1,235"))
    assert len(mirror.next_difference()) < 64
    mirror.draw(line.format("1,236"))
    assert mirror.next_difference() == "\x1b[3;13H6\x1b[1;1H"  # the colour is still the right one


def test_numbers_go_before_charts_and_old_chart_frames_are_never_sent():
    mirror = Mirror(20, 2)
    mirror.draw("\x1b[1;1Hstep 1\x1b[2;1H" + "\u2801" * 20)
    first = mirror.next_difference(charts=False)
    assert "step" in first and "\u2801" not in first
    mirror.draw("\x1b[1;1Hstep 2\x1b[2;1H" + "\u28ff" * 20)
    assert "2" in mirror.next_difference(charts=False)
    last = mirror.next_difference()
    assert "\u28ff" in last and "\u2801" not in last
    assert mirror.is_current


def test_a_forgotten_terminal_gets_every_cell():
    mirror, (screen, stream) = Mirror(WIDTH, HEIGHT), terminal()
    mirror.draw("\x1b[2;3Hhere")
    mirror.next_difference()
    stream.feed("\x1b[1;1Hwall message")
    mirror.forget()
    stream.feed(mirror.next_difference())
    assert screen.display[0].strip() == "" and screen.display[1].strip() == "here"


@pytest.mark.parametrize(
    "data",
    ["\x1b]52;c;cm0=\x07", "\x1b]8;;http://e/\x1b\\", "\x1bP$q q\x1b\\", "\x1b[6n", "\x1b[2J",
     "\x9b31m", "\x1b_Ga=T\x1b\\", "\x07\x08\x00", "\x1b", "\x1b[?1049l", "\x1bc"],
)  # fmt: skip
def test_no_sequence_inside_a_frame_reaches_the_terminal(data):
    mirror = Mirror(WIDTH, HEIGHT)
    mirror.draw("\x1b[1;1H")
    mirror.next_difference()
    mirror.draw(f"\x1b[1;1Ha{data}b\x1b[1;1H")
    sent = mirror.next_difference()
    assert sent.startswith("\x1b[1;1H") and "a" in sent
    rest = sent.removeprefix("\x1b[1;1H").removesuffix("\x1b[1;1H")
    assert rest.isprintable()


def test_frames_are_told_from_orders():
    assert _is_frame("\x1b[12;7Hx") and _is_frame("\x1b[1;1H")
    for order in ("\x1b[?1049h", "\x1b[6n", "\x07", "\x1b]52;c;aGk=\x07", "\x1b[>25u", "\x1b[<u"):
        assert not _is_frame(order)


def test_the_cockpit_writes_through_the_link(cockpit):
    assert cockpit().driver_class is LinkDriver
