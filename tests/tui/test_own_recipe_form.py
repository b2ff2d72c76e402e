"""A run of a class of the user's own, in the form and the plan of the launch screen."""

import shutil
from pathlib import Path

import pytest

from albor_core.config.load import load_config
from albor_core.launch.planned import plan_run
from albor_tui.model.launchpad import LiveLaunchpad, fields_for
from albor_tui.widgets.plan_panel import plan_lines

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def config(tmp_path):
    for name in ("own_model.py", "own_model.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    return tmp_path / "own_model.yaml"


def test_the_form_has_its_section_and_asks_for_no_shape_and_no_shards(config):
    launchpad = LiveLaunchpad()
    values = launchpad.check(config, ()).values
    fields = {one.key: one for one in fields_for(launchpad.fields(), values)}
    assert values["recipe"] == '{"width": 32}'
    assert "recipe" in fields
    assert not [key for key in fields if key.startswith("model.architecture")]
    assert not fields["data.train"].is_required
    ours = {one.key: one for one in fields_for(launchpad.fields(), {"training.mode": "causal_lm"})}
    assert ours["data.train"].is_required
    assert "model.architecture.hidden_size" in ours


def test_its_plan_shows_what_is_not_known_as_not_known(config):
    document = plan_run(load_config(config)).to_json()
    text = "\n".join(line.plain for line in plan_lines(document, 100))
    assert "model    of a size not known, fp32" in text
    assert "memory   not known" in text
    assert "time     not known" in text
    assert "disk     not known, " in text
    assert "steps    200 of 1.02k tokens" in text
