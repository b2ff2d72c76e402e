"""From a config to a run: form, validation, plan, start."""

from __future__ import annotations

import pytest
from settled import until
from textual.widgets import Input

from albor_core.config.reference import FieldDoc
from albor_core.run.errors import InUseError
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs.screen import RunsScreen
from albor_tui.widgets.config_form import ConfigForm, ConfigList
from albor_tui.widgets.plan_panel import PlanPanel
from albor_tui.widgets.status_bar import StatusBar

pytestmark = pytest.mark.slow  # in sum; `make check` is under a minute

SIZE = (120, 36)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albor_tui.screens.launch.DEBOUNCE_S", 0.02)


async def in_form(pilot) -> ConfigForm:
    await pilot.app.push_screen(LaunchScreen())
    configs = pilot.app.screen.query_one(ConfigList)
    await until(pilot, lambda: configs.count() == 2)
    await pilot.press("enter")
    form = pilot.app.screen.query_one(ConfigForm)
    await until(pilot, lambda: form.count() > 3)
    await until(pilot, lambda: panel(pilot).document is not None)
    return form


def panel(pilot) -> PlanPanel:
    return pilot.app.screen.query_one(PlanPanel)


async def stand_on(pilot, form: ConfigForm, key: str) -> None:
    await pilot.press("home")
    for _ in range(20):
        if form.current is not None and form.current.key == key:
            return
        await pilot.press("down")
    raise AssertionError(f"no field {key}")


async def type_value(pilot, words: str) -> None:
    await pilot.press("enter")
    pilot.app.screen.query_one("#edit", Input).value = words
    await pilot.press("enter")


def lines(form: ConfigForm) -> str:
    return "\n".join(form.render_line(y).text for y in range(form.count()))


async def test_choosing_a_config_shows_its_fields_and_its_plan(cockpit, launchpad):
    async with cockpit().run_test(size=SIZE) as pilot:
        form = await in_form(pilot)
        assert "0.0003" in lines(form)
        assert "Peak learning rate." in lines(form)
        assert "ready to start" in str(panel(pilot).render())
        assert "about 4h15m" in str(panel(pilot).render())
        assert launchpad.planned == [()]


async def test_a_changed_field_is_planned_again_and_marked(cockpit, launchpad):
    async with cockpit().run_test(size=SIZE) as pilot:
        form = await in_form(pilot)
        await stand_on(pilot, form, "optimizer.lr")
        await type_value(pilot, "1e-3")
        await until(pilot, lambda: launchpad.planned[-1] == ("optimizer.lr=1e-3",))
        assert form.value("optimizer.lr") == "1e-3"
        await pilot.press("r")
        await until(pilot, lambda: launchpad.planned[-1] == ())
        await until(pilot, lambda: form.value("optimizer.lr") == "0.0003")


async def test_a_wrong_value_is_said_beside_its_field(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        form = await in_form(pilot)
        await stand_on(pilot, form, "optimizer.lr")
        await type_value(pilot, "3x")
        await until(pilot, lambda: "must be a number" in lines(form))


async def test_space_walks_through_the_values_a_field_may_have(cockpit, launchpad):
    async with cockpit().run_test(size=SIZE) as pilot:
        form = await in_form(pilot)
        await stand_on(pilot, form, "training.lr_scheduler")
        await pilot.press("space")
        await until(pilot, lambda: form.value("training.lr_scheduler") == "linear")
        await until(pilot, lambda: launchpad.planned[-1] == ("training.lr_scheduler=linear",))


def doc(key: str, meaning: str) -> FieldDoc:
    return FieldDoc(key, key.partition(".")[0], "whole number", "none", meaning, False)


ALIKE = (
    doc("optimizer.zclip_warmup", "Steps before clipping."),
    doc("training.epochs", "Passes over the data; ends the run even before max_steps."),
    doc("training.eval_max_steps", "Of an evaluation."),
    doc("training.max_steps_per_file", "Of one file."),
    doc("training.max_steps", "Optimizer steps."),
    doc("training.warmup_steps", "Steps up to the peak."),
    *(doc(f"wide.knob_{i}", "Nothing about warmup or max_steps.") for i in range(60)),
    doc("zoo.lr", "The last; see knobs."),
)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("max_steps", "training.max_steps"),
        ("training.max_steps", "training.max_steps"),
        ("MAX_STEPS", "training.max_steps"),
        ("max_steps_", "training.max_steps_per_file"),
        ("warmup", "training.warmup_steps"),
        ("warmup steps", "training.warmup_steps"),
        ("clip", "optimizer.zclip_warmup"),
        ("passes", "training.epochs"),
        ("knobs", "zoo.lr"),
    ],
)
async def test_a_search_stands_on_the_field_that_was_meant(
    cockpit, launchpad, monkeypatch, words, key
):
    monkeypatch.setattr(launchpad, "fields", lambda values: ALIKE)
    async with cockpit().run_test(size=SIZE) as pilot:
        form = await in_form(pilot)
        for sought in ("wide", words):  # the second begins where the first ended
            await pilot.press("slash")
            pilot.app.screen.query_one("#edit", Input).value = sought
            await pilot.press("enter")
        await pilot.pause()
        assert form.current is not None and form.current.key == key
        shown = form.cursor - round(form.scroll_y)
        assert 0 <= shown < form.content_size.height


async def test_a_name_far_down_what_was_found_is_scrolled_to(cockpit, launchpad, monkeypatch):
    late = (*ALIKE, doc("zoo.nothing", "At last."))
    monkeypatch.setattr(launchpad, "fields", lambda values: late)
    async with cockpit().run_test(size=SIZE) as pilot:
        form = await in_form(pilot)
        await pilot.press("slash")
        pilot.app.screen.query_one("#edit", Input).value = "nothing"
        await pilot.press("enter")
        await pilot.pause()
        assert form.current is late[-1]
        assert 0 <= form.cursor - round(form.scroll_y) < form.content_size.height
        await pilot.press("escape")
        await pilot.pause()
        assert form.current is late[-1]


async def test_slash_finds_a_field_and_escape_shows_all_again(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        form = await in_form(pilot)
        everything = form.count()
        await pilot.press("slash")
        pilot.app.screen.query_one("#edit", Input).value = "peak"
        await pilot.press("enter")
        assert form.count() == 2
        await pilot.press("escape")
        assert form.count() == everything


async def test_go_asks_with_the_cost_then_starts_and_opens_the_run(cockpit, launchpad):
    async with cockpit().run_test(size=SIZE) as pilot:
        await in_form(pilot)
        await pilot.press("home")
        await type_value(pilot, "my run")
        await until(pilot, lambda: not panel(pilot).is_old)
        await pilot.press("g")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("y")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        assert launchpad.started == [("configs/demo.yaml", (), "my run")]
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, RunsScreen)


async def test_a_plan_with_problems_starts_nothing(cockpit, launchpad):
    launchpad.problems = (
        {"field": "data.train", "message": "no such directory", "hint": "make it", "file": ""},
    )
    async with cockpit().run_test(size=SIZE) as pilot:
        await in_form(pilot)
        assert "no such directory" in str(panel(pilot).render())
        await pilot.press("g")
        assert not isinstance(pilot.app.screen, ConfirmScreen)
        assert launchpad.started == []


async def test_a_start_that_is_refused_says_why_and_can_be_tried_again(cockpit, launchpad):
    launchpad.refusal = InUseError("this run directory exists", hint="another --name")
    async with cockpit().run_test(size=SIZE) as pilot:
        await in_form(pilot)
        bar = pilot.app.screen.query_one(StatusBar)
        await pilot.press("g", "y")
        await until(pilot, lambda: "run directory exists" in str(bar.line))
        launchpad.refusal = None
        await pilot.press("g", "y")
        await until(pilot, lambda: len(launchpad.started) == 1)


async def test_changed_fields_are_not_dropped_without_a_question(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        form = await in_form(pilot)
        await stand_on(pilot, form, "optimizer.lr")
        await type_value(pilot, "1e-3")
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("y")
        await until(pilot, lambda: pilot.app.screen.query_one(ConfigList).display)


async def test_a_config_that_is_not_there_is_said_and_a_path_can_be_typed(cockpit):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await pilot.app.push_screen(LaunchScreen())
        screen = pilot.app.screen
        await pilot.press("o")
        pilot.app.screen.query_one(Input).value = "/no/such/file"
        await pilot.press("enter")
        plan = screen.query_one(PlanPanel)
        await until(pilot, lambda: "No such file" in plan.problem)
