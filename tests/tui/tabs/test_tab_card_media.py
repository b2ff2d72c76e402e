"""The media of a run on its card: a line for each key, opened by enter, and the lineage of its
artefacts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fake_feed
import numpy as np
import pytest
from hostile import HOSTILE, check_cells
from screen_stage import at, ready, text_of
from screen_stage import counted as counted
from settled import until

from albor_core import track
from albor_core.feed.archive.archive import RunArchive
from albor_core.feed.archive.card import RunCard
from albor_core.run.rundir import RunDir
from albor_core.store.index.indexer import index_now
from albor_core.store.query.media import ArtifactVersion, MediaKey, MediaRow
from albor_tui.look import glyphs
from albor_tui.screens.dialogs.media import MediaScreen
from albor_tui.widgets.run.card_list import CardList

RUN = Path("/runs/code-125m-3f2a91")
PICTURE = MediaRow(
    RUN.name, RUN, 1, "samples/long/name", 900, "image", "ab" * 32, 12_345, "", None, "", {
        "format": "png"
    }, fake_feed.WALL - 60,
)  # fmt: skip
INLINE = replace(PICTURE, key="weights", kind="histogram", meta={"format": "json", "data": {}})
MEDIA = (
    MediaKey("samples/long/name", "image", 1_000, 1, 900, PICTURE),
    MediaKey("weights", "histogram", 1, None, None, INLINE),
)
VERSIONS = (
    ArtifactVersion("model", 3, "made", (RUN.name,), ("eval-1", "eval-2")),
    ArtifactVersion("data", 1, "used", ("maker",), (RUN.name,)),
)


async def lines_of(pilot, source):
    await ready(source, "card")(pilot)
    lists = pilot.app.screen.query(CardList)
    await until(pilot, lambda: any(listing.lines for listing in lists))
    await pilot.pause()
    return [line for listing in lists for line in listing.lines]


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=str)
async def test_each_key_has_a_line_and_each_version_the_runs_that_have_to_do_with_it(
    cockpit, source, size
):
    source.card = replace(fake_feed.CARD, media=MEDIA, artifact_versions=VERSIONS)
    async with cockpit(run=at(source), tab="card").run_test(size=size) as pilot:
        lines = await lines_of(pilot, source)
        told = [" ".join(line.content.plain.split()) for line in lines]
        (picture,) = (words for words in told if "samples/long/name" in words)
        assert picture == "media samples/long/name image 1,000 step 900"
        assert "weights histogram 1" in told
        assert "made model:v3 used by eval-1 eval-2" in told
        assert "used data:v1 made by maker" in told


async def test_many_keys_are_counted_and_hostile_ones_are_text(cockpit, source):
    keys = [*HOSTILE, *(f"key {number}" for number in range(200))]
    media = tuple(MediaKey(key, "image", 1, 1, 1, replace(PICTURE, key=key)) for key in keys)
    source.card = RunCard(id="x", path="/runs/x", media=media)
    async with cockpit(run=at(source), tab="card").run_test(size=(80, 24)) as pilot:
        lines = await lines_of(pilot, source)
        told = [line.content.plain for line in lines]
        assert any(f"{len(keys) - 20} more" in words or "more key" in words for words in told)
        check_cells(pilot.app)


# -- what enter opens ----------------------------------------------------------------------------


@pytest.fixture
def kept(source):
    """A run that kept one medium of each kind at five steps, behind the cockpit's card."""
    with track.start("media") as run:
        for step in range(0, 50, 10):
            run.image("seen", np.full((4, 6, 3), 5 * step, dtype=np.uint8), step=step,
                      caption=HOSTILE[0])  # fmt: skip
            run.histogram("weights", np.arange(100) * (step + 1.0), step=step)
            cells = [HOSTILE[1], 1, *["x" * 90] * 5]
            names = ["name", "n", "long", "\u8a00\u8a9e" * 90, "z", "\x1b[1m", "c"]
            run.table("rows", [cells] * 90, columns=names, step=step)
            run.text("said", "\x1b[31mred\x1b[0m " + "\u8a00\u8a9e" * 90, step=step)
        run.audio("voice", np.zeros(800), sample_rate=8000, step=40)
    folder = RunDir(run.path)
    index_now(folder)

    def look(wanted):
        archive = RunArchive(folder)
        try:
            return archive.medium(wanted)
        finally:
            archive.close()

    archive = RunArchive(folder)
    source.card, source.medium = archive.card(), look
    archive.close()
    return source


async def opened(pilot, source, key):
    """The viewer of a key, with its contents."""
    await ready(source, "card")(pilot)
    listings = [*pilot.app.screen.query(CardList)]
    await until(pilot, lambda: any(listing.lines for listing in listings))
    for listing in listings:
        for place, line in enumerate(listing.lines):
            if line.entry and line.entry.medium and line.entry.medium[0] == key:
                listing.focus()
                await pilot.pause()
                listing.stand_on_line(place)
                await pilot.press("enter")
                await until(pilot, lambda: isinstance(pilot.app.screen, MediaScreen))
                await until(pilot, lambda: "loading" not in text_of(pilot.app.screen))
                return
    raise AssertionError(key)


async def says(pilot, words):
    await until(pilot, lambda: words in text_of(pilot.app.screen), words)


def colours(app):
    strips = app.screen._compositor.render_strips()
    return {part.style.bgcolor.name for line in strips for part in line if part.style.bgcolor}


async def test_a_picture_is_drawn_at_each_step_and_escape_goes_back_to_its_line(cockpit, kept):
    async with cockpit(run=at(kept), tab="card").run_test(size=(80, 24)) as pilot:
        await opened(pilot, kept, "seen")
        await says(pilot, "step 40  5 of 5")
        await until(pilot, lambda: "#c8c8c8" in colours(pilot.app))
        check_cells(pilot.app)
        await pilot.press("comma", "comma")
        await says(pilot, "step 20  3 of 5")
        await until(pilot, lambda: "#646464" in colours(pilot.app))
        await pilot.press(*["comma"] * 9)
        await says(pilot, "step 0  1 of 5")
        await pilot.press("full_stop")
        await says(pilot, "step 10  2 of 5")
        await pilot.press("g", *"29", "enter")
        await says(pilot, "step 30  4 of 5")
        await pilot.press("g", *"soon", "enter")
        await says(pilot, "a step is a whole number")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, MediaScreen))
        assert (
            "seen" in pilot.app.screen.focused.draw_line(pilot.app.screen.focused.cursor, 78).plain
        )


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("weights", "how full a bin is"),
        ("rows", "more <"),
        ("said", "\u8a00\u8a9e" * 9),
        ("voice", "xdg-open"),
    ],
)
@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=str)
async def test_each_kind_is_shown_as_what_it_is(cockpit, kept, key, words, size):
    async with cockpit(run=at(kept), tab="card").run_test(size=size) as pilot:
        await opened(pilot, kept, key)
        await pilot.press("right", "down")
        await says(pilot, words)
        await pilot.press("comma")
        await says(pilot, "step 40  1 of 1" if key == "voice" else "step 30  4 of 5")
        check_cells(pilot.app)


async def test_without_colours_a_picture_is_shades(cockpit, kept, monkeypatch):
    monkeypatch.setattr(glyphs, "current", glyphs.ASCII)
    async with cockpit(run=at(kept), tab="card").run_test(size=(80, 24)) as pilot:
        await opened(pilot, kept, "seen")
        await until(pilot, lambda: "###" in text_of(pilot.app.screen))


async def test_a_file_that_is_gone_says_so(cockpit, kept):
    source = kept
    view = source.medium
    source.medium = lambda wanted: replace(view(wanted), content=None, problem="its file is gone")
    async with cockpit(run=at(source), tab="card").run_test(size=(80, 24)) as pilot:
        await opened(pilot, source, "seen")
        await says(pilot, "its file is gone")
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, MediaScreen))
