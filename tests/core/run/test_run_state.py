"""training_state.json: whole or not at all, and old news looks old."""

import json
import math
import threading

import pytest

from albor_core.feed.run.curves import state_curve
from albor_core.run import state as state_file
from albor_core.run.state import MAX_BYTES, Freshness, StateWriter, read_state
from albor_core.run.values.lenient import strict_json


@pytest.fixture
def writer(tmp_path):
    return StateWriter(tmp_path / "training_state.json", run_id="r", attempt=2, nonce="n")


def test_what_is_published_is_read_with_identity_and_a_growing_sequence(writer):
    writer.fields["loss"] = 2.5
    writer.phase("training", limit_s=60.0)
    first = read_state(writer.path)
    writer.publish()
    second = read_state(writer.path)
    assert (first["run_id"], first["attempt"], first["phase"]) == ("r", 2, "training")
    assert first["phase_limit_s"] == 60.0
    assert first["loss"] == 2.5
    assert second["seq"] == first["seq"] + 1
    assert second["phase_since_mono_ns"] == first["phase_since_mono_ns"]
    assert writer.current_phase == "training"


def test_the_pause_thread_moves_its_own_counter(writer):
    writer.publish()
    writer.keep_alive()
    state = read_state(writer.path)
    assert (state["seq"], state["alive_seq"]) == (1, 1)


def test_unknown_and_not_finite_are_null_and_never_zero(writer):
    writer.fields.update(loss=math.nan, mfu=None, histories=[1.0, math.inf])
    writer.publish()
    state = json.loads(writer.path.read_text(), parse_constant=lambda text: pytest.fail(text))
    assert (state["loss"], state["mfu"], state["histories"]) == (None, None, [1.0, None])
    assert strict_json({"a": (math.nan, 1)}) == {"a": [None, 1]}


def test_histories_are_thinned_until_the_document_is_small_and_keep_the_newest(writer):
    writer.fields["loss_history"] = [n + 0.123456789 for n in range(5000)]
    writer.fields["note"] = "x" * 1000
    writer.publish()
    assert writer.path.stat().st_size <= MAX_BYTES
    history = read_state(writer.path)["loss_history"]
    assert len(history) > 100
    assert history[-1] == 4999.123456789


def test_thinned_histories_keep_their_values_at_their_steps(writer):
    steps = list(range(10, 1210, 10))
    writer.fields |= {
        "history_steps": steps,
        "loss_history": [step + 0.123456789 for step in steps],
        "gpu": [{"name": "H100", "processes": ["python" * 10] * 28} for _ in range(8)],
    }
    writer.publish()
    state = read_state(writer.path)
    assert 0 < len(state["history_steps"]) < len(steps)
    assert state["loss_history"] == [step + 0.123456789 for step in state["history_steps"]]
    curve = state_curve("train/loss", state, interval=10)
    assert list(curve.steps) == state["history_steps"]
    assert curve.mean[-1] == 1200.123456789


def test_a_full_disk_never_stops_the_loop(writer, tmp_path, monkeypatch):
    writer.path = tmp_path / "gone" / "training_state.json"
    writer.publish()
    assert "No such file" in writer.error
    (tmp_path / "gone").mkdir()
    writer.publish()
    assert writer.error is None


def test_readers_never_see_half_a_document(writer):
    writer.fields["loss_history"] = [1.0] * 120
    writer.publish()
    done = threading.Event()

    def write():
        for _ in range(300):
            writer.publish()
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = []
    while not done.is_set():
        seen.append(read_state(writer.path))
    thread.join(timeout=30)
    assert seen
    assert None not in seen
    sequence = [state["seq"] for state in seen]
    assert sequence == sorted(sequence)


@pytest.fixture
def held_disk(monkeypatch):
    """The first write of the state file hangs until it is let; later ones do not."""
    let, begun, write = threading.Event(), threading.Event(), state_file.write_bytes
    written = []

    def slow(path, content, **how):
        if not begun.is_set():
            begun.set()
            assert let.wait(30)
        write(path, content, **how)
        written.append(json.loads(content)["seq"])

    monkeypatch.setattr(state_file, "write_bytes", slow)
    return let, begun, written


def until_written(writer):
    for thread in threading.enumerate():
        if thread.name == "state":
            thread.join(30)


def test_news_that_wait_for_no_disk_are_written_when_it_is_free_and_only_the_newest(
    writer, held_disk
):
    let, begun, written = held_disk
    writer.publish(waits=False)
    assert begun.wait(30)
    for _ in range(4):  # none of them waits
        writer.publish(waits=False)
    assert sum(thread.name == "state" for thread in threading.enumerate()) == 1
    let.set()
    until_written(writer)
    assert written == [1, 5]
    assert read_state(writer.path)["seq"] == 5
    writer.publish(waits=False)
    until_written(writer)
    assert written == [1, 5, 6]


def test_older_news_never_replace_newer_ones(writer, held_disk):
    let, begun, written = held_disk
    writer.publish(waits=False)
    assert begun.wait(30)
    writer.publish(waits=False)
    last = threading.Thread(target=writer.phase, args=("completed",))
    last.start()
    last.join(0.3)  # time enough to overtake
    let.set()
    last.join(30)
    assert read_state(writer.path)["phase"] == "completed"
    until_written(writer)
    assert written[-1] == 3
    assert read_state(writer.path)["phase"] == "completed"


def test_where_no_thread_can_be_had_news_are_written_all_the_same(writer, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    writer.publish(waits=False)
    writer.publish(waits=False)
    assert read_state(writer.path)["seq"] == 2


def test_a_thread_that_dies_takes_no_later_news_along(writer, monkeypatch):
    write, died = state_file.write_bytes, []

    def out_of_memory_once(*arguments, **how):
        if not died:
            died.append(1)
            raise MemoryError
        write(*arguments, **how)

    monkeypatch.setattr(state_file, "write_bytes", out_of_memory_once)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    for _ in range(2):
        writer.publish(waits=False)
        until_written(writer)
    assert died
    assert read_state(writer.path)["seq"] == 2


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b'{"schema": "other/1"}', b'{"schema": 5}', b"\xff",
            b'{"schema": "albor.state/1", "x": NaN}', b" " * (1 << 17), b"[" * 60_000],
    ids=["empty", "half", "list", "null", "other", "number", "bytes", "nan", "large", "deep"],
)  # fmt: skip
def test_what_is_no_state_is_no_news(tmp_path, raw):
    path = tmp_path / "training_state.json"
    assert read_state(path) is None
    path.write_bytes(raw)
    assert read_state(path) is None


def test_unknown_keys_and_newer_schemas_are_kept(tmp_path):
    path = tmp_path / "training_state.json"
    path.write_text('{"schema": "albor.state/7", "seq": 1, "novelty": {"a": 1}}')
    assert read_state(path)["novelty"] == {"a": 1}


def state(seq, nonce="n", mono_s=None, boot="this boot"):
    return {"nonce": nonce, "seq": seq, "alive_seq": 0, "boot_id": boot,
            "mono_ns": None if mono_s is None else int(mono_s * 1e9)}  # fmt: skip


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr("albor_core.run.state.boot_id", lambda: "this boot")
    now = [1000.0]
    return now, Freshness(clock=lambda: now[0])


def test_age_is_none_before_any_news_and_grows_without_news(clock):
    now, fresh = clock
    assert fresh.age_s(None) is None
    assert fresh.age_s(state(1)) == 0.0
    now[0] += 7
    assert fresh.age_s(state(1)) == 7.0
    assert fresh.age_s(None) == 7.0
    assert fresh.age_s(state(2)) == 0.0
    now[0] += 1
    assert fresh.age_s(state(2, nonce="other")) == 0.0


def test_an_old_file_looks_old_at_first_sight(clock):
    _, fresh = clock
    assert fresh.age_s(state(1, mono_s=400.0)) == 600.0


@pytest.mark.parametrize(("mono_s", "boot"), [(5000.0, "this boot"), (400.0, "another boot")])
def test_a_stamp_from_the_future_or_another_boot_is_not_believed(clock, mono_s, boot):
    _, fresh = clock
    assert fresh.age_s(state(1, mono_s=mono_s, boot=boot)) == 0.0
