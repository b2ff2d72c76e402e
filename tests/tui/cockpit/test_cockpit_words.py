"""What the cockpit says of a run is true: states, times, figures, and what is left out."""

from __future__ import annotations

import threading
from dataclasses import replace

import fake_feed
import incident
import pytest
from settled import settled, until

from albor_core.feed.archive.crashes import CrashView
from albor_core.feed.view.diagnostics import RunDiagnostics, Watched
from albor_core.feed.view.run_view import BrickView, BudgetView, RunsView
from albor_core.store.rows.rows import AlertRow, AttemptRow
from albor_tui.look import glyphs
from albor_tui.screens.charts.curves import loss_chart
from albor_tui.screens.dialogs.crash import CrashScreen
from albor_tui.screens.runs.order import arrange
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.curves import chart_of
from albor_tui.widgets.chart.data import Look, Trace
from albor_tui.widgets.chart.reading import reading
from albor_tui.widgets.chart.ticks import Range
from albor_tui.widgets.run.alerts import Alerts
from albor_tui.widgets.run.gpu_panel import GpuPanel, GpuStrip
from albor_tui.widgets.run.guard_panel import GuardPanel
from albor_tui.widgets.run.log_tail import LogTail
from albor_tui.widgets.run.panels import BricksPanel, Head, Vitals
from albor_tui.widgets.run.run_preview import RunPreview
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import TopBar


def text_of(screen) -> str:
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


def drawn(panel, width=60, height=12) -> str:
    return str(panel.draw(width, height))


def line_of(table, name) -> str:
    lines = (table.render_line(row + 1).text for row in range(len(table.runs)))
    return next(line for line in lines if name in line)


def silent(**changes):
    return fake_feed.training(
        is_live=False, is_silent=True, age_s=125.0, eta_s=None, step_ms=100.0, **changes
    )


# -- states and times ------------------------------------------------------------------------------


async def test_a_silent_run_says_so_in_the_list_and_has_no_time_of_arrival(cockpit, source):
    source.show((silent(detail="no news for 2 min"),))
    async with cockpit().run_test(size=(160, 45)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 1)
        assert "silent 2m" in line_of(table, "code-125m")
        assert "running" not in line_of(table, "code-125m")
        assert "ago" not in line_of(table, "code-125m")
        assert "silent 2m" in str(pilot.app.screen.query_one(RunPreview).render())


@pytest.mark.parametrize(
    ("device", "words"),
    [("", "device unknown"), ("cuda:0", "device cuda:0"), ("cpu", "no GPU in use; device cpu")],
)
async def test_no_gpu_is_said_to_be_in_use_only_where_that_is_known(cockpit, source, device, words):
    source.show((fake_feed.training(gpu=(), device=device),))
    async with cockpit(run=source.rows[0]).run_test(size=(160, 45)) as pilot:
        panel = pilot.app.screen.query_one(GpuPanel)
        await until(pilot, lambda: words in str(panel.render()))
        assert ("no GPU in use" in str(panel.render())) == (device == "cpu")


async def test_a_silent_run_says_so_on_its_own_screen(cockpit, source):
    source.show((silent(detail="no news for 2 min"),))
    async with cockpit(run=source.rows[0]).run_test(size=(160, 45)) as pilot:
        head = pilot.app.screen.query_one(Head)
        await until(pilot, lambda: "silent 2m" in str(head.render()))
        assert "eta" not in str(head.render())
        assert "last news 2m ago" in str(head.render())


ENDS = {
    "soon": ({"eta_s": 1560.0}, "in 26m"),
    "at-once": ({"eta_s": 45.0}, "in 45s"),
    "no-eta": ({"eta_s": None}, None),
    # running, or perhaps: a time gone by is no time of arrival
    "quiet": ({"is_live": False, "age_s": 125.0}, None),
    "stalled": ({"is_live": False, "status": "stalled", "age_s": 400.0}, None),
    "queued": ({"is_live": False, "status": "queued", "age_s": 9.0}, None),
    "unknown": ({"is_live": False, "status": "unknown", "age_s": 4000.0}, None),
    "failed": ({"is_live": False, "status": "failed", "age_s": 400.0}, "6m ago"),
    "completed": ({"is_live": False, "status": "completed", "age_s": 345_600.0}, "4d ago"),
}


async def test_the_end_of_a_run_is_ahead_or_ago_and_never_either(cockpit, source):
    runs = {name: fields for name, (fields, _) in ENDS.items()}
    source.show(tuple(fake_feed.training(n, name=n, alerts_open=0, **f) for n, f in runs.items()))
    async with cockpit().run_test(size=(160, 45)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == len(ENDS))
        for name, (_, shown) in ENDS.items():
            words = line_of(table, name)
            if shown is None:
                assert "ago" not in words, name
                assert words.split()[-1] == glyphs.current.missing, name
            else:
                assert words.endswith(f" {shown}"), name


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"guard": None, "guard_pid": None, "attempts": ()}, "none"),
        ({"guard": {"state": "running"}, "guard_pid": None}, "gone"),
        ({"guard": {"state": "done"}, "guard_pid": None, "status": "completed"}, "ended"),
        ({"guard": None, "guard_pid": None, "attempts": (), "status": "completed"}, "none"),
    ],
)
def test_a_guard_is_gone_only_where_there_was_one(fields, word):
    view = fake_feed.training(is_live=False, **{"status": "stalled", **fields})
    first = drawn_of(GuardPanel, view).splitlines()[0]
    assert first.split() == ["guard", word]


@pytest.mark.parametrize(
    ("kind", "reason", "shown"),
    [
        ("exception", "exited with code 1", "exited with code 1"),
        ("exception", "ValueError: no such column", "ValueError: no such column"),
        ("crash", "crash: SIGSEGV (139)", "crash: SIGSEGV (139)"),
        ("hang", "no news for 300 s", "hang no news for 300 s"),
        ("exception", "", "exception"),
    ],
)
def test_an_attempt_that_ended_says_why_once_and_names_no_exception_that_was_none(
    kind, reason, shown
):
    ended = AttemptRow(1, ended=fake_feed.WALL, code=1, exit_class=kind, reason=reason)
    drawn = drawn_of(GuardPanel, fake_feed.training(attempts=(ended,))).splitlines()[-1]
    assert " ".join(drawn.split()) == f"attempt 1 {shown}"


def drawn_of(panel, view, width=60, height=12) -> str:
    return str(panel().show(view, width, height))


# -- order -----------------------------------------------------------------------------------------


def test_what_works_or_has_just_died_stands_above_what_is_pinned():
    def run(name, status, age_s, *, is_pinned=False, created=0.0):
        view = fake_feed.training(name, status=status, age_s=age_s, created=created)
        return replace(view, is_live=False, is_pinned=is_pinned)

    rows = (
        run("pinned-old-failure", "failed", 345_600.0, is_pinned=True, created=5.0),
        run("pinned-done", "completed", 60.0, is_pinned=True, created=4.0),
        run("done", "completed", 60.0, created=9.0),
        run("died-last-night", "lost", 30_000.0, created=1.0),
        run("died-just-now", "failed", 60.0, created=2.0),
        run("stalled", "stalled", 400.0, created=0.5),
        run("old-failure", "failed", 345_600.0, created=8.0),
    )
    assert [view.id for view in arrange(rows)] == [
        *("stalled", "died-just-now", "died-last-night"),
        *("pinned-old-failure", "pinned-done", "done", "old-failure"),
    ]


# -- figures ---------------------------------------------------------------------------------------


async def test_a_validation_of_an_earlier_step_stands_with_its_step(cockpit, source):
    source.show((fake_feed.training(step=49, val_loss=8.3282, val_step=0),))
    async with cockpit().run_test(size=(160, 45)) as pilot:
        glance = pilot.app.screen.query_one(RunPreview)
        await until(pilot, lambda: "8.3282" in str(glance.render()))
        assert "at step 0" in str(glance.render())
    shown = drawn_of(Vitals, source.rows[0], width=120)
    assert "val @0" in shown
    same = drawn_of(Vitals, replace(source.rows[0], step=0), width=120)
    assert "val loss" in same


def test_the_cursor_of_a_chart_names_each_number_that_it_reads():
    steps = tuple(float(i * 2048) for i in range(1, 201))
    trace = Trace(
        "main",
        steps,
        tuple(0.5 + 0.001 * (i % 7) for i in range(200)),
        low=tuple(0.1 for _ in steps),
        high=tuple(0.9 for _ in steps),
        label="loss",
        is_noisy=True,
    )
    look = Look(cursor=steps[100], smoothing=2)
    pieces = reading([trace], (), look, Range(steps[0], steps[-1]), (80, 120))
    words = "".join(piece for piece, _ in pieces)
    assert " mean 0.502" in words.replace("  ", " ")
    assert "min 0.1  max 0.9" in words
    assert "smoothed" in words


# -- loading, and what is cut ----------------------------------------------------------------------


def test_before_the_first_news_nothing_negative_is_said():
    assert str(GpuStrip().draw(80, 1)) == "loading"
    assert Chart("loss").data.empty == "loading"
    view = fake_feed.training(loss_history=())
    assert loss_chart(view, {}, is_loading=True).empty == "loading"
    assert loss_chart(view, {}).empty == "no points yet"
    over = replace(view, status="completed", is_live=False)
    assert chart_of(over, (), {}).empty == "no points"


async def opening(cockpit, source, view, ready):
    """The Overview of a run while nothing of it was read, then when that was; `ready` looks."""
    source.show((view,))
    gate = threading.Event()

    class Slow(fake_feed.FakeFollower):
        def poll(self):
            gate.wait(30)
            return super().poll()

        def log(self):
            return ()

    source.follow = lambda run: Slow(source, run.id)
    try:
        async with cockpit(run=view).run_test(size=(160, 45)) as pilot:
            await until(pilot, lambda: bool(pilot.app.screen.query("#page-overview")))
            await ready(pilot, gate)
    finally:
        gate.set()


async def test_a_run_that_was_opened_is_loading_until_it_was_read(cockpit, source):
    async def ready(pilot, gate):
        bricks = pilot.app.screen.query_one(BricksPanel)
        log = pilot.app.screen.query_one(LogTail)
        await until(pilot, lambda: "loading" in str(bricks.render()))
        assert "loading" in log.render_line(0).text
        assert pilot.app.screen.query_one("#loss", Chart).data.empty == "loading"
        gate.set()
        await until(pilot, lambda: str(bricks.render()).strip() == "no timings yet")
        assert log.render_line(0).text.strip() == "no output yet"

    await opening(cockpit, source, fake_feed.training(bricks=()), ready)


async def test_of_a_run_that_is_over_what_is_missing_goes_once_that_is_known(cockpit, source):
    async def ready(pilot, gate):
        screen = pilot.app.screen
        bricks, log = screen.query_one(BricksPanel), screen.query_one(LogTail)
        await until(pilot, lambda: "loading" in str(bricks.render()))
        assert bricks.display and log.display
        gate.set()
        await until(pilot, lambda: not bricks.display and not log.display)

    over = fake_feed.training(bricks=(), status="completed", is_live=False)
    await opening(cockpit, source, over, ready)


@pytest.mark.parametrize("kind", ["track", "imported"])
async def test_what_no_other_program_tells_is_not_waited_for(cockpit, source, kind):
    async def ready(pilot, gate):
        screen = pilot.app.screen
        bricks, log = screen.query_one(BricksPanel), screen.query_one(LogTail)
        await until(pilot, lambda: not bricks.display and not log.display)
        gate.set()
        await until(pilot, screen.has_picture)
        assert not bricks.display and not log.display

    await opening(cockpit, source, fake_feed.training(bricks=(), kind=kind), ready)


async def test_while_more_runs_are_on_their_way_the_list_says_so(cockpit, source):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        screen = pilot.app.screen
        table = screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)
        part = RunsView(rows=source.rows, total=7, version=99, is_complete=False)
        from albor_tui.messages import RunsChanged

        screen.post_message(RunsChanged(part))
        await until(pilot, lambda: screen.query_one(TopBar).is_loading)
        assert "7, loading" in str(screen.query_one("#list").border_title)
        assert "loading" in str(screen.query_one(TopBar).render())


def test_alerts_that_have_no_room_are_counted():
    alerts = tuple(AlertRow(id=f"a{i}", severity="error", message=f"m{i}") for i in range(9))
    view = fake_feed.training(alerts=alerts, alerts_open=9)
    shown = drawn_of(Alerts, view, height=4)
    assert len(shown.splitlines()) == 4
    assert "6 more alerts" in shown


LOOP = Watched(3, by="loop", acts=True)
INDEX = Watched(1, by="index", why_tells_only="no guard")
LIMITED = Watched(0, 2, "loop", acts=True)


@pytest.mark.parametrize(
    ("watched", "status", "words", "is_green"),
    [
        (Watched(0), "running", "not watched: no rules", False),
        (Watched(3), "running", "not watched: no rule is evaluated", False),
        (Watched(None), "running", "not watched: no rule is evaluated", False),
        (Watched(0), "completed", "not watched: no rules", False),
        (LOOP, "running", "quiet: watched by 3 rules", True),
        (LOOP, "paused", "quiet: watched by 3 rules", True),
        (LOOP, "stalled", "watched by 3 rules", False),
        (LIMITED, "running", "quiet: watched by 2 budgets", True),
        (LIMITED, "completed", "no alerts: 2 budgets watched", True),
        (INDEX, "running", "quiet: watched by 1 rule, tells only: no guard", True),
        (LOOP, "completed", "no alerts: 3 rules watched", True),
        (LOOP, "failed", "no alerts: 3 rules watched", False),
        (LOOP, "lost", "no alerts: 3 rules watched", False),
        (LOOP, "queued", "3 rules will watch", False),
    ],
)
def test_a_run_is_called_quiet_only_where_it_is_watched_and_well(watched, status, words, is_green):
    view = fake_feed.training(
        rules_watching=watched.rules, status=status, alerts=(), alerts_open=0,
        diagnostics=RunDiagnostics(watched=watched),
    )  # fmt: skip
    shown = Alerts().show(view, 60, 4)
    assert str(shown).strip().removeprefix(f"{glyphs.current.check} ") == words
    assert any("$success" in str(span.style) for span in shown.spans) is is_green


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("running", "tokens 108M  budget tokens 108M of 216M, 150M at its end"),
        ("completed", "tokens 108M  budget tokens 108M of 216M"),
    ],
)
def test_a_budget_is_called_one_and_forecast_only_for_a_run_at_work(status, words):
    use = BudgetView("tokens", used=108e6, limit=216e6, at_completion=150e6)
    view = fake_feed.training(status=status, tokens=108_003_328, budgets=(use,))
    assert str(Head().show(view, 160, 2)).rstrip().endswith(words)


def test_what_needs_a_person_about_a_run_stands_above_its_alerts():
    view = fake_feed.training(alerts=(fake_feed.ALERT,), alerts_open=1)
    panel = Alerts()
    panel.set_reactive(Alerts.troubles, (incident.entry("hung", view, 6, summary="no news"),))
    lines = str(panel.show(view, 60, 4)).splitlines()
    assert "hung" in lines[0] and "no news" in lines[0]
    assert "gradient_norm > 5" in lines[1]


def test_open_alerts_that_are_not_listed_yet_are_not_green():
    view = fake_feed.training(alerts=(), alerts_open=2, severity="error")
    shown = Alerts().show(view, 40, 4)
    assert "2 open" in str(shown)
    assert not any("$success" in str(span.style) for span in shown.spans)


def test_parts_of_a_step_that_have_no_room_are_counted_and_those_over_budget_are_kept():
    parts = [
        BrickView(name, ms, 100.0) for name, ms in zip("abcd", (1.0, 50.0, 2.0, 3.0), strict=True)
    ]
    over = BrickView("optimizer", 31.4, 25.0)
    shown = drawn_of(BricksPanel, fake_feed.training(bricks=(*parts, over)), height=3)
    assert [line.split()[0] for line in shown.splitlines()] == [
        "b",
        "optimizer",
        glyphs.current.ellipsis,
    ]
    assert "3 more parts" in shown


# -- why a run failed ------------------------------------------------------------------------------

REASON = "RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB"


async def test_the_glance_of_the_list_says_why_a_run_failed(cockpit, source):
    row = replace(source.rows[3], detail="exception")

    class Knowing(fake_feed.FakeFollower):
        def poll(self):
            return replace(row, detail=REASON)

    source.show((row,))
    source.follow = lambda view: Knowing(source, view.id)
    async with cockpit().run_test(size=(160, 45)) as pilot:
        glance = pilot.app.screen.query_one(RunPreview)
        await until(pilot, lambda: "CUDA out of memory" in str(glance.render()))


async def test_a_crash_report_is_named_on_the_events_tab_and_opens_with_its_stacks(cockpit, source):
    attempt = AttemptRow(
        2, started=fake_feed.WALL - 90, ended=fake_feed.WALL - 30, code=1,
        exit_class="exception", action="fail", report="a2-2",
        reason=f"{REASON}: the same failure twice, so it would come again; see"
        " reports a1-1, a2-2",
    )  # fmt: skip
    row = replace(source.rows[3], attempts=(attempt,), attempts_total=2)
    source.show((row,))
    source.crashes = (
        CrashView("a2-2", "/runs/x/crash-reports/a2-2.json", 2, "exception", attempt.reason,
                  f"{REASON} (train.py:212)", log=("epoch 3", "boom"), stacks=("in all_reduce",)),
        CrashView("a1-1", "/runs/x/crash-reports/a1-1.json", 1, "hang", hang="no news for 300 s"),
    )  # fmt: skip
    async with cockpit(run=row).run_test(size=(160, 45)) as pilot:
        screen = pilot.app.screen
        await pilot.press("9")
        await until(pilot, lambda: "o opens the crash report" in text_of(screen))
        await settled(pilot)
        assert "see reports a1-1, a2-2" in text_of(screen)  # to its end
        assert "/runs/x/crash-reports/a2-2.json" in text_of(screen)
        await pilot.press("o")
        await until(pilot, lambda: isinstance(pilot.app.screen, CrashScreen))
        await settled(pilot)
        shown = text_of(pilot.app.screen)
        for words in (REASON, "train.py:212", "boom", "in all_reduce", "1 of 2"):
            assert words in shown
        await pilot.press("left")
        await until(pilot, lambda: "no news for 300 s" in text_of(pilot.app.screen))
        await pilot.press("escape")
        assert pilot.app.screen is screen
