"""What alerts of a watched run become outside of it: notices of its sinks, and nothing else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from albor_core import track
from albor_core.run.files.watch_file import SinkState, read_watch
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.liveness import Liveness
from albor_core.run.rundir import RunDir
from albor_core.store.watch.live_sinks import LiveSinks
from albor_core.store.watch.watcher import Watcher

SECRET = "s3cretpathpart"


class FakeSender:
    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.closed: list[float] = []
        self.problems: tuple[str, ...] = ()

    def reload(self) -> None:
        self.problems = ("rules.yaml: notify: must be a list",)

    def put(self, alert: dict[str, Any]) -> None:
        self.alerts.append(alert)

    def states(self) -> tuple[SinkState, ...]:
        why = "no answer" if self.closed else ""
        return (SinkState("slack", not why, why, None),)

    def close(self, timeout_s: float) -> None:
        self.closed.append(timeout_s)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def test_alerts_that_the_loop_of_a_training_told_are_sent(home, tmp_path):
    run = create_run(tmp_path, "demo", experiment="e", name="demo", kind="train", argv=[])
    alert = {"id": "loss-gt-9@1.3", "rule": "loss-gt-9", "message": "loss > 9", "value": 12.0}
    journal = Journal(run.journal, attempt=1)
    journal.metrics(3, {"train/loss": 12.0})
    for name in ("andon.alert", "andon.clear", "another.event"):
        journal.append("e", step=3, name=name, severity="red", data=alert)
    sender = FakeSender()
    watcher = Watcher(run, sender=sender)
    watcher.look(Liveness(None, None), mono=10.0)
    assert [(a["id"], a["state"], a["severity"], a["step"]) for a in sender.alerts] == [
        ("loss-gt-9@1.3", "fired", "red", 3),
        ("loss-gt-9@1.3", "cleared", "red", 3),
    ]
    assert time.time() - sender.alerts[0]["wall"] < 3600
    watcher.close()
    again = FakeSender()
    Watcher(run, sender=again).look(Liveness(None, None), mono=20.0)
    assert again.alerts == []


def test_the_end_of_a_run_waits_for_its_last_alerts_and_tells_whether_they_arrived(home, tmp_path):
    run = create_run(tmp_path, "demo", experiment="e", name="demo", kind="track", argv=[])
    sender = FakeSender()
    watcher = Watcher(run, sender=sender)
    watcher.look(Liveness(None, None), mono=10.0)
    assert sender.closed == []
    watcher.finish()
    assert sender.closed[0] > 0
    told = read_watch(run)
    assert told.sinks == (SinkState("slack", False, "no answer", None),)
    assert "rules.yaml: notify: must be a list" in told.problems


@pytest.fixture
def receiver() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """The URL of a webhook, and the documents that it gets."""
    got: Queue[dict[str, Any]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/{SECRET}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def command_lines() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def holders(*folders: Path) -> list[str]:
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if SECRET.encode() in path.read_bytes()]


def test_a_tracked_program_tells_its_users_webhook_and_its_url_is_nowhere(home, receiver, capfd):
    url, got = receiver
    sink = f"{{kind: webhook, url: '{url}', allow_http: true, allow_private: true}}"
    (home / "rules.yaml").write_text(f"notify: [{sink}]\n")
    with track.start("experiment", name="mine") as run:
        run.log({"train/loss": 1.0}, step=1)
        run.log({"train/loss": float("nan")}, step=2)
        document = got.get(timeout=120)
        where = RunDir(Path(run.path))
        assert SECRET not in command_lines()
    assert document["schema"] == "albor.notice/1"
    assert document["run"]["name"] == "mine"
    assert document["alert"]["state"] == "fired"
    while where.liveness().is_alive or read_watch(where) is None:
        time.sleep(0.05)
    assert holders(home) == ["rules.yaml"]
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err


def test_a_dead_sink_is_told_by_name_in_what_watches_the_run(home, tmp_path):
    run = create_run(tmp_path, "demo", experiment="e", name="demo", kind="track", argv=[])
    (home / "rules.yaml").write_text(
        "notify: [{kind: webhook, format: slack, url_env: NOT_SET_WEBHOOK}]\n"
    )
    watcher = Watcher(run, sender=LiveSinks(run))
    watcher.look(Liveness(None, None), mono=10.0)
    (state,) = read_watch(run).sinks
    assert (state.name, state.ok, state.why) == ("slack", False, "NOT_SET_WEBHOOK is not set")
    watcher.close()


def test_sinks_that_are_edited_serve_the_runs_at_work(home, tmp_path, receiver):
    url, got = receiver
    run = create_run(tmp_path, "demo", experiment="e", name="demo", kind="track", argv=[])
    journal, file = Journal(run.journal, attempt=1), home / "rules.yaml"
    file.write_text("rules: [loss > 10]\n")
    watcher = Watcher(run, sender=LiveSinks(run))
    mono = iter(range(10, 1000, 10))

    def edit(*sinks: str) -> None:
        file.write_text("rules: [loss > 10]\nnotify:\n" + "".join(f"- {one}\n" for one in sinks))

    def look() -> None:
        watcher.look(Liveness(None, None), mono=next(mono))

    journal.metrics(1, {"train/loss": 1.0})
    look()
    assert read_watch(run).sinks == ()
    edit(f"{{kind: webhook, url: '{url}', allow_http: true, allow_private: true}}", "{kind: loud}")
    journal.metrics(2, {"train/loss": 11.0})
    look()
    assert got.get(timeout=60)["alert"]["id"] == "loss-gt-10@1.2"
    told = read_watch(run)
    assert [sink.name for sink in told.sinks] == ["webhook"]
    (problem,) = told.problems
    assert "notify.1.kind" in problem, "a sink that cannot be used costs itself alone"
    file.write_text("rules: [loss > 10\n")
    look()
    assert [sink.name for sink in read_watch(run).sinks] == ["webhook"], "while it is edited"
    edit("{kind: console}")
    look()
    assert [sink.name for sink in read_watch(run).sinks] == ["console"]
    journal.metrics(200, {"train/loss": 1.0})
    look()
    watcher.close()
    assert got.empty()


def ledger_line(**fields: Any) -> str:
    return json.dumps({"wall": time.time(), **fields}) + "\n"


def test_how_attempts_ended_is_sent_once_and_never_what_an_earlier_process_saw(home, tmp_path):
    run = create_run(tmp_path, "demo", experiment="e", name="demo", kind="guard", argv=[])
    end = {"t": "attempt.end", "code": 3, "class": "exception", "reason": "exited with code 3"}
    run.attempts.write_text(ledger_line(**end, attempt=1, action="restart"))
    sender = FakeSender()
    watcher = Watcher(run, sender=sender)
    watcher.look(Liveness(None, None), mono=10.0)
    assert sender.alerts == []
    with run.attempts.open("a") as ledger:
        ledger.write(ledger_line(t="state", state="running"))
        hang = {"attempt": 2, "reason": "no step for 5m 00s"}
        ledger.write(ledger_line(t="event", name="guard.hang", severity="red", data=hang))
        ledger.write(ledger_line(**end, attempt=2, action="restart"))
        ledger.write("damaged\n")
        ledger.write(ledger_line(**end, attempt=3, action="fail")[:20])
    watcher.look(Liveness(None, None), mono=20.0)
    watcher.look(Liveness(None, None), mono=30.0)
    assert [(a["id"], a["severity"], a["message"]) for a in sender.alerts] == [
        ("hung@2", "error", "hung: no step for 5m 00s"),
        ("restarted@2", "warning", "attempt 2 died and is started again: exited with code 3"),
    ]
    with run.attempts.open("a") as ledger:
        ledger.write(ledger_line(**end, attempt=3, action="fail")[20:])
        gave_up = {"reason": "3 restarts without a newer checkpoint"}
        ledger.write(ledger_line(t="event", name="guard.gave_up", severity="red", data=gave_up))
    watcher.finish()
    assert [(a["id"].partition("@")[0], a["severity"]) for a in sender.alerts[2:]] == [
        ("died", "error"),
        ("gave-up", "critical"),
    ]
