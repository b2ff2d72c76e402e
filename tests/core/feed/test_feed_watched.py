"""Which runs have rules that watch them: the trainer's own, and no other program's."""

from __future__ import annotations

import pytest

from albor_core.config.sections import MonitoringConfig
from albor_core.feed.archive.rule_replay import rules_of
from albor_core.feed.run.files import RunFiles
from albor_core.feed.watched import rules_watching
from albor_core.run.rundir import create_run

RULES = {
    "monitoring": {
        "alerts": [{"condition": "loss > 10"}, {"condition": "mfu < 0.1"}],
        "budgets": {"tokens": 1_000, "wall_hours": None, "action": "stop"},
        "bricks": {"data_ms": 5.0, "forward_ms": None},
    }
}


@pytest.mark.parametrize(
    ("meta", "resolved", "count"),
    [
        ({"kind": "train"}, RULES, 4),
        ({"kind": "train"}, {"monitoring": {}}, 0),
        ({"kind": "train"}, {}, None),
        ({"kind": "train"}, {"monitoring": {"alerts": "loss > 10", "bricks": [1]}}, 0),
        ({"kind": "guard"}, {}, 0),
        ({"kind": "track"}, RULES, 0),
        ({"kind": "imported"}, RULES, 0),
        ({}, RULES, None),
    ],
)
def test_only_what_albor_train_runs_is_watched_by_the_rules_of_its_config(meta, resolved, count):
    assert rules_watching(meta, resolved) == count


@pytest.mark.parametrize(("kind", "count"), [("train", 4), ("track", 0)])
def test_a_run_shows_how_many_rules_watch_it(tmp_path, monkeypatch, kind, count):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = create_run(
        tmp_path, "it", experiment="e", name="it", kind=kind, argv=["x"], resolved=RULES
    )
    view = RunFiles(run).view()
    assert view is not None
    assert view.rules_watching == count
    assert len(rules_of(run)) == (2 if count else 0)


def test_a_config_without_rules_watches_nothing():
    monitoring = MonitoringConfig().model_dump(mode="json")
    assert rules_watching({"kind": "train"}, {"monitoring": monitoring}) == 0
