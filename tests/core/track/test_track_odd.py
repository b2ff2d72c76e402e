"""Bad input: one behaviour each, as the how-to has it in a table, and `albor doctor` tells it."""

import json
import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from unguarded import alone, series  # noqa: F401

from albor_core import track
from albor_core.cli.main import cli
from albor_core.run.state import StateWriter
from albor_core.run.tracked_state import LiveState
from albor_core.run.values.metrics import as_json
from albor_core.store.index.catch_up import drain_index

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "docs" / "how-to" / "track-your-own-loop.md"


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


def refuse(*args):
    raise RuntimeError("not for you")


def made(*bases, **members):
    """A class whose named methods all raise, but for those given."""
    return type("Odd", bases or (object,), members)


Raises = made(__float__=refuse, __int__=refuse, __str__=refuse, __repr__=refuse, __fspath__=refuse)
Key = made(__hash__=lambda self: 1, __eq__=refuse, __str__=refuse)
SELF: dict = {}
SELF.update({str(i): SELF for i in range(10)})  # ten in each other: 10^8 of them 8 deep
DEEP: dict = {"x": 1.0}
for _ in range(100_000):
    DEEP = {"x": DEEP}
CONTRIVED = {
    "an object whose __float__ raises": (lambda: {"x": Raises()}, "not_a_number"),
    "a float whose __float__ raises": (
        lambda: {"x": made(float, __float__=refuse)(1.5)}, "not_a_number",
    ),
    "an int whose __int__ raises": (
        lambda: {"x": made(int, __int__=refuse)(1)}, "not_a_number",
    ),
    "an object that lies about its class": (
        lambda: {"x": made(__class__=property(refuse))()}, "not_a_number",
    ),
    "an object without attributes": (
        lambda: {"x": made(__getattr__=refuse)()}, "not_a_number",
    ),
    "a str subclass as a value": (
        lambda: {"x": made(str, __str__=refuse)("1")}, "not_a_number",
    ),
    "keys whose __eq__ and __str__ raise": (lambda: {Key(): "x"}, "not_a_number"),
    "a mapping in itself": (lambda: SELF, "nested_too_deep too_many_values"),
    "a mapping of a hundred thousand levels": (lambda: DEEP, "nested_too_deep"),
    "a mapping of 200,000 values": (
        lambda: dict.fromkeys(map(str, range(200_000)), None), "too_many_values",
    ),
    "a mapping that cannot be read": (
        lambda: made(dict, items=refuse)(x=1.0), "not_a_mapping",
    ),
    "a mapping inside that cannot be read": (
        lambda: {"x": made(dict, items=refuse)(x=1.0)}, "not_a_number",
    ),
    "an object for a mapping": (lambda: made(__class__=property(refuse))(), "not_a_mapping"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONTRIVED)
def test_a_contrived_value_is_left_out_and_counted_and_raises_nothing(what):
    make, kinds = CONTRIVED[what]
    with track.start("odd") as run:
        for step in (1, 2):  # what was seen before takes another way
            run.log(make(), step=step)
        run.event("odd", value=make())
        run.log({"fine": 1.0}, step=3)
        assert set(run.odd.counts) == set(kinds.split())
    json.dumps(as_json(make()), allow_nan=False)
    assert series(run) == {"fine": [(3, 1.0)]}


def test_contrived_keys_and_large_tensors_have_the_behaviour_of_the_table():
    torch = pytest.importorskip("torch")
    word = made(str, __str__=refuse, isprintable=refuse, __eq__=refuse, __hash__=str.__hash__)
    with track.start("odd") as run:
        run.log({b"k": 1.0, (1, 2): 2.0, word("w"): 3.0})
        run.log({"t": torch.ones(1000, 1000), "none": torch.ones(0), "one": torch.ones(1, 1)})
        run.log({"meta": torch.ones(1, device="meta"), "complex": torch.ones(1) * 1j, "z": 1j})
        assert run.odd.counts == {"not_a_number": 5}
    found = series(run)
    assert found == {"b'k'": [(1, 1.0)], "(1, 2)": [(1, 2.0)], "w": [(1, 3.0)], "one": [(2, 1.0)]}


def test_contrived_steps_words_and_paths_raise_nothing(tmp_path):
    torch = pytest.importorskip("torch")
    unequal = made(__int__=lambda self: 3, __ne__=refuse, __str__=refuse)
    with track.start("odd") as run:
        for step in (Raises(), unequal(), torch.ones(2), [], b"1", math.nan):
            run.log({"x": 1.0}, step=step)
        assert run.odd.counts == {"bad_step": 6}
        run.event(Raises(), severity=torch.ones(2), step=Raises(), **{"x": Raises()})
        run.sample(Raises(), prompt=Raises())
        run.beat(Raises())
        for path in (Raises(), None, 3, "a\0b", "~nobody-of-this-name/x"):
            assert run.artifact(path, name=Raises(), kind=Raises()) is None
        (tmp_path / "file").write_text("x")
        assert run.artifact(tmp_path / "file", name=Raises(), kind=Raises())
        run.close(message=Raises())
    assert run.odd.counts == {"bad_step": 6, "artifact_unreadable": 5}
    assert series(run) == {"x": [(step, 1.0) for step in range(1, 7)]}


def test_an_error_that_cannot_be_told_is_still_the_programs_own():
    with pytest.raises(ValueError), track.start("odd") as run:
        raise made(ValueError, __str__=refuse)
    assert json.loads(run.dir.exit.read_text())["reason"] == "exception"


def test_an_integer_beyond_floats_is_an_infinity_and_ends_no_loop():
    with track.start("odd", max_steps=10**400) as run:
        for step, loss in enumerate((1.0, 10**400, -(10**5000)), 1):  # the name is known by then
            run.log({"loss": loss}, step=step)
        assert run.odd.counts == {"huge_integer": 2}
    assert series(run) == {"train/loss": [(1, 1.0), (2, math.inf), (3, -math.inf)]}
    assert json.loads(run.dir.exit.read_text())["code"] == 0
    state = json.loads(run.dir.state.read_text())
    assert (state["phase"], state["loss"], state["loss_text"]) == ("completed", None, "-inf")


def test_the_live_state_takes_any_integer(tmp_path):
    path = tmp_path / "training_state.json"
    live = LiveState(StateWriter(path, run_id="r", attempt=1, nonce="n"), max_steps=10**400)
    for step in (1, 2):
        live.take({"train/loss": 10**400, "train/tokens": 7}, 1)
        live.end("completed", step)
    state = json.loads(path.read_text())
    assert (state["loss"], state["loss_text"], state["tokens"]) == (None, "inf", 7)


def test_the_table_names_every_kind_that_is_counted():
    sources = [
        *(ROOT / "albor_core" / "track").rglob("*.py"),
        ROOT / "albor_core" / "run" / "values" / "metrics.py",
    ]
    said = r'(?:\.note\(|RefusedError\(|return cls\()\s*"(\w+)"'
    kinds = {k for path in sources for k in re.findall(said, path.read_text())}
    told = set(re.findall(r"\| `(\w+)` \|$", TABLE.read_text(), re.MULTILINE))
    assert kinds == told and len(kinds) >= 7


def test_doctor_tells_of_damaged_lines_and_of_folders_that_others_may_write(tmp_path):
    with track.start("good") as run:
        run.log({"x": 1.0})
    with run.dir.journal.open("ab") as file:
        file.write(b"garbage\n" * 3)
    drain_index(run.dir)
    run.path.chmod(0o777)
    checks = {check["name"]: check for check in json.loads(doctor())["checks"]}
    assert checks["lines"]["detail"] == f"3 damaged or unknown lines in the files of {run.id}"
    assert checks["trust"]["detail"] == f"{run.path}: others may write to it"
    run.path.chmod(0o700)
    assert "trust" not in {check["name"] for check in json.loads(doctor())["checks"]}


def doctor():
    return CliRunner().invoke(cli, ["doctor", "--json"]).output
