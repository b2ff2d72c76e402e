"""`albor alerts rules` and `albor alerts test`: what watches a run, and what cannot."""

from __future__ import annotations

import pytest
from cli_user import validate

from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.home.folders import albor_home

RULES = """
rules:
  - loss > 10
  - loss >> 10
  - {condition: loss < 1, action: dance}
experiments:
  e: [loss is]
"""


@pytest.fixture
def run(monkeypatch):
    """A tracked run whose config brings a rule that can be used and one that cannot."""
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)
    rules = [{"condition": "loss > 20"}, {"condition": "loss > "}]
    with track.start("e", name="x", config={"monitoring": {"alerts": rules}}) as made:
        made.log({"loss": 30.0}, step=1)
    return made.dir


def test_good_rules_are_listed_and_every_damaged_one_is_said(desk, run):
    (albor_home() / "rules.yaml").write_text(RULES)
    done = desk.quick("alerts", "rules", run.id, "--json")
    assert done.code == 2
    document = validate(done.document)
    assert [rule["condition"] for rule in document["rules"]] == ["loss > 20", "loss > 10"]
    places = ("monitoring.alerts.1", "line 4,", "line 5,", "line 7,")
    for place, problem in zip(places, document["problems"], strict=True):
        assert place in problem
    shown = desk.quick("alerts", "rules", run.id)
    assert shown.code == 2
    assert "loss > 20" in shown.out and "loss > 10" in shown.out
    assert shown.err.count("not used: ") == len(places)


def test_a_test_of_a_runs_rules_says_which_were_not_tested(desk, run):
    (albor_home() / "rules.yaml").write_text("rules: [loss >> 10]\n")
    assert desk.quick("db", "rebuild").code == 0
    done = desk.quick("alerts", "test", run.id, "--json")
    assert (done.code, [rule["id"] for rule in done.document["rules"]]) == (2, ["loss-gt-20"])
    assert len(validate(done.document)["problems"]) == 2
    assert desk.quick("alerts", "test", run.id, "loss > 3", "--json").code == 0


@pytest.mark.parametrize(
    ("conditions", "expected", "code", "why"),
    [
        (["loss > 99"], "none", 0, []),
        (["loss > 3"], "none", 1, ["loss > 3: fired at step 200"]),
        (["loss > 3", "loss > 99"], "none", 1, ["loss > 3: fired at step 200"]),
        (["loss > 3"], "fires", 0, []),
        (["loss > 3", "loss > 99"], "fires", 1, ["loss > 99: never fired in 2 values"]),
        (["accuracy > 3"], "none", 1, ["accuracy > 3: no value to compare was found"]),
        (["accuracy > 3"], "fires", 1, ["accuracy > 3: no value to compare was found"]),
        (
            ["val > 3"],
            "none",
            1,
            ["val > 3: true from the start; it sleeps until it is false or step 100"],
        ),
    ],
    ids=str,
)
def test_a_script_is_told_by_the_exit_code_whether_rules_fire_as_expected(
    desk, monkeypatch, conditions, expected, code, why
):
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)
    with track.start(name="long") as made:
        made.log({"loss": 1.0, "val": 9.0}, step=1)
        made.log({"loss": 30.0}, step=200)
    assert desk.quick("db", "rebuild").code == 0
    words = ("alerts", "test", made.dir.id, *conditions, "--expect", expected)
    shown, done = desk.quick(*words), desk.quick(*words, "--json")
    assert (shown.code, done.code) == (code, code)
    document = validate(done.document)
    assert (document["expect"], document["as_expected"]) == (expected, code == 0)
    assert document["unexpected"] == why
    assert [line for line in why if f"not as expected: {line}" not in shown.err] == []


def test_a_condition_on_a_figure_that_is_not_there_says_that_nothing_was_tested(desk, run):
    assert desk.quick("db", "rebuild").code == 0
    words = ("alerts", "test", run.id, "val/wer > 3", "loss > 3")
    shown = desk.quick(*words)
    why = f"{run.id} has no metric 'val/wer'"
    assert shown.code == 3 and f"nothing was tested: val/wer > 3: {why}" in shown.err
    assert shown.err.count("nothing was tested") == 1
    told = validate(desk.quick(*words, "--json").document)
    assert [one["untested"] for one in told["rules"]] == [why, None]


def test_no_rule_at_all_is_not_as_expected_and_a_damaged_one_stays_code_2(desk, run):
    with track.start(name="bare") as bare:
        bare.log({"loss": 1.0}, step=1)
    assert desk.quick("db", "rebuild").code == 0
    assert desk.quick("alerts", "test", bare.dir.id, "--expect", "none").code == 1
    assert desk.quick("alerts", "test", bare.dir.id).code == 0
    assert desk.quick("alerts", "test", run.id, "--expect", "fires").code == 2


def test_a_rules_file_that_cannot_be_read_leaves_the_rules_of_the_config(desk, run):
    (albor_home() / "rules.yaml").write_text("rules: [")
    done = desk.quick("alerts", "rules", run.id, "--json")
    assert (done.code, [rule["id"] for rule in done.document["rules"]]) == (2, ["loss-gt-20"])
    assert "rules.yaml: line" in done.document["problems"][-1]


def test_a_run_without_rules_says_where_they_would_come_from(desk, monkeypatch):
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)
    with track.start(name="bare") as run:
        run.log({"loss": 1.0}, step=1)
    done = desk.quick("alerts", "rules", run.dir.id)
    assert done.code == 0
    assert "no rules: neither its config nor rules.yaml has any" in done.err


def test_doctor_names_rules_that_watch_nothing(desk):
    (albor_home() / "rules.yaml").write_text(RULES)
    done = desk.quick("doctor", "--json")
    (check,) = (one for one in validate(done.document)["checks"] if one["name"] == "rules")
    assert (done.code, check["ok"]) == (1, False)
    assert "rules.yaml: line 4, column 5" in check["detail"]
    assert check["detail"].endswith(", and 2 more")
