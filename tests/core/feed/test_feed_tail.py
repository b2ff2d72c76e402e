from __future__ import annotations

import os

from albor_core.feed.run.tail import LINE_BYTES, READ_BYTES, START_BYTES, LogFollower, last_lines


def append(path, content):
    with path.open("ab") as file:
        file.write(content)


def test_only_whole_new_lines_arrive(tmp_path):
    log = tmp_path / "a0001.log"
    log.write_bytes(b"one\ntw")
    tail = LogFollower(log)
    assert tail.read() == ["one"]
    append(log, b"o\nthree\n")
    assert tail.read() == ["two", "three"]
    assert tail.read() == []


def test_a_log_that_does_not_exist_yet_is_simply_empty(tmp_path):
    tail = LogFollower(tmp_path / "logs")
    assert tail.read() == []
    (tmp_path / "logs").mkdir()
    assert tail.read() == []
    append(tmp_path / "logs" / "a0001.log", b"hello\n")
    assert tail.read() == ["hello"]


def test_an_old_log_starts_at_its_bounded_end(tmp_path):
    log = tmp_path / "x.log"
    log.write_bytes(b"".join(b"line %07d\n" % i for i in range(100_000)))
    lines = LogFollower(log).read()
    assert lines[-1] == "line 0099999"
    assert sum(len(line) + 1 for line in lines) <= START_BYTES
    assert all(len(line) == len("line 0000000") for line in lines)


def test_the_next_attempts_log_follows_and_last_words_are_kept(tmp_path):
    append(tmp_path / "a0001.log", b"first\n")
    tail = LogFollower(tmp_path)
    assert tail.read() == ["first"]
    append(tmp_path / "a0001.log", b"last\nno newline")
    append(tmp_path / "a0002.log", b"again\n")
    assert tail.read() == ["last", "no newline", "again"]
    assert tail.current == tmp_path / "a0002.log"


def test_a_rotated_or_truncated_log_is_read_from_its_start(tmp_path):
    log = tmp_path / "a0001.log"
    append(log, b"a\nb\nc\n")
    tail = LogFollower(log)
    tail.read()
    log.rename(tmp_path / "old")
    append(log, b"new\n")
    assert tail.read() == ["new"]
    os.truncate(log, 0)
    append(log, b"x\n")
    assert tail.read() == ["x"]


def test_an_endless_line_is_cut_once_and_the_next_line_is_whole(tmp_path):
    log = tmp_path / "a0001.log"
    log.write_bytes(b"")
    tail = LogFollower(log)
    tail.read()
    append(log, b"x" * (3 * LINE_BYTES))
    (first,) = tail.read()
    assert first == "x" * LINE_BYTES + " [cut]"
    append(log, b"x" * 1000 + b"\nnext\n")
    assert tail.read() == ["next"]


def test_a_flood_is_skipped_and_the_newest_lines_are_shown(tmp_path):
    log = tmp_path / "a0001.log"
    append(log, b"start\n")
    tail = LogFollower(log)
    tail.read()
    flood = b"noise noise noise\n" * (3 * READ_BYTES // 18)
    append(log, flood + b"newest\n")
    lines = tail.read()
    assert lines[0].endswith("bytes skipped]")
    assert lines[-1] == "newest"
    assert sum(map(len, lines)) < 2 * START_BYTES


def test_a_flood_and_every_attempt_are_read_whole_where_that_is_asked_for(tmp_path):
    tail = LogFollower(tmp_path, is_whole=True)
    append(tmp_path / "a0001.log", b"start\n")
    lines = tail.read()
    count = 3 * READ_BYTES // 6
    for attempt in (1, 2, 3):
        append(tmp_path / f"a{attempt:04d}.log", b"noise\n" * count + b"last words")
    lines += tail.read()
    while tail.behind or tail.current != tmp_path / "a0003.log":
        lines += tail.read()
    lines += tail.take_rest()
    assert lines == ["start", *(["noise"] * count + ["last words"]) * 3]


def test_hostile_bytes_and_progress_bars_are_plain_text(tmp_path):
    log = tmp_path / "a0001.log"
    log.write_bytes(b"10%\r20%\r30%\r\n\x1b[2J\xff\n\xc2\x9b31m\n")
    assert LogFollower(log).read() == ["30%", "\u241b[2J\ufffd", "<9B>31m"]


def test_a_fifo_or_a_link_is_never_opened_for_long(tmp_path):
    os.mkfifo(tmp_path / "a0001.log")
    assert LogFollower(tmp_path).read() == []
    (tmp_path / "a0002.log").symlink_to("/etc/passwd")
    assert LogFollower(tmp_path).read() == []


def test_last_lines_include_an_unfinished_one(tmp_path):
    append(tmp_path / "a0001.log", b"1\n2\n3\n4")
    assert last_lines(tmp_path, 2) == ["3", "4"]
    assert last_lines(tmp_path / "nothing", 2) == []


def test_a_progress_bar_of_megabytes_is_its_last_state_when_the_line_ends(tmp_path):
    log = tmp_path / "a0001.log"
    log.write_bytes(b"")
    tail = LogFollower(log)
    tail.read()
    for begin, end in ((b"\r", b""), (b"", b"\r")):  # some bars return before a state, some after
        for step in range(0, 20_000, 1000):
            with log.open("ab") as file:
                for i in range(step, step + 1000):
                    file.write(begin + b"%5d of 20,000" % i + end)
            assert tail.read() == []
        with log.open("ab") as file:
            file.write(b"\n")
        assert tail.read() == ["19999 of 20,000"]


def test_colours_are_left_out_and_what_could_harm_a_terminal_is_shown(tmp_path):
    append(
        tmp_path / "a0001.log",
        b"\x1b[1;36mloss\x1b[0m 2.5\n"
        b"\x1b[2K\x1b[38:2::1:2:3mwork\x1b[m  50%\r\x1b[2Kwork 100%\r\x1b[K\n"
        b"\x1b[1Adone\x1b[?25h\n"
        b"\x1b[2Jgone\x1b[6n\n",
    )
    told = ["loss 2.5", "work 100%", "done", "\u241b[2Jgone\u241b[6n"]
    assert last_lines(tmp_path, 4) == told
