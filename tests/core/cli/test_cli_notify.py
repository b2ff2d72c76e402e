"""Being told of alerts outside of Albor: sinks of a config and of rules.yaml, tried and watched."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from cli_user import User, valid, validate, wait_until, write_config

from albor_core.run.home.new_run import create_run

SECRET = "s3cretpathpart"
SLEEPS = (sys.executable, "-c", "import time; time.sleep(120)")


class Receiver:
    """A webhook on this host: the documents that it got, and what it says to the next one."""

    def __init__(self) -> None:
        self.got: Queue[dict[str, Any]] = Queue()
        self.status, self.answer = 200, b""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.got.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(receiver.status)
                self.send_header("Content-Length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook/{SECRET}"

    def entry(self, **more: str) -> str:
        """Of a list of sinks, as YAML."""
        words = {"kind": "webhook", "url": f"'{self.url}'", **more}
        words |= {"allow_http": "true", "allow_private": "true"}
        return "{" + ", ".join(f"{k}: {v}" for k, v in words.items()) + "}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


def rules_file(user: User, *entries: str) -> None:
    user.home.mkdir(mode=0o700, exist_ok=True)
    text = "".join(f"- {entry}\n" for entry in entries)
    (user.home / "rules.yaml").write_text(f"notify:\n{text}")


def holders(*folders: Path) -> list[Path]:
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def test_a_test_message_arrives_and_the_answer_is_said(user, receiver):
    rules_file(user, receiver.entry(format="slack"), "{kind: desktop}")
    done = user.quick("alerts", "notify-test")
    assert done.code == 0
    assert done.out.startswith("ok  slack: took the message in ")
    assert "-   desktop: is shown on a terminal, and stderr is none here" in done.out
    assert receiver.got.get(timeout=60)["text"].startswith("[test] test on ")
    document = valid(user.quick("alerts", "notify-test", "--sink", "slack", "--json"))
    assert [(sink["name"], sink["ok"]) for sink in document["sinks"]] == [("slack", True)]
    assert SECRET not in done.out + done.err + json.dumps(document)


def test_a_refused_test_message_ends_with_a_code_and_says_why_without_the_url(user, receiver):
    receiver.status, receiver.answer = 403, f"no {SECRET}".encode()
    rules_file(user, receiver.entry())
    done = user.quick("alerts", "notify-test")
    assert (done.code, done.out) == (1, "BAD webhook: answered 403: no [redacted]\n")


def test_an_address_that_is_not_public_gets_no_test_message_unless_that_is_allowed(user, receiver):
    rules_file(user, receiver.entry().replace(", allow_private: true", ""))
    done = user.quick("alerts", "notify-test", "--json")
    assert done.code == 1
    (sink,) = validate(done.document)["sinks"]
    assert "it leads to 127.0.0.1, a private address" in sink["detail"]
    assert receiver.got.empty()


def test_where_no_sink_is_it_says_where_to_write_one(user, receiver):
    done = user.quick("alerts", "notify-test", "--json")
    assert (done.code, done.error["code"]) == (3, "not_found")
    assert "notify:" in done.error["hint"]
    rules_file(user, receiver.entry(format="ntfy"))
    done = user.quick("alerts", "notify-test", "--sink", "slack", "--json")
    assert (done.code, done.error["hint"]) == (3, "one of ntfy")


def test_a_wrong_rules_file_is_one_message_with_its_field(user, receiver):
    rules_file(user, receiver.entry(severity="loud"))
    done = user.quick("alerts", "notify-test", "--json")
    assert done.code == 2
    assert "rules.yaml: notify.0.severity: must be one of" in done.error["message"]
    assert SECRET not in done.out


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{kind: webhook, url_env: MY_WEBHOOK}", "webhook: its URL must begin with https://"),
        ("{kind: webhook, url: 'https://10.0.0.1/x'}", "webhook: it leads to 10.0.0.1, a private"),
        ("{kind: webhook, format: ntfy, url: 'https://ntfy.sh/'}", "ntfy: its URL ends without a"),
        ("{kind: command, argv: [not-there-x]}", "command: there is no program 'not-there-x'"),
        ("{kind: command, argv: [/not/there/x]}", "command: there is no program '/not/there/x'"),
        ("{kind: command, argv: [/etc/passwd]}", "command: '/etc/passwd' cannot be executed"),
    ],
)
def test_doctor_names_a_sink_that_can_never_work_before_its_first_alert(
    user, monkeypatch, entry, why
):
    monkeypatch.setenv("MY_WEBHOOK", f"file:///{SECRET}")
    rules_file(user, entry, "{kind: command, name: sound, argv: [sh, -c, 'true']}")
    done = user.quick("doctor", "--json")
    assert done.code == 1
    bad, good = (one for one in validate(done.document)["checks"] if one["name"] == "sinks")
    assert (bad["ok"], bad["detail"][: bad["detail"].index(":")]) == (
        False,
        f"no alert can arrive at {why.partition(':')[0]}",
    )
    assert why in bad["detail"]
    assert (good["ok"], good["detail"].partition(";")[0]) == (True, "sound")
    assert SECRET not in done.out


def test_doctor_doubts_a_command_that_writes_into_a_folder_that_is_not_there(user):
    rules_file(user, "{kind: command, argv: [tee, -a, /not/there/alerts.log]}")
    (check,) = (
        one for one in user.quick("doctor", "--json").document["checks"] if one["name"] == "sinks"
    )
    assert check["ok"] is None
    assert "the folder of '/not/there/alerts.log' is not there" in check["detail"]


@pytest.mark.parametrize("text", ["- loss > 10\n", "loss > 10\n", "7\n"])
@pytest.mark.parametrize("of_run", [False, True])
def test_a_rules_file_that_is_not_a_mapping_is_named_with_its_fault(user, text, of_run):
    user.home.mkdir(mode=0o700, exist_ok=True)
    run = create_run(user.folder, "told", experiment="e", name="told", kind="track", argv=[])
    (user.home / "rules.yaml").write_text(text)
    done = user.quick("alerts", "notify-test", *[str(run.path)] * of_run, "--json")
    assert done.code == 2
    assert done.error["message"] == f"{user.home / 'rules.yaml'}: is not a mapping"
    assert done.error["hint"]


@pytest.mark.slow
def test_alerts_of_a_training_are_sent_and_the_url_of_its_config_is_nowhere(user, data, receiver):
    rule = "{condition: loss > 1, action: warn, message: '[/red] above one'}"
    sinks = f"notify: [{receiver.entry(format='discord')}, {{kind: console}}]"
    monitoring = f"monitoring: {{system: {{interval: 100}}, alerts: [{rule}], {sinks}}}"
    write_config(user.folder / "told.yaml", data, monitoring=monitoring)
    done = user.albor("train", "apply", "told.yaml", "--name", "told", "--json")
    assert done.code == 0, done
    (line,) = [line for line in done.err.splitlines() if "above one" in line]
    assert "[warning] told on" in line
    said = receiver.got.get(timeout=60)["content"]
    assert "told on" in said
    assert "[/red] above one" in said
    shown = user.quick("runs", "show", "told", "--json").document
    assert [(sink["name"], sink["ok"]) for sink in shown["sinks"]] == [
        ("discord", True),
        ("console", True),
    ]
    tested = user.quick("alerts", "notify-test", "told")
    assert tested.code == 0, tested
    outputs = [done.out, done.err, tested.out, json.dumps(shown)]
    assert not any(SECRET in text for text in outputs)
    run = user.run("told")
    assert holders(run.path) == []
    assert holders(user.home) == [user.home / "sinks" / "told.json"]


@pytest.mark.slow
def test_a_dead_sink_of_a_run_at_work_is_named_by_doctor_and_runs_show(user):
    rules_file(user, "{kind: webhook, url_env: NOT_SET_WEBHOOK, format: slack}")
    words = ("guard", "run", "--name", "live", "--detach", "--", *SLEEPS)
    assert user.albor(*words).code == 0
    try:
        show = lambda: user.quick("runs", "show", "live", "--json").document.get("sinks")  # noqa: E731
        (sink,) = wait_until(show)
        assert (sink["name"], sink["ok"]) == ("slack", False)
        assert sink["why"] == "NOT_SET_WEBHOOK is not set"
        assert "slack is dead since" in user.quick("runs", "show", "live").out
        done = user.quick("doctor")
        assert done.code == 1
        assert "alerts of live do not arrive at slack: NOT_SET_WEBHOOK is not set" in done.out
        assert "albor alerts notify-test live" in done.out
    finally:
        user.albor("guard", "stop", "live")
        wait_until(lambda: not user.quick("monitor", "--once").out)
