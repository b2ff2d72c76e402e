"""What needs a person: listed, told once, on every screen, and marked where it is kept."""

from __future__ import annotations

import threading
from dataclasses import replace

import incident
import pytest
from screen_stage import text_of
from settled import settled, until

from albor_core.feed.attention.item import AttentionItem, AttentionList
from albor_core.run.errors import AlborError
from albor_tui.model.loudness import loudness
from albor_tui.model.newcomers import Newcomers
from albor_tui.screens.andon import AndonScreen
from albor_tui.screens.attention import AttentionScreen
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs.screen import RunsScreen
from albor_tui.widgets.attention_panels import AttentionDetail, AttentionTable, head
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.status_bar import StatusBar, TopBar

SIZES = [pytest.param((80, 24), id="80x24"), pytest.param((160, 45), id="160x45")]


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ({"12m 00s of work lost": False}, "0.2 h lost"),
        ({"1.6 GPU-h lost": True}, "0.2 GPU-h lost"),
        ({"1.6 GPU-h lost": True, "12m 00s of work lost": False}, "0.4 h lost"),
        ({"12m 00s of work lost, of a budget in GPU-h": False}, "0.2 h lost"),
    ],
)
def test_hours_of_runs_without_a_gpu_are_no_gpu_hours(costs, words):
    """By what the entry says it is of, and not by its own text."""
    items = tuple(
        AttentionItem(
            f"r/{n}", "died", "died", "error", cost_gpu_hours=0.2, cost=cost, is_of_gpus=of_gpus
        )
        for n, (cost, of_gpus) in enumerate(costs.items())
    )
    assert words in head(AttentionList(items), 120).plain


@pytest.mark.parametrize("height", [4, 6, 20])
def test_a_sentence_that_is_cut_ends_in_a_mark(height):
    long = " ".join(f"word{n}" for n in range(60))
    panel = AttentionDetail()
    panel.set_reactive(
        AttentionDetail.item,
        AttentionItem("r/x", "died", "died", "error", summary=long, cause=long, cost=long),
    )
    lines = [line.rstrip() for line in panel.draw(40, height).plain.splitlines()]
    ends = [line for line in lines if line.endswith("\u2026")]
    assert len(ends) == (len(lines) - 1 if height < 8 else 3)


@pytest.fixture
def trouble(source, desk):
    """A source in which much is wrong."""
    source.rows = incident.runs()
    source.gpus = incident.eight_gpus()
    source.troubles = incident.attention()
    died = source.rows[1].id
    desk.stands_behind = {f"{died}/died": incident.EVIDENCE}
    return source


async def listed(pilot) -> AttentionScreen:
    """The list in front, with what stands behind its first entry."""
    await until(pilot, lambda: isinstance(pilot.app.screen, AttentionScreen))
    screen = pilot.app.screen
    await until(pilot, lambda: screen.query(AttentionTable) and screen.current is not None)
    await until(pilot, lambda: screen.behind is not None)
    await settled(pilot)
    return screen


async def choose(pilot, kind: str) -> AttentionScreen:
    screen = await listed(pilot)
    table = screen.query_one(AttentionTable)
    at = next(i for i, item in enumerate(table.items) if item.kind == kind)
    table.cursor = at
    await until(pilot, lambda: screen.behind is not None and screen.behind.item.kind == kind)
    await settled(pilot)
    return screen


def keys(pilot) -> str:
    return str(pilot.app.screen.query_one(KeyBar).render())


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_wrong_at_the_start_is_in_front_and_esc_leads_to_the_runs(
    cockpit, trouble, size
):
    async with cockpit().run_test(size=size) as pilot:
        screen = await listed(pilot)
        shown = text_of(screen)
        assert "5 need you" in shown and "3 running fine" in shown and "1 not watched" in shown
        assert "hung" in shown and "gpu 5 straggling" in shown and "gpu 7 throttled" in shown
        assert shown.index("hung") < shown.index("died") < shown.index("gpu 5")
        assert "5 completed (best sweep-lr-199 2.456), 1 stopped" in shown
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, RunsScreen)


async def test_nothing_comes_forward_where_nothing_is_open(cockpit, source):
    source.troubles = AttentionList()
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: pilot.app.attention.is_complete)
        await pilot.pause()
        assert isinstance(pilot.app.screen, RunsScreen)


async def test_nothing_comes_forward_once_somebody_has_pressed_a_key(cockpit, trouble):
    found, trouble.troubles = trouble.troubles, AttentionList(is_complete=False)
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(pilot.app.screen.rows) == 4)
        await pilot.press("down")
        trouble.troubles = found
        await until(pilot, lambda: bool(pilot.app.attention.items))
        await pilot.pause()
        assert isinstance(pilot.app.screen, RunsScreen)
        assert "! 5" in text_of(pilot.app.screen)


async def test_entries_of_two_runs_of_one_name_are_told_apart(cockpit, source):
    found = incident.attention()
    first = found.items[0]
    items = tuple(
        replace(first, id=f"{run_id}/hung", run_id=run_id, run_name="sweep")
        for run_id in ("sweep-a1b2c3", "sweep-d4e5f6")
    )
    source.rows, source.troubles = incident.runs(), replace(found, items=items)
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, AttentionScreen))
        await until(pilot, lambda: "sweep a1b2c3" in text_of(pilot.app.screen))
        assert "sweep d4e5f6" in text_of(pilot.app.screen)


@pytest.mark.parametrize("size", SIZES)
async def test_every_screen_says_how_many_need_somebody(cockpit, trouble, size):
    async with cockpit().run_test(size=size) as pilot:
        await listed(pilot)
        view = trouble.rows[0]
        for make in (
            lambda: RunScreen(view),
            lambda: RunScreen(view, "logs"),
            LaunchScreen,
            AndonScreen,
            lambda: DiffScreen(("a", "b"), {"a": "x", "b": "y"}),
        ):
            screen = make()
            await pilot.app.push_screen(screen)
            await pilot.pause()
            first_line = text_of(screen).splitlines()[0]
            assert first_line.rstrip().endswith("! 5"), type(screen).__name__
            await pilot.press("exclamation_mark")
            await until(pilot, lambda: isinstance(pilot.app.screen, AttentionScreen))


async def test_a_cockpit_that_begins_on_a_run_knows_of_the_others_too(cockpit, trouble):
    async with cockpit(run=trouble.rows[0]).run_test(size=(80, 24)) as pilot:
        pilot.app._load_after_first_frame()
        await until(pilot, lambda: pilot.app.screen.query_one(TopBar).troubles[0] == 5)
        assert isinstance(pilot.app.screen, RunScreen)  # somebody asked for this run


async def test_a_click_on_the_number_opens_the_list(cockpit, trouble):
    async with cockpit(run=trouble.rows[0]).run_test(size=(80, 24)) as pilot:
        pilot.app._load_after_first_frame()
        await until(pilot, lambda: pilot.app.screen.query_one(TopBar).troubles[0] == 5)
        await pilot.click(TopBar, offset=(77, 0))
        await listed(pilot)


async def test_what_comes_up_is_told_once_in_one_line(cockpit, source):
    found = incident.attention()
    source.troubles = replace(found, items=found.items[3:])
    async with cockpit().run_test(size=(160, 45)) as pilot:
        await listed(pilot)
        await pilot.press("escape")
        bar = pilot.app.screen.query_one(StatusBar)
        source.troubles = found
        await until(pilot, lambda: bar.display)
        line = bar.line.plain
        assert "hung ppo-cartpole" in line and "and 2 more" in line
        bar.dismiss()
        source.troubles = replace(found, items=found.items[1:])
        await until(pilot, lambda: len(pilot.app.attention.open) == 4)
        source.troubles = found
        await until(pilot, lambda: len(pilot.app.attention.open) == 5)
        await pilot.pause()
        assert not bar.display  # it went and came again


def test_what_is_open_at_the_start_is_no_news_and_what_went_is_not_told():
    found = incident.attention()
    news = Newcomers()
    news.take(AttentionList(is_complete=False))
    news.take(replace(found, items=found.items[2:]))
    assert not news.is_waiting
    news.take(found)
    assert news.is_waiting
    news.take(replace(found, items=found.items[1:]))
    assert [item.kind for item in news.told()] == ["non_finite"]
    assert not news.is_waiting


async def test_acknowledge_marks_the_entry_and_takes_it_away(cockpit, trouble, desk):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, "died")
        item = screen.current
        await pilot.press("a")
        await until(pilot, lambda: ("seen", item.id) in desk.done)
        found = trouble.troubles
        trouble.troubles = replace(
            found,
            items=tuple(replace(i, acked_by="me") if i == item else i for i in found.items),
        )
        await until(pilot, lambda: len(pilot.app.attention.open) == 4)
        await until(pilot, lambda: "! 4" in text_of(screen))
        assert "died" not in [i.kind for i in screen.query_one(AttentionTable).items]
        await pilot.press("o")
        assert "died" in [i.kind for i in screen.query_one(AttentionTable).items]


@pytest.mark.parametrize(("key", "seconds"), [("enter", 3600), ("8", 28800), ("w", 604800)])
async def test_mute_asks_for_how_long_and_enter_is_an_hour(cockpit, trouble, desk, key, seconds):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, "gpu_straggling")
        await pilot.press("m")
        await until(pilot, lambda: pilot.app.screen is not screen)
        await pilot.press(key)
        wanted = ("mute", "box/gpu_straggling:5", seconds)
        await until(pilot, lambda: wanted in desk.done)


async def test_a_mute_that_is_not_wanted_changes_nothing(cockpit, trouble, desk):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        screen = await choose(pilot, "died")
        await pilot.press("m", "escape")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert not [deed for deed in desk.done if deed[0] == "mute"]


async def test_a_mark_that_cannot_be_written_says_why(cockpit, trouble, desk):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        screen = await choose(pilot, "died")
        desk.refusal = AlborError("cannot write annotations.jsonl: no space left on device")
        await pilot.press("a")
        await until(pilot, lambda: "no space left" in str(screen.query_one(StatusBar).render()))


async def test_the_helping_key_is_offered_only_where_it_works(cockpit, trouble):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        await choose(pilot, "died")
        await until(pilot, lambda: "R Retry" in keys(pilot))
        assert "x Stop" not in keys(pilot)
        await choose(pilot, "hung")
        assert "x Stop" in keys(pilot) and "R Retry" not in keys(pilot)
        assert "c Save" not in keys(pilot)  # nothing would pass it on
        trouble.rows = tuple(
            replace(row, kind="track", guard=None) if row.status == "failed" else row
            for row in trouble.rows
        )
        trouble.version += 1
        await choose(pilot, "died")
        await until(pilot, lambda: "R Retry" not in keys(pilot))


async def test_retry_works_there_and_asks_first(cockpit, trouble, desk):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        await choose(pilot, "died")
        await pilot.press("R")
        await until(pilot, lambda: "newest checkpoint" in text_of(pilot.app.screen))
        await pilot.press("y")
        await until(pilot, lambda: ("resume", trouble.rows[1].id) in desk.done)


@pytest.mark.parametrize(("key", "tab"), [("enter", "overview"), ("l", "logs")])
async def test_enter_opens_the_run_and_l_its_log(cockpit, trouble, key, tab):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await choose(pilot, "died")
        await pilot.press(key)
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        assert pilot.app.screen.tab == tab


async def test_evidence_is_read_only_for_the_entry_that_is_chosen(cockpit, trouble, desk):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        screen = await listed(pilot)
        assert set(desk.read) == {screen.current.id}
        await choose(pilot, "died")
        assert "train.py:212" in text_of(pilot.app.screen)
        assert {item.rpartition("/")[2] for item in desk.read} == {"hung", "died"}


async def test_reading_evidence_does_not_hold_up_the_keys(cockpit, trouble, desk):
    go_on = threading.Event()
    desk.evidence = lambda item: (go_on.wait(20), ("late",))[1]
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, AttentionScreen))
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query(AttentionTable) and screen.current is not None)
        await pilot.press("down")
        assert screen.query_one(AttentionTable).cursor == 1
        go_on.set()
        await until(pilot, lambda: "late" in text_of(screen))


async def test_who_looked_is_remembered_when_the_list_is_left(cockpit, trouble, desk):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await listed(pilot)
        assert ("look",) not in desk.done
        await pilot.press("escape")
        await until(pilot, lambda: ("look",) in desk.done)


async def test_without_entries_it_is_quiet_only_where_all_is_watched(cockpit, source):
    source.troubles = AttentionList(fine=("a", "b"), not_watched=(source.rows[1].id,))
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: pilot.app.attention.is_complete)
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "nothing needs you" in text_of(pilot.app.screen))
        shown = text_of(pilot.app.screen)
        assert "quiet" not in shown and "not watched: code-350m" in shown
        source.troubles = AttentionList(fine=("a", "b"))
        await until(pilot, lambda: "quiet: 2 runs watched" in text_of(pilot.app.screen))
        source.troubles = AttentionList(fine=("a", "b"), is_complete=False)
        await until(pilot, lambda: "quiet" not in text_of(pilot.app.screen))


RULES = "bell: true\nnotify:\n  - {kind: desktop, severity: error}\n"


@pytest.mark.parametrize(
    ("rules", "is_loud"),
    [(RULES, True), (f"rules: [loss >> 1]\n{RULES}", True), ("", False), ("bell: [", False)],
)
async def test_bell_and_desktop_are_told_of_errors_only_where_the_user_says_so(
    cockpit, source, tmp_path, monkeypatch, rules, is_loud
):
    (tmp_path / "rules.yaml").write_text(rules)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("TERM_PROGRAM", "VTE_VERSION", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    found = incident.attention()
    source.troubles = replace(found, items=())
    async with cockpit().run_test(size=(80, 24)) as pilot:
        rung: list[bool] = []
        sent: list[str] = []
        pilot.app.bell = lambda: rung.append(True)
        pilot.app.lookout.write = sent.append
        pilot.app.lookout.loudness = loudness(tmp_path)
        await until(pilot, lambda: pilot.app.attention.is_complete)
        source.troubles = found
        await until(pilot, lambda: pilot.app.screen.query_one(StatusBar).display)
        notices = [text for text in sent if text.startswith("\x1b]9;")]
        assert bool(rung) is bool(notices) is is_loud
        if is_loud:
            assert "hung ppo-cartpole" in notices[0] and "and 2 more" in notices[0]
