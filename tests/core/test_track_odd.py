"""Bad input: one behaviour each, as the how-to has it in a table, and `albor doctor` tells it."""

import json
import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from albor_core import track
from albor_core.cli.main import cli
from albor_core.store.reader import Reader
from albor_core.store.settle import settle

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "how-to" / "track-your-own-loop.md"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr(track.Sidecar, "tend", lambda self: None)


def series(run):
    settle(run.dir)
    with Reader(run.dir.store) as reader:
        return {key: [p[:2] for p in reader.points(run.id, key)] for key in reader.keys(run.id)}


def test_bad_input_is_recorded_as_the_table_says_and_raises_nothing(tmp_path):
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    with track.start("odd") as run:
        run.log({"a": math.nan, "b": math.inf, "c": -math.inf}, step=1)
        run.log({"huge": 2**63, "beyond": 10**400, "big": 2**63 - 1, "wide": 2**64 - 1}, step=2)
        run.log({"np": numpy.float32(0.5), "pt": torch.tensor([0.25]), "yes": True}, step=3)
        run.log({"train": {"acc": {"top1": 0.5}}, "none": None}, step=4)
        run.log({"x\x1b[31m\n": 1.0, "": 2.0, "k" * 300: 3.0}, step=5)
        run.log({"text": "low", "list": [1], "array": numpy.ones(3), "fine": 1.0}, step=6)
        run.log({"x": 1.0, "y": 1.0}, step=7)
        run.log({"x": 2.0, "z": 1.0}, step=7)
        run.log({"x": 3.0}, step=3)
        run.log({"x": 4.0}, step="soon")
        run.log({"x": 5.0})
        run.log("nothing", step=9)
        run.artifact(tmp_path / "absent")
    found = series(run)
    assert math.isnan(found.pop("a")[0][1])
    long = next(key for key in found if key.startswith("kkk"))
    assert len(long) == 256 and found.pop(long) == [(5, 3.0)]
    assert found == {
        "b": [(1, math.inf)],
        "c": [(1, -math.inf)],
        "huge": [(2, 2.0**63)],
        "beyond": [(2, math.inf)],
        "big": [(2, float(2**63 - 1))],
        "wide": [(2, 2.0**64)],
        "np": [(3, 0.5)],
        "pt": [(3, 0.25)],
        "yes": [(3, 1.0)],
        "train/acc/top1": [(4, 0.5)],
        "x\\x1b[31m\\n": [(5, 1.0)],
        "(empty)": [(5, 2.0)],
        "fine": [(6, 1.0)],
        "x": [(3, 3.0), (4, 4.0), (5, 5.0), (7, 2.0)],
        "y": [(7, 1.0)],
        "z": [(7, 1.0)],
    }
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(done.output)["checks"]}
    said = checks["logged"]["detail"]
    kinds = ("huge_integer", "key_changed", "not_a_number", "not_a_mapping", "bad_step")
    for kind in (*kinds, "step_repeated", "step_backwards", "artifact_unreadable"):
        assert re.search(rf"\d {kind} ", said), (kind, said)
    assert checks["logged"]["ok"] is None and run.id in said


def test_the_table_names_every_kind_that_is_counted():
    sources = [ROOT / "albor_core" / "track.py", ROOT / "albor_core" / "run" / "values.py"]
    kinds = {k for path in sources for k in re.findall(r'\.note\(\s*"(\w+)"', path.read_text())}
    told = set(re.findall(r"\| `(\w+)` \|$", TABLE.read_text(), re.MULTILINE))
    assert kinds == told and len(kinds) >= 7


def test_doctor_tells_of_damaged_lines_and_of_folders_that_others_may_write(tmp_path):
    with track.start("good") as run:
        run.log({"x": 1.0})
    with run.dir.journal.open("ab") as file:
        file.write(b"garbage\n" * 3)
    settle(run.dir)
    run.path.chmod(0o777)
    checks = {check["name"]: check for check in json.loads(doctor())["checks"]}
    assert checks["lines"]["detail"] == f"3 damaged or unknown lines in the files of {run.id}"
    assert checks["trust"]["detail"] == f"{run.path}: others may write to it"
    run.path.chmod(0o700)
    assert "trust" not in {check["name"] for check in json.loads(doctor())["checks"]}


def doctor():
    return CliRunner().invoke(cli, ["doctor", "--json"]).output
