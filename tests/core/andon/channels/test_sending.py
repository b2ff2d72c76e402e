"""Alerts reach their sinks once, in bounded time and memory, and a dead sink costs nothing."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import pytest
from receiver import an_alert, receiving

from albor_core.andon.channels.delivery_error import DeliveryError
from albor_core.andon.channels.message import About, Notice, NoticeWriter, request_of
from albor_core.andon.channels.send import (
    BURST,
    DEAD_TRIES,
    MOST_WAITING,
    REFILL_S,
    STALE_S,
    WAITS_S,
    Channel,
    Sender,
)
from albor_core.andon.channels.sinks import Sink
from albor_core.run.home.new_run import create_run
from albor_core.run.rundir import RunDir

WALL = 1_700_000_500.0
SINK = Sink("slack", "webhook", url_env="MY_WEBHOOK")


class Stage:
    """A channel with a clock of its own and a receiver that refuses while `error` is set."""

    def __init__(self) -> None:
        self.now, self.tries = 1000.0, 0
        self.error: DeliveryError | None = None
        self.got: list[Notice] = []
        writer = NoticeWriter(About("demo"), {}, ())
        self.channel = Channel(
            SINK, writer, self._deliver, clock=lambda: self.now, wall=lambda: self.now
        )

    def _deliver(self, notice: Notice) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.got.append(notice)

    def run(self, seconds: float) -> None:
        """Tend as its thread would for so long."""
        end = self.now + seconds
        while (wait_s := self.channel.tend()) is not None and self.now + wait_s <= end:
            self.now += wait_s
        self.now = end


def test_an_alert_is_sent_at_once_and_alone():
    stage = Stage()
    stage.channel.put(an_alert(7))
    stage.run(0)
    assert [notice.fields["alert"]["id"] for notice in stage.got] == ["loss-gt-10@1.7"]
    assert stage.channel.state().ok
    assert stage.channel.tend() is None


def test_the_end_of_an_alert_is_good_to_know_and_said_once():
    writer = NoticeWriter(About("demo"), {}, ())
    fired = {**an_alert(7), "severity": "critical", "wall": WALL}
    over = writer.notice({**fired, "state": "cleared"})
    assert (over.severity, over.fields["severity"]) == ("info", "info")
    assert over.line.count("over") == 1, over.line
    assert over.line.startswith("[over] demo: ")
    assert over.fields["alert"]["severity"] == "critical", "how severe it was is still told"
    _, body = request_of(over, "ntfy", "https://ntfy.example/topic")
    assert json.loads(body)["priority"] == 2
    ended = writer.summary([fired, {**fired, "state": "cleared"}], 0)
    assert ended.severity == "critical" and "newest: over: " in ended.text
    assert writer.summary([{**fired, "state": "cleared"}] * 2, 0).severity == "info"


def test_a_flood_becomes_a_summary():
    stage = Stage()
    for number in range(50):
        stage.channel.put(an_alert(number, rule=f"rule-{number % 2}"))
    stage.run(0)
    (notice,) = stage.got
    assert notice.fields["summary"]["count"] == 50
    assert "50 alerts within 49s: rule-0 x25, rule-1 x25; newest: loss > 10" in notice.text
    assert notice.severity == "error"


def test_a_flood_that_lasts_sends_few_notices_and_leaves_out_no_alert():
    stage = Stage()
    for number in range(3600):
        stage.channel.put(an_alert(number))
        stage.run(1)
    stage.run(REFILL_S * 2)
    said = sum(notice.fields.get("summary", {}).get("count", 1) for notice in stage.got)
    assert said == 3600
    assert len(stage.got) <= BURST + 3600 / REFILL_S + 3


def test_a_sink_that_fails_is_tried_again_ever_less_often():
    stage = Stage()
    stage.error = DeliveryError("no connection")
    stage.channel.put(an_alert())
    stage.run(sum(WAITS_S[:4]))
    assert stage.tries == 5
    stage.run(86400)
    assert stage.tries == pytest.approx(5 + 86400 / WAITS_S[-1], abs=1)
    stage.error = None
    stage.run(WAITS_S[-1])
    assert len(stage.got) == 1
    assert stage.channel.state().ok
    assert stage.channel.state().why == ""


def test_what_waits_while_a_try_fails_is_tried_once_more_when_the_sink_ends_meanwhile():
    stage = Stage()
    deliver = stage.channel._deliver

    def ends_meanwhile(notice: Notice) -> None:
        stage.channel.put(an_alert(2))
        stage.channel.close()
        stage.channel._deliver = deliver
        raise DeliveryError("503")

    stage.channel._deliver = ends_meanwhile
    stage.channel.put(an_alert(1))
    stage.run(0)
    (notice,) = stage.got
    assert notice.fields["summary"]["count"] == 2
    assert stage.channel.tend() is None


def test_what_the_last_try_of_a_sink_that_ends_could_not_send_is_counted():
    stage = Stage()
    stage.error = DeliveryError("503")
    stage.channel.put(an_alert(1))
    stage.channel.put(an_alert(2))
    stage.channel.close()
    stage.run(0)
    assert stage.tries == 1
    assert "2 alerts were dropped" in stage.channel.state().why
    assert stage.channel.tend() is None


def test_a_sink_is_dead_after_tries_in_a_row_with_why_and_since():
    stage = Stage()
    stage.error = DeliveryError("no connection: Connection refused")
    began = stage.now
    stage.channel.put(an_alert())
    for _ in range(DEAD_TRIES - 1):
        stage.channel.tend()
        assert stage.channel.state().ok
        stage.now += 1000
    stage.channel.tend()
    state = stage.channel.state()
    assert (state.ok, state.since) == (False, began)
    assert state.why == "no connection: Connection refused"


def test_a_dead_sink_keeps_the_newest_alerts_and_counts_the_others():
    stage = Stage()
    stage.error = DeliveryError("no connection")
    for number in range(MOST_WAITING + 20):
        stage.channel.put(an_alert(number))
    stage.run(600)
    assert "20 alerts were dropped" in stage.channel.state().why
    stage.error = None
    stage.run(600)
    (notice,) = stage.got
    assert notice.fields["summary"]["count"] == MOST_WAITING
    assert notice.fields["summary"]["dropped"] == 20
    assert f"(step {MOST_WAITING + 19})" in notice.text
    assert stage.channel.state().why == ""


def test_what_a_receiver_refuses_for_good_does_not_hold_up_the_next():
    stage = Stage()
    stage.error = DeliveryError("answered 400", is_final=True)
    stage.channel.put(an_alert(1))
    stage.run(0)
    assert not stage.channel.state().ok
    stage.error = None
    stage.channel.put(an_alert(2))
    stage.run(60)
    assert stage.tries == 2
    assert stage.got[-1].fields["summary"]["dropped"] == 1
    assert stage.channel.state().ok


def test_a_receiver_that_asks_for_time_is_left_alone():
    stage = Stage()
    stage.error = DeliveryError("answered 429", retry_after_s=500.0)
    stage.channel.put(an_alert())
    stage.run(499)
    assert stage.tries == 1
    stage.run(2)
    assert stage.tries == 2


def test_a_fault_of_ours_is_a_failed_try_and_ends_nothing():
    stage = Stage()
    stage.error = ZeroDivisionError()  # type: ignore[assignment]
    stage.channel.put(an_alert())
    stage.run(0)
    assert stage.channel.state().why == "ZeroDivisionError; 1 alert was dropped"


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunDir:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return create_run(tmp_path, "demo-1", experiment="e", name="demo", kind="track", argv=[])


def sender_of(run: RunDir, sinks: list[Sink], environment: dict[str, str]) -> Sender:
    return Sender(sinks, run, environment=environment, wall=lambda: WALL)


def webhook(**changes: Any) -> Sink:
    fields = {"format": "json", "allow_http": True, "allow_private": True, **changes}
    return Sink(fields.pop("name", "hook"), "webhook", url_env="MY_WEBHOOK", **fields)


def test_an_alert_and_its_end_are_sent_once_each(run):
    with receiving() as there:
        sender = sender_of(run, [webhook()], {"MY_WEBHOOK": there.url()})
        for state in ("fired", "fired", "cleared", "fired", "cleared"):
            sender.put(an_alert(state=state))
        sender.close(30)
        told = []
        while not there.requests.empty():
            document = there.next().json()
            told += [document["alert"]["state"]] if "alert" in document else [document["summary"]]
        assert told[0] == "fired" or told[0]["count"] == 2
        assert len(told) <= 2
        assert sender.states()[0].ok


def test_other_sinks_are_served_without_losing_what_waits_for_those_that_stay(run):
    with receiving() as there, receiving() as new:
        there.status = 503
        environment = {"MY_WEBHOOK": there.url(), "NEW_WEBHOOK": new.url()}
        sender = sender_of(run, [webhook()], environment)
        sender.put(an_alert(1))
        there.next()
        other = Sink("new", "webhook", url_env="NEW_WEBHOOK", allow_http=True, allow_private=True)
        sender.take([webhook(), other])
        sender.put(an_alert(2))
        assert new.next().json()["alert"]["step"] == 2
        sender.take([other])
        sender.close(30)
        while "summary" not in (last := there.next().json()):
            continue  # a try of the first alone
        assert last["summary"]["count"] == 2, "it left with what waited"
        assert [state.name for state in sender.states()] == ["new"]


def test_an_alert_of_long_ago_is_history_and_not_sent(run):
    with receiving() as there:
        sender = sender_of(run, [webhook()], {"MY_WEBHOOK": there.url()})
        sender.put(an_alert(1, wall=WALL - STALE_S - 1))
        sender.put(an_alert(2, wall=None))
        sender.close(30)
        assert there.next().json()["alert"]["step"] == 2
        assert there.requests.empty()


def test_a_sink_gets_alerts_of_its_severity_and_above(run):
    with receiving() as there:
        sender = Sender(
            [webhook(severity="error")],
            run,
            wall=lambda: WALL,
            environment={"MY_WEBHOOK": there.url()},
        )
        for number, severity in enumerate(("info", "warning", "critical", "odd")):
            sender.put(an_alert(number, severity=severity))
        sender.close(30)
        assert there.next().json()["severity"] == "critical"
        assert there.requests.empty()


def test_put_returns_while_a_sink_hangs_and_the_others_are_served(run, monkeypatch):
    hangs = threading.Event()
    is_in = threading.Event()

    def hang(*_: Any, **__: Any) -> None:
        is_in.set()
        hangs.wait(60)
        raise DeliveryError("no answer")

    from albor_core.andon.channels import send

    monkeypatch.setattr(send, "post_json", hang)
    out = run.path / "out.json"
    copy = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    command = Sink("copy", "command", argv=(sys.executable, "-c", copy, str(out)))
    environment = {"MY_WEBHOOK": "https://hooks.test/x"}
    sender = sender_of(run, [webhook(), command], environment)
    try:
        sender.put(an_alert(0))
        assert is_in.wait(30)
        for number in range(1, 500):  # would take an hour and a half if each waited for the sink
            sender.put(an_alert(number))
        sender._channels[1].close()
        sender._channels[1].join(60)
        assert json.loads(out.read_text())["schema"] == "albor.notice/1"
        assert [state.name for state in sender.states()] == ["hook", "copy"]
    finally:
        hangs.set()
        sender.close(30)


def test_a_sink_whose_variable_is_not_set_is_dead_from_the_first_moment(run):
    sender = sender_of(run, [webhook()], {})
    (state,) = sender.states()
    assert (state.ok, state.why) == (False, "MY_WEBHOOK is not set")
    assert state.since is not None


def test_what_a_terminal_serves_is_listed_and_never_sent_from_here(run, capfd):
    sender = Sender(
        [Sink("desktop", "desktop"), Sink("console", "console")],
        run,
        wall=lambda: WALL,
        environment={},
    )
    sender.put(an_alert())
    sender.close(0)
    assert [(state.name, state.ok) for state in sender.states()] == [
        ("desktop", True),
        ("console", True),
    ]
    assert capfd.readouterr() == ("", "")


def test_a_command_gets_the_alert_as_json_and_as_words_and_no_shell(run):
    out = run.path / "out.json"
    code = (
        "import json, os, sys; json.dump({'in': json.load(sys.stdin), 'env': dict(os.environ),"
        " 'argv': sys.argv[2:]}, open(sys.argv[1], 'w'))"
    )
    argv = (sys.executable, "-c", code, str(out), "$(touch x); `touch y`", "{message}")
    sender = sender_of(run, [Sink("mine", "command", argv=argv)], {"PATH": "/bin"})
    sender.put(an_alert(3, message="$(touch z) loss\r\n> 10"))
    sender.close(60)
    got = json.loads(out.read_text())
    assert got["argv"] == ["$(touch x); `touch y`", "{message}"]
    assert got["in"]["alert"]["id"] == "loss-gt-10@1.3"
    words = {name: value for name, value in got["env"].items() if name.startswith("ALBOR_")}
    assert words["ALBOR_ALERT_MESSAGE"] == "$(touch z) loss\u240d\u240a> 10"
    assert words["ALBOR_ALERT_SEVERITY"] == "error"
    assert words["ALBOR_RUN_ID"] == "demo-1"
    assert sender.states()[0].ok


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ((sys.executable, "-c", "raise SystemExit(3)"), f"{sys.executable!r} exited with 3"),
        (("/nowhere/program",), "cannot start '/nowhere/program': No such file or directory"),
    ],
)
def test_a_command_that_fails_is_a_dead_sink_and_is_not_run_again_for_that_alert(argv, why, run):
    sender = sender_of(run, [Sink("mine", "command", argv=argv)], {})
    sender.put(an_alert())
    sender.close(60)
    (state,) = sender.states()
    assert (state.ok, state.why) == (False, f"{why}; 1 alert was dropped")


@pytest.mark.slow
def test_a_command_that_never_ends_or_never_stops_talking_is_ended(run):
    from albor_core.andon.channels.command import OUTPUT_BYTES, run_command

    loud = "import sys\nwhile True: sys.stdout.write('x' * 4096)"
    ended = run_command([sys.executable, "-c", loud], b"y" * (1 << 20), {}, timeout_s=0.5)
    assert ended.problem == "killed after 0.5 s"
    assert len(ended.output) <= OUTPUT_BYTES
