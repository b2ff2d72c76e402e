"""What keys do to runs from the table: each asked for, shown, undone or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import fake_feed
import pytest
from settled import until
from textual.widgets import Input, Static

from albor_core.feed.runs.cells import RunCells
from albor_core.feed.runs.column_values import GROUPS
from albor_core.run.errors import UsageError
from albor_tui.app import AlborApp
from albor_tui.screens.andon import AndonScreen
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.dialogs.prompt import PromptScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs.grouping import grouped
from albor_tui.screens.runs.order import arrange, is_plain
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar

pytestmark = pytest.mark.slow  # in sum; `make check` is under a minute

Cockpit = Callable[..., AlborApp]
SIZE = (120, 40)


async def ready(pilot) -> RunTable:
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == 7, "the runs never came")
    return table


def said(pilot) -> str:
    return str(pilot.app.screen.query_one(StatusBar).line)


async def go_to(pilot, table: RunTable, status: str) -> None:
    row = next(i for i, view in enumerate(table.runs) if view.status == status)
    await pilot.press("home", *["down"] * row)


async def answer(pilot, words: str) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, PromptScreen))
    pilot.app.screen.query_one(Input).value = words
    await pilot.press("enter")


async def test_a_tag_goes_to_every_selected_run_and_u_takes_it_back(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        chosen = [view.id for view in table.runs[:2]]
        await pilot.press("space", "space", "T")
        await answer(pilot, "keep")
        await until(pilot, lambda: len(desk.done) == 2)
        assert sorted(desk.done) == sorted(("tag", run, "keep") for run in chosen)
        await until(pilot, lambda: "2 runs: done" in said(pilot))
        await pilot.press("u")
        await until(pilot, lambda: len(desk.done) == 4)
        assert sorted(desk.done[2:]) == sorted(("untag", run, "keep") for run in chosen)


async def test_a_minus_in_front_of_a_tag_takes_it_away(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await pilot.press("T")
        await answer(pilot, "-old")
        await until(pilot, lambda: desk.done == [("untag", table.current.id, "old")])


async def test_escape_leaves_a_question_without_doing_anything(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("N", *"never", "escape")
        assert not isinstance(pilot.app.screen, PromptScreen)
        assert desk.done == []


async def test_a_run_is_renamed_and_has_its_old_name_again_after_undo(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        run = table.current
        await pilot.press("M")
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptScreen))
        assert pilot.app.screen.query_one("#answer").value == run.name
        await answer(pilot, f"{run.name}-b")
        await until(pilot, lambda: desk.done == [("rename", run.id, f"{run.name}-b")])
        await pilot.press("u")
        await until(pilot, lambda: desk.done[1:] == [("rename", run.id, run.name)])


async def test_several_runs_are_not_given_one_name(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("space", "j", "space", "M")
        await until(pilot, lambda: "one run at a time" in said(pilot))
        assert desk.done == []


async def test_a_note_cannot_be_undone_and_says_so(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("N")
        await answer(pilot, "looks odd after step 400")
        await until(pilot, lambda: len(desk.done) == 1)
        await pilot.press("u")
        await until(pilot, lambda: "nothing to undo" in said(pilot))


async def test_pin_pins_and_a_pinned_run_is_unpinned(cockpit, source, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await pilot.press("P")
        await until(pilot, lambda: [deed[0] for deed in desk.done] == ["pin"])
        first = table.current.id
        source.show(tuple(replace(v, is_pinned=v.id == first) for v in source.rows))
        await until(pilot, lambda: table.current.is_pinned)
        await pilot.press("P")
        await until(pilot, lambda: [deed[0] for deed in desk.done] == ["pin", "unpin"])


async def test_a_refused_deed_shows_why(cockpit, desk):
    desk.refusal = UsageError("tag: needs a text of 1 to 64 characters", hint="albor runs tag")
    async with cockpit().run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("T")
        await answer(pilot, "x")
        await until(pilot, lambda: "needs a text" in said(pilot))
        assert said(pilot).startswith("cannot tag ")


async def test_export_and_report_ask_where_to_and_say_where_it_went(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        run = table.current.id
        await pilot.press("E")
        await answer(pilot, "out.csv")
        await until(pilot, lambda: desk.done == [("export", (run,), "out.csv")])
        await until(pilot, lambda: "out.csv" in said(pilot))
        await pilot.press("H")
        await answer(pilot, "out.html")
        await until(pilot, lambda: desk.done[1:] == [("report", (run,), "out.html")])


@pytest.mark.parametrize(("key", "cmd"), [("p", "pause"), ("c", "checkpoint")])
async def test_a_command_is_sent_and_its_way_is_shown(cockpit, source, key, cmd):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await go_to(pilot, table, "running")
        await pilot.press(key)
        await until(pilot, lambda: source.commands == [(table.current.id, cmd)])
        await until(pilot, lambda: "done" in said(pilot))


async def test_a_paused_run_is_resumed_by_the_same_key(cockpit, source):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await go_to(pilot, table, "paused")
        await pilot.press("p")
        await until(pilot, lambda: source.commands == [(table.current.id, "resume")])


async def test_a_command_to_a_run_without_a_guard_says_that_there_is_none(cockpit, source):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await go_to(pilot, table, "lost")
        await pilot.press("c")
        await until(pilot, lambda: "it is lost: no process works on the run" in said(pilot))
        assert said(pilot).startswith("cannot checkpoint old-baseline: ")
        assert source.commands == []


async def test_stopping_many_runs_asks_once_and_names_them(cockpit, source):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await pilot.press("home", "space", "space", "x")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        words = "".join(str(s.content) for s in pilot.app.screen.query(Static))
        assert "Stop 2 runs?" in words
        assert table.runs[0].name in words
        await pilot.press("y")
        await until(pilot, lambda: [cmd for _, cmd in source.commands] == ["stop", "stop"])


async def test_a_selected_run_that_the_filter_hides_is_left_alone(cockpit, source):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await go_to(pilot, table, "running")
        hidden = table.current.id
        await pilot.press("space", "slash", *"status:paused", "enter")
        await until(pilot, lambda: [v.id for v in table.runs] == ["distill-50m-77aa10"])
        assert hidden in table.selection.marked
        title = pilot.app.screen.query_one("#list").border_subtitle
        assert "1 selected, 1 of them hidden" in str(title)
        await pilot.press("p")
        await until(pilot, lambda: source.commands == [("distill-50m-77aa10", "resume")])


async def test_a_deed_shows_the_run_that_it_is_done_to(cockpit, source):
    more = [replace(source.rows[-1], id=f"more-{i}", name=f"more-{i}") for i in range(60)]
    source.show((*source.rows, *more))
    async with cockpit().run_test(size=(80, 24)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 67)
        await pilot.press("home")
        table.scroll_to(y=30, animate=False)
        await until(pilot, lambda: table.scroll_y == 30)
        await pilot.press("T")
        await until(pilot, lambda: table.scroll_y == 0)


async def test_a_filter_with_a_field_is_answered_by_the_store(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await pilot.press("slash")
        pilot.app.screen.query_one("#filter", Input).value = "lr>=1e-4 status:paused"
        await until(pilot, lambda: [v.id for v in table.runs] == ["distill-50m-77aa10"])


async def test_a_filter_that_cannot_be_understood_names_the_column(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await pilot.press("slash")
        pilot.app.screen.query_one("#filter", Input).value = "lr>>3"
        listing = pilot.app.screen.query_one("#list")
        await until(pilot, lambda: "column" in str(listing.border_subtitle))
        assert len(table.runs) <= 7


async def test_the_palette_has_every_key_and_every_run(cockpit):
    app = cockpit()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert "Launch a run from a config" in titles
        assert "Theme: colour-blind" in titles
        await pilot.press("ctrl+p", *"distill")
        await until(pilot, lambda: "distill-50m" in _palette(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))


def _palette(app: AlborApp) -> str:
    from textual.command import CommandList

    options = app.screen.query_one(CommandList)
    return " ".join(str(o.prompt) for o in options._options)


async def test_n_and_shift_a_open_launch_and_andon_and_escape_comes_back(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        for key, screen in (("n", LaunchScreen), ("A", AndonScreen)):
            await pilot.press(key)
            assert isinstance(pilot.app.screen, screen)
            await pilot.press("escape")
            assert pilot.app.screen.query_one(RunTable) is table


@pytest.mark.parametrize("width", [80, 120, 200])
async def test_the_last_line_fits_and_always_tells_help_and_quit(cockpit, width):
    async with cockpit().run_test(size=(width, 36)) as pilot:
        await ready(pilot)
        bar = pilot.app.screen.query_one(KeyBar)
        line = bar.render_line(0).text
        assert "? Help" in line
        assert "q Quit" in line
        if width == 200:
            assert "Reverse" in line


async def test_a_click_on_a_key_does_what_the_key_does(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        await ready(pilot)
        at = pilot.app.screen.query_one(KeyBar).render_line(0).text.index("n New")
        await pilot.click(KeyBar, offset=(at + 1, 0))
        assert isinstance(pilot.app.screen, LaunchScreen)


@pytest.mark.parametrize("by", GROUPS)
def test_grouping_keeps_every_run_once(by):
    rows = fake_feed.rows()
    arranged, groups = grouped(rows, by, RunCells())
    assert sorted(v.id for v in arranged) == sorted(v.id for v in rows)
    assert sum(line.count for line in groups.lines) == len(rows)
    starts = [line.start for line in groups.lines]
    assert starts == sorted({*starts})


def test_a_group_of_runs_by_state_has_the_word_that_the_list_shows():
    one = fake_feed.training()
    rows = (replace(one, id="hung", status="stalled"), replace(one, is_silent=True, age_s=90.0))
    labels = [line.label for line in grouped(rows, "status", RunCells())[1].lines]
    assert labels == ["hung", "silent"]


def test_pinned_runs_stand_above_the_others_that_are_over():
    one = fake_feed.training()
    over = replace(one, status="completed", ended_wall=one.created, is_pinned=False)
    rows = tuple(replace(over, id=f"run-{n}", is_pinned=n == 2) for n in range(4))
    assert [v.id for v in arrange(rows)] == ["run-2", "run-0", "run-1", "run-3"]
    assert arrange((*rows, one))[0].id == one.id, "what works stands above what is pinned"


@pytest.mark.parametrize(
    ("words", "plain"),
    [("wide 125m", True), ("status:running", False), ("lr>1", False), ("-x", False)],
)
def test_words_alone_need_no_store(words, plain):
    assert is_plain(words) is plain
