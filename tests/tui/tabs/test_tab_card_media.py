"""The media of a run on its card: a line for each key, and the lineage of its artefacts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fake_feed
import pytest
from hostile import HOSTILE, check_cells
from screen_stage import at, ready
from screen_stage import counted as counted
from settled import until

from albor_core.feed.archive.card import RunCard
from albor_core.store.query.media import ArtifactVersion, MediaKey, MediaRow
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
