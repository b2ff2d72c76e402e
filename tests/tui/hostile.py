"""Text that a hostile program might give its run, and what must hold of a screen that shows it."""

from __future__ import annotations

from dataclasses import replace

import fake_feed

from albor_core.run.values.clean import clean
from albor_tui.app import AlborApp

HOSTILE = (
    "[/",
    "[b",
    "[@click=app.quit]press me[/]",
    "[type=x, v={'a[0]'}]",
    "[link=file:///etc/passwd]here[/link]",
    "\x1b[2J\x1b[1;1H",
    "\x9b31m",
    "\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x1b]0;owned\x07",
    "\x1b[6n",
    "\x1bP$q q\x1b\\",
    "done\r\nrun-1  running",
    "\u202egnp.exe",
    "\u200b" * 40,
    "e" + "\u0301" * 300,
    "x" * 50_000,
    "\x00nul",
    "\ud800",
    "'; DROP TABLE runs;--",
    "\uff37\uff29\uff24\uff25" * 20,
)


def everything_hostile(text: str):
    view = fake_feed.training("hostile-000001", alerts_open=1, severity="error")
    alert = replace(fake_feed.ALERT, message=text, rule=text)
    return replace(
        view,
        name=text,
        experiment=text,
        detail=text,
        device=text,
        path=text,
        last_alert=text,
        alerts=(alert,),
        status="stalled",
        tags=(text,),
        gpu=(replace(fake_feed.gpu(), name=text, throttle_reasons=(text,)),),
        bricks=tuple(replace(b, name=text) for b in view.bricks),
        guard={"state": text},
        attempts=tuple(replace(a, reason=text, exit_class=text) for a in view.attempts),
    )


def check_cells(app: AlborApp) -> None:
    for strip in app.screen._compositor.render_strips():
        assert strip.cell_length == app.size.width
        for segment in strip:
            if not segment.control:
                assert clean(segment.text) == segment.text
