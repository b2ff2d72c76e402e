"""A log by line number: whole, searched, and never held."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from albor_core.feed.archive import log_file
from albor_core.feed.archive.log_file import BLOCK_BYTES, LogFile, LogName, LogShelf
from albor_core.feed.run.tail import LINE_BYTES


def settled(file: LogFile, needle: str = "") -> LogFile:
    for _ in range(1000):
        file.look(needle)
        if not file.is_partial:
            return file
    raise AssertionError("it never came to an end")


def test_any_line_of_a_long_log_is_found_by_its_number(tmp_path):
    path = tmp_path / "a0001.log"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(200_000)))
    file = settled(LogFile(path))
    assert file.total == 200_000
    for first in (0, 1, 7_281, 99_999, 199_998):
        wanted = tuple(f"line {i}" for i in range(first, min(first + 3, 200_000)))
        assert file.lines(first, 3) == wanted


def test_a_block_is_read_once_for_all_the_lines_in_it(tmp_path, monkeypatch):
    path = tmp_path / "a0001.log"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(20_000)))
    file, read, sizes = settled(LogFile(path)), os.pread, []
    monkeypatch.setattr(os, "pread", lambda *words: sizes.append(words[1]) or read(*words))
    assert file.lines(5_000, 10_000) == tuple(f"line {i}" for i in range(5_000, 15_000))
    assert sum(sizes) < 2 * path.stat().st_size


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 30), st.integers(0, 10))
def test_lines_are_those_of_a_plain_split(tmp_path_factory, parts, first, count):
    raw = b"\n".join(part.replace(b"\n", b"") for part in parts)
    path = tmp_path_factory.mktemp("log") / "a0001.log"
    path.write_bytes(raw)
    file = settled(LogFile(path))
    plain = raw.split(b"\n")
    plain = plain[:-1] if plain[-1] == b"" else plain
    assert file.total == len(plain)
    assert len(file.lines(first, count)) == len(plain[first : first + count])


def test_blocks_whose_border_is_a_newline_lose_no_line(tmp_path):
    path = tmp_path / "a0001.log"
    for around in (-1, 0, 1):
        first = b"x" * (BLOCK_BYTES - 1 + around)
        path.write_bytes(first + b"\nsecond\nthird")
        file = settled(LogFile(path))
        assert file.total == 3
        assert file.lines(1, 2) == ("second", "third")


def test_a_line_that_is_still_written_counts_and_grows(tmp_path):
    path = tmp_path / "a0001.log"
    path.write_bytes(b"one\ntw")
    file = settled(LogFile(path), "t")
    assert (file.total, file.lines(0, 9), file.matches) == (2, ("one", "tw"), [1])
    with path.open("ab") as log:
        log.write(b"o\nthree\n")
    file = settled(file, "t")
    assert (file.total, file.lines(0, 9)) == (3, ("one", "two", "three"))
    assert file.matches == [1, 2]


def test_a_search_tells_every_line_once_in_either_case(tmp_path):
    path = tmp_path / "a0001.log"
    path.write_bytes(
        b"".join(b"%d NaN nan\n" % i if i % 1000 == 7 else b"calm\n" for i in range(50_000))
    )
    assert settled(LogFile(path), "nAn").matches == list(range(7, 50_000, 1000))
    assert settled(LogFile(path), "absent").matches == []


def test_a_needle_across_the_border_of_two_reads_is_found(tmp_path):
    size = 16 * BLOCK_BYTES
    path = tmp_path / "a0001.log"
    path.write_bytes(b"x" * (size - 3) + b"needle" + b"x" * size + b"\nlast needle\n")
    assert settled(LogFile(path), "needle").matches == [0, 1]


def test_a_search_stops_at_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "MOST_MATCHES", 100)
    path = tmp_path / "a0001.log"
    path.write_bytes(b"hit\n" * 5_000)
    assert settled(LogFile(path), "hit").matches == list(range(100))


def test_a_line_of_any_length_costs_its_start_only(tmp_path):
    path = tmp_path / "a0001.log"
    path.write_bytes(b"y" * (20 << 20) + b"\nafter\n")
    long, after = settled(LogFile(path)).lines(0, 2)
    assert after == "after"
    assert long.endswith("[cut]")
    assert len(long) < LINE_BYTES + 20


def test_a_log_that_was_replaced_begins_another_life(tmp_path):
    path = tmp_path / "a0001.log"
    path.write_bytes(b"old\n" * 50)
    file = settled(LogFile(path))
    before = file.generation
    path.write_bytes(b"new\n")
    file.look()
    assert (file.total, file.lines(0, 9)) == (1, ("new",))
    assert file.generation != before


def test_terminal_sequences_come_out_as_text(tmp_path):
    path = tmp_path / "a0001.log"
    path.write_bytes(b"\x1b[2J\x1b]0;owned\x07 10%\r 50%\r100%\n\xff\xfe bytes\n")
    for line in settled(LogFile(path)).lines(0, 2):
        assert line.isprintable()


def test_counting_and_searching_a_large_log_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "TURN_S", 0.0)
    path = tmp_path / "a0001.log"
    path.write_bytes(b"some words\n" * 100_000)
    file = LogFile(path)
    file.look("words")
    assert file.is_partial
    monkeypatch.setattr(log_file, "TURN_S", 1.0)
    settled(file, "words")
    assert file.total == 100_000


def test_a_shelf_has_the_newest_last_and_older_parts_before_it(tmp_path):
    for name in ("a0001.log", "a0001.log.1", "a0001.log.2", "a0002.log", "a0002.stacks", "b.log"):
        (tmp_path / name).write_text(f"{name}\n")
    shelf = LogShelf(tmp_path)
    names = shelf.names()
    assert [name.file for name in names] == ["a0001.log.2", "a0001.log.1", "a0001.log", "a0002.log"]
    assert shelf.window(None, None, 5).lines == ("a0002.log",)
    assert shelf.window(names[0], None, 5).lines == ("a0001.log.2",)
    assert shelf.window(LogName(7), None, 5).lines == ("a0002.log",)


def test_a_window_that_would_be_the_same_is_the_same_object(tmp_path):
    (tmp_path / "a0001.log").write_text("one\ntwo\n")
    shelf = LogShelf(tmp_path)
    first = shelf.window(None, None, 5, "two")
    assert shelf.window(None, None, 5, "two") is first
    (tmp_path / "a0001.log").write_text("one\ntwo\nthree\n")
    assert shelf.window(None, None, 5, "two").total == 3


def test_a_folder_without_logs_and_a_pipe_for_a_log_are_no_trouble(tmp_path):
    shelf = LogShelf(tmp_path / "absent")
    assert shelf.window(None, None, 5).name is None
    os.mkfifo(tmp_path / "a0001.log")
    assert LogShelf(tmp_path).window(None, None, 5).lines == ()


def test_a_progress_bar_longer_than_a_line_may_be_shows_its_last_state(tmp_path):
    path = tmp_path / "a0001.log"
    bar = b"".join(b"\r%5d of 20,000" % i for i in range(20_000))
    path.write_bytes(b"before\n" + bar + b"\n" + b"".join(bar.split(b"\r")[1:3]) + b"\nafter")
    file = settled(LogFile(path))
    assert file.lines(0, 4) == (
        "before",
        "19999 of 20,000",
        "    0 of 20,000    1 of 20,000",
        "after",
    )


def test_the_line_of_any_byte_is_found(tmp_path):
    path = tmp_path / "a0001.log"
    lines = [b"x" * (i % 300) for i in range(2000)]
    path.write_bytes(b"\n".join(lines))
    file = settled(LogFile(path))
    at = 0
    for number, line in enumerate(lines):
        assert file.line_at(at) == number
        assert file.line_at(at + len(line)) == number
        at += len(line) + 1
    assert path.stat().st_size > 2 * BLOCK_BYTES
