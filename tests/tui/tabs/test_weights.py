"""The weights of a checkpoint: offered for what can be read, by layer and tensor by tensor."""

import threading

import fake_desk
import pytest
from screen_stage import at
from settled import until
from textual.widgets import Static

from albor_core.documents.json_schema import schema_of
from albor_core.run.errors import AlborError
from albor_tui.model.command import Cancelled
from albor_tui.screens.dialogs.weights import WeightsScreen, by_layer, histogram_of
from albor_tui.screens.run import RunScreen
from albor_tui.widgets.distribution.heat_map import HeatMap
from albor_tui.widgets.distribution.histogram import Histogram
from albor_tui.widgets.run.checkpoint_list import CheckpointList


def rows_of(widget) -> str:
    height = widget.content_size.height
    return "\n".join(widget.render_line(y).text for y in range(height))


def words(app) -> str:
    return str(app.screen.query_one("#one-tensor", Static).visual)


async def stand_on(pilot, state):
    listing = pilot.app.screen.query_one(CheckpointList)
    await until(pilot, lambda: bool(listing.saved))
    for _ in listing.saved:
        if listing.current is not None and listing.current.state == state:
            return
        await pilot.press("down")


async def opened(pilot):
    await stand_on(pilot, "verified")
    await pilot.press("w")
    await until(pilot, lambda: isinstance(pilot.app.screen, WeightsScreen))


@pytest.fixture
def desk():
    return fake_desk.FakeDesk()


async def test_a_good_checkpoint_shows_its_layers_and_its_tensors_one_by_one(cockpit, source, desk):
    app = cockpit(run=at(source), tab="checkpoints", desk=desk)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot)
        heat, spread = app.screen.query_one(HeatMap), app.screen.query_one(Histogram)
        await until(pilot, lambda: "q_proj" in rows_of(heat))
        assert desk.done == [("weights", "/runs/code-125m-3f2a91/checkpoints/step-00015000")]
        assert "layers.0.self_attn.q_proj" in str(spread.border_title)
        assert "rms 0.02" in words(app) and "262" in words(app)
        await pilot.press("down", "down", "down")
        assert "layers.0.mlp.down_proj" in str(spread.border_title)
        await pilot.press("k", "k", "k", "k")
        assert "model.norm" in str(spread.border_title)
        await pilot.press("escape")
        assert isinstance(app.screen, RunScreen)


@pytest.mark.parametrize("state", ["writing", "damaged"])
async def test_what_cannot_be_read_is_not_offered(cockpit, source, desk, state):
    app = cockpit(run=at(source), tab="checkpoints", desk=desk)
    async with app.run_test(size=(100, 30)) as pilot:
        await stand_on(pilot, state)
        await pilot.press("w")
        await pilot.pause()
        assert isinstance(app.screen, RunScreen) and desk.done == []


async def test_why_nothing_can_be_read_is_said_in_the_dialog(cockpit, source, desk):
    desk.refusal = AlborError("model.safetensors is pickled")
    app = cockpit(run=at(source), tab="checkpoints", desk=desk)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await until(pilot, lambda: "is pickled" in words(app))
        await pilot.press("down", "w")
        assert isinstance(app.screen, RunScreen)


async def test_a_tensors_name_is_text_whatever_it_holds(cockpit, source, desk, monkeypatch):
    hostile = {**fake_desk.WEIGHTS["tensors"][0], "name": "[red]x[/]\x1b[31m\nq"}
    monkeypatch.setitem(fake_desk.WEIGHTS, "tensors", [hostile])
    app = cockpit(run=at(source), tab="checkpoints", desk=desk)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await until(pilot, lambda: "rms" in words(app))
        title = str(app.screen.query_one(Histogram).border_title)
        assert r"\[red]x\[/]" in title and "\x1b" not in title and "\n" not in title


async def test_closing_the_dialog_ends_the_reading(cockpit, source, desk):
    begun, told = threading.Event(), threading.Event()

    def slow(folder, cancelled):
        begun.set()
        if cancelled.wait(30):
            told.set()
        raise Cancelled("not wanted any more")

    desk.weights = slow
    app = cockpit(run=at(source), tab="checkpoints", desk=desk)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await until(pilot, begun.is_set)
        await pilot.press("escape")
        await until(pilot, told.is_set)


def test_norms_leave_the_shades_to_matrices_and_bins_have_one_width():
    heat = by_layer(fake_desk.WEIGHTS["tensors"])
    assert heat.rows == ("q_proj", "down_proj") and heat.columns == ("0", "1", "2")
    assert heat.values[0] == (0.02, 0.04, 0.06)
    bins = histogram_of(fake_desk.WEIGHTS["tensors"][0])
    assert bins.edges[0] == -0.1 and bins.edges[-1] == pytest.approx(0.1)
    assert len(bins.edges) == len(bins.counts) + 1


def test_the_document_of_these_tests_is_what_the_command_prints():
    import jsonschema

    jsonschema.validate(fake_desk.WEIGHTS, schema_of("albor.model.weights"))
