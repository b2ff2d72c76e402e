"""`albor demo --proof`: the recorded run opens anywhere, tells what it holds and nothing else."""

from __future__ import annotations

import io
import json
import re
import shutil
import statistics
import subprocess
import sys
import tarfile

import pytest
from cli_user import ALBOR, tree_hash, validate
from read_only import where_read_only

from albor_core.demo import proof
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import parse_line

WORDS = ("demo", "--proof", "--json")
ELSEWHERE = re.compile(
    r"/(?:tmp|opt|home|root|usr|var|work|mnt|workspace)/|GPU-[0-9a-f]|\.gpu\b|PYTHONPATH|-m pytest"
    r"|in use by process|LD_LIBRARY|ALBOR_HOME|-gpu-x86|glibc"
)
"""Words of a machine and its surroundings that no record may have."""


@pytest.fixture(scope="module")
def files():
    """Of the record that comes with Albor, by their path in the run directory."""
    with tarfile.open(proof.RECORD) as packed:
        assert {member.name.partition("/")[0] for member in packed} == {"proof"}
        return {
            member.name.removeprefix("proof/"): packed.extractfile(member).read()
            for member in packed.getmembers()
        }


def told(files):
    """Every JSON document and line of a record, with the file that holds it."""
    for name, raw in files.items():
        if name.endswith(".json"):
            yield name, json.loads(raw)
        elif name.endswith(".jsonl"):
            yield from ((name, json.loads(line)) for line in raw.splitlines())


def pairs(value):
    """Every key of a document with what it has, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield key, item
        if isinstance(item, dict | list):
            yield from pairs(item)


def test_the_record_that_comes_with_albor_is_small_and_tells_of_the_run_alone(files):
    assert proof.RECORD.stat().st_size < 2_000_000
    state = json.loads(files["training_state.json"])
    (used,) = state["gpu"]
    others = re.compile(rf"gpu(?!{used['index']}/)\d")
    for name, raw in files.items():
        assert not re.search(r"\.(?:db|lock|safetensors)|-(?:shm|wal)$|launch\.json|watch", name)
        assert not ELSEWHERE.search(raw.decode()), name
    for name, document in told(files):
        for key, value in pairs(document):
            where = name, key, value
            assert key not in ("untracked", "patch") or value is None, where
            assert (
                key not in ("host", "by", "kernel", "load", "load1")
                or not value
                or (isinstance(value, dict) and not any(value.values()))
            ), where
            assert key not in ("uuid", "uptime_s") or value is None, where
            assert key not in ("env", "env_names") or not value, where
            assert key != "boot_id" or not value.strip("0-"), where
            assert key != "system" or value == "Linux" or isinstance(value, dict), where
            assert not others.match(str(key)), where
            assert value != "guard.preflight_note", where
    assert {process["pid"] for process in used["processes"]} == {state["pid"]}


def test_each_line_of_the_recorded_journal_is_whole(files):
    for name in ("journal.jsonl", "system.jsonl"):
        assert all(parse_line(line) for line in files[name].splitlines(keepends=True))


def test_it_opens_in_a_fresh_home_and_says_what_the_record_holds(desk, files):
    result = desk.quick(*WORDS, "--out", "out")
    assert result.code == 0, result
    found = result.document
    validate(found)
    assert (found["run"], found["reused"]) == ("proof", False)
    assert found["path"] == str(desk.folder / "out" / "runs" / "proof")

    loss, step_ms, tokens, val = {}, {}, {}, {}
    for line in files["journal.jsonl"].splitlines(keepends=True):
        record = parse_line(line)
        if record["t"] == "r":  # a second life begins: what came after is told again
            for series in (loss, step_ms, tokens, val):
                for step in [step for step in series if step > record["to"]]:
                    del series[step]
        for key, series in (
            ("train/loss", loss), ("perf/step_ms", step_ms),
            ("train/tokens", tokens), ("val/loss", val),
        ):  # fmt: skip
            if record["t"] == "m" and key in record["v"]:
                assert record["step"] not in series
                series[record["step"]] = record["v"][key]
    steps = max(loss)
    assert found["steps"] == steps == json.loads(files["run.json"])["max_steps"]
    assert (sorted(loss), found["steps_not_once"]) == (list(range(1, steps + 1)), 0)
    assert found["train_loss"] == loss[steps] and found["val_loss"] == val[steps]
    assert found["tokens"] == tokens[steps]
    usual = statistics.median(step_ms.values())
    begins = {1, *(kill["resumed_from"] + 1 for kill in found["kills"])}  # which may compile
    odd = [step for step, ms in step_ms.items() if abs(ms - usual) > 30 and step not in begins]
    assert found["step_times"].startswith(f"{len(odd)} of {steps:,}, ")
    step_ms[1] = usual
    told = [min(known for known in step_ms if known >= step) for step in range(1, steps + 1)]
    assert found["step_seconds"] == round(sum(step_ms[step] for step in told) / 1000, 1)

    lives = [json.loads(line) for line in files["guard/attempts.jsonl"].splitlines()]
    ends = [life for life in lives if life["t"] == "attempt.end"]
    assert (found["attempts"], found["restarts"]) == (len(ends), len(ends) - 1) == (3, 2)
    assert [(kill["step"], kill["signal"], kill["report"]) for kill in found["kills"]] == [
        (life["step"], "SIGKILL", life["report"]) for life in ends[:2]
    ]
    assert all(kill["resumed_from"] < kill["step"] for kill in found["kills"])
    (kept,) = (json.loads(raw) for name, raw in files.items() if name.endswith("result.json"))
    scores = [score for task in kept["tasks"] for score in task["scores"]]
    assert [(one["name"], one["value"], one["n"]) for one in found["scores"]] == [
        (one["name"], one["value"], one["n"]) for one in scores
    ]


def test_every_command_shows_it_as_what_it_is(desk):
    shown = desk.quick("demo", "--proof", "--out", "out")
    assert shown.code == 0
    for words in ("1,648, each once", "SIGKILL at step 549", "held/bpb", "left out", "albor-tui "):
        assert words in shown.out
    (row,) = desk.quick("runs", "ls", "--json").document["runs"]
    assert (row["id"], row["status"]) == ("proof", "completed")
    detail = desk.quick("runs", "show", "proof").out
    assert detail.count("killed SIGKILL") == 2 and "checkpoint, gone" in detail
    assert "SIGKILL (137) at step 1098" in desk.quick("guard", "report", "proof").out
    listed = desk.quick("checkpoints", "ls", "proof").out
    assert "16 checkpoints that it wrote" in listed and "left out of a copy" in listed
    assert desk.quick("attention").out == "nothing needs you\n"
    assert "nothing to resume" in desk.quick("train", "resume", "proof").err
    assert desk.quick("report", "out/runs/proof", "-o", "page.html").code == 0
    error = desk.quick("data", "batch", "proof", "--json").error
    assert "train/train" in error["message"]  # its data did not come with it
    cockpit = json.loads(desk.cockpit("--once", "--json", "proof").out)
    assert cockpit["now"]["status"] == "completed"


def test_a_second_call_reuses_it_whatever_was_said_of_it(desk):
    assert desk.quick(*WORDS, "--out", "out").document["reused"] is False
    assert desk.quick("runs", "tag", "proof", "shown").code == 0
    before = tree_hash(desk.folder / "out" / "runs" / "proof" / "logs")
    second = desk.quick(*WORDS, "--out", "out").document
    assert second["reused"] is True
    assert tree_hash(desk.folder / "out" / "runs" / "proof" / "logs") == before
    (row,) = desk.quick("runs", "ls", "--json").document["runs"]
    assert "shown" in row["tags"]


def test_what_is_in_its_place_is_named_and_left_alone(desk):
    place = desk.folder / "out" / "runs" / "proof"
    place.mkdir(parents=True)
    (place / "mine.txt").write_text("mine")
    before = tree_hash(desk.folder.parent, desk.home)
    foreign = desk.quick(*WORDS, "--out", "out")
    assert (foreign.code, foreign.error["code"]) == (2, "usage")
    assert f"{place}: is not the run as it was recorded" in foreign.error["message"]
    assert tree_hash(desk.folder.parent, desk.home) == before
    shutil.rmtree(place)

    assert desk.quick(*WORDS, "--out", "out").code == 0
    journal = place / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-9])
    before = tree_hash(desk.folder, desk.home)
    damaged = desk.quick(*WORDS, "--out", "out")
    assert (damaged.code, "journal.jsonl differs" in damaged.error["message"]) == (2, True)
    assert f"rm -r {place}" in damaged.error["hint"]
    assert tree_hash(desk.folder, desk.home) == before


@pytest.mark.parametrize(
    ("out", "code"), [("file", 2), ("file/out", 1), ("/proc/none/out", 1), ("x" * 300, 1)]
)
def test_an_output_that_cannot_be_a_folder_leaves_nothing(desk, out, code):
    (desk.folder / "file").write_text("mine")
    before = tree_hash(desk.folder)
    result = desk.quick(*WORDS, "--out", out)
    assert (result.code, out in result.error["message"]) == (code, True), result
    assert result.error["hint"]
    assert tree_hash(desk.folder) == before


@pytest.mark.parametrize("has_runs", [False, True])
def test_a_read_only_home_is_told_before_anything_is_written(desk, has_runs):
    (desk.home / "runs" if has_runs else desk.home).mkdir(parents=True, exist_ok=True)
    before = tree_hash(desk.folder, desk.home)
    argv = [*ALBOR, *WORDS, "--out", "out"]
    done = where_read_only(desk.home, argv, cwd=desk.folder, env=desk.environment())
    assert (done.returncode, done.stderr) == (1, ""), done
    error = json.loads(done.stdout)["error"]
    assert error["message"].startswith(str(desk.home)) and "Read-only" in error["message"]
    assert "remount,rw" in error["hint"]
    assert tree_hash(desk.folder, desk.home) == before


def test_a_home_that_refuses_only_then_leaves_no_run(desk, monkeypatch):
    def refuse(run):
        raise PermissionError(1, "Operation not permitted", "pointer")

    monkeypatch.setattr(proof, "register", refuse)
    before = tree_hash(desk.folder)
    assert desk.quick(*WORDS, "--out", "new/out").code == 1
    assert tree_hash(desk.folder) == before


def test_a_home_that_has_it_in_another_folder_says_where(desk):
    assert desk.quick(*WORDS, "--out", "one").code == 0
    before = tree_hash(desk.folder)
    second = desk.quick(*WORDS, "--out", "two")
    assert (second.code, second.error["code"]) == (8, "in_use")
    assert str(desk.folder / "one" / "runs" / "proof") in second.error["message"]
    assert second.error["hint"] == f"albor demo --proof --out {desk.folder / 'one'}"
    assert tree_hash(desk.folder) == before
    shutil.rmtree(desk.folder / "one")
    assert desk.quick(*WORDS, "--out", "two").code == 0


def test_a_run_of_the_users_own_keeps_its_name(desk, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(desk.home))
    create_run(desk.folder / "mine", "proof", experiment="e", name="p", kind="train", argv=[])
    found = desk.quick(*WORDS, "--out", "out").document
    assert found["run"] == "proof@elsewhere"
    assert found["steps_not_once"] == 0
    assert "each once" in desk.quick("demo", "--proof", "--out", "out").out


def test_tokens_beside_it_would_change_nothing_and_are_refused(desk):
    before = tree_hash(desk.folder.parent, desk.home)
    result = desk.quick(*WORDS, "--tokens", "1M")
    assert (result.code, result.error["code"]) == (2, "usage")
    assert "--tokens has no effect beside --proof" in result.error["message"]
    assert tree_hash(desk.folder.parent, desk.home) == before


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "proof/../../escaped", "bare"])
def test_a_record_that_reaches_out_of_its_folder_is_refused(desk, monkeypatch, tmp_path, name):
    bad = tmp_path / "bad.tar.xz"
    with tarfile.open(bad, "w:xz") as packed:
        info = tarfile.TarInfo(name)
        info.size = 4
        packed.addfile(info, io.BytesIO(b"mine"))
    monkeypatch.setattr(proof, "RECORD", bad)
    before = tree_hash(desk.folder.parent, desk.home)
    result = desk.quick(*WORDS, "--out", "out")
    assert (result.code, "is not a file of a run" in result.error["message"]) == (1, True)
    assert tree_hash(desk.folder.parent, desk.home) == before


@pytest.mark.slow
def test_it_needs_nothing_of_the_trainer(desk):
    script = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'pyarrow', 'tokenizers', 'safetensors', 'accelerate'):\n"
        "    sys.modules[name] = None  # as if it were not installed\n"
        "sys.argv = ['albor', 'demo', '--proof', '--json']\n"
        "from albor_core.cli.main import run\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=desk.folder,
        env=desk.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "completed"
