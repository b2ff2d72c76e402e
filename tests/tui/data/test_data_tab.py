"""The Data tab of a run: what it reads and has read, the rows of its step, what lies there now."""

from __future__ import annotations

from dataclasses import replace

import fake_data
import fake_feed
import jsonschema
import pytest
from hostile import HOSTILE, check_cells
from screen_stage import at, text_of
from settled import until

from albor_core.documents.json_schema import schema_of
from albor_core.feed.data.folder import FolderView
from albor_core.feed.data.of_run import MixedSource, RunData
from albor_core.run.errors import AlborError
from albor_tui.screens.data.screen import DataScreen
from albor_tui.widgets.data.batch import BatchList, RowSheet
from albor_tui.widgets.data.run_facts import RunFacts
from albor_tui.widgets.data.seen_list import SeenList
from albor_tui.widgets.data.set_list import DataSetList

WIDE, SMALL = (160, 45), (80, 24)


def page_of(pilot):
    return pilot.app.screen.page


async def opened(pilot, sources: int = 7) -> None:
    await until(pilot, lambda: page_of(pilot).query_one(SeenList).count() == sources)
    await until(pilot, lambda: page_of(pilot).query_one(BatchList).count() == 4)
    await pilot.pause()


async def test_the_weight_of_a_source_stands_beside_what_was_seen_of_it(cockpit, source):
    seen = {name: n for name, n in fake_data.RUN_DATA.seen.items() if "transformers" not in name}
    source.data = replace(fake_data.MIXED_DATA, seen=seen)
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        await opened(pilot, sources=6)
        listing = page_of(pilot).query_one(SeenList)
        first = listing.rows[0]
        whole = sum(seen.values())
        assert (first.name, first.weight, first.seen) == ("pytorch/pytorch", 0.3, 293_376)
        assert first.seen_share == pytest.approx(293_376 / whole)
        last = listing.rows[-1]
        assert (last.seen, last.seen_share) == (0, 0.0)  # the run tells of others and not of it
        line = next(line for line in text_of(pilot.app.screen).splitlines() if "pandas" in line)
        assert "197k" in line and "21%" in line and "20%" in line
        facts = page_of(pilot).query_one(RunFacts).text
        assert f"{fake_data.CODE}/val" in facts and fake_data.VAL_HASH[:12] in facts
        assert "/data/numpy/numpy/train" in facts and facts.count("as recorded") == 7


async def test_how_rows_are_made_is_said_beside_where_they_come_from(cockpit, source):
    source.data = replace(
        fake_data.RUN_DATA, shuffles_documents=True, has_document_mask=True, has_fim=True
    )
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        await opened(pilot)
        facts = " ".join(page_of(pilot).query_one(RunFacts).text.split())
        for said in ("kept apart", "documents shuffled in each epoch", "filled in the middle"):
            assert said in facts


async def test_sources_of_one_data_set_have_shares_and_no_weight(cockpit, source):
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        await opened(pilot)
        assert all(row.weight is None for row in page_of(pilot).query_one(SeenList).rows)
        assert "weight" not in text_of(pilot.app.screen)
        facts = page_of(pilot).query_one(RunFacts).text
        assert f"{fake_data.CODE}/train" in facts and facts.count("as recorded") == 2


async def test_what_was_seen_is_not_guessed_where_the_run_does_not_tell_it(cockpit, source):
    source.data = replace(fake_data.RUN_DATA, seen={})
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        await opened(pilot)
        assert all(row.seen is None for row in page_of(pilot).query_one(SeenList).rows)
        assert "what it has seen of each is not recorded" in text_of(pilot.app.screen)


async def test_rows_are_stepped_through_and_read_as_text(cockpit, source):
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        await opened(pilot)
        page_of(pilot).query_one(BatchList).focus()
        sheet = page_of(pilot).query_one(RowSheet)
        assert "<|endoftext|>import math" in sheet.text
        await pilot.press("down")
        await until(pilot, lambda: "<|fim_middle|>return F.linear" in sheet.text)
        assert "filled in the middle" in text_of(pilot.app.screen)
        await pilot.press("enter")
        assert sheet.has_focus
        await pilot.press("enter")
        assert page_of(pilot).query_one(BatchList).has_focus


async def test_arrows_go_from_row_to_row_as_soon_as_there_are_rows(cockpit, source, desk):
    desk.may_answer.clear()
    async with cockpit(run=at(source)).run_test(size=WIDE) as pilot:
        await pilot.press("d")
        await until(pilot, lambda: bool(desk.done) and page_of(pilot).query_one(RowSheet).has_focus)
        desk.may_answer.set()
        await until(pilot, lambda: page_of(pilot).query_one(BatchList).has_focus)
        await pilot.press("down")
        assert page_of(pilot).query_one(BatchList).cursor == 1


async def test_the_rows_of_the_newest_step_come_when_they_are_asked_for(cockpit, source, desk):
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        await opened(pilot)
        asked = [one for one in desk.done if one[0] == "data_batch"]
        assert asked == [("data_batch", "code-125m-3f2a91")]  # once, and not with each poll
        desk.may_answer.clear()
        desk.batch = fake_data.batch(step=16_000)
        await pilot.press("r", "r")
        await until(pilot, lambda: "decoding the newest" in text_of(pilot.app.screen))
        assert "of step 15,280" in text_of(pilot.app.screen)  # until there is another
        desk.may_answer.set()
        await until(pilot, lambda: "batch of step 16,000" in text_of(pilot.app.screen))
        assert len([one for one in desk.done if one[0] == "data_batch"]) == 2


async def test_what_cannot_be_decoded_or_read_says_why(cockpit, source, desk):
    desk.refusal = AlborError("the shards were changed", hint="albor data verify /data/code-v3")
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        sheet = page_of(pilot).query_one(RowSheet)
        await until(pilot, lambda: "cannot decode its rows: the shards were changed" in sheet.text)
        assert "albor data verify" in sheet.text
        facts = page_of(pilot).query_one(RunFacts)
        await until(pilot, lambda: "cannot read its sources" in facts.text)
        assert f"{fake_data.CODE}/train" in facts.text  # what the run recorded stays


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"folder": FolderView("gone", "nothing is there any more")}, "gone: nothing is there"),
        ({"is_same": False}, "changed since"),
        ({"is_same": None}, "not comparable"),
    ],
)
async def test_shards_that_are_not_those_of_the_run_are_said_to_be(
    cockpit, source, desk, change, words
):
    train, val = fake_data.RUN_DATA.splits
    source.data = replace(fake_data.RUN_DATA, splits=(replace(train, **change), val))
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        facts = page_of(pilot).query_one(RunFacts)
        await until(pilot, lambda: words in facts.text)
        if "gone" in words:
            await pilot.pause(0.2)
            assert not [one for one in desk.done if one[0] == "data_stats"]


async def test_a_mixture_lists_its_folders_and_which_are_gone(cockpit, source):
    gone = FolderView("gone", "nothing is there any more")
    mixture = (
        MixedSource("code", "/data/code/train", 0.75),
        MixedSource("prose", "/data/prose/train", 0.25, folder=gone),
    )
    source.data = RunData(mixture=mixture, seen={"code": 30, "prose": 10}, stages=2)
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        listing = page_of(pilot).query_one(SeenList)
        await until(pilot, lambda: listing.count() == 2)
        assert [row.seen_share for row in listing.rows] == [0.75, 0.25]
        facts = page_of(pilot).query_one(RunFacts)
        await until(pilot, lambda: "gone: nothing is there" in facts.text)
        assert "2 stages" in facts.text


async def test_of_a_run_of_another_program_no_data_is_known_and_nothing_is_asked(
    cockpit, source, desk
):
    source.data = RunData("Albor knows the data of its own trainer only (train apply).")
    async with cockpit(run=at(source), tab="data").run_test(size=SMALL) as pilot:
        await until(pilot, lambda: "No data is known" in text_of(pilot.app.screen))
        assert "own trainer only" in text_of(pilot.app.screen)
        bar = text_of(pilot.app.screen).splitlines()[-1]
        assert "Data screen" not in bar and "Newest" not in bar
        await pilot.press("r", "v", "D", "enter")
        assert not [one for one in desk.done if one[0].startswith("data")]


async def test_a_small_screen_turns_between_sources_and_rows(cockpit, source):
    async with cockpit(run=at(source), tab="data").run_test(size=SMALL) as pilot:
        await opened(pilot)
        assert "pytorch/pytorch" in text_of(pilot.app.screen)
        assert "Card" in text_of(pilot.app.screen)  # every tab has its name
        await pilot.press("v")
        await until(pilot, lambda: "batch of step 15,280" in text_of(pilot.app.screen))
        assert page_of(pilot).query_one(BatchList).has_focus


async def test_the_data_room_opens_on_the_data_set_of_the_run(cockpit, source, desk):
    desk.shelf = replace(desk.shelf, sets=tuple(reversed(desk.shelf.sets)))
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        await opened(pilot)
        await pilot.press("D")
        await until(pilot, lambda: isinstance(pilot.app.screen, DataScreen))
        listing = pilot.app.screen.query_one(DataSetList)
        await until(pilot, lambda: listing.current is not None)
        await until(pilot, lambda: listing.current.view.path == fake_data.CODE)


@pytest.mark.parametrize("text", [HOSTILE[2], HOSTILE[5], HOSTILE[15]])
async def test_text_of_documents_is_never_obeyed(cockpit, source, desk, text):
    train, val = fake_data.RUN_DATA.splits
    source.data = replace(
        fake_data.RUN_DATA,
        splits=(replace(train, path=f"/{text}", data_hash=text), val),
        tokenizer=text,
        seen={text: 3},
    )
    rows = [{"row": 1, "source": text, "tokens": 4, "documents": [0], "text": f"a\n{text}\tb"}]
    desk.batch = fake_data.batch(rows=rows)
    for size in (WIDE, SMALL):
        async with cockpit(run=at(source), tab="data").run_test(size=size) as pilot:
            await until(pilot, lambda p=pilot: page_of(p).query_one(BatchList).count() == 1)
            check_cells(pilot.app)
            await pilot.press("v")
            await pilot.pause()
            check_cells(pilot.app)


async def test_rows_that_no_tokenizer_is_known_for_are_not_called_empty(cockpit, source, desk):
    desk.batch = fake_data.batch(rows=[{"row": 3, "text": None, "tokens": 8}])
    async with cockpit(run=at(source), tab="data").run_test(size=WIDE) as pilot:
        sheet = page_of(pilot).query_one(RowSheet)
        await until(pilot, lambda: "names no data.tokenizer" in sheet.text)


def test_the_frozen_data_belongs_to_the_frozen_run():
    jsonschema.validate(fake_data.batch(), schema_of("albor.data.batch"))
    assert fake_data.batch()["run"] == fake_feed.training().id
