"""`albor alerts notify-test`: whether what is sent to a sink arrives."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

import click

from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
)
from albor_core.run.errors import ConfigError, NotFoundError
from albor_core.run.home.folders import albor_home
from albor_core.run.rundir import RunDir
from albor_core.store.query.resolve import find_run


@dataclass(frozen=True)
class NotifyOutcome:
    """The result of a test of one sink. `ok` is None if it needs a terminal and has none."""

    name: str
    kind: str
    severity: str
    ok: bool | None
    detail: str


@click.command("notify-test")
@click.argument("run", required=False)
@click.option("--sink", "name", metavar="NAME", help="Test this sink only.")
@json_option
def notify_test(run: str | None, name: str | None, as_json: bool) -> int:
    """Send a test message to the sinks of RUN; without RUN, to those of rules.yaml.

    Prints the answer of each. Exits with 1 if one refused it, 3 if there is none.
    """
    from albor_core.andon.channels.kept_sinks import RULES_FILE, sinks_of, user_sinks

    found = None if run is None else find_run(run)
    if found is None:
        sinks = user_sinks()
    else:
        sinks, problem = sinks_of(found)
        if problem:
            raise ConfigError(problem, hint=f"fix {albor_home() / RULES_FILE}")
    chosen = [sink for sink in sinks if name in (None, sink.name)]
    if not chosen:
        raise _none(found, name, [sink.name for sink in sinks])
    outcomes = [_try(sink, found) for sink in chosen]
    if as_json:
        emit({"schema": "albor.alerts.notify-test/1", "run": None if found is None else found.id,
              "sinks": [field_values(one) for one in outcomes]})  # fmt: skip
    else:
        for one in outcomes:
            mark = {True: "ok  ", False: "BAD ", None: "-   "}[one.ok]
            print_line(f"{mark}{clean(one.name)}: {clean(one.detail)}")
    return 1 if any(one.ok is False for one in outcomes) else 0


def _none(run: RunDir | None, name: str | None, known: list[str]) -> NotFoundError:
    whose = "rules.yaml" if run is None else run.id
    if name is not None and known:
        return NotFoundError(f"{whose}: no sink {name!r}", hint=f"one of {', '.join(known)}")
    hint = f"list some under notify: in {albor_home() / 'rules.yaml'}, or in monitoring.notify"
    return NotFoundError(f"{whose}: no sinks to send alerts to", hint=hint)


def _try(sink: object, run: RunDir | None) -> NotifyOutcome:
    from albor_core.andon.channels.console import console_line
    from albor_core.andon.channels.delivery_error import DeliveryError
    from albor_core.andon.channels.desktop import desktop_bytes, protocol
    from albor_core.andon.channels.message import About, NoticeWriter
    from albor_core.andon.channels.send import send_test
    from albor_core.andon.channels.sinks import SENT_KINDS, Sink

    assert isinstance(sink, Sink)
    if sink.kind in SENT_KINDS:
        try:
            seconds = send_test(sink, run)
        except DeliveryError as error:
            return NotifyOutcome(sink.name, sink.kind, sink.severity, False, error.why)
        detail = f"took the message in {seconds:.1f} s"
        return NotifyOutcome(sink.name, sink.kind, sink.severity, True, detail)
    if not sys.stderr.isatty():
        detail = "is shown on a terminal, and stderr is none here"
        return NotifyOutcome(sink.name, sink.kind, sink.severity, None, detail)
    about = About("test", host=os.uname().nodename) if run is None else About.of(run)
    notice = NoticeWriter(about, os.environ, ()).test(time.time())
    if sink.kind == "console":
        print_note(console_line(notice, clock=time.strftime("%H:%M:%S")))
        return NotifyOutcome(sink.name, sink.kind, sink.severity, True, "printed the line above")
    sys.stderr.buffer.write(desktop_bytes(notice.title, notice.text, os.environ))
    sys.stderr.flush()
    detail = f"sent {protocol(os.environ)}: a terminal that knows it shows a notice now"
    return NotifyOutcome(sink.name, sink.kind, sink.severity, True, detail)
