"""A webhook is posted to where its name says and nowhere else, and its URL is never repeated."""

from __future__ import annotations

import json
import socket
import threading

import jsonschema
import pytest
from receiver import an_alert, receiving

from albor_core.andon.channels.delivery_error import DeliveryError
from albor_core.andon.channels.message import About, NoticeWriter, request_of
from albor_core.andon.channels.webhook import MOST_BYTES, post_json
from albor_core.documents.json_schema import schema_of

SECRET = "s3cretpathpart"
PUBLIC = "93.184.215.14"


def refused(url: str, **options) -> str:
    with pytest.raises(DeliveryError) as caught:
        post_json(url, b"{}", **options)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    return caught.value.why


def no_connection(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Have every connection refused, and say to where one was tried."""
    tried: list[tuple[str, int]] = []

    def connect(self: socket.socket, place: tuple[str, int]) -> None:
        tried.append(place)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket.socket, "connect", connect)
    return tried


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.9",
        "192.168.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "169.254.169.254",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "2002:7f00:1::",
        "64:ff9b::a01:203",
        "not an address",
    ],
)
def test_a_name_that_leads_to_an_address_that_is_not_public_is_refused(address, monkeypatch):
    tried = no_connection(monkeypatch)
    refused(f"https://hooks.test/{SECRET}", resolver=lambda host, port: [address])
    assert tried == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "169.254.169.254", "localhost", "2130706433", "0x7f.1", "127.1"]
)
def test_a_private_host_is_refused_however_it_is_written(host, monkeypatch):
    tried = no_connection(monkeypatch)
    why = refused(f"https://{host}/{SECRET}")
    assert "which no webhook has" in why or "private" in why or "cannot be resolved" in why
    assert tried == []


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1"])
def test_no_permission_opens_the_addresses_that_no_webhook_has(address, monkeypatch):
    tried = no_connection(monkeypatch)
    refused(f"https://x.test/{SECRET}", resolver=lambda *_: [address], allow_private=True)
    assert tried == []


def test_a_name_is_resolved_once_and_the_connection_goes_to_that_address(monkeypatch):
    tried = no_connection(monkeypatch)
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    refused(f"https://rebind.test/{SECRET}", resolver=lambda *_: next(answers))
    assert tried == [(PUBLIC, 443)]
    assert next(answers) == ["127.0.0.1"]


def test_one_private_address_among_public_ones_refuses_them_all(monkeypatch):
    tried = no_connection(monkeypatch)
    refused(f"https://both.test/{SECRET}", resolver=lambda *_: [PUBLIC, "10.0.0.1"])
    assert tried == []


@pytest.mark.parametrize(
    "url",
    [
        f"file:///etc/{SECRET}",
        f"gopher://hooks.test/{SECRET}",
        f"ftp://hooks.test/{SECRET}",
        f"http://hooks.test/{SECRET}",
        f"https://user:pw@hooks.test/{SECRET}",
        f"https://user@hooks.test/{SECRET}",
        f"https:///{SECRET}",
        f"https://hooks.test:0/{SECRET}",
        f"https://hooks.test:99999/{SECRET}",
        f"https://hooks.test/{SECRET}\r\nX-Evil: 1",
        f"https://hooks.test/{SECRET} HTTP/1.1",
        f"https://hooks.test\\@10.0.0.1/{SECRET}",
        f"//hooks.test/{SECRET}",
        f"https://[::1/{SECRET}",
        f"https://hooks.test/{SECRET}" + "x" * 3000,
        "",
    ],
)
def test_what_is_no_plain_https_url_is_refused_before_its_name_is_looked_up(url):
    refused(url, resolver=lambda *_: pytest.fail("looked up"))


def test_a_redirect_is_not_followed(monkeypatch):
    with receiving() as there, receiving() as private:
        there.status, there.headers = 302, {"Location": private.url()}
        why = refused(there.url(), allow_http=True, allow_private=True)
        assert why == "answered 302; redirects are not followed"
        assert private.requests.empty()


def test_proxies_of_the_environment_are_not_asked(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with receiving() as there:
        post_json(there.url(), b"{}", allow_http=True, allow_private=True)
        assert there.next().body == b"{}"


def test_a_refusal_is_repeated_without_what_it_says_of_the_url():
    with receiving() as there:
        there.status, there.answer = 404, f"no topic {SECRET} here\x1b[31m".encode()
        why = refused(there.url(), allow_http=True, allow_private=True)
        assert why == "answered 404: no topic [redacted] here\u241b[31m"


def test_a_receiver_that_asks_for_time_is_given_it():
    with receiving() as there:
        there.status, there.headers = 429, {"Retry-After": "77"}
        with pytest.raises(DeliveryError) as caught:
            post_json(there.url(), b"{}", allow_http=True, allow_private=True)
        assert (caught.value.retry_after_s, caught.value.is_final) == (77.0, False)


def test_an_answer_without_end_is_cut(monkeypatch):
    """A socket that always has more is read for 64 KiB."""
    ours, theirs = socket.socketpair()
    given = 0
    monkeypatch.setattr("albor_core.andon.channels.webhook._connected", lambda *_: ours)

    def talk() -> None:
        nonlocal given
        theirs.recv(65536)
        theirs.sendall(b"HTTP/1.1 500 broken\r\n\r\n")
        try:
            while True:
                given += theirs.send(b"x" * 4096)
        except OSError:
            pass

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        why = refused(
            f"https://a.test/{SECRET}".replace("https", "http"),
            allow_http=True,
            resolver=lambda *_: [PUBLIC],
        )
    finally:
        theirs.shutdown(socket.SHUT_RDWR)
        thread.join()
        theirs.close()
    assert why.startswith("answered 500: xxx")
    assert len(why) < 300
    assert given < MOST_BYTES + (4 << 20)  # what the kernel's buffers hold besides


def test_an_answer_that_never_comes_is_a_failure(monkeypatch):
    monkeypatch.setattr("albor_core.andon.channels.webhook.TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        url = f"http://127.0.0.1:{port}/{SECRET}"
        assert "no answer within" in refused(url, allow_http=True, allow_private=True)


def test_an_answer_that_is_not_http_is_a_failure(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as odd:

        def talk() -> None:
            sock, _ = odd.accept()
            with sock:
                sock.recv(65536)
                sock.sendall(b"220 mail.test ESMTP\r\n\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        url = f"http://127.0.0.1:{odd.getsockname()[1]}/{SECRET}"
        assert refused(url, allow_http=True, allow_private=True) == "its answer is not HTTP"
        thread.join()


WRITER = NoticeWriter(About("demo-1", "demo", "sweep", "box"), {}, ())
EXPECTED = {
    "slack": (
        "/services/T000/B000/s3cretpathpart",
        {"text": "[error] demo on box: loss &gt; 10 (step 120); pause"},
    ),
    "discord": (
        "/services/T000/B000/s3cretpathpart",
        {
            "content": "[error] demo on box: loss > 10 (step 120); pause",
            "allowed_mentions": {"parse": []},
        },
    ),
    "ntfy": (
        "/services/T000/B000/",
        {
            "topic": "s3cretpathpart",
            "title": "[error] demo on box",
            "message": "loss > 10 (step 120); pause",
            "priority": 4,
        },
    ),
    "json": (
        "/services/T000/B000/s3cretpathpart",
        {
            "schema": "albor.notice/1",
            "run": {"id": "demo-1", "name": "demo", "experiment": "sweep", "host": "box"},
            "severity": "error",
            "text": "[error] demo on box: loss > 10 (step 120); pause",
            "alert": {
                "id": "loss-gt-10@1.120",
                "rule": "loss-gt-10",
                "kind": "rule",
                "severity": "error",
                "state": "fired",
                "action": "pause",
                "metric": "train/loss",
                "value": 12.5,
                "threshold": 10.0,
                "message": "loss > 10",
                "step": 120,
            },
            "time": 1_700_000_120.0,
        },
    ),
}


@pytest.mark.parametrize("form", EXPECTED)
def test_a_receiver_gets_exactly_the_body_of_its_format(form):
    with receiving() as there:
        url, body = request_of(WRITER.notice(an_alert(120)), form, there.url())
        post_json(url, body, allow_http=True, allow_private=True)
        request = there.next()
        path, document = EXPECTED[form]
        assert (request.path, request.json()) == (path, document)
        assert request.headers == {
            "Host": f"127.0.0.1:{there.port}",
            "User-Agent": "albor",
            "Content-Type": "application/json",
            "Accept": "*/*",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }


@pytest.mark.parametrize("form", EXPECTED)
def test_a_line_break_in_a_name_adds_no_header_and_no_line(form):
    about = About("demo-1", "demo\r\nX-Evil: 1\r\n\r\n<!channel> @everyone", "", "bo\nx")
    notice = NoticeWriter(about, {}, ()).notice(an_alert(1, message="a\r\nb\x1b]0;title\x07"))
    with receiving() as there:
        url, body = request_of(notice, form, there.url())
        post_json(url, body, allow_http=True, allow_private=True)
        request = there.next()
    assert "X-Evil" not in request.headers
    texts = json.dumps(request.json(), ensure_ascii=False)
    assert not any(character in texts for character in ("\\n", "\\r", "\\u001b", "\x1b"))
    if form == "slack":
        assert "<!channel>" not in texts


def test_secrets_are_taken_out_of_everything_that_is_said():
    environment = {"HF_TOKEN": "hf_aaaaBBBBcccc1111", "PATH": "/bin"}
    url = f"https://hooks.test/{SECRET}"
    about = About("demo", "demo hf_aaaaBBBBcccc1111", f"of {url}", "box")
    alert = an_alert(1, message=f"password: hunter22 at {url}", rule="--token=abcdefghij")
    notice = NoticeWriter(about, environment, (url,)).notice(alert)
    for form in EXPECTED:
        body = request_of(notice, form, "https://a.test/b")[1].decode()
        for secret in ("hf_aaaaBBBBcccc1111", SECRET, "hunter22", "abcdefghij"):
            assert secret not in body, form


def test_a_figure_that_json_lacks_is_a_word():
    notice = WRITER.notice(an_alert(1, value=float("nan"), threshold="inf"))
    said = json.loads(request_of(notice, "json", "https://a.test/")[1])["alert"]
    assert (said["value"], said["threshold"]) == ("nan", "inf")


@pytest.mark.parametrize(
    "notice",
    [
        WRITER.notice(an_alert(120)),
        WRITER.notice({"state": "cleared", "value": None}),
        WRITER.summary([an_alert(1), an_alert(2)], 3),
        WRITER.test(1_700_000_000.0),
    ],
    ids=["alert", "hardly an alert", "summary", "test"],
)
def test_a_notice_is_the_document_that_its_schema_describes(notice):
    schema = schema_of("albor.notice")
    jsonschema.validate(notice.fields, schema)
    assert set(notice.fields) <= set(schema["properties"])
    for part in ("run", "alert", "summary"):
        if part in notice.fields:
            assert set(notice.fields[part]) == set(schema["properties"][part]["properties"])
