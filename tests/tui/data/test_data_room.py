"""The Data room says what a data set holds, what it lost, and what is not known of it."""

from __future__ import annotations

from dataclasses import replace

import fake_data
import jsonschema
import pytest
from hostile import HOSTILE, check_cells
from screen_stage import text_of
from settled import settled, until
from textual.content import Content

from albor_core.config.text.config_file import packaged_recipes
from albor_core.documents.json_schema import schema_of
from albor_core.feed.data.folder import FolderView
from albor_core.feed.data.known import DataSetView, DataShelf
from albor_core.feed.data.sheet import SourceView
from albor_core.run.errors import AlborError
from albor_tui.look import glyphs
from albor_tui.screens.data.screen import DataScreen
from albor_tui.screens.run import RunScreen
from albor_tui.widgets.data.about import AboutSheet
from albor_tui.widgets.data.dropped import DroppedSheet
from albor_tui.widgets.data.set_list import DataSetList, SetRow
from albor_tui.widgets.data.source_list import SourceList, about_source
from albor_tui.widgets.distribution.histogram import Histogram

WIDE, SMALL = (160, 45), (80, 24)


async def entered(pilot) -> DataScreen:
    await pilot.press("D")
    await until(pilot, lambda: isinstance(pilot.app.screen, DataScreen))
    screen = pilot.app.screen
    await until(pilot, lambda: screen.query_one(DataSetList).count() > 0)
    return screen


async def counted(pilot) -> DataScreen:
    screen = await entered(pilot)
    await until(pilot, lambda: screen.query_one(SourceList).count() > 0)
    await settled(pilot)
    return screen


def test_the_documents_of_these_tests_are_those_that_albor_prints():
    jsonschema.validate(fake_data.stats(), schema_of("albor.data.stats"))


async def test_the_room_shows_sources_losses_lengths_and_what_is_known(cockpit):
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        assert "pytorch/pytorch" in text_of(screen)
        dropped = screen.query_one(DroppedSheet).text
        assert "dedup" in dropped and "9,295" in dropped and "models/vit/modeling_vit.py" in dropped
        assert "48,198" in dropped and "-19%" in dropped
        about = screen.query_one(AboutSheet).text
        assert "not verified" in about
        assert "2 documents were left out of 38,513 documents" in about
        assert "82% HumanEval/47" in about and "Apache-2.0" in about and fake_data.CODE in about
        figure = screen.query_one(Histogram)
        assert "8.84k" in "\n".join(figure.render_line(y).text for y in range(12))
        assert "median 1,024 to 2,048" in str(figure.border_subtitle)


async def test_what_is_being_read_says_so_and_what_cannot_be_says_why(cockpit, desk):
    desk.may_answer.clear()
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await entered(pilot)
        await until(pilot, lambda: ("data_stats", fake_data.CODE) in desk.done)
        assert "loading" in screen.query_one(DroppedSheet).text
        desk.may_answer.set()
        await until(pilot, lambda: screen.query_one(SourceList).count() > 0)
        await pilot.press("down")
        words = "no manifest.json and no *.parquet"
        await until(pilot, lambda: words in " ".join(screen.query_one(AboutSheet).text.split()))
        assert "cannot read it" in screen.query_one(DroppedSheet).text
        assert screen.query_one(SourceList).count() == 0


async def test_why_nothing_is_known_of_a_data_set_is_said_to_the_end(cockpit):
    why = Content(" ".join(f"reason{number}" for number in range(30)))
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        about, dropped = screen.query_one(AboutSheet), screen.query_one(DroppedSheet)
        about.tell(SetRow(screen.current.view), why)
        dropped.tell(None, why)
        await settled(pilot)
        assert text_of(screen).count("reason29") == 2


async def test_a_folder_that_is_gone_is_never_asked_for_nor_shown_as_fine(cockpit, desk):
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        assert "1 gone" in text_of(screen) and "1 damaged" in text_of(screen)
        await pilot.press("end")
        await until(pilot, lambda: fake_data.OLD in screen.query_one(AboutSheet).text)
        about = screen.query_one(AboutSheet).text
        assert "moved or removed" in about and "verified" not in about
        await pilot.press("v")
        await until(pilot, lambda: "cannot verify it" in text_of(screen))
        await pilot.pause(0.4)
        assert not [one for one in desk.done if one[1] == fake_data.OLD]


def test_one_document_of_a_source_is_said_in_the_singular():
    one = SourceView("a", documents_in=1, documents=1)
    assert "1 document came in, 1 kept" in about_source(one).plain


@pytest.mark.parametrize("wrong", [(), ("data-00001.parquet: its hash is another",)])
async def test_bytes_are_called_verified_only_when_every_one_was_read(cockpit, desk, wrong):
    desk.wrong = wrong
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        desk.may_answer.clear()
        await pilot.press("v")
        await until(pilot, lambda: "verifying" in screen.query_one(AboutSheet).text)
        desk.may_answer.set()
        said = "1 wrong" if wrong else "verified 0s"
        await until(pilot, lambda: said in screen.query_one(AboutSheet).text)
        assert ("its hash is another" in screen.query_one(AboutSheet).text) == bool(wrong)


async def test_a_verification_that_could_not_be_done_verifies_nothing(cockpit, desk):
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        desk.refusal = AlborError("no space left")
        await pilot.press("v")
        words = "could not be verified: no space left"
        await until(pilot, lambda: words in screen.query_one(AboutSheet).text)
        assert "not verified" in screen.query_one(AboutSheet).text


async def test_other_bytes_under_an_old_name_lose_what_was_known_of_them(cockpit, desk):
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        await pilot.press("v")
        await until(pilot, lambda: "verified 0s" in screen.query_one(AboutSheet).text)
        first = desk.shelf.sets[0]
        users = tuple(replace(one, is_same=False) for one in first.users)
        other = replace(first.folder, hashes={"train": "0" * 64}, documents=7)
        changed = replace(first, folder=other, users=users)
        desk.shelf = DataShelf((changed, *desk.shelf.sets[1:]))
        desk.stats[fake_data.CODE] = fake_data.stats(documents=7)
        await pilot.press("r")
        await until(pilot, lambda: "2 runs read other bytes" in screen.query_one(AboutSheet).text)
        assert "not verified" in screen.query_one(AboutSheet).text
        await until(pilot, lambda: "7 documents," in screen.query_one(AboutSheet).text)


async def test_a_small_screen_shows_one_part_at_a_time(cockpit):
    async with cockpit().run_test(size=SMALL) as pilot:
        screen = await counted(pilot)
        shown = {key: screen.query_one(f"#data-{key}") for key in ("sources", "dropped", "about")}
        assert [key for key, part in shown.items() if part.display] == ["sources"]
        await pilot.press("right_square_bracket")
        assert [key for key, part in shown.items() if part.display] == ["dropped"]
        assert screen.query_one(DataSetList).has_focus
        await pilot.press("enter")
        assert shown["dropped"].has_focus
        await pilot.press("4")
        assert shown["about"].has_focus and shown["about"].display
        await pilot.press("enter", "1", "enter", "end")
        assert "a-repository-with-a-longer-one-still" in text_of(screen)  # whole, below the list
        assert "13 too_short" in text_of(screen)


async def test_five_hundred_sources_scroll_and_sort(cockpit, desk):
    many = [
        {"source": f"org/repo-{n:03}", "documents_in": 100, "documents": n % 101, "tokens": 500 - n}
        for n in range(500)
    ]
    desk.stats[fake_data.CODE] = fake_data.stats(sources=many)
    async with cockpit().run_test(size=SMALL) as pilot:
        screen = await counted(pilot)
        sources = screen.query_one(SourceList)
        assert sources.count() == 500
        await pilot.press("enter", "end")
        await until(pilot, lambda: "org/repo-499" in text_of(screen))
        await pilot.press("s")
        assert [row.lost_share for row in sources.rows[:3]] == [1.0, 1.0, 1.0]
        assert sources.current.name == "org/repo-499"  # the cursor stays on its source
        await pilot.press("s")
        assert sources.rows[0].name == "org/repo-000"


async def test_enter_and_o_lead_to_the_parts_and_to_the_newest_run(cockpit):
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        await pilot.press("enter")
        assert screen.query_one(SourceList).has_focus
        await pilot.press("2")
        assert screen.query_one(DroppedSheet).has_focus
        await pilot.press("o")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))


async def test_without_data_sets_the_room_says_what_begins_one(cockpit, desk):
    desk.shelf = DataShelf()
    async with cockpit().run_test(size=SMALL) as pilot:
        await pilot.press("D")
        await until(pilot, lambda: isinstance(pilot.app.screen, DataScreen))
        screen = pilot.app.screen
        await until(pilot, lambda: "albor data build python-sources" in text_of(screen))
        assert "python-sources" in packaged_recipes()
        assert "Verify" not in text_of(screen)
        for key in ("v", "s", "r", "o", "1", "right_square_bracket", "enter"):
            await pilot.press(key)
        assert screen.is_current


async def test_a_cockpit_that_may_only_look_offers_no_reading_of_every_byte(cockpit, desk):
    app = cockpit()
    app.is_read_only = True
    async with app.run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        assert "v reads every byte" not in screen.query_one(AboutSheet).text
        assert "Verify" not in text_of(screen).splitlines()[-1]
        await pilot.press("v")
        await pilot.pause()
        assert not [one for one in desk.done if one[0] == "verify_data"]


async def test_a_shelf_that_could_not_be_read_whole_says_so(cockpit, desk):
    desk.shelf = replace(desk.shelf, problem="data of runs is not known: no such store")
    async with cockpit().run_test(size=SMALL) as pilot:
        screen = await entered(pilot)
        await until(pilot, lambda: "data of runs is not known" in text_of(screen))


async def test_what_was_never_searched_for_is_not_said_to_be_absent(cockpit, desk):
    bare = fake_data.stats(contamination=None, licences={}, steps=[], histogram={}, sources=[])
    desk.stats[fake_data.CODE] = bare
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await entered(pilot)
        await until(pilot, lambda: "contamination" in screen.query_one(AboutSheet).text)
        about = screen.query_one(AboutSheet).text
        assert "no search is recorded" in about and "none in" not in about
        assert "what was dropped is not recorded" in screen.query_one(DroppedSheet).text
        assert "no source is recorded" in text_of(screen)
        assert "lengths are not recorded" in text_of(screen)


async def test_the_room_in_ascii_is_ascii(cockpit, monkeypatch):
    monkeypatch.setattr(glyphs, "current", glyphs.ASCII)
    async with cockpit().run_test(size=WIDE) as pilot:
        screen = await counted(pilot)
        strips = screen._compositor.render_strips()
        assert all(line.text.isascii() for line in map(_filtered, strips))


def _filtered(strip):
    from textual.color import Color

    from albor_tui.look.ascii_look import AsciiOnly

    return strip.apply_filter(AsciiOnly(), Color(0, 0, 0))


@pytest.mark.parametrize("text", [HOSTILE[2], HOSTILE[5], HOSTILE[15]])
async def test_names_of_data_are_never_obeyed(cockpit, desk, text):
    folder = FolderView("here", kind="dataset", hashes={text: text})
    desk.shelf = DataShelf((DataSetView(text, fake_data.CODE, text, folder=folder),), problem=text)
    source = {"source": text, "documents_in": 2, "documents": 1, "tokens": 1, "dropped": {text: 1}}
    step = {
        "step": text,
        "settings": {text: text},
        "dropped": {text: 1},
        "examples": {text: [text]},
    }
    desk.stats[fake_data.CODE] = fake_data.stats(
        sources=[source],
        steps=[step],
        licences={text: 3},
        splits=[{"name": text, "data_hash": text}],
        contamination={"against": [text], "hits": [{"document": text, "task": text}]},
    )
    for size in (WIDE, SMALL):
        async with cockpit().run_test(size=size) as pilot:
            screen = await counted(pilot)
            for part in "1234":
                await pilot.press(part)
                await pilot.pause()
                check_cells(pilot.app)
            assert screen.is_current
