"""benchmarks/step/gate.py: what is slower is found, what scatters is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "step" / "gate.py"


@pytest.fixture
def room(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import gate

    return gate


def pairs_of(*ratios, name="rope forward us"):
    return [{"here": {name: 80.0 * ratio}, "there": {name: 80.0}} for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "is_slower"),
    [
        ((1.2, 1.15, 1.25, 1.18, 1.22), True),
        ((1.2, 1.2, 1.2, 1.2, 0.5), False),  # quartile 0.85: one in five is too many
        ((1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 0.5), True),  # one in nine is not
        ((1.09, 1.09, 1.09, 1.09, 1.09), False),  # all agree, on less than the limit
        ((1.5, 0.7, 1.4, 0.8, 1.3), False),  # much, and they do not agree
        ((0.5, 0.5, 0.5), False),
        ((1.0, 1.0, 1.0), False),
    ],
)
def test_slower_is_by_more_than_the_limit_and_by_most_pairs(room, ratios, is_slower):
    (found,), apart = room.judge(pairs_of(*ratios), 0.10)
    assert (found.is_slower, apart) == (is_slower, [])
    assert found.quantity == "rope forward us"
    assert str(found).startswith("SLOWER") == is_slower


def test_the_limit_is_what_was_asked_for(room):
    assert room.judge(pairs_of(1.05, 1.06, 1.05), 0.04)[0][0].is_slower
    assert not room.judge(pairs_of(1.3, 1.3, 1.3), 0.4)[0][0].is_slower


def test_what_one_side_has_not_is_told_and_the_rest_is_judged(room):
    pairs = pairs_of(1.3, 1.3, 1.3)
    for pair in pairs:
        pair["here"]["muon forward us"] = 5.0
    del pairs[1]["here"]["muon forward us"]
    judged, apart = room.judge(pairs, 0.10)
    assert [one.quantity for one in judged if one.is_slower] == ["rope forward us"]
    assert apart == ["muon forward us"]


def test_a_baseline_is_held_against_the_median_of_processes(room):
    found = [{"a us": us, "b us": 1.0} for us in (10.0, 12.0, 50.0)]
    judged, apart = room.judge_baseline(found, {"a us": 10.0, "c us": 1.0}, 0.10)
    assert [(one.here, one.middle, one.is_slower) for one in judged] == [(12.0, 1.2, True)]
    assert apart == ["b us", "c us"]


@pytest.fixture
def gate(room, monkeypatch, capsys, tmp_path):
    """The program with made-up times: microseconds of rope by checkout; baselines of its own."""
    monkeypatch.setattr(room, "BASELINES", tmp_path / "baselines")
    monkeypatch.setattr(room, "ROOT", tmp_path)
    monkeypatch.setattr(room, "device_name", lambda device: "NVIDIA H200 (made up)")
    other = tmp_path / "other"
    (other / "albor_core" / "kernels").mkdir(parents=True)

    def call(*words, here=80.0, there=80.0):
        times = {tmp_path: here, other: there}
        monkeypatch.setattr(room, "measured", lambda place, _: {"rope forward us": times[place]})
        monkeypatch.setattr(sys, "argv", ["gate.py", "--device", "cpu", "--pairs", "3", *words])
        return room.main(), capsys.readouterr().out

    return call, tmp_path


def test_the_exit_code_is_1_where_something_is_slower_and_it_is_named(gate):
    call, folder = gate
    words = ("--against", str(folder / "other"), "--json", str(folder / "out.json"))
    assert call(*words)[0] == 0
    code, out = call(*words, here=100.0)
    assert (code, out.splitlines()[-1]) == (1, "slower: rope forward us")
    document = json.loads((folder / "out.json").read_text())
    assert len(document["pairs"]) == 3
    assert [one["is_slower"] for one in document["judged"]] == [True]
    assert call(*words, there=100.0)[0] == 0


def test_a_baseline_of_a_kind_of_gpu_is_written_and_trips_alone_only_where_asked(gate):
    call, folder = gate
    assert call("--write-baseline")[0] == 0
    path = folder / "baselines" / "nvidia-h200-made-up.json"
    written = json.loads(path.read_text())
    assert written["figures"] == {"rope forward us": 80.0}
    assert {"torch", "triton", "commit", "device", "processes"} < set(written)
    code, out = call("--baseline", here=85.0)
    assert (code, "processes 3" in out) == (0, True)
    code, out = call("--baseline", here=100.0)
    assert (code, "SLOWER  rope forward us: 100 against 80" in out) == (1, True)
    code, out = call("--against", str(folder / "other"), here=100.0, there=100.0)
    assert (code, "for information" in out, "SLOWER" in out) == (0, True, True)


def test_of_a_baseline_that_is_cut_off_there_is_what_was_measured(gate, room, monkeypatch):
    _, folder = gate

    def cut_off(*_):
        raise KeyboardInterrupt

    path = folder / "baselines" / "nvidia-h200-made-up.json"
    figures = iter(({"rope forward us": 70.0}, {"rope forward us": 90.0}))
    monkeypatch.setattr(room, "measured", lambda *_: next(figures, None) or cut_off())
    with pytest.raises(KeyboardInterrupt):
        room.write_baseline(room.argparse.Namespace(device="cpu", pairs=3))
    written = json.loads(path.read_text())
    assert (written["processes"], written["figures"]) == (2, {"rope forward us": 80.0})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--against nowhere --device cpu", "nowhere is not a checkout"),
        (f"--against {ROOT} --device cpu --pairs 2", "--pairs must be at least 3"),
        (f"--against {ROOT} --device cpu --limit 0", "--limit must be above 0"),
        (f"--against {ROOT} --device cpu --op nothing", "no op 'nothing'"),
        (f"--against {ROOT}", "needs a CUDA GPU"),
        ("--self-test rope --device cpu --json out.json", "--json needs --against"),
        ("", "one of the arguments --against"),
    ],
)
def test_what_cannot_be_measured_ends_with_2(room, monkeypatch, capsys, words, says):
    monkeypatch.setattr(room.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gate.py", *words.split()])
    try:
        code = room.main()
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_a_checkout_whose_bench_fails_ends_with_2_and_its_own_words(tmp_path):
    (tmp_path / "albor_core" / "kernels").mkdir(parents=True)
    (tmp_path / "albor_core" / "__init__.py").write_text("raise ImportError('broken on purpose')")
    words = ["--against", str(tmp_path), "--device", "cpu", "--pairs", "3", "--op", "rms_norm"]
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "broken on purpose" in done.stderr


@pytest.mark.sweep
def test_a_kernel_that_works_twice_is_found_by_name_and_a_copy_passes():
    """By far more than what else the machine does can explain."""
    words = ["--self-test", "rms_norm", "--op", "swiglu", "--device", "cpu", "--limit", "1"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *words, "--times", "6", "--pairs", "7"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "slower in a copy 0, in the slowed one ['rms_norm']" in done.stdout
