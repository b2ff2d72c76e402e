"""The journal: what was acknowledged is there, in order, whatever happened to the writer."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.run.files import line_appender as module
from albor_core.run.journal import MAX_LINE_BYTES, Journal, parse_line, read_journal

ROOT = Path(__file__).resolve().parents[3]


def records(path, offset=0):
    return [line.record for line in read_journal(path, offset)]


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "journal.jsonl", attempt=1)
    yield made
    made.close()


def test_what_was_said_is_read_back_in_order(journal):
    journal.metrics(1, {"train/loss": 2.5, "n": 3, "gap": None})
    journal.event("run.start", severity="info", resumed_from=None)
    journal.rewind(0)
    first, second, third = records(journal.path)
    assert (first["t"], first["step"], first["v"]) == (
        "m", 1, {"train/loss": 2.5, "n": 3, "gap": None},
    )  # fmt: skip
    assert (second["name"], second["data"]) == ("run.start", {"resumed_from": None})
    assert third["to"] == 0
    assert [record["seq"] for record in (first, second, third)] == [1, 2, 3]


def test_nan_and_inf_are_data(journal):
    journal.metrics(1, {"a": math.nan, "b": math.inf, "c": -math.inf})
    (record,) = records(journal.path)
    assert math.isnan(record["v"]["a"])
    assert (record["v"]["b"], record["v"]["c"]) == (math.inf, -math.inf)
    json.loads(journal.path.read_bytes(), parse_constant=lambda text: pytest.fail(text))


@given(st.dictionaries(st.text(max_size=30), st.floats() | st.integers(-(2**63), 2**63 - 1)))
def test_any_metrics_survive(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    journal = Journal(path, attempt=1)
    journal.metrics(1, values)
    journal.close()
    found = {key: value for record in records(path) for key, value in record["v"].items()}
    assert found.keys() == values.keys()
    for key, value in values.items():
        assert found[key] == value or (math.isnan(found[key]) and math.isnan(value))


def test_an_interval_that_is_too_long_becomes_lines_of_the_same_step(journal):
    values = {f"layer/{n:04d}/some_long_metric_name": float(n) for n in range(500)}
    journal.metrics(7, values)
    lines = journal.path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 1
    assert max(map(len, lines)) <= MAX_LINE_BYTES
    found = {key: value for record in records(journal.path) for key, value in record["v"].items()}
    assert found == values
    assert {record["step"] for record in records(journal.path)} == {7}


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "x" * 100_000},
        {"text": "\x00" * 10_000},  # six bytes each in JSON
        {"data": {"traceback": "y" * 10_000, "message": "short"}},
        {"data": {str(n): n for n in range(5000)}},
        {"list": ["z" * 100] * 1000},
    ],
)
def test_no_line_is_longer_than_a_line_may_be(journal, fields):
    journal.append("s", step=3, **fields)
    journal.append("e", step=4)
    assert max(map(len, journal.path.read_bytes().splitlines(keepends=True))) <= MAX_LINE_BYTES
    first, second = records(journal.path)
    assert (first["step"], second["step"]) == (3, 4)


def test_a_text_that_was_cut_says_so(journal):
    journal.append("s", step=1, prompt="def f", text="a" * 9000)
    (record,) = records(journal.path)
    assert record["prompt"] == "def f"
    assert record["text"].startswith("aaaa")
    assert record["text"].endswith("[cut]")


def test_a_torn_last_line_is_cut_at_every_byte_and_the_sequence_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, attempt=1)
    journal.metrics(1, {"a": 1.0})
    whole = journal.offset
    journal.metrics(2, {"a": 2.0})
    journal.close()
    raw = path.read_bytes()
    for end in range(whole, len(raw)):
        path.write_bytes(raw[:end])
        again = Journal(path, attempt=2)
        assert (again.offset, again.seq) == (whole, 1)
        again.metrics(2, {"a": 3.0})
        again.close()
        assert [(r["seq"], r["attempt"], r["v"]["a"]) for r in records(path)] == [
            (1, 1, 1.0),
            (2, 2, 3.0),
        ]


def test_readers_leave_a_torn_tail_for_later(journal):
    journal.metrics(1, {"a": 1.0})
    with journal.path.open("ab") as file:
        file.write(b'{"t":"m","seq":2')
    (line,) = read_journal(journal.path)
    assert (line.start, line.end) == (0, journal.offset)
    assert list(read_journal(journal.path, line.end)) == []


def test_any_flipped_bit_is_noticed(journal):
    journal.metrics(1, {"train/loss": 2.31})
    raw = journal.path.read_bytes()
    for at in range(len(raw) - 1):  # the newline is what makes it a line
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            assert parse_line(bytes(damaged)) is None


def test_a_damaged_line_costs_itself_only(journal):
    for step in (1, 2, 3):
        journal.metrics(step, {"a": float(step)})
    raw = bytearray(journal.path.read_bytes())
    raw[len(raw) // 2] ^= 1
    journal.path.write_bytes(bytes(raw))
    found = records(journal.path)
    assert [record and record["step"] for record in found] == [1, None, 3]


def test_the_sequence_goes_on_behind_a_long_stretch_of_damage(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, attempt=1)
    journal.metrics(1, {"a": 1.0})
    journal.close()
    with path.open("ab") as file:
        file.write((b"x" * 99 + b"\n") * 2000)
    again = Journal(path, attempt=2)
    assert again.seq == 1
    again.close()


@pytest.mark.parametrize(
    "body", [b'{"t":"m"', b'{"t":"m","v":5', b'{"t":"m","v":[1]', b'{"seq":"x"', b"{", b"[1"]
)
def test_a_line_with_a_right_sum_and_a_wrong_shape_is_no_metric(body):
    import zlib

    record = parse_line(b'%b,"crc":%d}\n' % (body, zlib.crc32(body)))
    assert record is None or record.get("t") != "m"


class FullDisk:
    """os.write that has `room` bytes left."""

    def __init__(self, room):
        self.room = room

    def __call__(self, fd, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(fd, data[: self.room])
        self.room -= written
        return written


class Os:
    """The os module with some calls replaced."""

    def __init__(self, **calls):
        self.__dict__.update(calls)

    def __getattr__(self, name):
        return getattr(os, name)


@pytest.mark.parametrize("room", [0, 1, 50, 107, 150])
def test_a_full_disk_loses_nothing_once_there_is_room_again(journal, monkeypatch, room):
    journal.metrics(1, {"a": 1.0})
    disk = FullDisk(room)
    monkeypatch.setattr(module, "os", Os(write=disk))
    for step in (2, 3, 4):
        journal.metrics(step, {"a": float(step)})
    assert journal.pending > 0
    assert "No space left" in journal.error or "short write" in journal.error
    with pytest.raises(OSError, match="cannot write"):
        journal.barrier()
    disk.room = 1 << 20
    journal.metrics(5, {"a": 5.0})
    assert (journal.pending, journal.error) == (0, None)
    assert [record["step"] for record in records(journal.path)] == [1, 2, 3, 4, 5]
    assert journal.barrier() == journal.path.stat().st_size


def test_half_a_line_that_could_not_be_cut_at_once_is_cut_before_the_next(journal, monkeypatch):
    def broken(fd, length):
        raise OSError(errno.EIO, "Input/output error")

    disk = FullDisk(30)
    monkeypatch.setattr(module, "os", Os(write=disk, ftruncate=broken))
    journal.metrics(1, {"a": 1.0})
    assert journal.path.stat().st_size == 30
    monkeypatch.setattr(module, "os", os)
    journal.metrics(2, {"a": 2.0})
    assert [record["step"] for record in records(journal.path)] == [1, 2]


def test_the_ring_is_bounded_and_counts_what_it_drops(journal, monkeypatch):
    monkeypatch.setattr(module, "os", Os(write=FullDisk(0)))
    monkeypatch.setattr(module, "RING_BYTES", 1000)
    for step in range(100):
        journal.metrics(step, {"a": 1.0})
    assert journal.dropped + journal.pending == 100
    monkeypatch.setattr(module, "os", os)
    journal.metrics(100, {"a": 1.0})
    assert [record["step"] for record in records(journal.path)][-1] == 100


class SlowDisk:
    """os.write that takes its time for the first line, and for the others until it is let go."""

    def __init__(self):
        self.go = threading.Event()
        self.writers = []

    def __call__(self, fd, data):
        self.writers.append(threading.current_thread())
        if len(self.writers) == 1:
            time.sleep(2 * module.SLOW_S)
        elif not self.go.is_set():
            assert threading.current_thread() is not threading.main_thread()
            self.go.wait(60)
        return os.write(fd, data)


def test_a_loop_does_not_wait_for_a_slow_disk_and_all_lines_come_in_order(journal, monkeypatch):
    disk = SlowDisk()
    monkeypatch.setattr(module, "os", Os(write=disk))
    for step in range(1, 101):
        journal.metrics(step, {"a": float(step)})
    assert [record["step"] for record in records(journal.path)] == [1]
    assert (journal.pending, journal.error) == (99, None)
    disk.go.set()
    journal.barrier()
    assert journal.pending == 0
    assert [record["step"] for record in records(journal.path)] == list(range(1, 101))


def test_lines_are_written_at_once_again_when_the_disk_is_quick_again(journal, monkeypatch):
    disk = SlowDisk()
    disk.go.set()
    monkeypatch.setattr(module, "CALM_S", 0.0)
    monkeypatch.setattr(module, "os", Os(write=disk))
    journal.metrics(1, {"a": 1.0})
    while any(thread.name == "journal" for thread in threading.enumerate()):
        time.sleep(0.005)
    journal.metrics(2, {"a": 2.0})
    assert disk.writers == [threading.main_thread()] * 2
    assert [record["step"] for record in records(journal.path)] == [1, 2]


def test_a_barrier_does_not_pass_while_a_slow_disk_has_lines_to_take(journal, monkeypatch):
    disk = SlowDisk()
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    monkeypatch.setattr(module, "os", Os(write=disk))
    journal.metrics(1, {"a": 1.0})
    journal.metrics(2, {"a": 2.0})
    with pytest.raises(OSError, match="cannot write 1 line:"):
        journal.barrier()
    disk.go.set()


def test_what_the_disk_never_took_is_counted(journal, monkeypatch):
    monkeypatch.setattr(module, "os", Os(write=FullDisk(0)))
    monkeypatch.setattr(module, "RING_BYTES", 1000)
    for step in range(100):
        journal.metrics(step, {"a": 1.0})
    assert not journal.wait(0.0)
    assert journal.give_up() == 100
    assert journal.pending == 0


def test_a_link_in_place_of_the_journal_is_not_followed(tmp_path):
    (tmp_path / "journal.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Journal(tmp_path / "journal.jsonl", attempt=1)


def test_kill_9_loses_no_line_that_was_acknowledged(tmp_path):
    path = tmp_path / "journal.jsonl"
    code = (
        "import sys; from pathlib import Path; from albor_core.run.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]), attempt=1)\n"
        "for step in range(10**9):\n"
        "    journal.metrics(step, {'a': 1.0})\n"
        "    print(step, flush=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    for _ in range(200):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    said = writer.stdout.read().splitlines()
    writer.wait(timeout=30)
    acknowledged = int(said[-1]) if said else 199
    steps = [record["step"] for record in records(path)]
    assert steps == list(range(len(steps)))
    assert len(steps) > acknowledged


def test_the_fast_way_and_the_general_way_write_the_same_record(tmp_path):
    values = {'100 %s "quoted" %%': 0.1, "n": 3, "small": 5e-324, "big": 1.7976931348623157e308}
    journal = Journal(tmp_path / "journal.jsonl", attempt=4, dumps=orjson.dumps)
    assert journal.numbers(7, values)
    journal.append("m", step=7, v=values)
    journal.close()
    fast, general = records(journal.path)
    assert (fast.pop("seq"), general.pop("seq")) == (1, 2)
    for record in (fast, general):
        record.pop("crc")
        assert record.pop("mono") > 0
        assert abs(record.pop("wall") - time.time()) < 60
    assert fast == general
    assert list(fast) == list(general)


@pytest.mark.parametrize(
    "values",
    [
        *({}, {"x": math.nan}, {"x": math.inf}, {"x": 10**400}, {"x": 2**64}, {"x\ud800": 1.0}),
        {**{f"key-{n}": 0.1 for n in range(500)}, "x": 2**64},
    ],
    ids=["none", "nan", "inf", "beyond floats", "beyond 64 bits", "surrogate", "long"],
)
def test_the_fast_way_writes_nothing_that_it_cannot_write_whole(tmp_path, values):
    journal = Journal(tmp_path / "journal.jsonl", attempt=4, dumps=orjson.dumps)
    assert not journal.numbers(7, values)
    assert (journal.seq, journal.path.stat().st_size) == (0, 0)
    journal.close()


@given(
    st.dictionaries(st.text(max_size=30), st.floats() | st.integers(0, 2**63 - 1), max_size=40),
    st.integers(1, 300),
)
def test_the_fast_way_writes_every_value_of_an_interval_that_needs_many_lines(
    tmp_path_factory, some, count
):
    values = {**some, **{f"layer/{n:04d}/gradient_norm": n / 7 for n in range(count)}}
    values = {k: v for k, v in values.items() if k.isprintable()}
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    journal = Journal(path, attempt=1, dumps=orjson.dumps)
    if not journal.numbers(3, values):  # a NaN among few
        journal.metrics(3, values)
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    assert max(map(len, lines)) <= MAX_LINE_BYTES
    found = list(records(path))
    assert [record["seq"] for record in found] == list(range(1, len(lines) + 1))
    assert {record["step"] for record in found} == {3}
    assert len({record["wall"] for record in found}) == 1
    together = {key: value for record in found for key, value in record["v"].items()}
    assert together.keys() == values.keys()
    for key, value in values.items():
        assert together[key] == value or (math.isnan(together[key]) and math.isnan(value))


def test_a_name_longer_than_a_line_costs_no_other_value(tmp_path):
    values = {"x" * 5000: 1.0, **{f"key-{n}": float(n) for n in range(400)}}
    journal = Journal(tmp_path / "journal.jsonl", attempt=1, dumps=orjson.dumps)
    assert journal.numbers(1, values)
    journal.close()
    found = {key: value for r in records(journal.path) for key, value in r["v"].items()}
    assert {f"key-{n}": float(n) for n in range(400)}.items() <= found.items()


def test_a_cut_after_an_interrupted_write_takes_no_whole_line(tmp_path, monkeypatch):
    """An interrupt between a write and its bookkeeping leaves `offset` a line behind."""
    journal = Journal(tmp_path / "journal.jsonl", attempt=1)
    journal.metrics(1, {"x": 1.0})
    journal.offset = 0
    real = os.write
    monkeypatch.setattr(module.os, "write", lambda fd, line: real(fd, line[: len(line) // 2]))
    journal.metrics(2, {"x": 2.0})
    monkeypatch.setattr(module.os, "write", real)
    journal.metrics(3, {"x": 3.0})
    journal.close()
    assert [record["v"]["x"] for record in records(journal.path)] == [1.0, 2.0, 3.0]
