"""Everything that a run may say, said by somebody hostile, on every tab: text, never obeyed."""

from __future__ import annotations

from dataclasses import replace

import fake_feed
import pytest
from hostile import HOSTILE, check_cells, everything_hostile
from settled import settled, until

from albor_core.feed.archive.card import CodeCard, Relative, RunCard
from albor_core.feed.archive.checkpoints import SavedView, ShelfView
from albor_core.feed.archive.config_sheet import ConfigSheet, ConfigView, FieldView
from albor_core.feed.archive.crashes import CrashView
from albor_core.feed.archive.log_file import LogName
from albor_core.feed.archive.patch import FileChange, Patch
from albor_core.feed.view.run_view import BrickView
from albor_core.run.rundir import RunDir
from albor_core.store.rows.rows import ArtifactRow, EventRow, NoteRow, SampleRow
from albor_tui.app import AlborApp
from albor_tui.screens.run import TABS


def hostile_source(text: str) -> fake_feed.FakeSource:
    view = everything_hostile(text)
    process = replace(view.gpu[0].processes[0], name=text)
    events = (
        EventRow(
            name=text, severity=text, step=3, wall=fake_feed.WALL, attempt=1, data={text: text}
        ),
        EventRow(name="andon.alert", severity="error", step=4, data={"id": text, "message": text}),
        EventRow(name="checkpoint.bad", severity="warning", data={"path": text, "reason": text}),
        EventRow(name="checkpoint.failed", severity="warning", data={"reason": text}),
        EventRow(name="run.start", data={"device": text}),
        EventRow(name="run.end", data={"status": text, "message": text}),
        EventRow(name="jidoka.pause", data={"brick": text, "value_ms": text}),
    )
    view = replace(
        view,
        gpu=(replace(view.gpu[0], uuid=text, processes=(process,)),),
        bricks=(BrickView(text, 2.0, 1.0),),
        events=events,
        attempts=tuple(
            replace(a, reason=text, exit_class=text, action=text, signal=text)
            for a in view.attempts
        ),
    )
    source = fake_feed.FakeSource((view,), view.gpu)
    source.logs = {LogName(1): (text,), LogName(2): (text, text * 2)}
    source.config = ConfigView((), (FieldView(text, text, text, text, True),), text)
    saved = SavedView("bad-step-00000001", 1, "damaged", text, 1.0, 5, reason=text)
    source.shelf = ShelfView((saved,), 1, events[3:4])
    source.samples = (SampleRow(1, fake_feed.WALL, text, f"{text}\n{text}"),)
    source.events = events
    source.card = hostile_card(text)
    source.problem = text
    return source


def hostile_card(text: str) -> RunCard:
    relative = Relative(text, text, text, 3, text)
    code = CodeCard(
        text, True, Patch((FileChange(text, 1, 2),), 1, 1, 2), text, 1, text, text, text
    )
    return RunCard(
        id=text,
        notes=(NoteRow(1.0, text, text, 1), NoteRow(float("nan"), text, f"{text}\n{text}")),
        tags=(text, f"{text} {text}"[:64]),
        command=(text, text),
        cwd=text,
        code=code,
        versions={text: text},
        host=text,
        created=1e300,
        path=text,
        pulled=text,
        parent=relative,
        children=(relative,),
        child_ids=(text, "more"),
        artifacts=(ArtifactRow(text, text, text, 3, text, 3, 1e300),),
        crashes=(CrashView(text, text, 1, text, text, text, text, (text,), (text,)),),
    )


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, id=str(i), marks=pytest.mark.slow) for i, text in enumerate(HOSTILE)],
)
async def test_no_tab_obeys_what_a_run_says(text):
    source = hostile_source(text)
    app = AlborApp(source, run=source.rows[0])
    async with app.run_test(size=(100, 30)) as pilot:
        for tab in TABS:
            await app.screen.action_tab(tab.key)
            await pilot.pause(0.1)
            await until(pilot, lambda t=tab: t.key == "overview" or source.asked.total() > 0)
            await settled(pilot)
            check_cells(app)
            for key in ("down", "less_than_sign", "f", "right", "down"):
                await pilot.press(key)
            await pilot.pause()
            check_cells(app)
        await pilot.press("a")
        await pilot.pause()
        check_cells(app)
        assert app.is_running


@pytest.mark.parametrize("text", HOSTILE, ids=lambda _: "")
def test_a_config_file_comes_out_as_lines_of_text(tmp_path, text):
    run = RunDir(tmp_path)
    run.config_yaml.write_bytes(f"a: {text}\n".encode("utf-8", "surrogatepass"))
    assert all(line.isprintable() for line in ConfigSheet(run).look().lines)
