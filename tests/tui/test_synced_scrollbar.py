"""The scrollbar of a log shows where the log is, whenever its lines come."""

from __future__ import annotations

import pytest
from settled import until
from textual.app import App, ComposeResult
from textual.scroll_view import ScrollView

from albor_core.feed.archive.log_file import LogName, LogWindow
from albor_tui.widgets.run.log_tail import LogTail
from albor_tui.widgets.run.log_view import LogView


class Bare(App[None]):
    CSS = "LogTail, LogView { height: 1fr; overflow-x: hidden; }"

    def __init__(self, log: ScrollView) -> None:
        super().__init__()
        self.log_widget = log

    def compose(self) -> ComposeResult:
        yield self.log_widget


def fill(log: ScrollView, count: int) -> None:
    lines = tuple(f"line {i}" for i in range(count))
    if isinstance(log, LogTail):
        log.add(lines)
    else:
        log.show(LogWindow(name=LogName(1, 0), total=count, lines=lines), ("begun", ""))


@pytest.mark.parametrize("kind", [LogTail, LogView])
async def test_the_handle_is_at_the_end_when_the_first_lines_fill_more_than_the_screen(kind):
    async with Bare(kind(id="log")).run_test(size=(80, 24)) as pilot:
        log = pilot.app.log_widget
        await until(pilot, lambda: log.size.height > 0)
        await pilot.pause()
        fill(log, 60)
        await until(pilot, lambda: log.show_vertical_scrollbar and log.scroll_y > 0)
        await until(pilot, lambda: log.vertical_scrollbar.position == log.max_scroll_y)


@pytest.mark.parametrize("kind", [LogTail, LogView])
async def test_the_handle_is_at_the_end_when_the_bar_comes_back(kind):
    async with Bare(kind(id="log")).run_test(size=(40, 14)) as pilot:
        log = pilot.app.log_widget
        fill(log, 60)
        await until(pilot, lambda: log.show_vertical_scrollbar)
        await pilot.resize_terminal(40, 90)
        await until(pilot, lambda: not log.show_vertical_scrollbar)
        fill(log, 120)
        await until(pilot, lambda: log.show_vertical_scrollbar and log.scroll_y > 0)
        await until(pilot, lambda: log.vertical_scrollbar.position == log.max_scroll_y)
