"""Settings of a recipe, and a class of the user's own, in the form and the plan of the launch
screen."""

import shutil
from pathlib import Path

import fake_desk
import pytest
from settled import until
from textual.widgets import Input
from typed_recipe import TINY, give_settings

from albor_core.config.load import load_config
from albor_core.launch.planned import plan_run
from albor_tui.model.launchpad import LiveLaunchpad
from albor_tui.screens.launch import LaunchScreen
from albor_tui.widgets.config_form import ConfigForm
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
    fields = {one.key: one for one in launchpad.fields(values)}
    assert values["recipe"] == '{"width": 32}'
    assert "recipe" in fields
    assert not [key for key in fields if key.startswith("model.architecture")]
    assert not fields["data.train"].is_required
    ours = {one.key: one for one in launchpad.fields({"training.mode": "causal_lm"})}
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


class Launchpad(LiveLaunchpad):
    """Checks as the cockpit does, and plans nothing."""

    def plan(self, path, overrides, cancelled):
        return fake_desk.plan()


async def test_the_form_shows_edits_and_checks_the_settings_of_a_recipe(
    cockpit, tmp_path, monkeypatch
):
    give_settings(monkeypatch)
    config = tmp_path / "typed.yaml"
    config.write_text(f"{TINY}recipe: {{smoothing: 0.3}}\n")
    async with cockpit(launchpad=Launchpad()).run_test(size=(120, 36)) as pilot:
        await pilot.app.push_screen(LaunchScreen(config))
        form = pilot.app.screen.query_one(ConfigForm)
        await until(pilot, lambda: form.value("recipe.smoothing") == "0.3")
        assert form.value("recipe.decay.steps") == "32768"

        async def type_in(key, value):
            await pilot.press(key)
            box = pilot.app.screen.query_one("#edit", Input)
            await until(pilot, lambda: box.has_focus)
            box.value = value
            await pilot.press("enter")
            await until(pilot, lambda: form.has_focus)

        async def find(key):
            await type_in("slash", key)
            await until(pilot, lambda: form.current is not None and form.current.key == key)

        await find("recipe.kind")
        await pilot.press("space")
        await until(pilot, lambda: form.value("recipe.kind") == "unigram")
        await find("recipe.smoothing")
        await type_in("enter", "2")
        await until(pilot, lambda: "must be at least 0 and below 1" in drawn(form))
        await pilot.press("r")
        await until(pilot, lambda: form.value("recipe.smoothing") == "0.3")
        assert "Share of the uniform distribution" in drawn(form)


def drawn(form):
    return "\n".join(form.render_line(y).text for y in range(form.count()))


def test_without_settings_the_form_has_no_section_for_them(tmp_path):
    config = tmp_path / "plain.yaml"
    config.write_text(TINY)
    launchpad = LiveLaunchpad()
    fields = launchpad.fields(launchpad.check(config, ()).values)
    assert not [one.key for one in fields if one.key.startswith("recipe")]


def test_the_section_of_a_class_of_ones_own_is_edited_whole(config):
    found = LiveLaunchpad().check(config, ("recipe={width: 64}",))
    assert (found.problems, found.values["recipe.width"]) == ((), "64")
