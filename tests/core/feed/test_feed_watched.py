"""How many rules and budgets watch a run, of each kind of program."""

from __future__ import annotations

import pytest

from albor_core.config.sections.monitoring import MonitoringConfig
from albor_core.feed.archive.rule_replay import rules_of
from albor_core.feed.run.files import RunFiles
from albor_core.feed.run.watched import Watching, watching
from albor_core.run.home.new_run import create_run

RULES = {
    "monitoring": {
        "alerts": [{"condition": "loss > 10"}, {"condition": "mfu < 0.1"}],
        "budgets": {"tokens": 1_000, "wall_hours": None, "action": "stop"},
        "bricks": {"data_ms": 5.0, "forward_ms": None},
    }
}


LIMITED = {"monitoring": {"budgets": {"steps": 9, "gpu_hours": 2.0, "money": 5, "soft": 0.8}}}
TOLD = {"rules": 3, "budgets": [{"amount": "steps", "limit": 9.0}, {"amount": "tokens"}]}


@pytest.mark.parametrize(
    ("kind", "resolved", "watch", "found"),
    [
        ("train", RULES, {}, Watching(2, 2)),
        ("train", RULES, TOLD, Watching(3, 2)),
        ("train", LIMITED, {}, Watching(0, 3)),
        ("train", {"monitoring": {}}, {}, Watching(0)),
        ("train", {}, {}, Watching(None)),
        ("train", {"monitoring": {"alerts": "loss > 10", "bricks": [1]}}, {}, Watching(0)),
        ("guard", {}, {}, Watching(0)),
        ("track", RULES, {}, Watching(0)),
        ("track", RULES, TOLD, Watching(3, 1)),
        ("imported", RULES, {}, Watching(0)),
        (None, RULES, {}, Watching(None)),
    ],
)
def test_rules_and_budgets_count_by_who_evaluates_them(kind, resolved, watch, found):
    assert watching(kind, resolved, watch) == found


@pytest.mark.parametrize(("kind", "count", "rules"), [("train", 4, 2), ("imported", 0, 0)])
def test_a_run_shows_how_many_rules_and_budgets_watch_it(tmp_path, monkeypatch, kind, count, rules):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = create_run(
        tmp_path, "it", experiment="e", name="it", kind=kind, argv=["x"], resolved=RULES
    )
    view = RunFiles(run).view()
    assert view is not None
    assert view.rules_watching == count
    assert len(rules_of(run)[0]) == rules


def test_a_config_without_rules_watches_nothing():
    monitoring = MonitoringConfig().model_dump(mode="json")
    assert watching("train", {"monitoring": monitoring}, {}) == Watching(0)
