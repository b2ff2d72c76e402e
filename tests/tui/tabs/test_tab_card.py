"""The card of a run: what it says at each size, and what is written, opened and copied from it."""

from __future__ import annotations

import base64
from dataclasses import replace

import fake_feed
import pytest
from hostile import HOSTILE, check_cells
from screen_stage import at, ready, text_of
from screen_stage import counted as counted
from settled import until

from albor_core.feed.archive.card import Relative, RunCard
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import StoreError
from albor_core.run.values.clean import clean
from albor_core.store.query.media import ArtifactVersion, MediaKey, MediaRow
from albor_core.store.rows.rows import NoteRow
from albor_tui.screens.dialogs.crash import CrashScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.tabs.card import CardPage
from albor_tui.widgets.edit_line import EditLine, from_line, to_line
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run.card_list import CardList, all_of, made_of
from albor_tui.widgets.status_bar import StatusBar

NARROW, WIDE = (80, 24), (160, 45)


@pytest.fixture
def card(source):
    source.card = replace(fake_feed.CARD, crashes=(fake_feed.CRASH, fake_feed.CRASH))
    return source


def open_card(cockpit, source, size=WIDE, **options):
    return cockpit(run=at(source), tab="card", **options).run_test(size=size)


async def shown(pilot, source):
    await ready(source, "card")(pilot)
    lists = pilot.app.screen.query(CardList)
    await until(pilot, lambda: any(listing.lines for listing in lists))
    await pilot.pause()


async def go_to(pilot, words):
    """Stand on the first line that has these words."""
    for listing in pilot.app.screen.query(CardList):
        lines = [line.content.plain for line in listing.lines]
        found = [i for i, line in enumerate(lines) if words in line]
        if found:
            pilot.app.screen.set_focus(listing)
            listing.stand_on_line(found[0])
            await pilot.pause()
            return
    raise AssertionError(words)


def said(pilot) -> str:
    return str(pilot.app.screen.query_one(StatusBar).line)


async def typed(pilot, text):
    line = pilot.app.screen.query_one(EditLine)
    await until(pilot, lambda: line.is_open and pilot.app.screen.focused is line)
    line.value = text
    await pilot.press("enter")
    await pilot.pause()


def test_a_card_that_is_not_composed_yet_names_no_key_and_breaks_nothing():
    page = CardPage("card", RunView(id="r", name="r", path="/r"))
    assert page.key_word("open") == ""
    assert not page.check_action("open", ())


# -- what it says --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [NARROW, WIDE, (120, 36)], ids=str)
async def test_all_of_the_card_can_be_read_at_every_size(cockpit, card, size):
    async with open_card(cockpit, card, size) as pilot:
        await shown(pilot, card)
        lists = pilot.app.screen.query(CardList)
        lines = [line.content for listing in lists if listing.lines for line in listing.lines]
        told = " ".join(" ".join(line.plain.split()) for line in lines)
        for words in (
            "the one that the others are compared with", "ana, 2025-11-23", "baseline paper",
            "optimizer.lr=3e-4", "0f24d89c1be0 with uncommitted changes", "+120 -14 in 3 files",
            "loop.py", "+118 -12", "binary", "2 files that git does not track",
            "albor runs show code-125m-3f2a91 --patch", "script.txt", "torch 2.12.1",
            "code-125m-043", "rope", "failed", "tokenizer", "2.00Mi", "1 checkpoint",
            "CUDA out of memory", "in eval_step", "1 earlier one",
        ):  # fmt: skip
            assert words in told, words
        for listing in lists:
            if listing.lines:
                wide = [
                    one.content for one in listing.lines if one.content.cell_length > listing.room
                ]
                assert wide == []
        made = pilot.app.screen.query(CardList).first()
        whole = made_of if len([one for one in lists if one.lines]) == 2 else all_of
        assert [line.content.plain for line in made.lines] == [
            line.content.plain for line in whole(card.card, made.room)
        ]


async def test_what_a_run_has_nothing_of_takes_no_room(cockpit, source):
    source.card = RunCard(id="x", path="/runs/x", command=("python", "x.py"))
    async with open_card(cockpit, source) as pilot:
        await shown(pilot, source)
        (listing,) = (one for one in pilot.app.screen.query(CardList) if one.lines)
        assert [line.content.plain.split() for line in listing.lines] == [
            ["command", "python", "x.py"], [], ["folder", "/runs/x"],
        ]  # fmt: skip
        assert not pilot.app.screen.query_one("#card-came").display


async def test_media_and_versions_of_artefacts_are_told_by_key(cockpit, source, tmp_path):
    last = MediaRow("r", tmp_path, 9, "val/images", 90, "image", "ab", 3, "", None, "")
    source.card = replace(
        fake_feed.CARD,
        media=(MediaKey("val/images", "image", 1_000, 1, 90, last),),
        artifact_versions=(
            ArtifactVersion("weights", 3, "made", (fake_feed.CARD.id,), ("rope-77aa10",)),
            ArtifactVersion("data", 1, "used", ("maker-1",), (fake_feed.CARD.id,)),
        ),
    )
    async with open_card(cockpit, source) as pilot:
        await shown(pilot, source)
        told = " ".join(text_of(pilot.app.screen).split())
        for words in (
            "media val/images image 1,000", "step 90", "made weights:v3 used by rope-77aa10",
            "used data:v1 made by maker-1",
        ):  # fmt: skip
            assert words in told, words


async def test_a_death_stands_above_the_recipe_where_there_is_one_column(cockpit, card):
    async with open_card(cockpit, card, NARROW) as pilot:
        await shown(pilot, card)
        told = text_of(pilot.app.screen)
        assert told.index("baseline") < told.index("crash 1") < told.index("Traceback")


async def test_a_thousand_children_are_counted_and_the_rest_has_a_command(cockpit, source):
    children = tuple(Relative(f"kid-{i}", f"kid {i}", "completed", i, "/r") for i in range(200))
    ids = tuple(f"kid-{i}" for i in range(1_000))
    source.card = replace(fake_feed.CARD, children=children, child_ids=ids)
    async with open_card(cockpit, source) as pilot:
        await shown(pilot, source)
        await go_to(pilot, "800 more: albor runs ls parent:code-125m-3f2a91")
        assert "1,000" in "\n".join(
            line.content.plain for line in pilot.app.screen.query(CardList).last().lines
        )


async def test_a_long_note_is_read_to_its_end_with_the_keys_that_move(cockpit, source):
    words = " ".join(f"word{i}" for i in range(1_250))[:10_000]
    source.card = replace(fake_feed.CARD, notes=(NoteRow(1.0, "me", words, 1),))
    async with open_card(cockpit, source, NARROW) as pilot:
        await shown(pilot, source)
        seen = ""
        for _ in range(30):
            seen += text_of(pilot.app.screen)
            await pilot.press("pagedown")
        assert all(f"word{i} " in seen or f"word{i}\n" in seen for i in range(0, 1_200, 7))


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=str)
async def test_notes_of_control_characters_are_text(cockpit, source, size):
    notes = tuple(NoteRow(1.0, text[:50], text, i) for i, text in enumerate(HOSTILE, 1))
    source.card = replace(fake_feed.CARD, notes=notes)
    async with open_card(cockpit, source, size) as pilot:
        await shown(pilot, source)
        for _ in range(4):
            check_cells(pilot.app)
            await pilot.press("pagedown")
        await pilot.press("home", "enter")
        await until(pilot, lambda: pilot.app.screen.query_one(EditLine).is_open)
        check_cells(pilot.app)


# -- what is written -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=str)
async def test_a_note_is_edited_where_it_stands(cockpit, card, desk, size):
    async with open_card(cockpit, card, size) as pilot:
        await shown(pilot, card)
        await go_to(pilot, "ablate rope")
        before = text_of(pilot.app.screen).splitlines()
        row = next(i for i, line in enumerate(before) if "ablate rope" in line)
        await pilot.press("enter")
        line = pilot.app.screen.query_one(EditLine)
        await until(pilot, lambda: line.is_open and line.region.y == row)
        assert text_of(pilot.app.screen).splitlines()[row].index("ablate") == before[row].index(
            "ablate"
        )
        await typed(pilot, "rope does nothing")
        await until(pilot, lambda: bool(desk.done))
        assert desk.done == [("edit_note", "code-125m-3f2a91", 3, "rope does nothing")]
        assert not line.is_open


async def test_escape_leaves_a_note_as_it_was(cockpit, card, desk):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        await go_to(pilot, "ablate rope")
        await pilot.press("e", "x", "y", "escape")
        await pilot.pause()
        assert "ablate rope next, see the paper's table 4" in text_of(pilot.app.screen)
        assert not pilot.app.screen.query_one(EditLine).is_open
        assert isinstance(pilot.app.screen, RunScreen)
        assert desk.done == []


async def test_a_new_note_is_shown_as_soon_as_it_is_written(cockpit, card, desk):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        asked = card.asked["card"]
        await pilot.press("N")
        card.card = replace(
            card.card, notes=(*card.card.notes, NoteRow(fake_feed.WALL, "me", "it diverged", 4))
        )
        await typed(pilot, r"it diverged\nat 1,200")
        await until(pilot, lambda: bool(desk.done))
        assert desk.done == [("note", "code-125m-3f2a91", "it diverged\nat 1,200")]
        await until(pilot, lambda: card.asked["card"] > asked)
        await until(pilot, lambda: "it diverged" in text_of(pilot.app.screen))
        listing = pilot.app.screen.query(CardList).first()
        await until(pilot, lambda: listing.current is not None and listing.current.note is not None)
        assert listing.current.note.number == 4


async def test_tags_are_edited_as_one_line(cockpit, card, desk):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        await pilot.press("T")
        line = pilot.app.screen.query_one(EditLine)
        await until(pilot, lambda: line.is_open)
        assert line.value == "baseline paper"
        await typed(pilot, "paper 'two words' paper")
        await until(pilot, lambda: bool(desk.done))
        assert desk.done == [
            ("set_tags", "code-125m-3f2a91", ("paper", "two words"), ("baseline", "paper"))
        ]


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("T", "a 'b", "cannot keep the tags: no closing quotation"),
        ("T", "x" * 65, "64 characters at most"),
        ("N", "x" * 16_385, "cannot keep a note of 16,385 characters: 16,384 at most"),
        ("e", "  ", "cannot keep an empty note: esc, then D takes it back"),
    ],
)
async def test_what_cannot_be_kept_stays_in_the_line_with_the_reason(
    cockpit, card, desk, key, text, says
):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        await pilot.press(key)
        await typed(pilot, text)
        assert says in said(pilot)
        assert pilot.app.screen.query_one(EditLine).value == text
        assert desk.done == []


async def test_nothing_is_written_where_nothing_was_changed(cockpit, card, desk):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        for key in ("e", "T", "N"):
            await pilot.press(key, "enter")
            await pilot.pause()
            assert not pilot.app.screen.query_one(EditLine).is_open
        assert desk.done == []


async def test_a_note_is_taken_back_after_a_yes(cockpit, card, desk):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        await go_to(pilot, "ablate rope")
        await pilot.press("D", "n")
        await pilot.pause()
        assert desk.done == []
        await pilot.press("D", "y")
        await until(pilot, lambda: bool(desk.done))
        assert desk.done == [("edit_note", "code-125m-3f2a91", 3, "")]


async def test_a_home_that_cannot_be_written_is_said_with_the_reason(cockpit, card, desk):
    desk.refusal = StoreError("annotations.jsonl: Read-only file system", hint="use another home")
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        await pilot.press("N")
        await typed(pilot, "x")
        await until(pilot, lambda: "Read-only file system (use another home)" in said(pilot))


async def test_a_note_whose_folder_is_gone_cannot_be_edited(cockpit, source, desk):
    source.card = replace(fake_feed.CARD, notes=(NoteRow(1.0, "me", "kept", None),))
    async with open_card(cockpit, source) as pilot:
        await shown(pilot, source)
        await pilot.press("e")
        assert "cannot edit a note: the run's folder is gone" in said(pilot)


@pytest.mark.parametrize("keys", [("N",), ("T",), ("e",), ("D",), ("enter",)], ids=str)
async def test_a_cockpit_that_only_looks_writes_nothing(cockpit, card, desk, keys):
    async with open_card(cockpit, card, read_only=True) as pilot:
        await shown(pilot, card)
        await pilot.press(*keys)
        await pilot.pause()
        assert "read-only" in said(pilot)
        assert not pilot.app.screen.query_one(EditLine).is_open
        assert desk.done == []


# -- what is opened and copied -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says", "offers"),
    [
        ("ablate", "enter Edit", {"edit_note", "remove_note", "copy"}),
        ("baseline", "enter Edit", {"copy"}),
        ("script ", "enter Copy", {"copy"}),
        ("running", "enter Open", {"copy"}),
        ("crash 1", "enter Open", {"copy"}),
        ("2 files that", "T Tags", set()),
    ],
)
async def test_the_keys_that_are_named_are_those_of_the_line(cockpit, card, line, says, offers):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        await go_to(pilot, line)
        await until(pilot, lambda: says in str(pilot.app.screen.query_one(KeyBar).render()))
        page = pilot.app.screen.page
        acts = ("edit_note", "remove_note", "copy")
        assert {act for act in acts if page.check_action(act, ())} == offers


async def test_enter_goes_to_a_relative_and_back(cockpit, card):
    card.rows = (*card.rows, replace(card.rows[0], id="rope-77aa10", name="rope"))
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        first = pilot.app.screen
        await pilot.press("right")
        await go_to(pilot, "running")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is not first)
        assert isinstance(pilot.app.screen, RunScreen)
        assert pilot.app.screen.tab == "card"
        assert pilot.app.screen._view.id == "rope-77aa10"
        await pilot.press("q")
        await until(pilot, lambda: pilot.app.screen is first)


async def test_a_parent_that_no_store_knows_is_said(cockpit, source):
    source.card = replace(fake_feed.CARD, parent=Relative("long-gone"))
    async with open_card(cockpit, source) as pilot:
        await shown(pilot, source)
        await go_to(pilot, "long-gone")
        await pilot.press("enter")
        assert "no store here knows long-gone" in said(pilot)


async def test_enter_opens_the_crash_report(cockpit, card):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        await go_to(pilot, "Traceback")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, CrashScreen))


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("script ", "/home/ana/albor/sweep.py"),
        ("whole: ", "albor runs show code-125m-3f2a91 --patch"),
        ("kept in", "/runs/code-125m-3f2a91/run.json"),
        ("commit", fake_feed.CARD.code.commit),
        ("ablate", "ablate rope next, see the paper's table 4"),
        ("tokenizer", "/data/tokenizer.json"),
        ("crash 1", fake_feed.CRASH.path),
    ],
)
async def test_y_copies_the_whole_of_a_line(cockpit, card, monkeypatch, line, copied):
    async with open_card(cockpit, card) as pilot:
        await shown(pilot, card)
        sent: list[str] = []
        monkeypatch.setattr(pilot.app._driver, "write", sent.append)
        await go_to(pilot, line)
        await pilot.press("y")
        (code,) = (one for one in sent if one.startswith("\x1b]52;c;"))
        assert base64.b64decode(code[7:-1]).decode() == copied
        assert "copied " in said(pilot)


async def test_what_is_copied_holds_nothing_that_a_terminal_obeys(cockpit, source):
    text = "rm \x1b[31m\x00\u202e -rf"
    source.card = replace(fake_feed.CARD, notes=(NoteRow(1.0, "me", text, 1),))
    async with open_card(cockpit, source) as pilot:
        await shown(pilot, source)
        await pilot.press("y")
        assert pilot.app.clipboard == clean(text)


# -- the line ------------------------------------------------------------------------------------

TEXTS = (
    *("plain", "two\nlines", "a\ttab", r"C:\new\table", "\\", "\\\\", "\\\n", "end\\", r"\x41"),
    *("\x1b[2J", "\u202egnp.exe", "\u200b", "\ud800", "\U000e0041", "\u65e5\u672c", "\\u0041"),
    *HOSTILE,
)


@pytest.mark.parametrize("text", TEXTS, ids=lambda _: "")
def test_any_text_can_be_edited_as_one_harmless_line_and_comes_back(text):
    line = to_line(text)
    assert from_line(line) == text
    assert "\n" not in line
    if "\u0301" not in text:  # a flood of marks is cut where it is drawn, not where it is edited
        assert clean(line) == line


def test_a_path_stays_as_it_is():
    assert to_line("/runs/a b.json") == "/runs/a b.json"
    assert to_line(r"D:\Data") == r"D:\Data"
