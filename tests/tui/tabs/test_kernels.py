"""What runs each op of a run, and the parity of its whole model: from the bricks, op by op."""

from dataclasses import replace

import fake_desk
import jsonschema
import pytest
from screen_stage import at
from settled import settled, until
from textual.command import CommandList
from textual.widgets import Static

from albor_core.documents.json_schema import schema_of
from albor_core.run.errors import AlborError
from albor_tui.screens.dialogs.kernels import KernelsScreen, OpList, op_lines, parity_lines
from albor_tui.screens.run import RunScreen


def words(app, where) -> str:
    return str(app.screen.query_one(where, Static).visual)


@pytest.fixture
def desk():
    return fake_desk.FakeDesk()


def test_the_example_is_a_document_of_the_command():
    jsonschema.Draft202012Validator(schema_of("albor.kernels.show")).validate(fake_desk.KERNELS)


async def test_ops_are_gone_through_with_their_reasons(cockpit, source, desk):
    app = cockpit(run=at(source), tab="bricks", desk=desk)
    async with app.run_test(size=(120, 36)) as pilot:
        await settled(pilot)
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, KernelsScreen))
        await until(pilot, lambda: "cosine 0.7009" in words(app, "#parity"))
        assert "(rounding: 0.7014)" in words(app, "#parity")
        listing = app.screen.query_one(OpList)
        await until(pilot, lambda: listing.current is not None)
        drawn = [listing.render_line(y).text for y in range(6)]
        assert "115.5" in drawn[1] and "69%" in drawn[1] and "18.9x" in drawn[1]
        assert "reference" in drawn[5] and "1.1x" in drawn[5]
        await pilot.press("down")
        await until(pilot, lambda: "2317" in words(app, "#one-op"))
        await pilot.press("escape")
        assert isinstance(app.screen, RunScreen)


@pytest.mark.parametrize("word", ["kernels", "parity"])
async def test_the_palette_finds_it_by_what_it_shows(cockpit, source, desk, word):
    app = cockpit(run=at(source), tab="bricks", desk=desk)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+p", *word)

        def found() -> str:
            listed = app.screen.query(CommandList)
            return " ".join(str(o.prompt) for each in listed for o in each._options)

        await until(pilot, lambda: "what runs each op" in found(), "the palette has it not")


async def test_a_refusal_is_told(cockpit, source, desk):
    desk.refusal = AlborError("x: its folder is gone")
    app = cockpit(run=at(source), tab="bricks", desk=desk)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, KernelsScreen))
        await until(pilot, lambda: "its folder is gone" in words(app, "#parity"))


async def test_another_program_has_no_ops_to_ask_for(cockpit, source, desk):
    foreign = replace(source.rows[0], kind="track")
    source.show((foreign, *source.rows[1:]))
    app = cockpit(run=foreign, tab="bricks", desk=desk)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("o")
        await settled(pilot)
        assert isinstance(app.screen, RunScreen) and not desk.done


def test_what_was_not_compared_or_not_measured_is_said():
    skipped = {**fake_desk.parity("load", 0, None), "skipped": "no rank has the whole model"}
    said = parity_lines({"ops": [], "parity": [skipped], "rejected": []})
    assert "not compared: no rank has the whole model" in said[1].plain
    (none,) = parity_lines({"ops": [], "parity": [], "rejected": []})
    assert "recorded no kernels" in none.plain
    torn = {"ops": [], "parity": [skipped], "rejected": [], "damaged_lines": 2}
    assert parity_lines(torn)[0].plain == "2 damaged lines of the run's journal skipped"
    assert [line.plain for line in op_lines({"op": "x", "backend": "reference"})] == [
        "no reason was recorded"
    ]


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])
def test_how_it_looks(snap_compare, cockpit, source, desk, size):
    async def open_it(pilot):
        await settled(pilot)
        await pilot.press("o")
        await until(pilot, lambda: isinstance(pilot.app.screen, KernelsScreen))
        await until(pilot, lambda: pilot.app.screen.query_one(OpList).current is not None)
        await settled(pilot)

    app = cockpit(run=at(source), tab="bricks", desk=desk)
    assert snap_compare(app, terminal_size=size, run_before=open_it)
