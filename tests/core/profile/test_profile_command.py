"""`albor profile` on made traces, a tiny config and a run."""

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from made_traces import GPU_STEP, op, step, write
from tiny_run import tiny_config

from albor_core.cli.main import cli
from albor_core.run.errors import AlborError

GOLDEN = Path(__file__).parent / "gpu_step.txt"


def ask(*words):
    """What is printed; raises what a command raises."""
    result = CliRunner().invoke(cli, ["profile", *map(str, words)], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.stdout


def asked(*words):
    return json.loads(ask(*words, "--json"))


def refused(*words):
    with pytest.raises(AlborError) as error:
        ask(*words)
    return error.value


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_report_of_a_gpu_step_reads_as_it_always_did(place):
    write(place / "t.json", GPU_STEP, head={"deviceProperties": [{"name": "NVIDIA H100"}]})
    assert ask("t.json") == GOLDEN.read_text()


def test_kernels_are_cut_to_their_number_and_the_rest_is_said(place):
    write(place / "t.json", [step(1, 0, 99), *(op(f"aten::o{n}", n, 1) for n in range(9))])
    found = asked("t.json", "--kernels", 4)
    assert len(found["kernels"]["rows"]) == 4 and found["kernels"]["left_off"] == 5
    assert (found["kernels"]["kind"], found["on"]) == ("operators", "cpu")
    assert "and 5 more: --kernels 9" in ask("t.json", "--kernels", 4)


@pytest.mark.slow
def test_a_config_is_trained_traced_and_nothing_is_left_but_what_was_asked_for(place):
    config = tiny_config(place)
    (place / "c.yaml").write_text(yaml.safe_dump(config))
    found = asked("c.yaml", "--steps", 2, "-o", "kept.json.gz")
    assert (found["source"], found["steps"]) == (
        {"how": "taken", "trace": "kept.json.gz", "run": None},
        2,
    )
    names = [phase["name"] for phase in found["phases"]]
    assert {"data", "forward", "loss", "backward", "optimizer"} <= {*names}
    assert 0.5 < found["coverage"]["share"] <= 1
    assert found["kernels"]["kind"] == "operators" and found["counters"]["matrix_products"] > 0
    measured = {(p["name"], p["pass"]): p["measured_us"] for p in found["roofline"]["products"]}
    assert measured["ffn_gate_up", "forward"] > 0 and measured["lm_head", "forward"] > 0
    assert all(p["measured_us"] and not p["shares_with"] for p in found["roofline"]["products"])
    mfu = found["mfu"]
    assert mfu["parameters"] > 0 and mfu["half_peak"] is None and mfu["half"] is None
    again = asked("kept.json.gz")
    assert again["source"]["how"] == "given" and again["phases"] == found["phases"]
    assert not list((place / "tmp").iterdir()) and not (place / "out").exists()
    assert {path.name for path in (place / "home").iterdir()} <= {"cache"}
    assert os.environ["ALBOR_HOME"] == str(place / "home")
    many = refused("c.yaml", "--steps", 25)
    assert many.exit_code == 2 and "the run has 24" in many.message
    gone = refused("c.yaml", "--set", "data.train=gone")
    assert gone.exit_code == 2 and "albor train plan c.yaml --set data.train=gone" in gone.hint
    there = refused("c.yaml", "-o", "kept.json.gz")
    assert there.exit_code == 2 and "kept.json.gz" in there.message
    for name in ("kept.txt", "-", ""):
        odd = refused("c.yaml", "-o", name)
        assert odd.exit_code == 2 and ".json.gz" in odd.hint and not Path(name or "-").exists()
    Path("link.json").symlink_to("nowhere.json")
    dangling = refused("c.yaml", "-o", "link.json")
    assert dangling.exit_code == 2 and "another file" in dangling.hint


@pytest.mark.slow
def test_a_run_gives_its_newest_trace_or_is_traced_and_says_which(place, monkeypatch):
    from tiny_run import make_run

    from albor_core.run.liveness import Liveness

    run = make_run(place)
    taken = asked(run.path, "--steps", 1)
    assert taken["source"] == {"how": "taken", "trace": None, "run": run.id}
    assert not run.traces.exists()
    run.traces.mkdir()
    for number, name in enumerate(("step-00000010.json.gz", "step-00000009.json.gz")):
        path = write(run.traces / name, [step(1, 0, 10 + number), op("aten::mm", 1, 2)])
        os.utime(path, (number, number))
    kept = asked(run.path)
    assert kept["source"]["how"] == "kept" and kept["step_ms"] == pytest.approx(0.011)
    assert kept["source"]["trace"].endswith("step-00000009.json.gz") and kept["roofline"]
    assert asked(run.path, "--trace", "step-00000010")["step_ms"] == pytest.approx(0.010)
    other = refused(run.path, "--trace", "step-3")
    assert other.exit_code == 3 and "step-00000010.json.gz" in other.message
    assert refused(run.path, "--steps", 3).exit_code == 2
    monkeypatch.setattr(Liveness, "is_alive", property(lambda self: True))
    assert asked(run.path)["source"]["how"] == "kept"
    busy = refused(run.path, "--fresh")
    assert busy.exit_code == 8 and "guard stop" in busy.hint


@pytest.mark.slow
def test_paths_of_a_run_are_those_of_where_it_was_started(place, monkeypatch):
    from tiny_run import make_run

    from albor_core.run.files.whole_file import write_json

    run = make_run(place, data__train="train", data__val="val")
    write_json(run.launch, {"cwd": str(place)})
    monkeypatch.chdir(place / "tmp")
    assert asked(run.path, "--steps", 1, "-o", "here.json")["steps"] == 1
    assert json.loads((place / "tmp" / "here.json").read_text())["traceEvents"]
    there = refused(run.path, "-o", "here.json")
    assert "here.json" in there.message and "--force" not in there.hint


def test_what_cannot_be_profiled_is_refused_by_name(place):
    (place / "bad.json").write_text("hello")
    (place / "broken.yaml").write_text("model: 3")
    assert (refused("bad.json").exit_code, refused("none.json.gz").exit_code) == (7, 3)
    assert refused("broken.yaml").exit_code == 2
    for what in ("nobody", "nowhere.yaml", "no/where"):
        error = refused(what)
        assert error.exit_code == 3 and what in error.message and error.hint
    assert refused("bad.json", "--steps", 3).exit_code == 2
    assert refused("bad.json", "--fresh").exit_code == 2
    assert refused("broken.yaml", "--trace", "x").exit_code == 2
